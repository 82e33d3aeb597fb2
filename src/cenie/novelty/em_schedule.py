"""Which mixtures take an EM step together, and how wide the step is. This module exists for speed only.

EM does not need it: `tests/novelty/plain_em.py` finds the same fits in forty plain lines. A step is two
products of all points with the columns (components) of a mixture. A compiled step has a fixed number of
columns, and a column that no component needs costs as much as any other. So:

- One after another, the largest first, in steps of few widths. A mixture takes the narrowest step that it
  fits into, because each width is a loop to compile.
- Side by side where the points do not fit into a cache, because there reading them takes the time. When some
  mixtures have converged, the rest go on in smaller groups. Components of all mixtures of a group stand
  packed in one row [c, ...], each mixture with as many as its width.

What it gains, in CPU time of a fit of 6 to 15 components, diagonal, on made-up points of 263 numbers
(`python -m benchmarks.em_schedule`, a busy machine, variants in turns, medians):

- 1,536 points: two widths instead of one save 11 %. A width for each size saves 5 % more, and costs 6 CPU
  seconds more to compile.
- 8,192 points: side by side instead of one after another saves 47 %; on real points and with less load it
  was 10 % (docs/notebook/coverage.md). Widths that fit each mixture of a group save 13 %.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cenie.novelty.mixture import Mixture

_CACHED_NUMBERS = 2**20
"""Prepared points of up to this many numbers (4 MB) are read fast enough for one mixture after another."""


class Stage(NamedTuple):
    """Steps of mixtures with more than `above` components, while at least `least` of them wait for one.

    As many mixtures take a step side by side as there are `widths`, the most components of each.
    """

    widths: Sequence[int]
    above: int
    least: int


def stages(numbers: int, sizes: range, groups: Sequence[int], widths: int) -> list[Stage]:
    """The stages of a fit, one after another.

    Args:
        numbers: How many numbers the prepared points are.
        sizes: The numbers of components of all mixtures.
        groups: How many mixtures may step side by side, largest first; (1,): always one after another.
        widths: For how many widths a step of one mixture is compiled.

    Returns:
        One stage for each width, or one for each group if the points are many.
    """
    most = sizes[::-1]
    if max(groups) > 1 and numbers > _CACHED_NUMBERS:
        return [Stage(most[:group], 0, 1 if group == groups[-1] else group) for group in groups]
    compiled = most[:: -(-len(most) // widths)]
    return [Stage((width,), above, 1) for width, above in itertools.pairwise([*compiled, 0])]


def first_waiting(
    tree: Any, waiting: jax.Array, count: int
) -> tuple[Any, Callable[[jax.Array, jax.Array], jax.Array], jax.Array]:
    """The first `count` rows of a tree of arrays [m, ...] that are `waiting` [m], and how to write them back.

    Returns:
        The rows [count, ...]; a function of an array [m, ...] and new rows that gives the array with these
        rows in their places; and a mask [count] of the rows that are waiting. One row is always waiting,
        since a loop goes on only as long as one is.
    """
    if count == 1:
        first = jnp.argmax(waiting)
        rows = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, first), tree)
        return rows, partial(lax.dynamic_update_slice_in_dim, start_index=first, axis=0), jnp.ones(1, bool)
    index = jnp.argsort(~waiting, stable=True)[:count]
    rows = jax.tree.map(lambda leaf: leaf[index], tree)
    return rows, lambda all_rows, rows: all_rows.at[index].set(rows), waiting[index]


def columns(widths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each component of packed mixtures: its mixture [c], and its place in it [c]."""
    return np.repeat(np.arange(len(widths)), widths), np.concatenate([np.arange(width) for width in widths])


def pack(mixtures: Mixture, widths: Sequence[int]) -> Mixture:
    """Mixtures [m, k, ...] packed into a row of components [c, ...]; origins keep their axis [m]."""
    places = columns(widths)
    return Mixture(
        mixtures.origin, mixtures.log_weights[places], mixtures.offsets[places], mixtures.whitening[places]
    )


def unpack(packed: Mixture, full: Mixture, widths: Sequence[int]) -> Mixture:
    """The opposite: mixtures [m, k, ...], with components beyond a width taken from the full ones."""
    places = np.arange(full.log_weights.shape[1])
    ends = np.cumsum(widths)[:, None]
    index = ends - np.asarray(widths)[:, None] + places
    exists = index < ends

    def put_back(new: jax.Array, old: jax.Array) -> jax.Array:
        mask = exists.reshape(*exists.shape, *[1] * (old.ndim - 2))
        return jnp.where(mask, new[np.where(exists, index, 0)], old)

    return Mixture(packed.origin, *(put_back(new, old) for new, old in zip(packed[1:], full[1:])))


def split(packed: jax.Array, widths: Sequence[int]) -> list[jax.Array]:
    """The parts [width, ...] of a packed array [c, ...]."""
    return jnp.split(packed, list(itertools.accumulate(widths))[:-1])
