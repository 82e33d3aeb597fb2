"""Greedy k-means++: centres for mixtures of many sizes from one chain of draws."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Chain(NamedTuple):
    """`k` centres in the order of their draw; the first j of them are a draw of j centres.

    Attributes:
        indices: The points taken as centres [k].
        distances: The squared distances of all points from them [k, n].
        distinct: How many centres differ; if fewer than k, the points have no more different values. 0 if
            distances are too large for single precision.
    """

    indices: jax.Array
    distances: jax.Array
    distinct: jax.Array


def chain(key: jax.Array, points: jax.Array, valid: jax.Array, count: int) -> Chain:
    """Draw centres among points by greedy k-means++.

    The first is uniform. For each next one, a few candidates are drawn with probability proportional to
    the squared distance from the nearest centre. The candidate that leaves the smallest sum of distances is
    kept.

    Args:
        key: Consumed.
        points: Finite points [n, d].
        valid: Which of them may be drawn [n].
        count: The number of centres k.

    Returns:
        The centres.
    """
    candidates = 2 + int(math.log(count))
    draws = (count - 1) * candidates
    # One draw for both, though the first needs but one number: each is a program of its own to be compiled.
    of_first, of_next = jax.vmap(lambda key: jax.random.uniform(key, (max(1, draws),)))(jax.random.split(key))
    first = weighted_draws(valid.astype(jnp.float32), of_first[:1])
    first_distance = _squared_distances(points, points[first])[0]

    def extend(nearest: jax.Array, uniform: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        weights = jnp.where(valid, nearest, 0.0)
        options = weighted_draws(weights, uniform)
        distances = _squared_distances(points, points[options])
        left = jnp.minimum(nearest, distances)
        best = jnp.argmin(jnp.sum(jnp.where(valid, jnp.sqrt(left), 0.0), axis=1))
        return left[best], (options[best], distances[best], jnp.any(weights > 0.0))

    uniforms = of_next[:draws].reshape(count - 1, candidates)
    _, (indices, distances, new) = lax.scan(extend, first_distance, uniforms)
    distances = jnp.concatenate([first_distance[None], distances])
    usable = jnp.any(valid) & jnp.all(jnp.isfinite(distances) | ~valid)
    return Chain(
        indices=jnp.concatenate([first, indices]),
        distances=distances,
        distinct=jnp.where(usable, 1 + jnp.sum(new, dtype=jnp.int32), 0),
    )


def nearest_labels(distances: jax.Array, fewest: int) -> jax.Array:
    """The nearest of the first j centres, for j = fewest, ..., k.

    Args:
        distances: Squared distances of the points from the centres [k, n].
        fewest: The smallest j.

    Returns:
        Labels [k - fewest + 1, n]. Between centres at equal distance the earlier one is taken.
    """

    def add(
        before: tuple[jax.Array, jax.Array], centre: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        label, nearest = before
        number, distance = centre
        label = jnp.where(distance < nearest, number, label)
        return (label, jnp.minimum(nearest, distance)), label

    start = jnp.zeros(distances.shape[1], jnp.int32), jnp.full(distances.shape[1], jnp.inf)
    numbers = jnp.arange(distances.shape[0], dtype=jnp.int32)
    return lax.scan(add, start, (numbers, distances))[1][fewest - 1 :]


def weighted_draws(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """Draw in proportion to weights.

    Args:
        weights: Numbers of at least 0 [n].
        uniform: Uniform numbers of [0, 1) [c].

    Returns:
        Indices [c]. An index of weight 0 is never drawn unless all weights are 0, however sums are rounded.
    """
    running = jnp.where(weights > 0.0, jnp.cumsum(weights), 0.0)
    goal = uniform * jnp.max(running)
    return jnp.argmax((weights > 0.0) & (running >= goal[:, None]), axis=1)


def _squared_distances(points: jax.Array, centres: jax.Array) -> jax.Array:
    """[c, n]. Differences before squares: the distance of equal points must be exactly 0."""
    return jnp.sum(jnp.square(points[:, None, :] - centres), axis=-1).T
