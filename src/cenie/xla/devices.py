"""All that has to do with several devices: how work is split over them, how results come back, who writes.

The devices of a run are a mesh of one axis, over which the level axis is split; a run on one device has none,
and every function here then does the plain thing. Only JAX and NumPy are needed, so that every room may use
this one.

The devices may belong to several processes (`jax.distributed`), which all run the same program. A process
can read what lies on its own devices only: results go to the host through `to_host`, and nowhere else.

Each device works on its own rows from beginning to end, and one collective shares the results. That matters
on host devices: XLA does not order a collective in the condition of a loop against the others of the program,
and devices that wait in different collectives can wait for ever.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

_PER_LEVEL = "per level"


class Devices(NamedTuple):
    """The devices that run the present program side by side: an axis of `shard_map`, and its size."""

    axis: str
    number: int


# Which devices, and who writes.


def level_mesh(count: int) -> Mesh | None:
    """The first `count` devices, over which the level axis is split; none for a single one."""
    chosen = jax.devices()[:count]
    idle = set(range(jax.process_count())) - {device.process_index for device in chosen}
    if idle:
        raise ValueError(
            f"{count} of {jax.device_count()} devices leave {len(idle)} of {jax.process_count()} processes "
            "without any: start fewer processes, or choose numbers of levels that more devices can share"
        )
    return Mesh(np.array(chosen), ("levels",)) if count > 1 else None


def is_writer() -> bool:
    """Whether this process is the one that writes files; all others only compute."""
    return jax.process_index() == 0


def in_any_process(flag: bool) -> bool:
    """Whether the flag is true in one of the processes, which must all ask: they stop together or not."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


# Placing arrays, and reading them.


def everywhere(mesh: Mesh | None) -> Sharding:
    """The placement of what every device holds in full."""
    if mesh is None:
        return SingleDeviceSharding(jax.local_devices()[0])
    return NamedSharding(mesh, PartitionSpec())


def place(mesh: Mesh | None, tree: Any) -> Any:
    """Put a tree on every device in full."""
    return _put(tree, everywhere(mesh))


def place_beside(other: Any, tree: Any) -> Any:
    """Put a tree where the arrays of another one are, if those are on devices."""
    placed = [leaf.sharding for leaf in jax.tree.leaves(other) if isinstance(leaf, jax.Array)]
    return _put(tree, placed[0]) if placed else tree


def split(mesh: Mesh | None, tree: Any) -> Any:
    """In a compiled program: split the leading axis of every array over the devices."""
    if mesh is None:
        return tree
    return lax.with_sharding_constraint(tree, _over(mesh))


def replicate(mesh: Mesh | None, tree: Any) -> Any:
    """In a compiled program: let every device hold all arrays in full."""
    return tree if mesh is None else lax.with_sharding_constraint(tree, everywhere(mesh))


# Declaring, on a record, what is split.


def per_level(**options: Any) -> Any:
    """A field of a record whose arrays have a row for each level, and are split over the devices.

    All that has to know what is split reads it off this declaration. The options are as in
    `dataclasses.field`.
    """
    return dataclasses.field(metadata={_PER_LEVEL: True}, **options)


def splits(tree: Any) -> list[bool]:
    """For each leaf of a tree: whether a record in it declares that it is split."""
    flags = []
    for node in jax.tree.leaves(tree, is_leaf=_declares):
        if not _declares(node):
            flags.append(False)
            continue
        for field in dataclasses.fields(node):
            if not field.metadata.get("static", False):
                declared = field.metadata.get(_PER_LEVEL, False)
                flags += [declared] * len(jax.tree.leaves(getattr(node, field.name)))
    return flags


def as_declared(mesh: Mesh | None, tree: Any) -> Any:
    """In a compiled program: split what records in the tree declare as split, and replicate the rest."""
    leaves, structure = jax.tree.flatten(tree)
    placed = [
        split(mesh, leaf) if is_split else replicate(mesh, leaf)
        for leaf, is_split in zip(leaves, splits(tree), strict=True)
    ]
    return jax.tree.unflatten(structure, placed)


def _declares(node: Any) -> bool:
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return False
    return any(field.metadata.get(_PER_LEVEL, False) for field in dataclasses.fields(node))


def expected(mesh: Mesh | None, shapes: Any, *, split: bool) -> Any:
    """The shapes and shardings that arrays will have once they are placed: enough to compile for them."""
    placement = _over(mesh) if split and mesh is not None else everywhere(mesh)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement), shapes)


def shard_rows(mesh: Mesh | None, rows: Any) -> Any:
    """Outside of one: the same for any number of rows; the last is repeated until all have as many."""
    if mesh is None:
        return rows

    def pad(array: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        missing = -array.shape[0] % mesh.size
        if not missing:  # Every operation here would be compiled.
            return array
        return jnp.concatenate([jnp.asarray(array), jnp.repeat(jnp.asarray(array[-1:]), missing, axis=0)])

    return _put(jax.tree.map(pad, rows), _over(mesh))


def to_host(tree: Any) -> Any:
    """The tree with NumPy arrays, whole, in every process.

    What is split over the devices of several processes is gathered first: all of them must ask for it. What
    every device holds in full is read from this process's own, and it may ask alone.
    """

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return leaf
        assert isinstance(leaf.sharding, NamedSharding)  # all that we split is split over a mesh
        return jax.jit(lambda array: array, out_shardings=everywhere(leaf.sharding.mesh))(leaf)  # pyright: ignore[reportArgumentType]

    return jax.device_get(jax.tree.map(whole, tree))


# Sharing work.


def on_own_rows(mesh: Mesh | None, function: Callable[..., Any], *rows: Any) -> Any:
    """`function(*rows)` of arrays split over the devices, each device for its own rows; it asks no other."""
    if mesh is None:
        return function(*rows)
    (axis,) = mesh.axis_names
    own = PartitionSpec(axis)
    return jax.shard_map(function, mesh=mesh, in_specs=own, out_specs=own, check_vma=False)(*rows)


def mean_over_devices(mesh: Mesh | None, function: Callable[..., Any], replicated: Any, rows: Any) -> Any:
    """The mean over devices of `function(replicated, rows)`, each device with its own rows.

    It may be a gradient: without `check_vma` that inside is the gradient of the local function, so that the
    mean is right; with it, JAX has already added the devices up and a mean would be wrong.
    """
    if mesh is None:
        return function(replicated, rows)
    (axis,) = mesh.axis_names
    return jax.shard_map(
        lambda replicated, rows: lax.pmean(function(replicated, rows), axis),
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(axis)),
        out_specs=PartitionSpec(),
        check_vma=False,
    )(replicated, rows)


def side_by_side(mesh: Mesh | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(devices, *arguments)` on every device of the mesh, each with all of the arguments.

    All devices must come to the same result. Without a mesh, `devices` is None.
    """
    if mesh is None:
        return function(None, *arguments)
    (axis,) = mesh.axis_names
    in_full = PartitionSpec()
    return jax.shard_map(
        lambda *arguments: function(Devices(axis, mesh.size), *arguments),
        mesh=mesh,
        in_specs=in_full,
        out_specs=in_full,
        check_vma=False,
    )(*arguments)


def on_first_device(mesh: Mesh | None, when: jax.Array, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, computed by the first device of the mesh alone; every device gets the result.

    Zeros, and no work, where not `when`. For work that could be shared only with collectives in its loops.
    Host devices have one pool of threads, so that the first one may use the cores of all while these wait.
    The one collective stands behind the condition, so that no device can miss it.
    """
    traced = jax.jit(function)

    def if_due(due: jax.Array, *arguments: Any) -> Any:
        shapes = jax.eval_shape(traced, *arguments)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return lax.cond(due, traced, lambda *_: nothing, *arguments)

    if mesh is None:
        return if_due(when, *arguments)
    (axis,) = mesh.axis_names

    def on_each(when: jax.Array, *arguments: Any) -> Any:
        result = if_due(when & (lax.axis_index(axis) == 0), *arguments)
        # The others add zeros. Flags are added as numbers.
        numbers = jax.tree.map(lambda leaf: leaf + jnp.zeros((), jnp.int8), result)
        return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), lax.psum(numbers, axis), result)

    in_full = PartitionSpec()
    each = jax.shard_map(on_each, mesh=mesh, in_specs=in_full, out_specs=in_full, check_vma=False)
    return each(when, *arguments)


def shared(devices: Devices | None, function: Callable[..., Any], *rows: Any) -> Any:
    """`function(*rows)` of trees whose arrays have a leading axis of rows, as has every array it returns.

    The function must treat each row by itself. Neighbouring rows go to different devices.
    """
    if devices is None:
        return function(*rows)
    count = jax.tree.leaves(rows)[0].shape[0]
    index = jnp.arange(-(-count // devices.number)) * devices.number + lax.axis_index(devices.axis)
    # The last row is repeated until all devices have as many.
    parts = function(*jax.tree.map(lambda array: array[jnp.minimum(index, count - 1)], rows))

    def joined(part: jax.Array) -> jax.Array:
        all_parts = lax.all_gather(part, devices.axis, axis=1)
        return all_parts.reshape(-1, *part.shape[1:])[:count]

    return jax.tree.map(joined, parts)


def _put(tree: Any, sharding: Sharding) -> Any:
    """`jax.device_put`; over several processes it takes NumPy arrays only, the same ones in all of them."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def put(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return jax.device_put(np.asarray(leaf), sharding)

    return jax.tree.map(put, tree)


def _over(mesh: Mesh) -> NamedSharding:
    (axis,) = mesh.axis_names
    return NamedSharding(mesh, PartitionSpec(axis))
