"""Random levels: control points anywhere, on a grid, or round a circle."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.envs.racing.config import CELLS, POINTS
from cenie.envs.racing.level import PLAYFIELD, RacingLevel

_DRAWS = 200
_SPREAD = 0.7 / POINTS
"""The least distance between neighbours, as a part of the side."""

ROUND_SCALE, ROUND_IRREGULARITY = (0.5, 0.9), 0.15
"""Between what the generator of simple levels draws the size of a ring, and how irregular it is."""


def continuous_level(key: PRNGKeyArray) -> RacingLevel:
    """Points anywhere in the square, with neighbours around their centre apart. Consumes the key.

    What must be large is the sum of both differences, not the distance, and the last and the first point are
    not compared: as in the original code. The first of 200 draws that is so is taken, or the last. All are
    made, because a loop over levels of several devices must not wait for its slowest (`docs/design.md`).
    """
    draws = jax.random.uniform(key, (_DRAWS, POINTS, 2))
    good = jax.vmap(_apart)(draws).at[-1].set(True)
    return RacingLevel(draws[jnp.argmax(good)] * PLAYFIELD)


def _apart(points: Float[Array, "p 2"]) -> Bool[Array, ""]:
    x, y = (points - jnp.mean(points, axis=0)).T
    ordered = points[jnp.argsort(jnp.arctan2(x, y))]
    return jnp.all(jnp.abs(jnp.sum(jnp.diff(ordered, axis=0), axis=1)) >= _SPREAD)


def grid_level(key: PRNGKeyArray) -> RacingLevel:
    """Points in different cells of the grid. Consumes the key."""
    order = jnp.argsort(jax.random.uniform(key, (CELLS**2,)))
    return RacingLevel(cell_points(order[:POINTS]))


def cell_points(cells: Int[Array, " p"]) -> Float[Array, "p 2"]:
    """Where the numbered cells of the grid are, row by row."""
    places = jnp.stack([cells % CELLS, cells // CELLS], axis=-1) + 1
    return places.astype(jnp.float32) * (PLAYFIELD / CELLS)


def round_level(key: PRNGKeyArray) -> RacingLevel:
    """A simple level: nearly a circle of some size. Consumes the key."""
    size_key, ring_key = jax.random.split(key)
    low, high = ROUND_SCALE
    return ring_level(ring_key, jax.random.uniform(size_key, (), minval=low, maxval=high), ROUND_IRREGULARITY)


def ring_level(
    key: PRNGKeyArray, scale: Float[Array, ""] | float, irregularity: Float[Array, ""] | float
) -> RacingLevel:
    """A ring of points, moved towards random ones; both numbers lie between 0 and 1. Consumes the key.

    With an irregularity of 0 the points are evenly spread on a circle, with 1 they are uniform in a square
    of the same size.
    """
    angle = 2 * math.pi * jnp.arange(POINTS) / POINTS
    circle = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    anywhere = jax.random.uniform(key, (POINTS, 2), minval=-1.0, maxval=1.0)
    places = scale * (circle + irregularity * (anywhere - circle))
    return RacingLevel(jnp.clip(0.5 + 0.5 * places, 0.0, 1.0) * PLAYFIELD)


GENERATORS = {"grid": grid_level, "continuous": continuous_level, "round": round_level}
"""The generators by their names."""
