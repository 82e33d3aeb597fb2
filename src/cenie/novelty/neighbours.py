"""Density by nearest neighbours: few points in a small ball make a place dense."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cenie.novelty.config import NeighboursConfig
from cenie.novelty.interface import Fitted
from cenie.novelty.points import centre, drawn

_TILE = 1024
"""Points whose distances from all neighbours are held at a time."""


class NeighboursModel(NamedTuple):
    """The points of the window that serve as neighbours.

    Attributes:
        origin: A point in the middle of the data [d].
        points: The neighbours relative to it [m, d].
        valid: Which of them exist [m].
    """

    origin: jax.Array
    points: jax.Array
    valid: jax.Array


def init(config: NeighboursConfig, dimensions: int) -> NeighboursModel:
    """A model without neighbours, for points of `dimensions` columns."""
    count = config.kept
    return NeighboursModel(jnp.zeros(dimensions), jnp.zeros((count, dimensions)), jnp.zeros(count, bool))


def fit(
    config: NeighboursConfig,
    key: jax.Array,
    points: jax.Array,
    *,
    valid: jax.Array,
    previous: NeighboursModel,
) -> Fitted:
    """Keep points as neighbours, drawn uniformly if there are too many.

    Args:
        config: The settings; static.
        key: Draws the points; consumed.
        points: Clean points [n, d].
        valid: Which of them count [n].
        previous: The last model, which is not looked at.

    Returns:
        The new model, `ok` if there is any point. Diagnostics: how many points are `kept`.
    """
    origin = centre(points, valid)
    count = min(config.kept, points.shape[0])
    index, mask = drawn(key, valid, count)
    kept = jnp.where(mask[:, None], points[index] - origin, 0.0)
    missing = config.kept - count
    model = NeighboursModel(origin, jnp.pad(kept, ((0, missing), (0, 0))), jnp.pad(mask, (0, missing)))
    usable = jnp.any(mask) & jnp.isfinite(jnp.sum(jnp.square(kept)))
    return Fitted(model, usable, {"kept": jnp.sum(mask)})


def unfitted(config: NeighboursConfig) -> dict[str, jax.Array]:
    """The diagnostics before any fit."""
    return {"kept": jnp.zeros((), jnp.int32)}


def log_density(config: NeighboursConfig, model: NeighboursModel, points: jax.Array) -> jax.Array:
    """The density by the k-th nearest neighbour: log [k / (m V r^d)].

    r is the distance from the k-th of m neighbours, and V the volume of the unit ball. `reg` is added to r^2,
    so that copies of a point are not infinitely dense.

    Args:
        config: The settings; static.
        model: The neighbours.
        points: Finite points [n, d].

    Returns:
        Log-densities [n].
    """
    dimensions = points.shape[1]
    count = jnp.maximum(jnp.sum(model.valid), 1)
    rank = min(config.rank, config.kept)
    used = jnp.minimum(rank, count)
    # Missing neighbours are infinitely far.
    squares = jnp.where(model.valid, jnp.sum(jnp.square(model.points), axis=1), jnp.inf)

    def distance(tile: jax.Array) -> jax.Array:
        total = jnp.sum(jnp.square(tile), axis=1)[:, None] + squares
        nearest = -lax.top_k(2.0 * tile @ model.points.T - total, rank)[0]
        return jnp.maximum(nearest[:, used - 1], 0.0)

    inside = points - model.origin
    tiles = jnp.pad(inside, ((0, -len(points) % _TILE), (0, 0))).reshape(-1, _TILE, dimensions)
    radius_squared = lax.map(distance, tiles).reshape(-1)[: len(points)] + config.reg
    log_ball = 0.5 * dimensions * math.log(math.pi) - math.lgamma(0.5 * dimensions + 1.0)
    return jnp.log(used / count) - log_ball - 0.5 * dimensions * jnp.log(radius_squared)
