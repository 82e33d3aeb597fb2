"""What a person sees while a run goes on: one live line, notes, and the table at the end."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from cenie.run.terminal import printable


class Progress:
    """Writes to a console. On a terminal the line is live; in a file a new line is printed now and then."""

    def __init__(self, console: Console, total_updates: int):
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
        self._task = self._bar.add_task("training", total=total_updates, detail="compiling ...")
        self._total = total_updates
        self._printed = time.monotonic()
        self._began: tuple[float, int] | None = None
        self._solved = ""

    def __enter__(self) -> "Progress":
        self._bar.start()
        if not self._console.is_terminal:
            self._console.print("compiling ...")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, message: str) -> None:
        """A line that stays."""
        self._console.print(printable(message), style="yellow", markup=False, highlight=False)

    def resumed(self, updates: int) -> None:
        """The run goes on where it was; the time left is reckoned from here."""
        self._bar.reset(self._task, total=self._total, completed=updates, detail="compiling ...")

    def advance(self, updates: int, env_steps: int, steps_per_second: float, row: Mapping[str, Any]) -> None:
        """The state of training after a chunk."""
        detail = (
            f"{env_steps / 1e6:.2f}M steps, {steps_per_second / 1e3:.1f}k steps/s, "
            f"training levels solved {row['solved']:.2f}{self._solved}"
        )
        self._bar.update(self._task, completed=updates, detail=detail)
        now = time.monotonic()
        if self._began is None:
            self._began = (now, updates)
        if not self._console.is_terminal and now - self._printed > 10:
            self._printed = now
            left = self._time_left(now, updates)
            self._console.print(f"{updates}/{self._total} updates, {detail}{left}", highlight=False)

    def _time_left(self, now: float, updates: int) -> str:
        began, first = self._began or (now, updates)
        if updates <= first:
            return ""
        seconds = (now - began) / (updates - first) * (self._total - updates)
        return f", {seconds / 60:.1f} min left"

    @contextlib.contextmanager
    def evaluation(self, suite: str) -> Iterator[Callable[[int, int], None]]:
        """Shows that an evaluation is going on."""
        task = self._bar.add_task(f"playing {suite}", total=None, detail="")

        def update(finished: int, total: int) -> None:
            self._bar.update(task, detail=f"{finished} of {total} episodes")

        yield update
        self._bar.remove_task(task)

    def evaluated(self, updates: int, suite: str, rates: Mapping[str, float], mean: float) -> None:
        """The result of an evaluation during training."""
        self._solved = f", {suite} solved {mean:.2f}"
        self._console.print(f"after {updates} updates: {suite} solved {mean:.3f}", highlight=False)

    def finished(
        self, path: Path, suite: str, untrained: Mapping[str, float], trained: Mapping[str, float]
    ) -> None:
        """The table at the end, and where everything is."""
        table = Table("held-out level", "untrained", "trained", title=f"solved rates on {suite}")
        for level in {**trained, **untrained}:
            table.add_row(printable(level), *(_rate(rates.get(level), 2) for rates in (untrained, trained)))
        table.add_section()
        means = (sum(rates.values()) / len(rates) if rates else None for rates in (untrained, trained))
        table.add_row("mean", *(_rate(mean, 3) for mean in means))
        self._console.print(table)
        self._console.print(f"results: {path}", highlight=False, markup=False, soft_wrap=True)


def _rate(rate: float | None, digits: int) -> str:
    """A rate as a text; a dash for what was not measured, or was lost."""
    return "-" if rate is None else f"{rate:.{digits}f}"
