"""Where legs touch the ground: Box2D's contact points of rectangles with edges and boxes.

All arrays have the environments, or single legs of them, as their last axis ("lanes").
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.walker.physics.body import HALF_HEIGHT
from cenie.envs.walker.physics.ground import SKIN, Pair, Things
from cenie.envs.walker.physics.lanes import folded

SLOTS = 4
"""The number of things a leg can touch at once; more of them are ignored."""


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
