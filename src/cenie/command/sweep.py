"""Many runs, each in a process of its own: what is left to do of each, and a pool that does it here.

A task knows from its run directory how far it is, so that every task can be given again after a stop, a crash
or a kill: a run that was begun is resumed to the same bits, and what is finished is not repeated.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from cenie.run.directory import RunDirectory, RunDirectoryError, read_json
from cenie.run.durable import open_regular
from cenie.run.signals import GracefulStop

PROGRAM = (sys.executable, "-m", "cenie.command.cli")
_TAIL = 2**16
_LOG_LINES = 5
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Task:
    """One run: how it is begun, and which suites its last checkpoints play when it is finished.

    It ends with its `updates` or `env_steps`; with the options `longer` a finished run goes on to there.
    `again` are the options that commands on a run directory need (`--domain`, for a domain of one's own).
    """

    directory: Path
    begin: tuple[str, ...]
    suites: tuple[str, ...]
    evaluate: tuple[str, ...]
    updates: int
    env_steps: int | None = None
    longer: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.log")


class TaskFailed(Exception):
    """A command of a task ended with an error; the message says which, and what it said last."""


class Stopped(Exception):
    """Training ended before its last update because it was told to."""


def next_command(task: Task) -> list[str] | None:
    """What has to be done next, as arguments of `cenie`; None if all is done."""
    files = RunDirectory(task.directory)
    if not files.config.exists():
        return list(task.begin)
    if not _is_trained(task):
        return ["train", "--resume", str(task.directory), *task.longer, *task.again]
    cycles = read_json(files.summary).get("cycles")
    for suite in task.suites:
        if not any(task.directory.glob(f"evaluation-{suite}-seed*-cycle{cycles}.csv")):
            return ["evaluate", str(task.directory), "--suite", suite, *task.evaluate, *task.again]
    return None


def _is_trained(task: Task) -> bool:
    """Whether the run is finished, and had all that is asked for now: it may be one of a smaller budget."""
    file = RunDirectory(task.directory).summary
    if not file.exists():
        return False
    summary = read_json(file)
    updates, env_steps = summary.get("updates", 0), summary.get("env_steps", 0)
    return updates >= task.updates or (task.env_steps is not None and env_steps >= task.env_steps)


def perform(task: Task, started: Callable[[subprocess.Popen], None] = lambda process: None) -> None:
    """Do all that is left of a task. `started` gets every process, so that it can be told to stop.

    Raises `TaskFailed` if a command fails, and `Stopped` if training was told to stop.
    """
    task.directory.parent.mkdir(parents=True, exist_ok=True)
    while (command := next_command(task)) is not None:
        with task.log.open("ab") as log:
            process = subprocess.Popen(
                [*PROGRAM, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for us to pass on, once: a second signal would not wait for a checkpoint.
                start_new_session=True,
            )
            started(process)
            code = process.wait()
        if code == 0 and command[0] == "train" and not _is_trained(task):
            raise Stopped(f"{task.directory} was stopped")
        if code or next_command(task) == command:
            words = " ".join(command[:3])
            raise TaskFailed(f"{task.directory}: `cenie {words} ...` ended with {code}\n{_end_of(task.log)}")


def _end_of(log: Path) -> str:
    """The last lines of a log, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    shown = [line for line in lines if line.strip()][-_LOG_LINES:]
    return "\n".join(f"    {line}" for line in shown)


def updates_of(task: Task) -> int:
    """How many updates a run has had, by the last row of its metrics."""
    if _is_trained(task):
        return task.updates
    try:
        with open(open_regular(RunDirectory(task.directory).metrics, os.O_RDONLY), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return min(int(json.loads(line)["updates"]), task.updates)
    return 0


@dataclass(frozen=True)
class Outcome:
    """How a task ended: without an error, or with one; `stopped` if it was told to."""

    task: Task
    error: str = ""
    stopped: bool = False


def run_tasks(tasks: Sequence[Task], jobs: int, progress: Callable[[], None]) -> Iterator[Outcome]:
    """Perform all tasks, `jobs` at a time, and tell how each ended as soon as it does.

    `progress` is called about once a second. A failed task does not stop the others. SIGINT or SIGTERM lets
    the runs write a checkpoint, and no further one begins; call it on the main thread.
    """
    running: set[subprocess.Popen] = set()
    lock, stop = threading.Lock(), threading.Event()

    def started(process: subprocess.Popen) -> None:
        with lock:
            running.add(process)
        if stop.is_set():
            process.terminate()

    def one(task: Task) -> Outcome:
        if stop.is_set():
            return Outcome(task, stopped=True)
        try:
            perform(task, started)
        except Stopped:
            return Outcome(task, stopped=True)
        except (TaskFailed, RunDirectoryError, OSError) as error:
            return Outcome(task, error=str(error), stopped=stop.is_set())
        return Outcome(task)

    with GracefulStop() as signals, ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(one, task) for task in tasks}
        while waiting:
            finished, waiting = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
            progress()
            if signals.requested and not stop.is_set():
                stop.set()
                with lock:
                    for process in running:
                        process.terminate()
