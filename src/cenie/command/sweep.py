"""Many runs, each in a process of its own: what is left to do of each, and a pool that does it here.

A task knows from its run directory how far it is, so that every task can be given again after a stop, a crash
or a kill: a run that was begun is resumed to the same bits, and what is finished is not repeated.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields
from pathlib import Path

from cenie.command.exit_codes import REFUSED
from cenie.rundir.asked import Asked, is_played
from cenie.rundir.documents import read_summary
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.metrics import last_row
from cenie.system.durable import open_regular
from cenie.system.signals import GracefulStop

PROGRAM = (sys.executable, "-m", "cenie.command.child")
_TAIL = 2**16
_LOG_LINES = 5
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class RunTask:
    """One run: how it is begun, and the evaluations of its last checkpoints when it is finished.

    It ends with its `updates` or `env_steps`; with the options `longer` a finished run goes on to there.
    `again` are the options that commands on a run directory need (`--domain`, for a domain of one's own).
    """

    directory: Path
    begin: tuple[str, ...]
    evaluations: tuple[Asked, ...]
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


def next_command(task: RunTask) -> list[str] | None:
    """The next task, as arguments of `cenie`; None if all is done.

    Raises `RunDirectoryError` if the directory does not say.
    """
    files = RunDirectory(task.directory)
    if not os.path.lexists(files.config):
        return list(task.begin)
    counts = read_counts(files)
    if counts is None or not counts.reach(task):
        return ["train", "--resume", str(task.directory), *task.longer, *task.again]
    for asked in task.evaluations:
        if not is_played(task.directory, asked, counts.cycles):
            return ["evaluate", str(task.directory), *asked.options, *task.again]
    return None


@dataclass(frozen=True)
class Counts:
    """The progress of a finished run, in counts."""

    cycles: int
    updates: int
    env_steps: int

    def reach(self, task: RunTask) -> bool:
        """Whether this is all that is asked for now: a finished run may be one of a smaller budget."""
        steps = task.env_steps
        return self.updates >= task.updates or (steps is not None and self.env_steps >= steps)


def read_counts(files: RunDirectory) -> Counts | None:
    """The counts in a run's summary; None if it has none yet.

    Raises `RunDirectoryError` if the file is there and is no summary.
    """
    summary = read_summary(files.summary)
    if summary is None:
        return None
    names = [field.name for field in fields(Counts)]
    if any(type(summary.get(name)) is not int for name in names):
        raise RunDirectoryError(
            f"{files.summary} is no summary of a run: it lacks a whole number {', '.join(names)}; remove it, "
            "and the run writes it again"
        )
    return Counts(*(summary[name] for name in names))


def _is_trained(task: RunTask) -> bool:
    counts = read_counts(RunDirectory(task.directory))
    return counts is not None and counts.reach(task)


def perform(
    task: RunTask,
    started: Callable[[subprocess.Popen], None] = lambda process: None,
    is_stopped: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda message: None,
) -> None:
    """Do all that is left of a task. `started` gets every process, so that it can be told to stop.

    A run that another process is busy with is waited for, and `tell` is told so: it may be one of an earlier
    call that was killed, and that writes its checkpoint. Raises `TaskFailed` if a command fails, and
    `Stopped` if training, or the waiting, was told to stop.
    """
    task.directory.parent.mkdir(parents=True, exist_ok=True)
    done: list[list[str]] = []
    while True:
        _wait_for_others(task, is_stopped, tell)
        command = next_command(task)
        if command is None:
            return
        if command in done:
            raise TaskFailed(_failure(task, command, "left this undone"))
        code = _carry_out(task, command, started)
        if code == REFUSED and RunDirectory(task.directory).in_use_by():
            continue  # Somebody else was quicker.
        if code == 0 and command[0] == "train" and not _is_trained(task):
            raise Stopped(f"{task.directory} was stopped")
        if code:
            raise TaskFailed(_failure(task, command, f"ended with {code}"))
        done.append(command)


def _wait_for_others(task: RunTask, is_stopped: Callable[[], bool], tell: Callable[[str], None]) -> None:
    told = False
    while holder := RunDirectory(task.directory).in_use_by():
        if is_stopped():
            raise Stopped(f"{task.directory} is in use by {holder}")
        if not told:
            tell(f"waiting for {holder}, which is busy with {task.directory}")
        told = True
        time.sleep(_POLL_SECONDS)


def _carry_out(task: RunTask, command: list[str], started: Callable[[subprocess.Popen], None]) -> int:
    """The exit code of a command, which adds what it prints to the task's log."""
    with (
        open(open_regular(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log,
        subprocess.Popen(
            [*PROGRAM, *command],
            stdin=subprocess.PIPE,  # Open for as long as we live, which `command/child.py` watches.
            stdout=log,
            stderr=log,
            # Ctrl-C is for us to pass on, once: a second signal would not wait for a checkpoint.
            start_new_session=True,
        ) as process,
    ):
        started(process)
        return process.wait()


def _failure(task: RunTask, command: list[str], how: str) -> str:
    return f"{task.directory}: `cenie {' '.join(command[:3])} ...` {how}\n{_end_of(task.log)}"


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


def updates_of(task: RunTask) -> int:
    """The number of updates of a run, by the last row of its metrics."""
    try:
        if _is_trained(task):
            return task.updates
    except (OSError, RunDirectoryError):
        return 0
    updates = last_row(RunDirectory(task.directory).metrics).get("updates")
    return min(updates, task.updates) if isinstance(updates, int) else 0


@dataclass(frozen=True)
class Outcome:
    """The end of a task: without an error, or with one; `stopped` if it was told to."""

    task: RunTask
    error: str = ""
    stopped: bool = False


def run_tasks(
    tasks: Sequence[RunTask],
    jobs: int,
    progress: Callable[[], None],
    tell: Callable[[str], None] = lambda message: None,
) -> Iterator[Outcome]:
    """Perform all tasks, `jobs` at a time, and tell how each ended as soon as it does.

    `progress` is called about once a second, and `tell` with what a user should know. A failed task does not
    stop the others. SIGINT or SIGTERM lets the runs write a checkpoint, and no further one begins; call it on
    the main thread.
    """
    running: set[subprocess.Popen] = set()
    lock, stop = threading.Lock(), threading.Event()

    def started(process: subprocess.Popen) -> None:
        with lock:
            running.add(process)
        if stop.is_set():
            process.terminate()

    def one(task: RunTask) -> Outcome:
        if stop.is_set():
            return Outcome(task, stopped=True)
        try:
            perform(task, started, stop.is_set, tell)
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
