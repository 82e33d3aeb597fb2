"""What a person sees while a run goes on: one live line, notes, and the table at the end."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from cenie.run.output import printable

_COMPILING = "compiling ... (up to a minute)"
_REPORT_EVERY = 10.0
"""Seconds between two reports, where lines stay."""
_PATIENCE = 60.0
"""Seconds of silence after which a line says that the work goes on: a compilation may take minutes."""


class Progress:
    """Writes to a console. On a terminal the line is live; in a file a new line is printed now and then.

    `levels_before_replay` is how many levels the buffer must hold before a method that learns from
    replayed levels only can begin to learn.
    """

    def __init__(
        self,
        console: Console,
        total_updates: int,
        levels_before_replay: int = 0,
        total_env_steps: int | None = None,
    ):
        self._console = console
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} updates"),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=total_updates, detail=_COMPILING)
        self._total = total_updates
        self._total_env_steps = total_env_steps
        self._levels_before_replay = levels_before_replay
        self._printed = self._heard = time.monotonic()
        self._began: tuple[float, int, int] | None = None
        self._score = ""
        self._turn_to("compiling")
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._break_silence, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        self._bar.start()
        if not self._console.is_terminal:
            self._say(_COMPILING)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()
        self._bar.stop()

    def note(self, message: str) -> None:
        """A line that stays."""
        self._say(printable(message), style="yellow")

    def resumed(self, updates: int) -> None:
        """The run goes on where it was; the time left is reckoned from here."""
        self._bar.reset(self._task, total=self._total, completed=updates, detail=_COMPILING)

    def _say(self, line: str, style: str | None = None) -> None:
        """One line, however long it is: a file has no width."""
        self._heard = time.monotonic()
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    def _turn_to(self, work: str) -> None:
        self._work, self._since = work, time.monotonic()

    def _break_silence(self) -> None:
        """Runs in a thread, which goes on while XLA compiles."""
        while not self._ended.wait(self._heard + _PATIENCE - time.monotonic()):
            if time.monotonic() >= self._heard + _PATIENCE:
                self._remind()

    def _remind(self) -> None:
        """Say what has been going on for so long."""
        self._heard = time.monotonic()
        line = f"still {self._work} (for {(self._heard - self._since) / 60:.0f} min)"
        if self._console.is_terminal:
            self._bar.update(self._task, detail=line)
        else:
            self._say(line)

    def advance(
        self, updates: int, env_steps: int, steps_per_second: float, row: Mapping[str, Any], measure: str
    ) -> None:
        """The state of training after a chunk. `measure` is what the held-out suite goes by: where that is
        not the solved rate, training levels may have no goal, and their return is shown."""
        solved = f"training levels solved {row['solved']:.2f}"
        outcome = solved if measure == "solved" else f"training return {row['return']:.2f}"
        speed = f"{env_steps / 1e6:.2f}M steps, {steps_per_second / 1e3:.1f}k steps/s"
        detail = f"{speed}, {outcome}{_curriculum(row)}{self._score}"
        stored = row.get("teacher/buffer_size", 0)
        filling = updates == 0 and stored < self._levels_before_replay
        if filling:
            detail = f"filling the level buffer: {stored} of {self._levels_before_replay} levels, {detail}"
        if row.get("teacher/source/scouting"):
            detail = f"scouting for learnable levels, {detail}"
        self._bar.update(self._task, completed=updates, detail=detail)
        self._turn_to("training")
        self._heard = now = time.monotonic()
        if self._began is None and not filling:
            self._began = (now, updates, env_steps)
        if not self._console.is_terminal and now - self._printed > _REPORT_EVERY:
            self._printed = now
            done = "" if filling else f"{updates}/{self._total} updates, "
            self._say(f"{done}{detail}{self._time_left(now, updates, env_steps)}")

    def _time_left(self, now: float, updates: int, env_steps: int) -> str:
        """Until the last update, or the last environment step if these are counted and run out sooner."""
        began, first_update, first_step = self._began or (now, updates, env_steps)
        if updates <= first_update:
            return ""
        left = (self._total - updates) / (updates - first_update)
        if self._total_env_steps is not None:
            left = min(left, (self._total_env_steps - env_steps) / (env_steps - first_step))
        return f", {(now - began) * max(0.0, left) / 60:.1f} min left"

    @contextlib.contextmanager
    def evaluation(self, suite: str) -> Iterator[Callable[[int, int], None]]:
        """Shows that an evaluation is going on."""
        task = self._bar.add_task(f"playing {suite}", total=None, detail="")

        def update(finished: int, total: int) -> None:
            self._bar.update(task, detail=f"{finished} of {total} episodes")

        before = self._work
        self._turn_to(f"playing {suite}")
        yield update
        self._turn_to(before)
        self._bar.remove_task(task)

    def evaluated(self, updates: int, suite: str, measure: str, mean: float) -> None:
        """The result of an evaluation during training."""
        self._score = f", {suite} {measure} {mean:.2f}"
        self._say(f"after {updates} updates: {suite} {measure} {mean:.3f}")

    def finished(
        self,
        path: Path,
        suite: str,
        measure: str,
        untrained: Mapping[str, float],
        trained: Mapping[str, float],
    ) -> None:
        """The table at the end, and where everything is."""
        what = "solved rates" if measure == "solved" else "scores"
        table = Table("held-out level", "untrained", "trained", title=f"{what} on {suite}")
        for level in {**trained, **untrained}:
            table.add_row(printable(level), *(_rate(rates.get(level), 2) for rates in (untrained, trained)))
        table.add_section()
        means = (sum(rates.values()) / len(rates) if rates else None for rates in (untrained, trained))
        table.add_row("mean", *(_rate(mean, 3) for mean in means))
        self._console.print(table)
        self._say(f"results: {path}")


def _curriculum(row: Mapping[str, Any]) -> str:
    """What is special to a run with novelty: its weight, the components of the present mixture (K in the
    paper) once there is one, and how many levels are stored."""
    if "teacher/alpha" not in row:
        return ""
    parts = [f"novelty weight {row['teacher/alpha']:.2f}"]
    if row.get("teacher/fitted") and "teacher/fit/components" in row:
        parts.append(f"K {row['teacher/fit/components']}")
    return "".join(f", {part}" for part in (*parts, f"{row['teacher/buffer_size']} levels stored"))


def _rate(rate: float | None, digits: int) -> str:
    """A rate as a text; a dash for what was not measured, or was lost."""
    return "-" if rate is None else f"{rate:.{digits}f}"
