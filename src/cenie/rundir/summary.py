"""`summary.json`: what a finished run came to. Loads no JAX."""

import os
from pathlib import Path
from typing import Any

from cenie.rundir.files import FORMAT, RunDirectoryError, read_json, writable, write_json


def write_summary(path: Path, content: dict[str, Any]) -> None:
    """Write the summary whole, with the number of its format. Raises `WriteError` if the disk refuses."""
    write_json(path, {"format": FORMAT, **content})


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary; None if there is none. Raises `RunDirectoryError` with the reason if it is damaged."""
    if not os.path.lexists(path):
        return None
    found = writable(read_json(path))
    if not isinstance(found, dict):
        raise RunDirectoryError(f"{path} is no summary of a run")
    return found
