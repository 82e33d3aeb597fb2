"""Functions of a batch that stay one under `vmap`: loops run for all of it, and memory is laid out for it.

The library writes environments for one level and leaves the batch to `vmap`, which would turn every loop
that ends early, and every branch, into one that computes both sides for all. A function made by
`over_lanes` sees all environments at once, however many `vmap`s are around it.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

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


def in_blocks(
    step: Callable[[Tree, Tree], Tree], inputs: Tree, state: Tree, size: int, counts: jax.Array
) -> Tree:
    """The next state by `step(inputs, state)`, for `size` items of a batch after the other.

    Their arrays then fit into a CPU's cache. A batch that has no such parts is computed as a whole, but in a
    loop too: XLA can make one kernel of a loop, which saves the start of hundreds of them. `counts` are any
    that are not negative, by which the compiler does not see that such a loop turns once.
    """
    count = jax.tree.leaves(state)[0].shape[0]
    if count <= size or count % size:
        turns = jnp.where(counts.reshape(-1)[0] >= 0, 1, 2)
        return jax.lax.fori_loop(0, turns, lambda _, state: step(inputs, state), state)
    parts = jax.tree.map(lambda x: x.reshape(count // size, size, *x.shape[1:]), (inputs, state))
    results = jax.lax.map(lambda part: step(*part), parts)
    return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), results)


def constant_in(array: jax.Array, value: float | int) -> jax.Array:
    """A number in every place of an array like this one, of the same type.

    Inside of a user's `shard_map` a plain constant is the same on all devices to JAX, which then refuses it
    at the start of a loop that makes it differ. This one costs nothing: the compiler sees through it.
    """
    constant = jnp.full_like(array, value)
    return jnp.where(array == array, constant, constant)


def folded(operation: Callable[[jax.Array, jax.Array], jax.Array], array: jax.Array, axis: int) -> jax.Array:
    """A reduction over a short axis, as a chain of operations on whole lanes.

    XLA's own go through the short axis lane by lane, without vectors.
    """
    return reduce(operation, (jax.lax.index_in_dim(array, k, axis, False) for k in range(array.shape[axis])))


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

    def next_ones(carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        waiting, results = carry
        some = _some_of(waiting, size)
        new = function(some.taken(arguments))
        return waiting & ~some.mine, some.put_back(new, results)

    return jax.lax.while_loop(lambda carry: carry[0].any(), next_ones, (few, otherwise))[1]


def until_done(
    function: Callable[[Tree, Tree, jax.Array], tuple[Tree, jax.Array]],
    pending: jax.Array,
    arguments: Tree,
    results: Tree,
    size: int,
) -> Tree:
    """Call `function(arguments, results, pending)` until no lane is pending, for `size` lanes at a time.

    It returns better results, of those lanes that are pending, and which lanes still are.
    """
    lanes = pending.shape[-1]

    def again(carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        pending, results = carry
        if size >= lanes:
            results, pending = function(arguments, results, pending)
            return pending, results
        some = _some_of(pending, size)
        new, still = function(*some.taken((arguments, results, pending)))
        return some.put_back(still, pending), some.put_back(new, results)

    return jax.lax.while_loop(lambda carry: carry[0].any(), again, (pending, results))[1]


class _Some(NamedTuple):
    """The lanes that are computed next: where they are taken from, and where each goes."""

    source: jax.Array
    mine: jax.Array
    place: jax.Array

    def taken(self, tree: Tree) -> Tree:
        return jax.tree.map(lambda x: x.at[..., self.source].get(mode="promise_in_bounds"), tree)

    def put_back(self, new: Tree, old: Tree) -> Tree:
        def put(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(self.mine, new.at[..., self.place].get(mode="promise_in_bounds"), old)

        return jax.tree.map(put, new, old)


def _some_of(waiting: jax.Array, size: int) -> _Some:
    """The first `size` lanes that wait; if there are fewer, others fill up."""
    order = jnp.cumsum(waiting)
    source = jnp.searchsorted(order, 1 + jnp.arange(size))
    source = jnp.minimum(source, waiting.shape[-1] - 1)
    return _Some(source, waiting & (order <= size), jnp.clip(order - 1, 0, size - 1))
