"""`snapshots/`: points and level buffer at every evaluation.

`Snapshots` writes them, `snapshots_of` and `read_snapshot` read them; what is damaged is refused with the
reason (`RunDirectoryError`). Between a state and the arrays of a snapshot stands `snapshot_arrays`. Loads no
JAX.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cenie.rundir.archives import BROKEN, archive_bytes, read_archive
from cenie.rundir.files import RunDirectoryError
from cenie.system.durable import (
    WriteError,
    explain,
    is_unfinished,
    names_in,
    remove_quietly,
    replace_file,
    sync_directory,
)

_COUNTED = ("parent", "generation", "last_played", "clock")
"""The parts of a level buffer that consist of whole numbers, besides ids."""
PLAYED = "played"
"""Before the names of the columns of a buffer that are about the newest play of each level."""
_SNAPSHOT = re.compile(r"cycle-(\d{8,18})\.npz", re.ASCII)


@dataclass(frozen=True)
class Snapshot:
    """The data kept at an evaluation.

    `points` has the arrays `values` [s, d] (state representation and action, side by side), and for each of
    them the `cycle`, the `kind` of that cycle (a place in `KINDS`), the `level` of its batch and the `step`;
    it is empty if none were asked for. Each of the level `buffers` has, for the stored levels, the parts of
    the levels as `levels/NAME`, a column for each score, `probability` (of being drawn next), `id`, `parent`,
    `generation`, and `last_played` in units of the scalar `clock`. `played/NAME` is of the newest play of
    each level: its `cycle` and the `updates` after it, `return`, `solved`, `length`, `episodes`, and what the
    domain says of the level as `level/NAME`; NaN if it is not known, and absent in older snapshots.
    """

    cycle: int
    updates: int
    points: dict[str, np.ndarray]
    buffers: tuple[dict[str, np.ndarray], ...]


class Snapshots:
    """The directory of snapshots. `rows` counts what should be there, as for the tables."""

    def __init__(self, path: Path):
        self.path = path
        self.rows = self.found()

    def write(self, cycle: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a snapshot whole or, if the disk refuses (`WriteError`), not at all."""
        path = self.path / f"cycle-{cycle:08d}.npz"
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise WriteError(f"cannot create {self.path}: {explain(error)}", error.errno) from error
        replace_file(path, archive_bytes(arrays))
        self.rows += 1

    def found(self) -> int:
        """The number of snapshots that are there in fact."""
        return len(snapshots_of(self.path))


def cut_snapshots(directory: Path, cycle: int) -> None:
    """Remove the snapshots that are later than `cycle`, and unfinished ones of a killed process."""
    late = [path for number, path in snapshots_of(directory).items() if number > cycle]
    for name in filter(is_unfinished, names_in(directory)):
        remove_quietly(directory / name)
    try:
        for path in late:
            path.unlink()
        if late:
            sync_directory(directory)
    except OSError as error:
        raise WriteError(f"cannot remove {late[0]}: {explain(error)}", error.errno) from error


def snapshots_of(directory: Path) -> dict[int, Path]:
    """The snapshots of a directory by their cycles, in order; none if there is no directory."""
    try:
        names = names_in(directory)
    except OSError as error:
        raise RunDirectoryError(f"cannot read {directory}: {explain(error)}") from error
    found = {int(match[1]): directory / match[0] for match in map(_SNAPSHOT.fullmatch, names) if match}
    return dict(sorted(found.items()))


def read_snapshot(path: Path, *, buffers: bool = True) -> Snapshot:
    """Read a snapshot.

    Args:
        path: The file, such as `snapshots/cycle-00000100.npz` of a run.
        buffers: Whether to read the level buffers too. Without them, only the points are unpacked, which
            takes a fraction of the time.

    Returns:
        The snapshot.

    Raises:
        RunDirectoryError: The file is damaged or is no snapshot; the message says why.
    """
    try:
        arrays = read_archive(path, () if buffers else ("buffer",))
        cycle, updates = (_scalar(arrays.pop(name)) for name in ("cycle", "updates"))
        match = _SNAPSHOT.fullmatch(path.name)
        if match is not None and int(match[1]) != cycle:
            raise ValueError(f"it is of cycle {cycle}")
    except BROKEN as error:
        reason = explain(error) if isinstance(error, OSError) else str(error) or type(error).__name__
        raise RunDirectoryError(f"{path} is not a snapshot that can be read: {reason}") from error
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = array
    stored = [parts[name] for name in map(buffer_name, range(len(parts))) if name in parts]
    points = parts.get("points", {})
    problems = [*_misfits(points, "values", "f", 2)]
    problems += [problem for buffer in stored for problem in _misfits(buffer, "id", "iu", 1)]
    if problems:
        raise RunDirectoryError(f"{path} is not a snapshot that can be read: {problems[0]}")
    return Snapshot(cycle, updates, points, tuple(stored))


def _misfits(arrays: Mapping[str, np.ndarray], key: str, kind: str, dimensions: int) -> Iterator[str]:
    """Yield the inconsistencies in one part of a snapshot, whose array `key` has a row for each item."""
    if not arrays:
        return
    if key not in arrays or arrays[key].ndim != dimensions or arrays[key].dtype.kind not in kind:
        yield f"it has no {key}"
        return
    rows = len(arrays[key])
    for name, array in arrays.items():
        if name in _COUNTED and array.dtype.kind not in "iu":
            yield f"{name} are no whole numbers"
        if (array.ndim == 0) != (name == "clock") or (array.ndim and len(array) != rows):
            yield f"{name} has the shape {array.shape} beside {rows} rows"
        if array.ndim > 1 and key == "id" and not name.startswith("levels"):
            yield f"{name} has the shape {array.shape}"


def _scalar(array: np.ndarray) -> int:
    if array.ndim or array.dtype.kind not in "iu":
        raise ValueError("its counters are no whole numbers")
    return int(array)


def buffer_name(number: int) -> str:
    """The first part of the names of a buffer's arrays; the first buffer has a plain one."""
    return "buffer" if number == 0 else f"buffer{number}"
