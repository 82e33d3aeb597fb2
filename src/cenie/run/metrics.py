"""Result tables of a run: append-only files whose rows carry the cycle, cut back to the checkpoint on resume.

A row depends on the config and the seed only, never on the clock, so that an interrupted and resumed run
leaves the same bytes as an uninterrupted one. Times go to a table of their own. Imports no JAX.
"""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cenie.run.directory import EVALUATION_COLUMNS
from cenie.run.durable import WriteError, explain, replace_file, sync_directory, write_all

_HEADER = (",".join(EVALUATION_COLUMNS) + "\n").encode()


class JsonLines:
    """A file of one JSON object per line, each with a whole number `cycle`.

    NaN and infinities, which JSON does not have, are written as null. NumPy and JAX scalars are accepted.
    """

    def __init__(self, path: Path):
        self._path = path

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add all rows or, if the disk refuses (`WriteError`), none. They survive a kill of the process."""
        lines = [json.dumps(_json_row(row), allow_nan=False, ensure_ascii=False) + "\n" for row in rows]
        _append(self._path, "".join(lines).encode())

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        _sync(self._path)


@dataclass(frozen=True)
class EvaluationRow:
    """One episode on one held-out level."""

    suite: str
    level: str
    variant: str
    episode: int
    episode_return: float
    solved: bool
    length: int


class EvaluationTable:
    """`evaluations.csv`: one row per played episode, with the columns `EVALUATION_COLUMNS`.

    `solved` is 0 or 1; `return` has the shortest digits that give the same float64 back.
    """

    def __init__(self, path: Path):
        self._path = path
        if not path.exists() or path.stat().st_size == 0:
            _append(path, _HEADER)

    def write(self, cycle: int, updates: int, env_steps: int, rows: Iterable[EvaluationRow]) -> None:
        """Add the rows of one evaluation or, if the disk refuses (`WriteError`), none of them."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            names = (row.suite, row.level, row.variant)
            if any("\n" in name or "\r" in name for name in names):
                raise ValueError(f"names must not contain line breaks, because rows are lines: {names}")
            result = (row.episode, row.episode_return, int(row.solved), row.length)
            writer.writerow((cycle, updates, env_steps, *names, *result))
        _append(self._path, text.getvalue().encode())

    def read(self) -> list[tuple[int, EvaluationRow]]:
        """All rows with their cycles, in the order in which they were written."""
        with self._path.open(encoding="utf-8", newline="") as file:
            return [
                (
                    int(row["cycle"]),
                    EvaluationRow(
                        row["suite"],
                        row["level"],
                        row["variant"],
                        int(row["episode"]),
                        float(row["return"]),
                        row["solved"] == "1",
                        int(row["length"]),
                    ),
                )
                for row in csv.DictReader(file)
            ]

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        _sync(self._path)


def cut_after(path: Path, cycle: int) -> int:
    """Drop the rows of a table that are later than `cycle`, and a torn line; returns how many lines went.

    Works on both kinds of table, by the file's suffix. Kept rows keep their bytes. The file is replaced
    atomically, and not touched if nothing has to go (or if there is no file).
    """
    cycle_of = _csv_cycle if path.suffix == ".csv" else _json_cycle
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0
    kept = [line for line in lines if _is_kept(line, cycle, cycle_of)]
    if len(kept) < len(lines):
        replace_file(path, b"".join(kept))
    return len(lines) - len(kept)


def _is_kept(line: bytes, cycle: int, cycle_of: Callable[[bytes], int]) -> bool:
    if not line.endswith(b"\n"):
        return False
    if line == _HEADER:
        return True
    try:
        return cycle_of(line) <= cycle
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _json_cycle(line: bytes) -> int:
    return int(json.loads(line)["cycle"])


def _csv_cycle(line: bytes) -> int:
    return int(line.split(b",", 1)[0])


def _append(path: Path, content: bytes) -> None:
    """Add a whole batch to the file; a batch that does not fit on the disk is taken back."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, content)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {explain(error)}", error.errno) from error


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
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
