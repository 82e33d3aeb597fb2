"""Traced programs are kept on disk beside the compiled ones: a run that is like an earlier one traces none.

Tracing a cycle is seconds of Python; its result, a module of StableHLO, is read in a tenth of one. What is
kept is found again under a digest of all that tracing depends on. As with compiled programs, nothing here may
stop a run: whatever is wrong with a file, its programs are traced again and replace it.

Every program that may be kept is compiled from its module, whether it was traced just now or long ago, so
that no bit of a run depends on what was found.
"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export
from jax.stages import Compiled, Lowered

from cenie.system.digest import folder_digest
from cenie.system.durable import read_limited, replace_file
from cenie.xla.cache import TRACE
from cenie.xla.devices import splits
from cenie.xla.platform_facts import environment_facts
from cenie.xla.tricks import Several

_FORMAT = 2
_LARGEST = 1 << 26
"""Bytes of a file that is read; ours have some 200,000."""


class Result(NamedTuple):
    """An array that a function of trees returns.

    `is_split` says that its record declares it as split over devices; `names` are those of its numbers, if it
    is `Several`.
    """

    path: str
    shape: tuple[int, ...]
    kind: str
    is_split: bool
    names: tuple[str, ...] | None


Results = tuple[Result, ...]
"""All of them, in their order."""


@dataclass(frozen=True)
class TracedProgram:
    """A function of trees as a module, which knows only of their leaves."""

    name: str
    results: Results
    module: bytes

    def lowered(self, *arguments: Any) -> Lowered:
        """The program for such arguments."""
        leaves = jax.tree.leaves(arguments)

        def same_shapes(*_: Any) -> list[jax.Array]:
            return [_zeros(each.shape, each.kind) for each in self.results]

        # The way it is called is borrowed from a program with the same arguments and results.
        shell = export.export(jax.jit(same_shapes, keep_unused=True))(*leaves)
        program = dataclasses.replace(shell, mlir_module_serialized=self.module)

        def call(*leaves: Any) -> Any:
            return program.call(*leaves)

        call.__name__ = self.name
        return jax.jit(call).lower(*leaves)


@dataclass(frozen=True)
class Program:
    """A compiled function of trees, which returns only the leaves."""

    results: Results
    compiled: Compiled

    def __call__(self, *arguments: Any) -> list[jax.Array]:
        return self.compiled(*jax.tree.leaves(arguments))

    def returning(self, *readers: Callable[[dict[str, Any]], Any]) -> Callable[..., tuple[Any, ...]]:
        """Return the program as a function that returns a tuple: one item from each reader.

        A reader gets the arrays of its item by their paths: `dict` leaves them so, `arrays` makes a list of
        them, and `like` a tree.
        """

        def call(*arguments: Any) -> tuple[Any, ...]:
            items: list[dict[str, Any]] = [{} for _ in readers]
            for result, leaf in zip(self.results, self(*arguments), strict=True):
                number, _, path = result.path.partition(".")
                if result.names is not None:
                    path, leaf = path.removesuffix(".values"), Several(result.names, leaf)
                items[int(number)][path] = leaf
            return tuple(reader(item) for reader, item in zip(readers, items, strict=True))

        return call


def arrays(item: dict[str, Any]) -> list[Any]:
    """A reader of an item as a list of its arrays."""
    return list(item.values())


def like(tree: Any) -> Callable[[dict[str, Any]], Any]:
    """A reader of an item as a tree like another one."""
    return lambda item: jax.tree.unflatten(jax.tree.structure(tree), item.values())


class FlatFunction:
    """A function of trees like `arguments` as one of their leaves, which returns leaves.

    What these are, `results` and `structure`, is known once it has been traced.
    """

    def __init__(self, name: str, function: Callable[..., Any], *arguments: Any):
        self._function, self.__name__ = function, name
        self._leaves, self._arguments = jax.tree.flatten(arguments)
        self._jitted = jax.jit(self, keep_unused=True)  # one, which traces once
        self.structure: Any = None
        self.results: Results = ()

    def __call__(self, *leaves: Any) -> list[Any]:
        tree = self._function(*jax.tree.unflatten(self._arguments, leaves))
        named, self.structure = jax.tree.flatten_with_path(tree)
        facts = zip(named, splits(tree), _names(tree), strict=True)
        self.results = tuple(
            Result(_path(path), leaf.shape, str(leaf.dtype), is_split, names)
            for (path, leaf), is_split, names in facts
        )
        return [leaf for _, leaf in named]

    def traced(self) -> TracedProgram:
        """The function as a module. Raises `ValueError` or `NotImplementedError` if it cannot be one."""
        exported = export.export(self._jitted)(*self._leaves)
        return TracedProgram(self.__name__, self.results, exported.mlir_module_serialized)

    def lowered(self) -> Lowered:
        """The same without a module to keep."""
        return self._jitted.lower(*self._leaves)


def trace_file(directory: Path, settings: Any, arguments: Any) -> Path:
    """Where programs belong that depend on these settings, plain data, and on the shapes of arguments."""
    shapes = [(str(leaf.shape), str(leaf.dtype), str(leaf.sharding)) for leaf in jax.tree.leaves(arguments)]
    # An option may be any object; its text is enough to tell it from another.
    options = {
        name: str(getattr(jax.config, name, None)) for name in jax.config.values if "cache" not in name
    }
    # The code of these libraries is traced along with ours.
    versions = {name: metadata.version(name) for name in ("equinox", "jax", "jaxlib", "numpy", "optax")}
    known = (_FORMAT, source_digest(), versions, environment_facts(), options, settings, shapes)
    return directory / f"{hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()}{TRACE}"


def read(path: Path) -> list[TracedProgram]:
    """The programs in a file; none if there is no such file, or it is not whole."""
    try:
        content = read_limited(path, _LARGEST)
        digest, packed = content[:32], content[32:]
        if hashlib.sha256(packed).digest() != digest:
            return []
        header, _, modules = zlib.decompress(packed).partition(b"\n")
        programs = []
        for name, results, size in json.loads(header):
            results = tuple(
                Result(path, tuple(shape), kind, is_split, names and tuple(names))
                for path, shape, kind, is_split, names in results
            )
            programs.append(TracedProgram(name, results, modules[:size]))
            modules = modules[size:]
    except (OSError, ValueError, TypeError, zlib.error):
        return []
    return programs


def write(path: Path, programs: Sequence[TracedProgram]) -> None:
    """Keep programs for later runs, if the disk lets us."""
    header = json.dumps([(each.name, each.results, len(each.module)) for each in programs]).encode()
    packed = zlib.compress(header + b"\n" + b"".join(each.module for each in programs), 1)
    try:
        replace_file(path, hashlib.sha256(packed).digest() + packed)
    except OSError:
        return


def source_digest(root: Path = Path(__file__).parents[1]) -> str:
    """The digest of all our code and data: a line that is changed anywhere may change what is traced."""
    return folder_digest(root)


def _names(tree: Any) -> list[tuple[str, ...] | None]:
    """For each leaf of a tree the names of its numbers, if it is several."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Several))
    return [node.names if isinstance(node, Several) else None for node in nodes]


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def shape_of(shape: tuple[int, ...], kind: str) -> jax.ShapeDtypeStruct:
    """An array of this type, which may be a type of keys."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.ShapeDtypeStruct(shape, key.dtype if kind == str(key.dtype) else jnp.dtype(kind))


def _zeros(shape: tuple[int, ...], kind: str) -> jax.Array:
    wanted = shape_of(shape, kind)
    if jnp.issubdtype(wanted.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), shape)
    return jnp.zeros(shape, wanted.dtype)
