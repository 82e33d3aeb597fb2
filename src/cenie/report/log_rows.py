"""Columns of a log of JSON rows, without building every row: most lines of a log look like its first one."""

import functools
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

NAN = float("nan")
_LITERALS = {b"null": NAN, b"true": 1.0, b"false": 0.0}
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_VALUE = rb"(?:%s|null|true|false)" % _NUMBER
_MOST_COLUMNS = 500
"""Lines of more are read one by one: to prepare for them would take longer."""

Row = tuple[float, ...]


@dataclass(frozen=True)
class _Alike:
    """A line of known columns in known order, all of them plain numbers.

    Of what it catches, and a NaN after that, `picks` are the places of the columns that are wanted.
    """

    pattern: re.Pattern[bytes]
    picks: tuple[int, ...]

    def row(self, line: bytes) -> Row | None:
        """The wanted columns; None if the line looks different, which does not make it a wrong one."""
        match = self.pattern.fullmatch(line)
        if match is None:
            return None
        caught = [_LITERALS[text] if text in _LITERALS else float(text) for text in match.groups()]
        caught.append(NAN)
        return tuple([caught[pick] for pick in self.picks])


class LogRows:
    """Reads columns of rows, NaN where a row has no number. `first` is a line as most others are."""

    def __init__(self, names: Sequence[str], first: bytes):
        self._names = tuple(names)
        columns = tuple(next(json_rows(first), {}))
        self._alike = _alike(columns if len(columns) <= _MOST_COLUMNS else (), self._names)

    def read(self, content: bytes, most: int | None = None) -> list[Row]:
        """The first `most` rows (or all) of whole lines; a torn or damaged line is passed over."""
        lines = content[: content.rfind(b"\n") + 1].split(b"\n", -1 if most is None else most)
        found = [self._alike.row(line) for line in lines[:-1]]
        rows = [row for row in found if row is not None]
        if len(rows) == len(found):
            return rows
        return [self._slowly(row) for row in itertools.islice(json_rows(content), most)]

    def _slowly(self, row: dict[str, Any]) -> Row:
        return tuple([_number(row.get(name)) for name in self._names])


@functools.lru_cache(maxsize=256)
def _alike(columns: tuple[str, ...], wanted: tuple[str, ...]) -> _Alike:
    """For lines as `json.dumps` writes them."""
    caught = [name for name in columns if name in wanted]
    parts = [
        re.escape(json.dumps(name).encode()) + (rb": (%s)" if name in wanted else rb": %s") % _VALUE
        for name in columns
    ]
    picks = tuple(caught.index(name) if name in caught else len(caught) for name in wanted)
    return _Alike(re.compile(rb"\{" + rb", ".join(parts) + rb"\}"), picks)


def json_rows(content: bytes) -> Iterator[dict[str, Any]]:
    """The rows of whole lines; a torn or damaged line is passed over."""
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else NAN
