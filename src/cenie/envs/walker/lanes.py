"""Functions of a batch that stay one under `vmap`: loops run for all of it, and memory is laid out for it.

The library writes environments for one level and leaves the batch to `vmap`, which would turn every loop
that ends early, and every branch, into one that computes both sides for all. A function made by
`over_lanes` sees all environments at once, however many `vmap`s are around it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Tree = Any


def over_lanes(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Make a function of arrays whose first axis is the batch into one of single items, for any `vmap`."""

    @custom_vmap
    def batched(*arguments: Tree) -> Tree:
        return function(*arguments)

    @batched.def_vmap
    def merge(size: int, is_batched: list[Tree], *arguments: Tree) -> tuple[Tree, Tree]:
        def merged(batched_already: bool, array: jax.Array) -> jax.Array:
            if not batched_already:
                array = jnp.broadcast_to(array, (size, *array.shape))
            return array.reshape(size * array.shape[1], *array.shape[2:])

        results = batched(*jax.tree.map(merged, is_batched, list(arguments)))
        split = jax.tree.map(lambda x: x.reshape(size, x.shape[0] // size, *x.shape[1:]), results)
        return split, jax.tree.map(lambda _: True, results)

    def single(*arguments: Tree) -> Tree:
        results = batched(*jax.tree.map(lambda x: jnp.asarray(x)[None], arguments))
        return jax.tree.map(lambda x: x[0], results)

    return single


def on_few(
    function: Callable[[Tree], Tree], few: jax.Array, arguments: Tree, otherwise: Tree, size: int
) -> Tree:
    """`function(arguments)` in the lanes where `few` is true, and `otherwise` in all others.

    The function is called for `size` lanes at a time (of any size: lanes are the last axis of all arrays), as
    often as necessary: cheap if it is needed in few lanes.
    """
    lanes = few.shape[-1]
    if size >= lanes:
        return jax.lax.cond(
            few.any(),
            lambda: jax.tree.map(lambda new, old: jnp.where(few, new, old), function(arguments), otherwise),
            lambda: otherwise,
        )
    order = jnp.cumsum(few)

    def next_ones(carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        done, results = carry
        wanted = done + 1 + jnp.arange(size)
        index = jnp.minimum(jnp.searchsorted(order, wanted), lanes - 1)
        new = function(jax.tree.map(lambda x: x[..., index], arguments))
        place = order - 1 - done
        mine = few & (place >= 0) & (place < size)
        place = jnp.clip(place, 0, size - 1)
        results = jax.tree.map(lambda x, old: jnp.where(mine, x[..., place], old), new, results)
        return done + size, results

    return jax.lax.while_loop(lambda carry: carry[0] < order[-1], next_ones, (jnp.int32(0), otherwise))[1]
