"""The records of a run: `levels.csv`, and a snapshot of points and level buffer at every evaluation.

For those who look at a run there are `read_levels`, `snapshots_of` and `read_snapshot`; what is damaged is
refused with the reason (`RunDirectoryError`). A snapshot is a compressed `.npz` file, which NumPy opens by
itself too. Imports no JAX.
"""

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cenie.rundir.files import LEVEL_PLACE, RunDirectoryError
from cenie.system.durable import (
    WriteError,
    explain,
    is_unfinished,
    names_in,
    read_limited,
    remove_quietly,
    replace_file,
    sync_directory,
)

_COUNTED = ("parent", "generation", "last_played", "clock")
"""Of a level buffer, what consists of whole numbers besides ids."""
PLAYED = "played"
"""Before the names of the columns of a buffer that are about the newest play of each level."""
_SNAPSHOT = re.compile(r"cycle-(\d{8,18})\.npz", re.ASCII)
_LARGEST_TABLE = 2**32
_LARGEST_FILE = 2**30
_LARGEST_CONTENT = 2**32
_WHOLE = {*LEVEL_PLACE, "id", "parent", "generation", "episodes"}
BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, RuntimeError, OSError)
"""What reading a damaged archive may raise."""


@dataclass(frozen=True)
class Snapshot:
    """What was kept at an evaluation.

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


class Snapshots:
    """The directory of snapshots. `rows` counts what should be there, as for the tables."""

    def __init__(self, directory: Path):
        self._directory = directory
        self.rows = self.found()

    def write(self, cycle: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a snapshot whole or, if the disk refuses (`WriteError`), not at all."""
        path = self._directory / f"cycle-{cycle:08d}.npz"
        try:
            self._directory.mkdir(exist_ok=True)
        except OSError as error:
            raise WriteError(f"cannot create {self._directory}: {explain(error)}", error.errno) from error
        replace_file(path, archive_bytes(arrays))
        self.rows += 1

    def found(self) -> int:
        """How many snapshots there are in fact."""
        return len(snapshots_of(self._directory))


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
    """A snapshot. Raises `RunDirectoryError` with the reason if the file is damaged or is none.

    Without `buffers` only the points are unpacked, which takes a fraction of the time.
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
    """What does not fit together in one part of a snapshot, whose array `key` has a row for each item."""
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


def read_levels(path: Path) -> dict[str, np.ndarray]:
    """The columns of `levels.csv`: `kind` as text, counts and ids as whole numbers, all others as float64.

    A last line that is not complete, because it is being written, is left out. Raises `RunDirectoryError`
    with the reason if the file cannot be read or is damaged.
    """
    try:
        content = read_limited(path, _LARGEST_TABLE)
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error
    return parse_levels(path, content)


def parse_levels(path: Path, content: bytes) -> dict[str, np.ndarray]:
    """The columns of the text of `levels.csv`, or of a part of it with its first line; see `read_levels`."""
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


def archive_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays as an `.npz` file, the same bytes at every time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            # Types that NumPy does not have by itself, such as bfloat16, would be stored as raw bytes.
            array = np.asarray(array, np.float32 if array.dtype.kind == "V" else None, order="C")
            if array.dtype.hasobject:
                raise ValueError(f"{name} holds Python objects: only numbers can be kept")
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0))
            entry = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(entry, member.getvalue(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def read_archive(path: Path, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The arrays of an archive, but for those whose names begin with one of these texts.

    Raises one of `BROKEN` if the file is damaged or is none.
    """
    with zipfile.ZipFile(io.BytesIO(read_limited(path, _LARGEST_FILE))) as archive:
        members = archive.infolist()
        # Checked before anything is unpacked: a small file can hold a very large one.
        if sum(member.file_size for member in members) > _LARGEST_CONTENT:
            raise ValueError(f"its content is larger than {_LARGEST_CONTENT} bytes")
        return {
            member.filename.removesuffix(".npy"): _array(archive.read(member))
            for member in members
            if not member.filename.startswith(without)
        }


def _array(content: bytes) -> np.ndarray:
    """An array of plain numbers. NumPy's own reader would allocate what the header says before it looks."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array of an unknown version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    data: Any = memoryview(content)[file.tell() :]
    if fortran or dtype.kind not in "biuf" or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("an array that does not hold what its header says")
    return np.frombuffer(data, dtype).reshape(shape)
