"""The manifest of a checkpoint: what it holds, with hashes. Imports no JAX, so that a directory that cannot
be used, or needs nothing more, is recognised at once.

The format is described in docs/reference/run-directory.md.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cenie.rundir.files import RunDirectoryError
from cenie.system.durable import explain, names_in, read_limited, strict_json

FORMAT = 1
ARRAYS = "arrays.safetensors"
MANIFEST = "manifest.json"
_LIMIT = 16 * 2**20
_STEP = re.compile(r"step-(\d{8,18})", re.ASCII)


class Unusable(Exception):
    """Why a checkpoint cannot be loaded."""


def newest_first(directory: Path) -> list[Path]:
    """The checkpoints of a directory by their names; whether they can be loaded is another question."""
    try:
        names = names_in(directory)
    except OSError as error:
        raise RunDirectoryError(f"cannot read {directory}: {explain(error)}") from error
    found = [directory / name for name in names if _STEP.fullmatch(name)]
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step of a checkpoint by its name."""
    return int(path.name.removeprefix("step-"))


def encode(step: int, leaves: Mapping[str, Any], content: bytes, facts: Mapping[str, Any]) -> bytes:
    """The text of the manifest of the arrays file `content`."""
    body = {
        "format": FORMAT,
        "step": step,
        "facts": dict(facts),
        "arrays": describe(content),
        "leaves": leaves,
    }
    return strict_json({**body, "sha256": _hash_of(body)}).encode()


def read(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, if every byte of it is what was written (it holds its own hash)."""
    if path.is_symlink():
        raise Unusable("is a symbolic link, not a checkpoint directory")
    try:
        content = read_limited(path / MANIFEST, _LIMIT)
    except OSError as error:
        raise Unusable(f"{MANIFEST} cannot be read: {explain(error)}") from error
    try:
        data = json.loads(content)
        if not isinstance(data, dict):
            raise Unusable(f"{MANIFEST} is damaged: not a JSON object")
        if data.get("format") != FORMAT:
            found = str(data.get("format"))[:20]
            raise Unusable(f"has format {found}, and this version of cenie reads format {FORMAT}")
        intact = strict_json(data).encode() == content
        claimed = data.pop("sha256", None)
        intact = intact and _hash_of(data) == claimed
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{MANIFEST} is damaged: not JSON") from error
    if not intact:
        raise Unusable(f"{MANIFEST} is damaged: its content does not match its SHA-256")
    if not all(isinstance(data.get(name), dict) for name in ("facts", "leaves", "arrays")):
        raise Unusable(f"{MANIFEST} lacks a needed entry")
    if type(data["arrays"].get("bytes")) is not int or type(data.get("step")) is not int:
        raise Unusable(f"{MANIFEST} has a wrong entry")
    if path.name != f"step-{data['step']:08d}":
        raise Unusable(f"{MANIFEST} belongs to step {str(data['step'])[:20]}")
    return data


def describe(content: bytes) -> dict[str, Any]:
    """The size and the hash of the content of a file of arrays."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_arrays(file: Path, described: Mapping[str, Any], limit: int) -> bytes:
    """A file of arrays, if it is as it was described; more than `limit` bytes are never read."""
    expected = described.get("bytes")
    if type(expected) is not int or not 0 <= expected <= limit:
        raise Unusable(
            f"{file.name} is said to have {str(expected)[:20]} bytes; at most {limit} belong there"
        )
    try:
        content = read_limited(file, expected)
    except OSError as error:
        raise Unusable(f"{file.name} cannot be read: {explain(error)}") from error
    if len(content) != expected:
        raise Unusable(f"{file.name} is truncated: {len(content)} of {expected} bytes")
    if describe(content) != described:
        raise Unusable(f"{file.name} is damaged: its content does not match its SHA-256")
    return content


def _hash_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(strict_json(body).encode()).hexdigest()
