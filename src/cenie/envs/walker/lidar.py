"""The walker's view: the distance of the ground along ten rays, which do not turn with the hull."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cenie.envs.walker.physics.ground import Ground, seen_from
from cenie.envs.walker.physics.lanes import folded

RAYS = 10
RANGE = 160 / 30
_EDGES = 14
"""Edges that the longest ray can reach."""
_BOXES = 6
_ANGLES = 1.5 * np.arange(RAYS) / RAYS


def lidar(ground: Ground, x: Float[Array, " n"], y: Float[Array, " n"]) -> Float[Array, "10 n"]:
    """The part of each ray before it meets the ground, 1 if it does not. Rays begin at (x, y)."""
    (px, py), (left, bottom, right, top) = seen_from(
        ground, jnp.arange(x.shape[0]), (x, y), left=x, edges=_EDGES, boxes=_BOXES
    )
    dx = jnp.asarray(RANGE * np.sin(_ANGLES), x.dtype)[:, None, None]
    dy = jnp.asarray(-RANGE * np.cos(_ANGLES), x.dtype)[:, None, None]
    x1, y1, ex, ey = px[:-1], py[:-1], px[1:] - px[:-1], py[1:] - py[:-1]
    across = dx * ey - dy * ex
    t = (x1 * ey - y1 * ex) / across
    s = (x1 * dy - y1 * dx) / across
    hits = (across != 0) & (t >= 0) & (t <= 1) & (s >= 0) & (s <= 1)
    nearest = folded(jnp.minimum, jnp.where(hits, t, 1.0), 1)
    # Boxes: the ray is inside between its last entry into a slab and its first exit from one. The first ray
    # is vertical and so never crosses the sides: their times are infinite.
    enter_x = jnp.where(dx > 0, left / dx, jnp.where((left <= 0) & (right >= 0), -jnp.inf, jnp.inf))
    leave_x = jnp.where(dx > 0, right / dx, jnp.inf)
    enter, leave = jnp.maximum(enter_x, top / dy), jnp.minimum(leave_x, bottom / dy)
    hits = (enter >= 0) & (enter <= 1) & (enter <= leave)
    return jnp.minimum(nearest, folded(jnp.minimum, jnp.where(hits, enter, 1.0), 1))
