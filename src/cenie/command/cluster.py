"""Tasks as jobs of a cluster, through submitit: Slurm, or processes of this machine that outlive the command.

A job that is preempted, or that reaches its time limit, tells its run to write a checkpoint, and is queued
again; the run then goes on to the same bits. submitit keeps jobs in a folder of its own, in a form that is
carried out when it is read: trust that folder as you trust the code.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import submitit

from cenie.command.sweep import Outcome, RunTask, Stopped, perform

_running: list[subprocess.Popen] = []
"""The process of the job that this process carries out; not a part of the job, which is stored."""


class Job:
    """A task that can be queued again: what is left of it is read off its run directory."""

    def __init__(self, task: RunTask):
        self.task = task

    def __call__(self) -> str:
        """Perform the task; returns an empty text, or why training ended early."""
        # Slurm also sends this to all steps of a job that it preempts; submitit then queues the job again.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            perform(self.task, _running.append)
        except Stopped as error:
            return str(error)
        return ""

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Called by submitit before the job has to leave: stop the run, and come again."""
        for process in _running:
            process.terminate()
            # This interrupts a call of `process.wait`, which holds a lock that a second call would wait for.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return submitit.helpers.DelayedSubmission(Job(self.task))


def submit(
    tasks: Sequence[RunTask], folder: Path, cluster: str, options: dict[str, Any]
) -> list[submitit.Job]:
    """Queue a job for each task; `options` are passed to submitit's `update_parameters`."""
    executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    executor.update_parameters(name="cenie", tasks_per_node=1, **options)
    return [executor.submit(Job(task)) for task in tasks]


def outcomes(
    tasks: Sequence[RunTask],
    jobs: Sequence[submitit.Job],
    progress: Callable[[], None],
    pause: Callable[[], Any],
) -> Iterator[Outcome]:
    """Yield the outcome of each job as soon as it ends; in between `progress` and `pause` are called."""
    waiting = list(zip(tasks, jobs, strict=True))
    while waiting:
        for pair in list(waiting):
            task, job = pair
            if job.done():
                waiting.remove(pair)
                error = job.exception()
                if error is not None:
                    yield Outcome(task, error=f"{task.directory}: job {job.job_id}: {error}")
                else:
                    text = job.result()
                    yield Outcome(task, error=text, stopped=bool(text))
        progress()
        if waiting:
            pause()
