"""Levels that users write themselves, in files: a drawing in characters, or JSON. Loads no JAX.

What is wrong with a file is said before anything slow begins; what is wrong with the level in it only its
domain can tell.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cenie.settings import Problem, SettingsError
from cenie.system.durable import explain, read_limited

LARGEST = 1_000_000
"""Bytes of a file with a level, at most."""


@dataclass(frozen=True)
class Drawing:
    """The content of a file: JSON values if it begins with a brace or bracket, otherwise a drawing as
    text."""

    name: str
    content: Any

    @property
    def is_json(self) -> bool:
        return not isinstance(self.content, str)


def looks_like_file(word: str) -> bool:
    """Whether a word of a command line is meant as a file rather than as the name of a level."""
    return "/" in word or Path(word).suffix.lower() in (".json", ".txt", ".maze") or Path(word).is_file()


def read_drawing(path: Path) -> Drawing:
    """The content of a file. Raises `SettingsError` with the reason if it cannot hold a level."""

    def refuse(reason: str) -> SettingsError:
        return SettingsError([Problem("level", f"{path} {reason}")])

    try:
        text = read_limited(path, LARGEST).decode("utf-8")
    except OSError as error:
        raise refuse(f"cannot be read: {explain(error)}") from error
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if not text.strip():
        raise refuse("is empty")
    if text.lstrip()[0] not in "{[":
        return Drawing(path.stem, text)
    try:
        return Drawing(path.stem, json.loads(text, object_pairs_hook=_unique, parse_constant=_constant))
    except RecursionError:
        raise refuse("is nested too deeply") from None
    except ValueError as error:
        raise refuse(f"is not valid JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("it names a field twice")
    return named


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")
