"""Writing files so that a crash at any moment leaves either the old state or the new one. Imports no JAX.

A file counts as written only after its bytes and the name in its directory have both reached the disk:
`fsync` of the file, an atomic rename, `fsync` of the directory.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TEMPORARY = "tmp-"
"""Names that start like this are unfinished work: readers ignore them and the next writer removes them."""

_UNFINISHED = re.compile(rf"{TEMPORARY}.+\.(csv|json|jsonl|npz)-\d+", re.ASCII)
"""The names that `replace_file` gives to the unfinished files of a run; a user's own `tmp-notes.txt` or
`tmp-backup-2025` is none of them."""


class WriteError(OSError):
    """A file could not be written; what was there before is unchanged."""

    def __init__(self, message: str, errno: int | None = None):
        super().__init__(message)
        self.errno = errno


def is_wrong_kind(error: OSError) -> bool:
    """Whether the path is not what it should be (a link, a pipe, a file for a directory); otherwise the disk
    refuses, and `WriteError` is the right word."""
    wrong = (None, errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENXIO, errno.ENAMETOOLONG)
    return error.errno in wrong


def explain(error: OSError) -> str:
    """The reason of an operating system error in words, with its symbolic name."""
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} ({errno.errorcode.get(error.errno, error.errno)})"


def strict_json(data: Any) -> str:
    """Readable JSON of plain data; NaN and infinities are an error, since they are not JSON."""
    return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


Content = bytes | Iterable[bytes]
"""The content to write: all at once, or in parts if it is too large for that."""


def write_new(path: Path, content: Content) -> None:
    """Create `path`, which must not exist, with `content`, and wait until the bytes are on the disk."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for part in (content,) if isinstance(content, bytes) else content:
            write_all(descriptor, part)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """`os.write` until nothing is left: one call may write less than it was given."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Wait until the names in the directory (new files, renames) are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: Content) -> None:
    """Write `path` atomically: a reader sees the old content or the new one, never a part."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        write_new(temporary, content)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        remove_quietly(temporary)
        raise WriteError(f"cannot write {path}: {explain(error)}", error.errno) from error


def names_in(directory: Path) -> list[str]:
    """The names in a part of a run directory; none if there is no such directory.

    A link in its place is refused (`OSError`): what lies behind it belongs to somebody else.
    """
    if directory.is_symlink():
        raise OSError("it is a link, which leads out of the run directory")
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def is_unfinished(name: str) -> bool:
    """Whether this is the name of a file of a run that a killed writer has left."""
    return _UNFINISHED.fullmatch(name) is not None


def remove_quietly(path: Path) -> None:
    """Remove a temporary file if that is possible; a leftover is swept by the next writer."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; symbolic links are refused (`OSError`)."""
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # The size is checked before reading, because a read allocates all of what it is asked for.
        if size > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes")
        return file.read(size)


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file. Anything else is refused (`OSError`), and nothing can make this wait:
    opening a pipe waits for the other end, and a link or a device may lead anywhere."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except ValueError as error:  # a zero byte
        raise OSError(f"no path: {error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return descriptor
