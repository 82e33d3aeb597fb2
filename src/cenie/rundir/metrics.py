"""`metrics.jsonl`, a row for each training cycle, and `timing.jsonl`, whose rows are made alike.

There is one parser (`_rows`). Tables of long runs are large, so that curves are read from as much of them as
a figure can show (`read_curves`). Loads no JAX.
"""

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cenie.rundir.tables import (
    LONGEST_LINE,
    Table,
    first_line,
    readable_lines,
    unreadable,
    whole_lines_at,
)
from cenie.system.durable import open_regular

COUNTERS = ("cycle", "updates", "env_steps")
"""Columns that every curve has."""
PLACES = 300
"""The largest number of points of a curve."""
_ROWS_AT_A_PLACE = 8
_TAIL = 2**16
"""Bytes at the end of a table, in which its last row is looked for."""

Row = dict[str, Any]


class JsonLines(Table):
    """A file of one JSON object per line, each with a whole number `cycle`.

    NaN and infinities, which JSON does not have, are written as null. NumPy and JAX scalars are accepted.
    """

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add all rows or, if the disk refuses (`WriteError`), none. They survive a kill of the process."""
        written = [json.dumps(_json_row(row), allow_nan=False, ensure_ascii=False) + "\n" for row in rows]
        self.add("".join(written).encode(), len(written))


def _json_row(row: Mapping[str, Any]) -> Row:
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


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """All columns of a table of JSON rows.

    Args:
        path: the file; one that is not there has no columns.

    Returns:
        Each column as float64 [rows], by its name; NaN where a row has no number. Lines that are no rows, as
        the last one may be while it is written, are passed over.

    Raises:
        RunDirectoryError: the file cannot be read.
    """
    rows = list(_rows(readable_lines(path)))
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([_number(row.get(name)) for row in rows]) for name in names}


def column_names(path: Path) -> list[str]:
    """The columns of the first row; none if there is no such file, or its first line is no row."""
    return list(next(_rows([first_line(path)]), {}))


def last_row(path: Path) -> Row:
    """The last row, looked for at the end of the file only; an empty one if there is none."""
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read().splitlines(keepends=True)
    except OSError:
        return {}
    return next(_rows(reversed(tail)), {})


def read_curves(path: Path, names: Sequence[str], places: int = PLACES) -> dict[str, np.ndarray]:
    """Columns of a table of JSON rows as curves of at most `places` points, with their counters.

    A point is the mean of consecutive rows (of those that have a number). A table of many rows is not read as
    a whole: some rows are read at each of `places` equally spaced places, the others are not.

    Args:
        path: the file; one that is not there has empty columns.
        names: the columns besides `COUNTERS`; one that no row has is NaN throughout.
        places: how many points there are at most.

    Returns:
        Each column as float64 [points].

    Raises:
        RunDirectoryError: the file cannot be read.
    """
    wanted = tuple(dict.fromkeys((*COUNTERS, *names)))
    groups = [rows for rows in _groups(path, places) if rows]
    longest = max(map(len, groups), default=0)
    points = np.full((len(groups), longest, len(wanted)), np.nan)
    for place, rows in enumerate(groups):
        points[place, : len(rows)] = [[_number(row.get(name)) for name in wanted] for row in rows]
    known = np.isfinite(points)
    counts = known.sum(axis=1)
    sums = np.where(known, points, 0.0).sum(axis=1)
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return {name: means[:, column] for column, name in enumerate(wanted)}


def _groups(path: Path, places: int) -> Iterator[list[Row]]:
    """The rows at each place: at most a few, next to each other."""
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            size, row = os.fstat(file.fileno()).st_size, len(file.readline(LONGEST_LINE)) or 1
            if size <= places * _ROWS_AT_A_PLACE * row * 1.25:
                file.seek(0)
                rows = list(_rows(file.read().splitlines(keepends=True)))
                width = max(1, -(-len(rows) // places))
                yield from (rows[begin : begin + width] for begin in range(0, len(rows), width))
                return
            # Two more, since the first and the last one are cut, and later rows may be longer.
            length = int((_ROWS_AT_A_PLACE + 2) * row * 1.2)
            for place in range(places):
                content = whole_lines_at(file, place, size * place // places, length)
                yield list(itertools.islice(_rows(content.splitlines(keepends=True)), _ROWS_AT_A_PLACE))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from error


def _rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows among some lines; a torn or damaged line is passed over."""
    for line in lines:
        if not line.endswith(b"\n"):
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and type(row.get("cycle")) is int:
            yield row


def _number(value: Any) -> float:
    """A value of a row as a number; NaN if it is none."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan
