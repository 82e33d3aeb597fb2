"""Saved estimators: an uncompressed NumPy archive of arrays with a JSON header. No code of a file is run."""

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from numpy.lib.npyio import NpzFile

Path = str | os.PathLike[str]
Restored = TypeVar("Restored")

_FORMAT = "cenie coverage 2"


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file, which replaces an older one only once it is complete.

    Args:
        path: Where.
        header: Plain data.
        arrays: Arrays by name; none is called `header`.

    Raises:
        OSError: If it cannot be written; nothing is left behind, and an older file is as it was.
    """
    text = np.frombuffer(json.dumps({"format": _FORMAT, **header}).encode(), np.uint8)
    temporary = f"{os.fspath(path)}.tmp-{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **cast(Any, {"header": text, **arrays}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class Entries(dict[str, Any]):
    """Parts of a file by name; a missing one is an error that names it."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"it lacks {name}")


def read(path: Path, restore: Callable[[Entries, Entries], Restored]) -> Restored:
    """Read what `write` has written.

    Args:
        path: The file.
        restore: Makes something of the header and the arrays, or raises what is wrong with them.

    Returns:
        What `restore` has made.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is anything else than such a file.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        return restore(*_entries(content))
    except Exception as error:  # a broken archive can fail in any part of its readers
        raise ValueError(f"{os.fspath(path)} is not a saved coverage: {error}") from error


def _entries(content: bytes) -> tuple[Entries, Entries]:
    """The header and the arrays of a file."""
    with NpzFile(io.BytesIO(content)) as archive:
        assert archive.zip is not None
        # A small file that claims to be large may not fill the memory.
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.zip.infolist()):
            raise ValueError("it is compressed")
        arrays = Entries({name: archive[name] for name in archive.files})
    header = json.loads(arrays["header"].tobytes())
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ValueError("unknown format")
    del arrays["header"]
    return Entries(header), arrays


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Say of an error inside which part of a file is wrong."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
