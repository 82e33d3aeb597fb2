"""The base of all tables of a run: append-only files of lines that begin with, or name, a cycle.

A row depends on the config and the seed only, never on the clock, so that an interrupted and resumed run
leaves the same bytes as an uninterrupted one. Each file has a module of its own (`metrics`, `evaluations`,
`levels`) with its writer and its reader. Loads no JAX.
"""

import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cenie.rundir.files import RunDirectoryError
from cenie.system.durable import WriteError, explain, open_regular, replace_file, sync_directory, write_all

LONGEST_LINE = 2**20
"""Bytes; a longer line is no row."""
LARGEST_TABLE = 2**36
"""Bytes of a table, at most."""


class Table:
    """A file that rows are added to. `rows` counts what it should hold: those that it was opened with, and
    those written since."""

    def __init__(self, path: Path):
        self.path = path
        self.rows = self.found()

    def add(self, content: bytes, rows: int, header: bytes = b"") -> None:
        """Add whole lines or, if the disk refuses (`WriteError`), none; a new file begins with the header.

        They survive a kill of the process.
        """
        try:
            descriptor = open_regular(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
            raise WriteError(f"cannot write {self.path}: {explain(error)}", error.errno) from error
        self.rows += rows

    def found(self) -> int:
        """The number of whole lines the file has in fact, without its header."""
        try:
            return sum(
                line.endswith(b"\n") and not is_header(number, line)
                for number, line in enumerate(lines(self.path))
            )
        except OSError:
            return 0

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        try:
            descriptor = open_regular(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_directory(self.path.parent)
        except OSError as error:
            raise WriteError(f"cannot write {self.path}: {explain(error)}", error.errno) from error


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a table, one at a time, since tables of long runs are large.

    Of a line that is too long to be a row only the first part is given, without an end.
    """
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST_TABLE:
            raise OSError(errno.EFBIG, f"larger than {LARGEST_TABLE} bytes")
        while line := file.readline(LONGEST_LINE):
            yield line
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE)


def readable_lines(path: Path) -> Iterator[bytes]:
    """The lines of a table; none if there is no file. Raises `RunDirectoryError` if it cannot be read."""
    try:
        yield from lines(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> RunDirectoryError:
    """The error for a file that the system does not let us read."""
    return RunDirectoryError(f"cannot read {path}: {explain(error)}")


def first_line(path: Path) -> bytes:
    """The first line of a table; empty if there is no whole one, or the file cannot be read."""
    try:
        line = next(lines(path), b"")
    except OSError:
        return b""
    return line if line.endswith(b"\n") else b""


def whole_lines_at(file: io.BufferedReader, place: int, begin: int, length: int) -> bytes:
    """The whole lines among `length` bytes from `begin` on; all places but the first begin within a line."""
    file.seek(begin)
    content = file.read(length)
    first = content.find(b"\n") + 1 if place else 0
    return content[first : content.rfind(b"\n") + 1]


def cut_after(path: Path, cycle: int) -> int:
    """Drop the rows of a table that are later than `cycle`, and lines that are no rows (a torn one).

    Returns how many lines went. Works on both kinds of table, by the file's suffix. Kept rows keep their
    bytes. The file is replaced atomically, and not touched if nothing has to go (or if there is no file).
    Raises `RunDirectoryError` if something else is in its place.
    """
    cycle_of = _csv_cycle if path.suffix == ".csv" else json_cycle

    def kept() -> Iterator[tuple[bytes, bool]]:
        for number, line in enumerate(lines(path)):
            yield line, _is_kept(number, line, cycle, cycle_of)

    try:
        dropped = sum(not is_kept for _, is_kept in kept())
        if dropped:
            replace_file(path, (line for line, is_kept in kept() if is_kept))
    except FileNotFoundError:
        return 0
    except WriteError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    return dropped


def is_header(number: int, line: bytes) -> bool:
    """Whether a line is the first one of a CSV table, which names its columns."""
    return number == 0 and line.startswith(b"cycle,")


def _is_kept(number: int, line: bytes, cycle: int, cycle_of: Callable[[bytes], int]) -> bool:
    if not line.endswith(b"\n"):
        return False
    if is_header(number, line):
        return True
    try:
        return 0 <= cycle_of(line) <= cycle
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def json_cycle(line: bytes) -> int:
    """The cycle of a row of JSON; raises `ValueError`, `KeyError`, `TypeError` or `RecursionError` if the
    line is no row."""
    cycle = json.loads(line)["cycle"]
    # Not 1e999, nor 3.5, nor true: only whole numbers are written.
    if type(cycle) is not int:
        raise ValueError("not a whole number")
    return cycle


def _csv_cycle(line: bytes) -> int:
    digits = line.split(b",", 1)[0]
    if not digits.isdigit():  # `int` alone would also take `1_0` and blanks
        raise ValueError("not a whole number")
    return int(digits)
