"""`evaluations.csv`, and the tables of `cenie evaluate`, which have the same columns: a row for each episode
on a held-out level.

There is one writer (`_csv`) and one parser (`read_evaluations`). Loads no JAX.
"""

import csv
import functools
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cenie.experiment.rows import EvaluationRow, level_means
from cenie.rundir.files import FORMAT, RunDirectoryError
from cenie.rundir.tables import Table, lines, readable_lines, unreadable
from cenie.system.durable import replace_file

EVALUATION_COLUMNS = (
    "cycle", "updates", "env_steps", "suite", "level", "variant", "episode",
    "return", "solved", "score", "length",
)  # fmt: skip
_HEADER = (",".join(EVALUATION_COLUMNS) + "\n").encode()
_OLDER_HEADERS = {
    b"cycle,updates,env_steps,suite,level,variant,episode,return,solved,length\n": 1,
}
"""The first lines of tables of earlier formats, whose rows have other columns."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: how far the run was, and the episodes played."""

    cycle: int
    updates: int
    env_steps: int
    rows: list[EvaluationRow]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes on held-out levels: a column each, all arrays [n].

    Attributes:
        cycle: The cycle after which it was played.
        updates: The updates that the student had had.
        env_steps: The environment steps that the run had had.
        suite: The name of the suite.
        level: The name of the level.
        variant: The variant of the level.
        episode: The number of the episode on this entry of the suite.
        returns: The return.
        solved: 1 if the episode was solved, 0 if not.
        score: The score on the scale of the suite.
        length: The number of steps.
    """

    cycle: np.ndarray
    updates: np.ndarray
    env_steps: np.ndarray
    suite: np.ndarray
    level: np.ndarray
    variant: np.ndarray
    episode: np.ndarray
    returns: np.ndarray
    solved: np.ndarray
    score: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.cycle)

    def where(self, chosen: np.ndarray) -> "Episodes":
        """Choose rows.

        Args:
            chosen: Which rows to take, bool [n].

        Returns:
            The episodes of these rows.
        """
        return Episodes(**{name: column[chosen] for name, column in vars(self).items()})

    def of(self, suite: str) -> "Episodes":
        """The rows of a suite.

        Args:
            suite: The name of the suite.

        Returns:
            The episodes of the suite.
        """
        return self.where(self.suite == suite)

    def after(self, cycle: int) -> "Episodes":
        """The rows of the evaluation after a cycle.

        Args:
            cycle: The cycle.

        Returns:
            The episodes of the evaluation.
        """
        return self.where(self.cycle == cycle)

    def last(self) -> "Episodes":
        """The rows of the latest evaluation.

        Returns:
            The episodes; empty if there are none.
        """
        return self.after(int(self.cycle.max())) if len(self) else self

    def suites(self) -> list[str]:
        """The suites in the order in which they were played first.

        Returns:
            The names.
        """
        return list(dict.fromkeys(self.suite.tolist()))

    def levels(self) -> list[str]:
        """The levels in the order of their suite.

        Returns:
            The names.
        """
        return list(dict.fromkeys(self.level.tolist()))

    def level_means(self, column: str = "score") -> dict[str, float]:
        """The mean of a column for each level name, over variants, episodes and evaluations.

        Args:
            column: `score`, `returns`, `solved` or `length`.

        Returns:
            The means by level names. NaN if a result is not finite: an infinite result is no result.
        """
        means = level_means(self.level.tolist(), getattr(self, column))
        return {level: mean if np.isfinite(mean) else np.nan for level, mean in means.items()}

    @functools.cached_property
    def over_training(self) -> "LevelCurves":
        """The mean score on each level at every evaluation; of episodes of one suite."""
        names = tuple(self.levels())
        cycles, first, moment = np.unique(self.cycle, return_index=True, return_inverse=True)
        place = {name: number for number, name in enumerate(names)}
        cell = moment * len(names) + np.array([place[name] for name in self.level.tolist()], np.int64)
        size = len(cycles) * len(names)
        counts, sums = np.bincount(cell, minlength=size), np.bincount(cell, self.score, size)
        means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
        means[~np.isfinite(means)] = np.nan
        shape = len(cycles), len(names)
        return LevelCurves(
            self.updates[first], self.env_steps[first], names, means.reshape(shape), counts.reshape(shape)
        )


@dataclass(frozen=True, eq=False)
class LevelCurves:
    """Mean scores [evaluations, levels] over training, and of how many episodes.

    A level that an evaluation has not played is NaN.
    """

    updates: np.ndarray
    env_steps: np.ndarray
    levels: tuple[str, ...]
    scores: np.ndarray
    episodes: np.ndarray

    def always_played(self) -> dict[str, np.ndarray]:
        """The scores on the levels that every evaluation has played."""
        fewest = self.episodes.min(axis=0, initial=1).tolist()
        return {level: self.scores[:, place] for place, level in enumerate(self.levels) if fewest[place]}


class EvaluationTable(Table):
    """`evaluations.csv`: one row per played episode, with the columns `EVALUATION_COLUMNS`.

    `solved` is 0 or 1; `return` and `score` have the shortest digits that give the same float64 back.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        self.add(b"", 0, _HEADER)

    def write(self, cycle: int, updates: int, env_steps: int, rows: Iterable[EvaluationRow]) -> None:
        """Add the rows of one evaluation or, if the disk refuses (`WriteError`), none of them."""
        played = list(rows)
        self.add(_csv(Evaluation(cycle, updates, env_steps, played)), len(played), _HEADER)


def write_evaluations(path: Path, evaluations: Iterable[Evaluation]) -> None:
    """A whole table at once: a reader sees the old file or the new one, also if the disk refuses."""
    replace_file(path, _HEADER + b"".join(map(_csv, evaluations)))


def _csv(evaluation: Evaluation) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in evaluation.rows:
        names = (row.suite, row.level, row.variant)
        if any("\n" in name or "\r" in name for name in names):
            raise ValueError(f"names must not contain line breaks, because rows are lines: {names}")
        result = (row.episode, row.episode_return, int(row.solved), row.score, row.length)
        writer.writerow((evaluation.cycle, evaluation.updates, evaluation.env_steps, *names, *result))
    return text.getvalue().encode()


def check_format(path: Path) -> None:
    """Raise `RunDirectoryError` if the table is one of an earlier format; there may be none yet."""
    try:
        first = next(lines(path), b"")
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from error
    if first in _OLDER_HEADERS:
        raise RunDirectoryError(
            f"{path} has format {_OLDER_HEADERS[first]}, and this version of cenie goes on with format "
            f"{FORMAT}; finish the run with the version that began it"
        )


def read_evaluations(path: Path) -> Episodes:
    """The rows of a table of evaluations, in the order in which they were written.

    Lines that are no rows, as the last one may be while it is written, are passed over. A file that is not
    there has no rows.

    Raises:
        RunDirectoryError: the file cannot be read, or is of an earlier format.
    """
    check_format(path)
    lines = list(readable_lines(path))
    try:
        return _episodes(_cells(lines))
    except (ValueError, OverflowError):
        return _episodes(_cells(filter(_is_row, lines)))


def episodes_of(evaluations: Iterable[Evaluation]) -> Episodes:
    """The same as if the evaluations had been written and read."""
    return _episodes(_cells(b"".join(map(_csv, evaluations)).splitlines(keepends=True)))


def _cells(lines: Iterable[bytes]) -> np.ndarray:
    """The texts [rows, columns] of lines, without the header. Raises `ValueError` if a line is no row."""
    rows = [line.decode() for line in lines if line != _HEADER]
    if rows and not rows[-1].endswith("\n"):
        raise ValueError("the last line is not complete")
    if not all(map(str.strip, rows)):
        raise ValueError("a line is empty")
    if not rows:
        return np.empty((0, len(EVALUATION_COLUMNS)), object)
    cells = np.loadtxt(rows, dtype=object, delimiter=",", quotechar='"', comments=None, ndmin=2)
    # A line that ends within quotes is not counted.
    if cells.shape != (len(rows), len(EVALUATION_COLUMNS)):
        raise ValueError("a line is no row")
    return cells


def _is_row(line: bytes) -> bool:
    try:
        return len(_episodes(_cells([line]))) > 0
    except (ValueError, OverflowError):
        return False


def _episodes(cells: np.ndarray) -> Episodes:
    """The columns of rows of texts; raises `ValueError` or `OverflowError` if one of them is no number.

    Texts are copied, so that the numbers are not kept as texts too.
    """
    cycle, updates, steps, suite, level, variant, episode, total, solved, score, length = cells.T
    if not {"0", "1"}.issuperset(solved):
        raise ValueError("solved must be 0 or 1")
    return Episodes(
        cycle=_counts(cycle),
        updates=_counts(updates),
        env_steps=_counts(steps),
        suite=suite.copy(),
        level=level.copy(),
        variant=variant.copy(),
        episode=_counts(episode),
        returns=total.astype(float),
        solved=solved.astype(float),
        score=score.astype(float),
        length=_counts(length),
    )


def _counts(texts: np.ndarray) -> np.ndarray:
    """Whole numbers; `int` alone would also take `1_0`, blanks, and digits of other alphabets."""
    digits = "".join(texts)
    if digits and not (digits.isascii() and digits.isdigit()):
        raise ValueError("not a whole number")
    return texts.astype(np.int64)
