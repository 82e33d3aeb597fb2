"""Independent rows of work, shared out over several devices that all hold the same data.

Each device works on its own rows from beginning to end, and the results are exchanged once. That matters on
host devices: XLA does not order an exchange in the condition of a loop against the others of the program, and
devices that wait in different exchanges can wait for ever.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec


class Devices(NamedTuple):
    """The devices that run the present program side by side: an axis of `shard_map`, and its size."""

    axis: str
    number: int


def side_by_side(mesh: Mesh | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(devices, *arguments)` on every device of the mesh, each with all of the arguments.

    All devices must come to the same result. Without a mesh, `devices` is None.
    """
    if mesh is None:
        return function(None, *arguments)
    (axis,) = mesh.axis_names
    everything = PartitionSpec()
    return jax.shard_map(
        lambda *arguments: function(Devices(axis, mesh.size), *arguments),
        mesh=mesh,
        in_specs=everything,
        out_specs=everything,
        check_vma=False,
    )(*arguments)


def shared(devices: Devices | None, function: Callable[..., Any], *rows: Any) -> Any:
    """`function(*rows)` of trees whose arrays have a leading axis of rows, as has every array it returns.

    The function must treat each row by itself. Neighbouring rows go to different devices.
    """
    if devices is None:
        return function(*rows)
    count = jax.tree.leaves(rows)[0].shape[0]
    parts = function(*_own(devices, rows)[0])

    def joined(part: jax.Array) -> jax.Array:
        all_parts = lax.all_gather(part, devices.axis, axis=1)
        return all_parts.reshape(-1, *part.shape[1:])[:count]

    return jax.tree.map(joined, parts)


def summed(devices: Devices | None, function: Callable[..., jax.Array], *rows: jax.Array) -> jax.Array:
    """The sum over rows `function(real, *rows)`; it must count only those rows whose mask `real` is true."""
    if devices is None:
        return function(jnp.ones(rows[0].shape[0], bool), *rows)
    own, real = _own(devices, rows)
    return lax.psum(function(real, *own), devices.axis)


def _own(devices: Devices, rows: Any) -> tuple[Any, jax.Array]:
    """This device's rows, the last one repeated until all devices have as many; and which are no copies."""
    count = jax.tree.leaves(rows)[0].shape[0]
    turns = jnp.arange(-(-count // devices.number))
    index = turns * devices.number + lax.axis_index(devices.axis)
    return jax.tree.map(lambda array: array[jnp.minimum(index, count - 1)], rows), index < count
