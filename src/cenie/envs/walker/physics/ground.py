"""The ground in the form that the physics reads, and what of it is near a leg or a hull.

Edges and boxes are both rectangles here, edges without a thickness: "things". All arrays have the
environments, or single legs of them, as their last axis ("lanes"); only `Ground` has them first.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cenie.envs.walker.physics.body import HALF_HEIGHT
from cenie.envs.walker.terrain import POINTS, STEP

SKIN = 0.02
"""Shapes have a skin of 0.01 each: they touch at distances up to the sum."""
EDGES = 5
"""A leg lies above four edges at most, or five where one was shortened for a pit."""
NEAR_BOXES = 2
"""Boxes that a leg can reach at once: they are wide, or stand in pairs."""

Pair = tuple[Array, Array]


class Things(NamedTuple):
    """Rectangles: centre, direction of the first axis, half extents."""

    x: Array
    y: Array
    axis_x: Array
    axis_y: Array
    half: Array
    thickness: Array
    is_box: Array
    number: Array
    """Which edge or box it is: a number below 24 that stays the same while a leg is near it."""


class Ground(NamedTuple):
    """A terrain in the form that the physics reads; environments first."""

    x: Float[Array, "n 200"]
    y: Float[Array, "n 200"]
    boxes: Float[Array, "n 48 4"]
    first_box: Int[Array, "n 200"]
    """For each cell, the first box that does not end before it."""
    things: Float[Array, "n 247 6"]
    """Edges, then boxes: the first six fields of `Things`."""


def ground_of(x: Float[Array, " 200"], y: Float[Array, " 200"], boxes: Float[Array, "48 4"]) -> Ground:
    """One terrain, prepared."""
    cells = jnp.arange(POINTS) * STEP
    first_box = (boxes[:, 2] < cells[:, None]).sum(1, dtype=jnp.int32)
    dx, dy = x[1:] - x[:-1], y[1:] - y[:-1]
    length = jnp.maximum(jnp.sqrt(dx * dx + dy * dy), 1e-9)
    middles = (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2
    edges = jnp.stack((*middles, dx / length, dy / length, length / 2, 0 * dx), 1)
    left, bottom, right, top = boxes.T
    one, zero = jnp.ones_like(left), jnp.zeros_like(left)
    middles = (left + right) / 2, (bottom + top) / 2
    rectangles = jnp.stack((*middles, one, zero, (right - left) / 2, (top - bottom) / 2), 1)
    return Ground(x, y, boxes, first_box, jnp.concatenate((edges, rectangles)))


def seen_from(
    ground: Ground, number: Int[Array, " n"], centre: Pair, *, left: Array, edges: int, boxes: int
) -> tuple[Pair, tuple[Array, Array, Array, Array]]:
    """Points of the ground and sides of boxes from `left` on, in the environments of the given numbers.

    Both are relative to a centre, with their number in front; points are one more than edges, and the sides
    of a box are left, bottom, right and top.
    """
    x, y = centre
    cell = jnp.clip(jnp.floor(left / STEP).astype(jnp.int32), 0, POINTS - 1 - edges)
    points = cell + jnp.arange(edges + 1)[:, None]
    px = ground.x.at[number, points].get(mode="promise_in_bounds") - x
    py = ground.y.at[number, points].get(mode="promise_in_bounds") - y
    first = ground.first_box.at[number, cell].get(mode="promise_in_bounds")
    index = jnp.minimum(first + jnp.arange(boxes)[:, None], ground.boxes.shape[1] - 1)
    west, bottom, east, top = (
        ground.boxes.at[number, index, side].get(mode="promise_in_bounds") - (x if side % 2 == 0 else y)
        for side in range(4)
    )
    return (px, py), (west, bottom, east, top)


def near(
    ground: Ground, lane: Int[Array, "*lanes"], centre: Pair, *, left: Array, edges: int = EDGES
) -> Things:
    """The things from `left` on, in the environments of the given numbers, seen from a centre."""

    def column(count: int) -> Array:
        return jnp.arange(count, dtype=jnp.int32).reshape((count,) + (1,) * left.ndim)

    cell = jnp.clip(jnp.floor(left / STEP).astype(jnp.int32), 0, POINTS - 1 - edges)
    first = ground.first_box.at[lane, cell].get(mode="promise_in_bounds")
    boxes = jnp.minimum(first + column(NEAR_BOXES), ground.boxes.shape[1] - 1)
    edge_index = cell + column(edges)
    index = jnp.concatenate((edge_index, POINTS - 1 + boxes))
    mid_x, mid_y, axis_x, axis_y, half, thickness = (
        ground.things.at[lane, index, k].get(mode="promise_in_bounds") for k in range(6)
    )
    number = jnp.concatenate((edge_index % 16, 16 + boxes % 8))
    is_box = index >= POINTS - 1
    return Things(mid_x - centre[0], mid_y - centre[1], axis_x, axis_y, half, thickness, is_box, number)


def reach(cos: Array, sin: Array, half_width: Array) -> Array:
    """The extent of legs from their centre in x."""
    return jnp.abs(cos) * half_width + jnp.abs(sin) * HALF_HEIGHT


def apart(things: Things, x: Array, y: Array, *, cos: Array, sin: Array, half_width: Array) -> Array:
    """The separation of legs from things along the best of their axes."""
    w, h = half_width, HALF_HEIGHT
    dx, dy = x - things.x, y - things.y
    u, v = dx * things.axis_x + dy * things.axis_y, dy * things.axis_x - dx * things.axis_y
    c, s = cos * things.axis_x + sin * things.axis_y, sin * things.axis_x - cos * things.axis_y
    ac, sc = jnp.abs(c), jnp.abs(s)
    across = jnp.abs(v) - things.thickness - (sc * w + ac * h)
    along = jnp.where(things.is_box, jnp.abs(u) - things.half - (ac * w + sc * h), -jnp.inf)
    of_width = jnp.abs(u * c + v * s) - w - (things.half * ac + things.thickness * sc)
    of_height = jnp.abs(v * c - u * s) - h - (things.half * sc + things.thickness * ac)
    return jnp.maximum(jnp.maximum(across, along), jnp.maximum(of_width, of_height))
