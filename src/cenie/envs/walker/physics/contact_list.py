"""All contacts of a walker in one list, leg after leg.

Most walkers touch one or two things, hardly any touches more than five, and yet each leg could touch four.
A list is worked through as far as the longest one among the lanes, so that places that are free cost nothing.
Contacts of different legs do not see each other, so that only the order within a leg matters.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from cenie.envs.walker.physics.contact import SLOTS
from cenie.envs.walker.physics.ground import Things
from cenie.envs.walker.physics.lanes import constant_in, folded

LENGTH = 4 * SLOTS


class Listed(NamedTuple):
    """Things that may touch a walker. Fields have the places of the list in front, then lanes."""

    things: Things
    leg: Int[Array, "length n"]
    cos: Float[Array, "length n"]
    sin: Float[Array, "length n"]
    """The sine of the angle of that leg."""
    number: Int[Array, " n"]
    """The length of each walker's list."""


def list_close(
    things: Things, close: Bool[Array, "things 4 n"], cos: Float[Array, "4 n"], sin: Float[Array, "4 n"]
) -> Listed:
    """List the things that each leg is close to: the last ones first, and as many as it has slots."""
    places, number = _places_of(close)

    def find(place: Array) -> tuple[Things, Array, Array, Array]:
        chosen = places == place + 1

        def picked(values: Array) -> Array:
            kept = jnp.where(chosen, values, 0)
            return folded(jnp.add, folded(jnp.add, kept, 0), 0)

        leg = picked(jnp.arange(4, dtype=jnp.int32)[:, None])
        numbers = things._replace(is_box=things.is_box.astype(jnp.int32))
        thing = jax.tree.map(picked, numbers)
        return thing._replace(is_box=thing.is_box > 0), leg, picked(cos), picked(sin)

    thing, leg, leg_cos, leg_sin = make_list(find, number.max(), number)
    return Listed(thing, leg, leg_cos, leg_sin, number)


def _places_of(close: Bool[Array, "things 4 n"]) -> tuple[Int[Array, "things 4 n"], Int[Array, " n"]]:
    """Which place of the list each thing has, from 1, or 0 for none; and how long lists are."""

    def count(total: Array, close: Array) -> tuple[Array, Array]:
        takes = close & (total < SLOTS)
        total = total + takes
        return total, jnp.where(takes, total, 0)

    none = constant_in(close[0], False).astype(jnp.int32)
    total, within = lax.scan(count, none, close, reverse=True)
    before = jnp.stack((none[0], total[0], total[0] + total[1], total[0] + total[1] + total[2]))
    return jnp.where(within > 0, within + before, 0), before[3] + total[3]


def make_list(find: Callable[[Array], PyTree], used: Array, like: Int[Array, " n"]) -> PyTree:
    """Return the value of a function at each place that is used, and zeros at the others."""

    def nothing(shape: jax.ShapeDtypeStruct) -> Array:
        return constant_in(jnp.broadcast_to(like, (LENGTH, *shape.shape)), 0).astype(shape.dtype)

    lists = jax.tree.map(nothing, jax.eval_shape(find, jnp.int32(0)))
    return lax.fori_loop(0, used, lambda place, lists: put(lists, find(place), place), lists)


_SHORT = (2, 5)


def by_length(used: Array, short: Callable[[int], PyTree], long: Callable[[], PyTree]) -> PyTree:
    """`short(length)` for one of a few lengths, that of the used part of lists or the next, or `long()`.

    Loops over places that are unrolled are several times as fast: XLA copies a list that it both reads and
    writes in a loop.
    """
    index = sum((used > length).astype(jnp.int32) for length in _SHORT)
    return lax.switch(index, [*(partial(short, length) for length in _SHORT), long])


def entry(lists: PyTree, place: Array | int) -> PyTree:
    """The entry at a place."""
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, place, 0, keepdims=False), lists)


def put(lists: PyTree, new: PyTree, place: Array | int) -> PyTree:
    """The same with something else at a place."""
    return jax.tree.map(lambda x, y: lax.dynamic_update_index_in_dim(x, y, place, 0), lists, new)


def of_leg(leg: Int[Array, " n"], values: Sequence[Array]) -> Array:
    """In each lane the value of one of the four legs."""
    result = values[0]
    for number, value in enumerate(values[1:], 1):
        result = jnp.where(leg == number, value, result)
    return result
