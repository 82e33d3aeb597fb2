"""Where legs touch the ground: Box2D's contact points of rectangles with edges and boxes.

Edges and boxes are both rectangles here, edges without a thickness: "things". All arrays have the
environments, or single legs of them, as their last axis ("lanes").
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.walker.body import HALF_HEIGHT
from cenie.envs.walker.lanes import folded
from cenie.envs.walker.terrain import POINTS, STEP

SKIN = 0.02
"""Shapes have a skin of 0.01 each: they touch at distances up to the sum."""
EDGES = 5
"""A leg lies above four edges at most, or five where one was shortened for a pit."""
NEAR_BOXES = 2
"""Boxes that a leg can reach at once: they are wide, or stand in pairs."""
SLOTS = 4
"""The number of things a leg can touch at once; more of them are ignored."""

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


class Manifold(NamedTuple):
    """The contact of legs with one thing: up to two points with one normal.

    If `on_leg`, normal and plane belong to a side of the leg (in its frame), and the points are fixed in
    the world (relative to the centre of the leg as it was). Otherwise normal and plane belong to the
    ground (the plane relative to the centre as it was) and the points are fixed in the frame of the leg.
    """

    total: Array
    """The number of points."""
    on_leg: Array
    normal: Pair
    plane: Array
    points: tuple[Pair, Pair]
    number: Array
    names: Pair
    """The names of the points, by which the next step knows them again: corners, or cuts with sides."""


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
    ground: Ground, number: Int[Array, " n"], x: Array, y: Array, *, left: Array, edges: int, boxes: int
) -> tuple[Pair, tuple[Array, Array, Array, Array]]:
    """Points of the ground and sides of boxes from `left` on, in the environments of the given numbers.

    Both are relative to (x, y), with their number in front; points are one more than edges, and the sides of
    a box are left, bottom, right and top.
    """
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


def in_slot(things: Things, chosen: Bool[Array, "things ..."]) -> Things:
    """The one thing that is chosen, for each lane."""

    def picked(values: Array) -> Array:
        if values.dtype == jnp.bool_:
            return folded(jnp.logical_or, values & chosen, 0)
        return folded(jnp.add, jnp.where(chosen, values, 0), 0)

    return jax.tree.map(picked, things)


def slots_of(close: Bool[Array, "things ..."], count: int) -> list[Bool[Array, "things ..."]]:
    """For each slot, which thing is in it: the close ones, the last of them first."""
    taken = jnp.cumsum(close[::-1], 0)[::-1]
    return [close & (taken == slot + 1) for slot in range(count)]


def _choose(condition: Array, first: Pair, second: Pair) -> Pair:
    return jnp.where(condition, first[0], second[0]), jnp.where(condition, first[1], second[1])


class _Point(NamedTuple):
    x: Array
    y: Array
    is_cut: Array
    face: Array
    corner: Array


def _pick(condition: Array, first: _Point, second: _Point) -> _Point:
    return _Point(*(jnp.where(condition, a, b) for a, b in zip(first, second)))


def _clip(first: _Point, second: _Point, d1: Array, d2: Array, corner: Array) -> tuple[Array, _Point, _Point]:
    """The part of a segment where d <= 0, in Box2D's order: a corner that is kept comes first."""
    keeps, both, crosses = d1 <= 0, (d1 <= 0) & (d2 <= 0), d1 * d2 < 0
    part = d1 / jnp.where(crosses, d1 - d2, 1.0)
    x, y = first.x + part * (second.x - first.x), first.y + part * (second.y - first.y)
    cut = _Point(x, y, jnp.ones_like(corner), corner, first.corner)
    return both | crosses, _pick(keeps, first, second), _pick(both, second, cut)


class _Seen(NamedTuple):
    """Things in the frames of legs: the centre, both axes, and the extents along these."""

    x: Array
    y: Array
    u: Pair
    v: Pair
    a: Array
    b: Array
    is_box: Array


class _Side(NamedTuple):
    """The side of a rectangle that is farthest from the other one, in the frame of the leg."""

    separation: Array
    normal: Pair
    plane: Array
    middle: Array
    """Where the middle of the side is along it."""
    extent: Array
    number: Array


class _Segment(NamedTuple):
    """The side of the other rectangle that faces it, and the number of its first corner."""

    start: Pair
    end: Pair
    number: Array


def _seen_from_leg(thing: Things, cos: Array, sin: Array) -> _Seen:
    x, y = cos * thing.x + sin * thing.y, cos * thing.y - sin * thing.x
    ux, uy = cos * thing.axis_x + sin * thing.axis_y, cos * thing.axis_y - sin * thing.axis_x
    return _Seen(x, y, (ux, uy), (-uy, ux), thing.half, thing.thickness, thing.is_box)


def _best_side_of_thing(seen: _Seen, w: Array, h: float) -> _Side:
    """Edges have two sides, boxes four."""
    (ux, uy), (vx, vy) = seen.u, seen.v
    u, v = -(seen.x * ux + seen.y * uy), -(seen.x * vx + seen.y * vy)
    along = jnp.abs(u) - seen.a - (jnp.abs(ux) * w + jnp.abs(uy) * h)
    across = jnp.abs(v) - seen.b - (jnp.abs(vx) * w + jnp.abs(vy) * h)
    upright = seen.is_box & (along > across)
    sign = jnp.where(jnp.where(upright, u, v) >= 0, 1.0, -1.0)
    nx, ny = sign * jnp.where(upright, ux, vx), sign * jnp.where(upright, uy, vy)
    return _Side(
        jnp.where(upright, along, across),
        (nx, ny),
        nx * seen.x + ny * seen.y + jnp.where(upright, seen.a, seen.b),
        ny * seen.x - nx * seen.y,
        jnp.where(upright, seen.b, seen.a),
        jnp.where(upright, jnp.where(sign > 0, 0, 2), jnp.where(sign > 0, 1, 3)),
    )


def _best_side_of_leg(seen: _Seen, w: Array, h: float) -> _Side:
    (ux, uy), (vx, vy) = seen.u, seen.v
    ox, oy = seen.a * jnp.abs(ux) + seen.b * jnp.abs(vx), seen.a * jnp.abs(uy) + seen.b * jnp.abs(vy)
    of_width, of_height = jnp.abs(seen.x) - ox - w, jnp.abs(seen.y) - oy - h
    flat, low, left = of_height >= of_width, seen.y < 0, seen.x < 0
    nx = jnp.where(flat, 0.0, jnp.where(left, -1.0, 1.0))
    ny = jnp.where(flat, jnp.where(low, -1.0, 1.0), 0.0)
    return _Side(
        jnp.maximum(of_width, of_height),
        (nx, ny),
        jnp.where(flat, h, w),
        jnp.zeros_like(nx),
        jnp.where(flat, w, h),
        jnp.where(flat, jnp.where(low, 0, 2), jnp.where(left, 3, 1)),
    )


def _leg_facing(normal: Pair, w: Array, h: float) -> _Segment:
    """The side of the leg that faces a thing's of this normal, counter-clockwise."""
    nx, ny = normal
    flat, below, right = jnp.abs(ny) >= jnp.abs(nx), ny >= 0, nx <= 0
    corner_x, corner_y = jnp.where(right, w, -w), jnp.where(below, -h, h)
    return _Segment(
        (
            jnp.where(flat, jnp.where(below, -w, w), corner_x),
            jnp.where(flat, corner_y, jnp.where(right, -h, h)),
        ),
        (
            jnp.where(flat, jnp.where(below, w, -w), corner_x),
            jnp.where(flat, corner_y, jnp.where(right, h, -h)),
        ),
        jnp.where(flat, jnp.where(below, 0, 2), jnp.where(right, 1, 3)),
    )


def _thing_facing(seen: _Seen, normal: Pair) -> _Segment:
    """The side of the thing that faces a leg's of this normal: an edge is one, from its first point on."""
    (ux, uy), (vx, vy), (nx, ny), is_box = seen.u, seen.v, normal, seen.is_box
    du, dv = nx * ux + ny * uy, nx * vx + ny * vy
    end_on = is_box & (jnp.abs(du) > jnp.abs(dv))
    su, sv = jnp.where(du > 0, -1.0, 1.0), jnp.where(dv > 0, -1.0, 1.0)
    x = seen.x + jnp.where(end_on, su * seen.a * ux, sv * seen.b * vx)
    y = seen.y + jnp.where(end_on, su * seen.a * uy, sv * seen.b * vy)
    run = jnp.where(is_box, -sv, 1.0) * seen.a
    run_x, run_y = (
        jnp.where(end_on, su * seen.b * vx, run * ux),
        jnp.where(end_on, su * seen.b * vy, run * uy),
    )
    number = jnp.where(end_on, jnp.where(su > 0, 0, 2), jnp.where(sv > 0, 1, 3))
    return _Segment((x - run_x, y - run_y), (x + run_x, y + run_y), jnp.where(is_box, number, 0))


def touch(thing: Things, exists: Array, cos: Array, sin: Array, half_width: Array) -> Manifold:
    """Contact points of legs with one thing each, which is seen from the centre of the leg.

    As in Box2D: of the best sides of both rectangles the one that is farther from the other is kept, and the
    side that faces it is cut to its width. Of what is left, the points that are near enough count.
    """
    w, h = half_width, HALF_HEIGHT
    seen = _seen_from_leg(thing, cos, sin)
    from_thing, from_leg = _best_side_of_thing(seen, w, h), _best_side_of_leg(seen, w, h)
    on_leg = from_leg.separation > 0.98 * from_thing.separation + 0.001
    plane, middle, extent, face = (
        jnp.where(on_leg, a, b) for a, b in zip(from_leg[2:], from_thing[2:], strict=True)
    )
    nx, ny = _choose(on_leg, from_leg.normal, from_thing.normal)
    extent = extent + jnp.where(thing.is_box, SKIN, 0.0)

    of_thing, of_leg = _thing_facing(seen, from_leg.normal), _leg_facing(from_thing.normal, w, h)
    corner = jnp.where(on_leg, of_thing.number, of_leg.number)
    next_corner = jnp.where(on_leg & ~thing.is_box, 0, (corner + 1) % 4)
    uncut = jnp.zeros_like(face)
    first = _Point(*_choose(on_leg, of_thing.start, of_leg.start), uncut, face, corner)
    second = _Point(*_choose(on_leg, of_thing.end, of_leg.end), uncut, face, next_corner)

    def aside(point: _Point) -> Array:
        return ny * point.x - nx * point.y - middle

    valid_1, first, second = _clip(first, second, aside(first) - extent, aside(second) - extent, face)
    valid_2, first, second = _clip(
        first, second, -aside(first) - extent, -aside(second) - extent, (face + 1) % 4
    )
    valid = exists & (from_thing.separation <= SKIN) & (from_leg.separation <= SKIN) & valid_1 & valid_2
    keeps_1 = valid & (nx * first.x + ny * first.y - plane <= SKIN)
    keeps_2 = valid & (nx * second.x + ny * second.y - plane <= SKIN)
    first = _pick(keeps_1, first, second)

    def in_world(x: Array, y: Array) -> Pair:
        return cos * x - sin * y, sin * x + cos * y

    def name(point: _Point) -> Array:
        return 1 + (((thing.number * 2 + on_leg) * 2 + point.is_cut) * 4 + point.face) * 4 + point.corner

    return Manifold(
        keeps_1.astype(jnp.int32) + keeps_2,
        on_leg,
        _choose(on_leg, (nx, ny), in_world(nx, ny)),
        plane,
        (
            _choose(on_leg, in_world(first.x, first.y), (first.x, first.y)),
            _choose(on_leg, in_world(second.x, second.y), (second.x, second.y)),
        ),
        thing.number,
        (jnp.where(keeps_1 | keeps_2, name(first), 0), jnp.where(keeps_1 & keeps_2, name(second), 0)),
    )


def touched_bits(manifold: Manifold) -> Array:
    """The things that legs touch, as bits that mean the same edge or box in the next step too. Slots are in
    front."""
    # Distinct bits, so the sum is their union.
    return jnp.where(manifold.total > 0, jnp.left_shift(1, manifold.number), 0).sum(0)


class Impact(NamedTuple):
    """A manifold as impulses see it: the direction from the ground to the leg, the arms of both points."""

    normal: Pair
    arms: tuple[Pair, Pair]


def impact(manifold: Manifold, x: Array, y: Array, cos: Array, sin: Array) -> Impact:
    """The effect of contacts on legs in a pose, relative to the centre that they were found at."""
    on_leg = manifold.on_leg

    def turned(x: Array, y: Array) -> Pair:
        return cos * x - sin * y, sin * x + cos * y

    nx, ny = _choose(on_leg, turned(*manifold.normal), manifold.normal)
    arms = []
    for px, py in manifold.points:
        rx, ry = _choose(on_leg, (px - x, py - y), turned(px, py))
        # Half way between the surfaces of the skins.
        depth = nx * (rx + jnp.where(on_leg, 0.0, x)) + ny * (ry + jnp.where(on_leg, 0.0, y)) - manifold.plane
        arms.append((rx - nx * depth / 2, ry - ny * depth / 2))
    sign = jnp.where(on_leg, -1.0, 1.0)
    return Impact((sign * nx, sign * ny), (arms[0], arms[1]))


class Memory(NamedTuple):
    """Impulses of contact points with the names of the points, for the next step to begin with.

    Both have the slots of a leg in front: then two names; and two normal impulses before two tangential ones.
    """

    names: Int[Array, "slots 2 *lanes"]
    impulses: Float[Array, "slots 4 *lanes"]


def remembered(manifold: Manifold, memory: Memory) -> tuple[Array, Array, Array, Array]:
    """The impulses of the same points in the memory; of points that are not there, none."""
    impulses = []
    for kind in (0, 2):
        for name in manifold.names:
            found = jnp.zeros_like(manifold.plane)
            # The first of equal names counts.
            for slot in reversed(range(memory.names.shape[0])):
                for old in (1, 0):
                    same = (name == memory.names[slot, old]) & (name > 0)
                    found = jnp.where(same, memory.impulses[slot, kind + old], found)
            impulses.append(found)
    return impulses[0], impulses[1], impulses[2], impulses[3]
