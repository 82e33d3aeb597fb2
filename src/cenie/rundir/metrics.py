"""Result tables of a run: append-only files whose rows carry the cycle, cut back to the checkpoint on resume.

A row depends on the config and the seed only, never on the clock, so that an interrupted and resumed run
leaves the same bytes as an uninterrupted one. Times go to a table of their own. Imports no JAX.
"""

import contextlib
import csv
import errno
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cenie.experiment.rows import EvaluationRow
from cenie.rundir.files import (
    EVALUATION_COLUMNS,
    FORMAT,
    KINDS,
    LEVEL_COLUMNS,
    LEVEL_PLACE,
    RunDirectoryError,
)
from cenie.system.durable import WriteError, explain, open_regular, replace_file, sync_directory, write_all

_HEADER = (",".join(EVALUATION_COLUMNS) + "\n").encode()
_OLDER_HEADERS = {
    b"cycle,updates,env_steps,suite,level,variant,episode,return,solved,length\n": 1,
}
"""The first lines of tables of earlier formats, whose rows have other columns."""
_LONGEST_LINE = 2**20
_LARGEST_TABLE = 2**36


class JsonLines:
    """A file of one JSON object per line, each with a whole number `cycle`.

    NaN and infinities, which JSON does not have, are written as null. NumPy and JAX scalars are accepted.
    `rows` counts what the file should hold: those it was opened with and those written since.
    """

    def __init__(self, path: Path):
        self._path = path
        self.rows = _count(path)

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add all rows or, if the disk refuses (`WriteError`), none. They survive a kill of the process."""
        lines = [json.dumps(_json_row(row), allow_nan=False, ensure_ascii=False) + "\n" for row in rows]
        _append(self._path, "".join(lines).encode())
        self.rows += len(lines)

    def found(self) -> int:
        """How many rows the file has in fact."""
        return _count(self._path)

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        _sync(self._path)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: how far the run was, and the episodes played."""

    cycle: int
    updates: int
    env_steps: int
    rows: list[EvaluationRow]


class EvaluationTable:
    """`evaluations.csv`: one row per played episode, with the columns `EVALUATION_COLUMNS`.

    `solved` is 0 or 1; `return` and `score` have the shortest digits that give the same float64 back. `rows`
    counts what the file should hold: those it was opened with and those written since.
    """

    def __init__(self, path: Path):
        self._path = path
        self.rows = _count(path)
        _append(path, b"", header=_HEADER)

    def write(self, cycle: int, updates: int, env_steps: int, rows: Iterable[EvaluationRow]) -> None:
        """Add the rows of one evaluation or, if the disk refuses (`WriteError`), none of them."""
        played = list(rows)
        _append(self._path, _csv(Evaluation(cycle, updates, env_steps, played)), header=_HEADER)
        self.rows += len(played)

    def found(self) -> int:
        """How many rows the file has in fact."""
        return _count(self._path)

    def read(self) -> list[tuple[int, EvaluationRow]]:
        """All rows with their cycles, in the order in which they were written; lines that are none are
        passed over, and a file that cannot be read has none."""
        try:
            return [(each.cycle, row) for each in read_evaluations(self._path) for row in each.rows]
        except RunDirectoryError:
            return []

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        _sync(self._path)


class LevelTable:
    """`levels.csv`: one row per cycle, student and level, with the columns that a run has.

    Numbers have the shortest digits that give the same number back. `rows` counts what the file should hold:
    those it was opened with and those written since.
    """

    def __init__(self, path: Path):
        self._path = path
        self.rows = _count(path)

    def write(self, cycles: Sequence[int], columns: Mapping[str, np.ndarray]) -> None:
        """Add the levels of some cycles or, if the disk refuses (`WriteError`), none of them.

        Each column is of the shape [cycles, students, levels]; `kind` is a place in `KINDS`.
        """
        names = [
            *(name for name in LEVEL_COLUMNS if name in columns),
            # Scores under names of their own stand before what the domain says of its levels.
            *sorted(columns.keys() - LEVEL_COLUMNS, key=lambda name: ("/" in name, name)),
        ]
        header = (",".join((*LEVEL_PLACE, *names)) + "\n").encode()
        self._check(header)
        shape = columns["kind"].shape
        if not math.prod(shape):
            return
        place = np.meshgrid(cycles, *map(np.arange, shape[1:]), indexing="ij")
        cells = [*map(_cells, place), *(_cells(columns[name], name) for name in names)]
        lines = [",".join(row) for row in zip(*cells, strict=True)]
        _append(self._path, ("\n".join(lines) + "\n").encode(), header=header)
        self.rows += len(lines)

    def _check(self, header: bytes) -> None:
        """A table must not go on with other columns."""
        try:
            first = next(_lines(self._path), header)
        except OSError:
            return  # Said, with the reason, by whoever writes.
        if first != header:
            raise RunDirectoryError(
                f"{self._path} has other columns than this run ({header.decode().strip()}): it is of another "
                "version of the domain or was edited; move it away, and the run goes on without its old rows"
            )

    def found(self) -> int:
        """How many rows the file has in fact."""
        return _count(self._path)

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        if self.rows:
            _sync(self._path)


def write_evaluations(path: Path, evaluations: Iterable[Evaluation]) -> None:
    """A whole table at once: a reader sees the old file or the new one, also if the disk refuses."""
    replace_file(path, _HEADER + b"".join(map(_csv, evaluations)))


def read_evaluations(path: Path) -> list[Evaluation]:
    """The evaluations of a table, in the order in which they were written; lines that are no rows are passed
    over. A file that is not there has none; `RunDirectoryError` if it cannot be read."""
    found: list[Evaluation] = []
    for line in _readable_lines(path):
        with contextlib.suppress(ValueError, csv.Error):
            (*counters, row) = _evaluation_row(line)
            if not found or [found[-1].cycle, found[-1].updates, found[-1].env_steps] != counters:
                found.append(Evaluation(*counters, rows=[]))
            found[-1].rows.append(row)
    return found


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON objects; lines that are no rows, as the last one may be while it is written,
    are passed over. A file that is not there has none; `RunDirectoryError` if it cannot be read."""
    found: list[dict[str, Any]] = []
    for line in _readable_lines(path):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            _json_cycle(line)
            found.append(json.loads(line))
    return found


def _readable_lines(path: Path) -> Iterator[bytes]:
    try:
        yield from _lines(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error


def check_format(path: Path) -> None:
    """Raise `RunDirectoryError` if the table is one of an earlier format; there may be none yet."""
    try:
        first = next(_lines(path), b"")
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error
    if first in _OLDER_HEADERS:
        raise RunDirectoryError(
            f"{path} has format {_OLDER_HEADERS[first]}, and this version of cenie goes on with format "
            f"{FORMAT}; finish the run with the version that began it"
        )


def cut_after(path: Path, cycle: int) -> int:
    """Drop the rows of a table that are later than `cycle`, and lines that are no rows (a torn one).

    Returns how many lines went. Works on both kinds of table, by the file's suffix. Kept rows keep their
    bytes. The file is replaced atomically, and not touched if nothing has to go (or if there is no file).
    Raises `RunDirectoryError` if something else is in its place.
    """
    cycle_of = _csv_cycle if path.suffix == ".csv" else _json_cycle
    try:
        dropped = sum(not _is_kept(line, cycle, cycle_of) for line in _numbered(path))
        if dropped:
            kept = (line[1] for line in _numbered(path) if _is_kept(line, cycle, cycle_of))
            replace_file(path, kept)
    except FileNotFoundError:
        return 0
    except WriteError:
        raise
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error
    return dropped


def _count(path: Path) -> int:
    """How many whole lines a table has, without its header."""
    try:
        return sum(line.endswith(b"\n") and not _is_header(number, line) for number, line in _numbered(path))
    except OSError:
        return 0


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a table, one at a time, since tables of long runs are large.

    Of a line that is too long to be a row only the first part is given, without an end.
    """
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        if os.fstat(file.fileno()).st_size > _LARGEST_TABLE:
            raise OSError(errno.EFBIG, f"larger than {_LARGEST_TABLE} bytes")
        while line := file.readline(_LONGEST_LINE):
            yield line
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(_LONGEST_LINE)


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    return enumerate(_lines(path))


def _is_header(number: int, line: bytes) -> bool:
    """Whether a line is the first one of a CSV table, which names its columns."""
    return number == 0 and line.startswith(b"cycle,")


def _is_kept(numbered: tuple[int, bytes], cycle: int, cycle_of: Callable[[bytes], int]) -> bool:
    number, line = numbered
    if not line.endswith(b"\n"):
        return False
    if _is_header(number, line):
        return True
    try:
        return 0 <= cycle_of(line) <= cycle
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _json_cycle(line: bytes) -> int:
    cycle = json.loads(line)["cycle"]
    # Not 1e999, nor 3.5, nor true: only whole numbers are written.
    if type(cycle) is not int:
        raise ValueError("not a whole number")
    return cycle


def _csv_cycle(line: bytes) -> int:
    return _whole(line.split(b",", 1)[0].decode("ascii"))


def _whole(text: str) -> int:
    """A whole number as this module writes it; `int` alone would also take `1_0` and blanks."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("not a whole number")
    return int(text)


def _cells(column: np.ndarray, name: str = "") -> list[str]:
    """The numbers of a column as text."""
    if name == "kind":
        return [KINDS[number] for number in column.ravel().tolist()]
    if column.dtype == bool:
        column = column.astype(int)
    # The text of a NumPy scalar is the shortest for its own precision, that of a Python float for 64 bits.
    values = column.ravel()
    return [str(value) for value in (values if values.dtype.kind == "f" else values.tolist())]


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


def _evaluation_row(line: bytes) -> tuple[int, int, int, EvaluationRow]:
    """The counters and the episode of a line; `ValueError` or `csv.Error` if it is no row."""
    if not line.endswith(b"\n"):
        raise ValueError("torn")
    (cells,) = csv.reader([line.decode()])
    *counters, suite, level, variant, episode, total, solved, score, length = cells
    if solved not in ("0", "1"):
        raise ValueError("solved must be 0 or 1")
    result = (float(total), solved == "1", float(score), _whole(length))
    cycle, updates, env_steps = map(_whole, counters)
    return cycle, updates, env_steps, EvaluationRow(suite, level, variant, _whole(episode), *result)


def _append(path: Path, content: bytes, header: bytes = b"") -> None:
    """Add a whole batch to the file (to a new one after the header); a batch that does not fit on the disk
    is taken back."""
    try:
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, content if size else header + content)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {explain(error)}", error.errno) from error


def _sync(path: Path) -> None:
    try:
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {explain(error)}", error.errno) from error


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: _json_value(value) for name, value in row.items()}
    if type(plain.get("cycle")) is not int:
        raise ValueError(f"a row needs a whole number 'cycle', got {plain.get('cycle')!r}")
    return plain


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return _json_value(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
