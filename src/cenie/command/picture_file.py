"""Where the pictures of a command go. Loads no JAX."""

import os
from pathlib import Path
from typing import Any

from cenie.command.options import plain
from cenie.rundir.files import file_name
from cenie.settings import Problem, SettingsError, show
from cenie.system.durable import WriteError

SUFFIXES = (".png", ".gif")


def picture_file(given: str | None, name: str, suffix: str) -> Path:
    """The file that was asked for, or one in the present directory, named after what it shows.

    Raises `SettingsError` or `WriteError` if no picture can be written there.
    """
    path = Path(file_name(name) + suffix if given is None else given)
    if path.suffix.lower() not in SUFFIXES:
        expected = " or ".join(SUFFIXES)
        raise SettingsError(
            [Problem("out", f"must be a file that ends in {expected}, got {show(str(path))}")]
        )
    if path.is_dir():
        raise SettingsError([Problem("out", f"{show(str(path))} is a directory")])
    if not path.parent.is_dir():
        raise SettingsError([Problem("out", f"there is no directory {show(str(path.parent))}")])
    if not os.access(path.parent, os.W_OK):
        raise WriteError(f"cannot write in {path.parent}, where {path.name} would go")
    return path


def is_film(path: Path) -> bool:
    return path.suffix.lower() == ".gif"


def plain_values(options: dict[str, str]) -> dict[str, Any]:
    """Numbers as numbers, everything else as text."""
    return {name: plain(text) for name, text in options.items()}
