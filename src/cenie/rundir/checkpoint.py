"""Checkpoints: one pytree of arrays on disk, complete or absent, checked by hash, restored to the bit.

`checkpoints/step-00000123/` holds `arrays.safetensors` (the values) and `manifest.json` (names, shapes,
dtypes, SHA-256, facts). It is written under a temporary name and renamed when everything is on the disk.
Nothing in a checkpoint is ever executed: there is no pickle, and names in it are never used as file paths.
The format is described in docs/reference/run-directory.md.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as to_safetensors

from cenie.rundir import manifest as manifests
from cenie.rundir.files import RunDirectoryError, free_name
from cenie.rundir.manifest import ARRAYS, MANIFEST, Unusable
from cenie.system.durable import (
    TEMPORARY,
    WriteError,
    explain,
    names_in,
    sync_directory,
    write_new,
)
from cenie.xla.devices import to_host

_PLAIN = {"bool", "complex64", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}

_UNFINISHED = re.compile(rf"{TEMPORARY}(old-|replaced-)?step-\d{{8,}}", re.ASCII)
"""The names of checkpoints that a killed writer has not finished, or not yet removed; nothing else is swept,
because a teacher of somebody's own loop may be saved among other files."""


class CheckpointError(WriteError):
    """A checkpoint could not be written; earlier ones are unchanged and load."""


@dataclass(frozen=True)
class Loaded:
    """A restored tree, and which newer checkpoints were passed over for which reason."""

    tree: Any
    step: int
    facts: dict[str, Any]
    skipped: list[str]
    path: Path


Check = Callable[[Path, Mapping[str, Any]], None]
"""Looks at the path and the facts of a checkpoint. Raises `Unusable` if it should be passed over like a
damaged one, and `RunDirectoryError` if nothing in this directory should be used."""


def save(
    directory: Path,
    tree: Any,
    *,
    step: int,
    facts: Mapping[str, Any],
    keep: int = 2,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the array leaves of `tree` as checkpoint `step`; keep the newest `keep` valid ones.

    `beside` are further files by their names: what can be missed, and is looked after by who reads it.

    Leaves that are not arrays (functions, Python numbers) are not stored: they come from the code again.
    `facts` is plain JSON data. Raises `CheckpointError` if the disk refuses. Only one process may write.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step must be at least 0 and keep at least 1, got {step} and {keep}")
    content, leaves = pack(tree)
    manifest = manifests.encode(step, leaves, content, facts)
    target = directory / f"step-{step:08d}"
    temporary = directory / f"{TEMPORARY}{target.name}"
    try:
        sweep(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # before there is anything of ours to remove
        raise _not_written(target, error) from error
    try:
        if _is_intact(target, len(content)) and (target / MANIFEST).read_bytes() == manifest:
            return target
        temporary.mkdir()
        write_new(temporary / ARRAYS, content)
        write_new(temporary / MANIFEST, manifest)
        for name, further in (beside or {}).items():
            write_new(temporary / name, further)
        sync_directory(temporary)
        if os.path.lexists(target):
            _move_aside(target, len(content))
        os.rename(temporary, target)
        sync_directory(directory)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _not_written(target, error) from error
    _prune(directory, keep, len(content))
    return target


def _not_written(target: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"cannot write checkpoint {target}: {explain(error)}", error.errno)


def load_newest(
    directory: Path, like: Any, check: Check | None = None, step: int | None = None
) -> Loaded | None:
    """The newest checkpoint that is undamaged and fits `like`; None if there is no checkpoint at all.

    `like` gives the structure and the leaves that are not arrays; its arrays may be
    `jax.ShapeDtypeStruct`. Restored arrays are NumPy arrays on the host (typed PRNG keys are JAX arrays);
    the caller places them. Raises `RunDirectoryError`, naming each reason, if there are checkpoints but none
    can be used: starting again from nothing must be the user's decision. Nothing is repaired or removed,
    so reading beside a running writer is safe.
    """
    return next(newest_first(directory, like, check, step), None)


def newest_first(
    directory: Path, like: Any, check: Check | None = None, step: int | None = None
) -> Iterator[Loaded]:
    """All checkpoints that `load_newest` could return, one after another; they are read when asked for.

    With a `step` only the one of that step.
    """
    skipped: list[str] = []
    found = False
    for path in manifests.newest_first(directory):
        if step not in (None, manifests.step_of(path)):
            continue
        try:
            manifest = manifests.read(path)
            if check is not None:
                check(path, manifest["facts"])
            check_fits(manifest["leaves"], like)
            content = manifests.read_arrays(path / ARRAYS, manifest["arrays"], largest_file(like))
            tree = unpack(content, manifest["leaves"], like, ARRAYS)
        except Unusable as reason:
            skipped.append(f"{path}: {reason}")
        else:
            found = True
            yield Loaded(tree, manifest["step"], manifest["facts"], skipped, path)
            skipped = []
    if skipped and not found:
        raise RunDirectoryError("no checkpoint can be loaded:\n" + "\n".join(skipped))


def pack(tree: Any) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """The array leaves of a tree as the content of a safetensors file, and a description of each."""
    arrays, leaves = _host_arrays(tree)
    return to_safetensors(arrays), leaves


def digest(tree: Any) -> str:
    """SHA-256 over path, dtype, shape and bytes of every array leaf: two trees agree only if bit-equal."""
    arrays, leaves = _host_arrays(tree)
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(json.dumps([name, leaves[name]], sort_keys=True).encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()


def sweep(directory: Path) -> int:
    """Remove what killed writers left behind; returns how many. Only the one writer may call this.

    Of a link the link itself goes, and a link in the place of the directory is refused (`OSError`).
    """
    leftovers = [directory / name for name in names_in(directory) if _UNFINISHED.fullmatch(name)]
    for path in leftovers:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return len(leftovers)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _array_leaves(tree: Any) -> dict[str, Any]:
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in named if _is_array(leaf)}


def _describe(leaf: Any) -> dict[str, Any]:
    return {"shape": list(leaf.shape), "dtype": leaf.dtype.name}


def _stored_dtype(dtype: np.dtype) -> np.dtype:
    """The file format reads only plain dtypes back: others (bfloat16) are stored as their bits."""
    return dtype if dtype.name in _PLAIN else np.dtype(f"uint{8 * dtype.itemsize}")


def _host_arrays(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """The array leaves by path, as they are stored, and their descriptions for the manifest."""
    leaves = _array_leaves(tree)
    described = {name: _describe(leaf) for name, leaf in leaves.items()}
    for name, leaf in leaves.items():
        if _is_key(leaf):
            described[name]["impl"] = str(jax.random.key_impl(leaf))
            leaves[name] = jax.random.key_data(leaf)
    # The writer of safetensors takes the raw memory, so strided arrays must be made contiguous first.
    host = {name: np.asarray(leaf, order="C") for name, leaf in to_host(leaves).items()}
    return {name: leaf.view(_stored_dtype(leaf.dtype)) for name, leaf in host.items()}, described


def largest_file(like: Any) -> int:
    """The most bytes that the arrays of `like` can take: the values, and a description of each."""
    leaves = _array_leaves(like)
    stored = [
        jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf for leaf in leaves.values()
    ]
    values = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in stored)
    # The file names an array in JSON (at most 6 bytes a letter), with numbers of at most 20 digits.
    names = sum(6 * len(name) + 20 * (len(leaf.shape) + 2) + 100 for name, leaf in leaves.items())
    return values + names + 1000


def check_fits(leaves: Mapping[str, Any], like: Any) -> None:
    """Raise `Unusable` unless exactly the arrays of `like` are described, with their shapes and dtypes."""
    expected = {name: _describe(leaf) for name, leaf in _array_leaves(like).items()}
    problems = [f"unexpected array {name[:80]}" for name in leaves if name not in expected]
    for name, want in expected.items():
        have = leaves.get(name)
        if not isinstance(have, dict):
            problems.append(f"array {name} is missing")
        elif [have.get("dtype"), have.get("shape")] != [want["dtype"], want["shape"]]:
            shown = f"{have.get('dtype')}{have.get('shape')}"[:80]
            problems.append(f"array {name} is {shown}, expected {want['dtype']}{want['shape']}")
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise Unusable("does not fit this run: " + "; ".join(problems[:3]) + more)


def unpack(content: bytes, leaves: Mapping[str, Any], like: Any, file: str) -> Any:
    """`like` with the arrays of a file in the place of its own.

    Raises `Unusable`, naming the `file`, if it does not hold them.
    """
    try:
        arrays = parse_safetensors(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise Unusable(f"{file} is not a safetensors file: {error}") from error

    def restore(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name = jax.tree_util.keystr(path)
        shape = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        array = arrays.get(name)
        if array is None or (array.shape, array.dtype) != (shape.shape, _stored_dtype(shape.dtype)):
            raise Unusable(f"{file} does not hold what is said of {name}")
        if not _is_key(leaf):
            return array.view(leaf.dtype)
        try:
            return jax.random.wrap_key_data(jnp.asarray(array), impl=leaves[name].get("impl"))
        except (TypeError, ValueError) as error:
            raise Unusable(f"{name} is not a PRNG key of this version of JAX") from error

    return jax.tree_util.tree_map_with_path(restore, like)


def _is_intact(path: Path, limit: int) -> bool:
    """Whether the checkpoint is whole; one of more than `limit` bytes is none of this run."""
    try:
        manifests.read_arrays(path / ARRAYS, manifests.read(path)["arrays"], limit)
    except Unusable:
        return False
    return True


def _move_aside(target: Path, limit: int) -> None:
    """Free the name `target`: a valid checkpoint of that step will be swept, a damaged one is kept."""
    if _is_intact(target, limit):
        os.rename(target, target.with_name(f"{TEMPORARY}replaced-{target.name}"))
    else:
        os.rename(target, free_name(target.with_name(f"damaged-{target.name}")))


def _prune(directory: Path, keep: int, limit: int) -> None:
    """Remove valid checkpoints older than the newest `keep` valid ones; damaged ones stay for inspection.

    The name goes first, so that a kill in the middle leaves no half-removed checkpoint behind. What
    cannot be removed now is tried again, and reported, by the next save.
    """
    valid = [path for path in manifests.newest_first(directory) if _is_intact(path, limit)]
    for path in valid[keep:]:
        with contextlib.suppress(OSError):
            doomed = path.rename(path.with_name(f"{TEMPORARY}old-{path.name}"))
            shutil.rmtree(doomed)
