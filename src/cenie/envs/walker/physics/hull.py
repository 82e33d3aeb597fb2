"""Whether the hull touches the ground, which ends an episode."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cenie.envs.walker.physics.body import HULL, HULL_CENTRE
from cenie.envs.walker.physics.ground import Ground, seen_from
from cenie.envs.walker.physics.lanes import folded

_CORNERS = (HULL - HULL_CENTRE)[::-1].astype(np.float32)
_SIDES = np.roll(_CORNERS, -1, axis=0) - _CORNERS
_NORMALS = np.stack((_SIDES[:, 1], -_SIDES[:, 0]), 1) / np.linalg.norm(_SIDES, axis=1, keepdims=True)
_PLANES = (_NORMALS * _CORNERS).sum(1)
_EDGES = 7
_BOXES = 3


def hull_distance(
    ground: Ground, number: Int[Array, " n"], x: Array, y: Array, angle: Array
) -> Float[Array, " n"]:
    """The least distance of hulls from the ground (along the best separating axis).

    `number` says which environments they are in.
    """
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    corners = [(cos * u - sin * v, sin * u + cos * v) for u, v in _CORNERS]
    normals = [(cos * u - sin * v, sin * u + cos * v) for u, v in _NORMALS]
    low_x, high_x = _extremes([u for u, _ in corners])
    low_y, high_y = _extremes([v for _, v in corners])
    (px, py), (left, bottom, right, top) = seen_from(
        ground, number, (x, y), left=x + low_x - 0.02, edges=_EDGES, boxes=_BOXES
    )
    x1, y1, x2, y2 = px[:-1], py[:-1], px[1:], py[1:]
    length = jnp.sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
    nx, ny = (y2 - y1) / length, (x1 - x2) / length
    plane = nx * x1 + ny * y1
    nx, ny = jnp.where(plane <= 0, nx, -nx), jnp.where(plane <= 0, ny, -ny)
    apart = _extremes([nx * u + ny * v for u, v in corners])[0] + jnp.abs(plane)
    for (u, v), offset in zip(normals, _PLANES):
        apart = jnp.maximum(apart, jnp.minimum(u * x1 + v * y1, u * x2 + v * y2) - offset)
    from_box = jnp.maximum(
        jnp.maximum(left - high_x, low_x - right), jnp.maximum(bottom - high_y, low_y - top)
    )
    for (u, v), offset in zip(normals, _PLANES):
        nearest = jnp.where(u > 0, left, right) * u + jnp.where(v > 0, bottom, top) * v
        from_box = jnp.maximum(from_box, nearest - offset)
    return jnp.minimum(folded(jnp.minimum, apart, 0), folded(jnp.minimum, from_box, 0))


def _extremes(values: list[Array]) -> tuple[Array, Array]:
    low = high = values[0]
    for value in values[1:]:
        low, high = jnp.minimum(low, value), jnp.maximum(high, value)
    return low, high
