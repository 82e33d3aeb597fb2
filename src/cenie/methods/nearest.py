"""Distances of levels from their nearest neighbours, used by several novelties."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


def euclidean(rows: Float[Array, "r d"], others: Float[Array, "m d"]) -> Float[Array, "r m"]:
    """The distances between all pairs; exactly 0 between equal points."""
    return jnp.sqrt(jnp.sum(jnp.square(rows[:, None] - others), axis=2))


def smallest(distances: Float[Array, "r m"], count: int) -> Float[Array, "r k"]:
    """The `count` smallest numbers of each row, in order; infinite where there are fewer."""
    missing = max(count - distances.shape[1], 0)
    padded = jnp.pad(distances, ((0, 0), (0, missing)), constant_values=jnp.inf)
    # A minimum is much cheaper than a partial sort.
    return padded.min(axis=1, keepdims=True) if count == 1 else -lax.top_k(-padded, count)[0]


def mean_of_finite(nearest: Float[Array, "r k"]) -> Float[Array, " r"]:
    """The mean distance of those neighbours that exist; infinite if there is none."""
    exists = jnp.isfinite(nearest)
    count = exists.sum(axis=1)
    total = jnp.where(exists, nearest, 0.0).sum(axis=1)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def nearest_others(
    distances: Float[Array, "r c"], own: Int[Array, " r"], stored: Bool[Array, " c"], count: int
) -> Float[Array, " r"]:
    """The mean distance to the `count` nearest stored levels; what is in its `own` slot is no other."""
    is_other = stored & (jnp.arange(stored.shape[0]) != own[:, None])
    return mean_of_finite(smallest(jnp.where(is_other, distances, jnp.inf), count))


def or_largest(novelty: Float[Array, " r"], known: Float[Array, " m"]) -> Float[Array, " r"]:
    """Where there was nothing to compare with: the largest number known, or 0."""
    largest = jnp.where(jnp.isfinite(known), known, -jnp.inf).max()
    return jnp.where(jnp.isfinite(novelty), novelty, jnp.where(jnp.isfinite(largest), largest, 0.0))


def last_of_each(slots: Int[Array, " n"], capacity: int) -> Int[Array, " n"]:
    """The slot that each row of a batch is to be written to, or beyond the last one: where the level is not
    stored, or a later row has the same level."""
    later = jnp.triu(slots[:, None] == slots, 1).any(axis=1)
    return jnp.where((slots < 0) | later, capacity, slots)
