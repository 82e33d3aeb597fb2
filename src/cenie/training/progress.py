"""The terminal during a run: one live line, notes, and the table at the end."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from cenie.system.streams import printable

_COMPILING = "compiling ... (up to a minute)"
_SHORTEST_BAR, _LONGEST_BAR, _SHORTEST_TEXT = 8, 40, 10
"""Columns: beside a bar that is as short as can be, what is shorter would say nothing."""
_REPORT_EVERY = 10.0
"""Seconds between two reports, where lines stay."""
_PATIENCE = 60.0
"""Seconds of silence after which a line says that the work goes on: a compilation may take minutes."""
_IDLE = 10
"""Chunks without a new level in the buffer after which a line asks whether there are enough levels."""


@dataclass(frozen=True)
class Detail:
    """A part of the report on training. Where there is no room for all, lower ranks stay."""

    text: str
    rank: int = 0


class Progress:
    """Writes to a console. On a terminal the line is live; in a file a new line is printed now and then.

    The live line always has its bar, what part of the updates is done, and the time left; details have the
    room that is left beside them.

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
        self._spinner = Spinner("dots")
        self._updates = 0
        self._end: float | None = None
        self._details: tuple[Detail, ...] = (Detail(_COMPILING),)
        self._played: dict[str, tuple[int, int | None]] = {}
        self._total = total_updates
        self._total_env_steps = total_env_steps
        self._levels_before_replay = levels_before_replay
        self._printed = self._heard = time.monotonic()
        self._began: tuple[float, int, int] | None = None
        self._stored = self._idle = 0
        self._score = ""
        self._turn_to("compiling")
        self._live = Live(get_renderable=self._lines, console=console, refresh_per_second=8)
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._break_silence, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live.start()
        else:
            self._say(_COMPILING)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()
        self._live.stop()

    def note(self, message: str) -> None:
        """A line that stays."""
        self._say(printable(message), style="yellow")

    def resumed(self, updates: int) -> None:
        """The run goes on where it was; the time left is reckoned from here."""
        self._updates, self._details = updates, (Detail(_COMPILING),)

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
            self._details = (Detail(line),)
        else:
            self._say(line)

    def advance(
        self, updates: int, env_steps: int, steps_per_second: float, row: Mapping[str, Any], measure: str
    ) -> None:
        """The state of training after a chunk. `measure` is what the held-out suite goes by: where that is
        not the solved rate, training levels may have no goal, and their return is shown."""
        solved = f"training levels solved {row['solved']:.2f}"
        outcome = solved if measure == "solved" else f"training return {row['return']:.2f}"
        stored = row.get("teacher/buffer_size", 0)
        filling = updates == 0 and stored < self._levels_before_replay
        phase = []
        if row.get("teacher/source/scouting"):
            phase.append(Detail("scouting for learnable levels"))
        if filling:
            phase.append(Detail(f"filling the level buffer: {stored} of {self._levels_before_replay} levels"))
            self._warn_if_it_never_fills(stored)
        details = (
            *phase,
            Detail(f"{env_steps / 1e6:.2f}M steps", 4),
            Detail(f"{steps_per_second / 1e3:.1f}k steps/s", 3),
            Detail(outcome, 1),
            *(Detail(text, 5) for text in _curriculum(row)),
            *([Detail(self._score, 2)] if self._score else []),
        )
        now = time.monotonic()
        if self._began is None and not filling:
            self._began = (now, updates, env_steps)
        counted = () if filling else (Detail(f"{updates}/{self._total} updates"),)
        self._updates, self._details = updates, (*counted, *details)
        seconds = self._seconds_left(now, updates, env_steps)
        self._end = None if seconds is None else now + seconds
        self._turn_to("training")
        self._heard = now
        if not self._console.is_terminal and now - self._printed > _REPORT_EVERY:
            self._printed = now
            left = "" if seconds is None else f", {seconds / 60:.1f} min left"
            self._say(", ".join(detail.text for detail in self._details) + left)

    def _warn_if_it_never_fills(self, stored: int) -> None:
        """Say once that the buffer has stopped growing, since the student learns nothing until it fills."""
        self._idle = self._idle + 1 if stored == self._stored else 0
        self._stored = stored
        if self._idle == _IDLE:
            self.note(
                f"the level buffer does not grow: replay begins with {self._levels_before_replay} levels, "
                f"and {stored} are stored. Does the generator have fewer different levels? Then lower "
                "teacher.replay.capacity. Does no episode end within a rollout? Then raise student.num_steps"
            )

    def _seconds_left(self, now: float, updates: int, env_steps: int) -> float | None:
        """Until the last update, or the last environment step if these are counted and run out sooner; None
        as long as no update says how long one takes."""
        began, first_update, first_step = self._began or (now, updates, env_steps)
        if updates <= first_update:
            return None
        left = (self._total - updates) / (updates - first_update)
        if self._total_env_steps is not None:
            left = min(left, (self._total_env_steps - env_steps) / (env_steps - first_step))
        return (now - began) * max(0.0, left)

    def _lines(self) -> Group:
        """The lines of the live display: one for training, and one for an evaluation that goes on."""
        width = self._console.width
        lines: list[RenderableType] = [self._training_line(width)]
        for suite, (finished, total) in list(self._played.items()):
            episodes = "" if total is None else f": {finished} of {total} episodes"
            lines.append(_cut(f"playing {printable(suite)}{episodes}", width))
        return Group(*lines)

    def _training_line(self, width: int) -> Table:
        done = f"{100 * self._updates // max(self._total, 1)}%".rjust(4)
        now = time.monotonic()
        end = now if self._updates >= self._total else self._end
        left = f"{'-:--:--' if end is None else _clock(max(0.0, end - now))} left"
        room = width - len("* ") - len(f" {done} {left}")
        shown = _fitting(self._details, room - _SHORTEST_BAR - len(" "))
        bar = min(_LONGEST_BAR, room - (len(" ") + cell_len(shown) if shown else 0))
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(
            self._spinner,
            ProgressBar(total=max(self._total, 1), completed=self._updates, width=max(bar, 1)),
            Text(done, style="progress.percentage", no_wrap=True),
            Text(left, style="progress.remaining", no_wrap=True),
            *([Text(shown, no_wrap=True)] if shown else []),
        )
        return line

    @contextlib.contextmanager
    def evaluation(self, suite: str) -> Iterator[Callable[[int, int], None]]:
        """Shows that an evaluation is going on."""
        self._played[suite] = (0, None)

        def update(finished: int, total: int) -> None:
            self._played[suite] = (finished, total)

        before = self._work
        self._turn_to(f"playing {suite}")
        yield update
        self._turn_to(before)
        del self._played[suite]

    def evaluated(self, updates: int, suite: str, measure: str, mean: float) -> None:
        """The result of an evaluation during training."""
        self._score = f"{suite} {measure} {mean:.2f}"
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


def _curriculum(row: Mapping[str, Any]) -> list[str]:
    """The numbers special to a run with novelty: its weight, the components of the present mixture (K in the
    paper) once there is one, and the number of stored levels."""
    if "teacher/alpha" not in row:
        return []
    components = (
        [f"K {row['teacher/fit/components']}"]
        if row.get("teacher/fitted") and "teacher/fit/components" in row
        else []
    )
    stored = f"{row['teacher/buffer_size']} levels stored"
    return [f"novelty weight {row['teacher/alpha']:.2f}", *components, stored]


def _fitting(details: Sequence[Detail], width: int) -> str:
    """As many details as there is room for, in their order, those of the lowest ranks first; if there is room
    for none of them, the beginning of the first."""
    kept: list[Detail] = []
    for detail in sorted(details, key=lambda detail: detail.rank):
        if cell_len(", ".join(other.text for other in (*kept, detail))) > width:
            break
        kept.append(detail)
    if not kept:
        return _cut(details[0].text, width).plain if details and width >= _SHORTEST_TEXT else ""
    return ", ".join(detail.text for detail in details if detail in kept)


def _cut(text: str, width: int) -> Text:
    """One line, whose end is lost if it is too long."""
    return Text(text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…", no_wrap=True)


def _clock(seconds: float) -> str:
    """A time as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _rate(rate: float | None, digits: int) -> str:
    """A rate as a text; a dash for what was not measured, or was lost."""
    return "-" if rate is None else f"{rate:.{digits}f}"
