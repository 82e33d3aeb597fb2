"""The digest of a folder: whether its code or its data have changed."""

import functools
import hashlib
from pathlib import Path


@functools.cache
def folder_digest(folder: Path) -> str:
    """The SHA-256 of all files below a folder, with their names; what Python compiles there does not count.

    A folder is read once in a process.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.parent.name != "__pycache__":
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
