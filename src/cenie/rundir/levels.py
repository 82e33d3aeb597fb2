"""`levels.csv`: a row for each level that was played in a recorded cycle.

`LevelTable` writes it, `read_levels` reads it, whole or a sample. Loads no JAX.
"""

import io
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cenie.rundir.files import RunDirectoryError
from cenie.rundir.tables import Table, lines, unreadable, whole_lines_at
from cenie.system.durable import open_regular

LEVEL_PLACE = ("cycle", "student", "index")
"""The first columns: whose batch a row is of, and the place in it."""
LEVEL_COLUMNS = (
    "kind", "id", "parent", "generation", "regret", "novelty", "return", "solved", "episodes", "length",
)  # fmt: skip
"""The next ones, as far as a method has them; scores under names of their own follow, and then what the
domain says of a level as `level/NAME`."""
KINDS = ("new", "replay", "edit")
"""The kinds of a cycle's levels, in the order of their numbers."""
_WHOLE = {*LEVEL_PLACE, "id", "parent", "generation", "episodes"}
_LARGEST_READ = 2**32
"""Bytes that are read at once, at most: all of them are columns in memory then."""
_PLACES = 64
"""Places of a sample."""


def is_recorded(number: int, full: int) -> bool:
    """Whether to record the cycle (or evaluation) of a number from 1 on: all of the first `full`.

    Of the next `full` one in two is recorded, of twice as many after that one in four, and so on, so that
    n of them leave about `full` (1 + log2(n / full) / 2). Which one of a group is mixed from its number:
    every second cycle could always be a replay in a method that edits after each of them.
    """
    if not full or number < 1:
        return False
    size = 1 << ((number - 1) // full).bit_length()
    group, place = divmod(number - 1, size)
    return place == zlib.crc32(group.to_bytes(8, "little")) % size


class LevelTable(Table):
    """`levels.csv`: one row per cycle, student and level, with the columns that a run has.

    Numbers have the shortest digits that give the same number back.
    """

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
        rows = [",".join(row) for row in zip(*cells, strict=True)]
        self.add(("\n".join(rows) + "\n").encode(), len(rows), header)

    def _check(self, header: bytes) -> None:
        """A table must not go on with other columns."""
        try:
            first = next(lines(self.path), header)
        except OSError:
            return  # Said, with the reason, when it is written to.
        if first != header:
            raise RunDirectoryError(
                f"{self.path} has other columns than this run ({header.decode().strip()}): it is of another "
                "version of the domain or was edited; move it away, and the run goes on without its old rows"
            )

    def sync(self) -> None:
        """Wait until all rows are on the disk, if there are any: a run that records no levels has no file."""
        if self.rows:
            super().sync()


def _cells(column: np.ndarray, name: str = "") -> list[str]:
    """The numbers of a column as text."""
    if name == "kind":
        return [KINDS[number] for number in column.ravel().tolist()]
    if column.dtype == bool:
        column = column.astype(int)
    # The text of a NumPy scalar is the shortest for its own precision, that of a Python float for 64 bits.
    values = column.ravel()
    return [str(value) for value in (values if values.dtype.kind == "f" else values.tolist())]


def read_levels(path: Path, limit: int | None = None) -> dict[str, np.ndarray]:
    """The columns of `levels.csv`.

    A last line that is not complete, because it is being written, is left out.

    Args:
        path: the file; one that is not there has no columns.
        limit: of a file of more bytes than this a sample of that size is read. It is taken in runs of rows at
            equally spaced places, so that all of training is in it.

    Returns:
        Each column [rows] by its name: `kind` as text, counts and ids as whole numbers, others as float64.

    Raises:
        RunDirectoryError: the file cannot be read, is damaged, or is too large to be read whole.
    """
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.readline(2**16)
            if limit is not None and size > limit:
                body = b"".join(_sample(file, size, limit))
            elif size <= _LARGEST_READ:
                body = file.read()
            else:
                raise RunDirectoryError(
                    f"cannot read {path}: it is larger than {_LARGEST_READ} bytes, and can only be sampled"
                )
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error) from error
    return _parsed(path, header + body)


def _sample(file: io.BufferedReader, size: int, limit: int) -> Iterator[bytes]:
    """Whole lines at equally spaced places of a file, whose header was read."""
    first, length = file.tell(), limit // _PLACES
    for place in range(_PLACES):
        yield whole_lines_at(file, place, first + (size - first) * place // _PLACES, length)


def _parsed(path: Path, content: bytes) -> dict[str, np.ndarray]:
    """The columns of the text of `levels.csv`, or of a part of it with its first line."""
    header, _, body = content[: content.rfind(b"\n") + 1].partition(b"\n")
    try:
        names = header.decode().split(",")
        if tuple(names[: len(LEVEL_PLACE)]) != LEVEL_PLACE or len(set(names)) != len(names):
            raise ValueError("its first line does not name the columns")
        types = [(name, "U6" if name == "kind" else np.int64 if name in _WHOLE else float) for name in names]
        if not body.strip():
            return {name: np.empty(0, kind) for name, kind in types}
        text = io.StringIO(body.decode())
        rows = np.loadtxt(text, dtype=types, delimiter=",", comments=None, ndmin=1)
    except ValueError as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from error
    return {name: np.ascontiguousarray(rows[name]) for name in names}
