"""Where legs touch the ground: Box2D's contact points of rectangles with edges and boxes.

All arrays have the environments (or single legs of them) as their last axes, here called "lanes", and what is
tested against each leg, or found for it, in front.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.walker.body import HALF_HEIGHT
from cenie.envs.walker.terrain import POINTS, STEP

SKIN = 0.02
"""Shapes have a skin of 0.01 each: they touch at distances up to the sum."""
EDGES = 5
"""A leg lies above four edges at most, or five where one was shortened for a pit."""
NEAR_BOXES = 2
"""Boxes that a leg can reach at once: they are wide, or stand in pairs."""
SLOTS = 4
"""How many things a leg can touch at once; more of them are ignored."""


class Ground(NamedTuple):
    """A terrain in the form that the physics reads: environments first."""

    x: Float[Array, "n 200"]
    y: Float[Array, "n 200"]
    boxes: Float[Array, "n 48 4"]
    first_box: Int[Array, "n 200"]
    """Of each cell, the first box that does not end before it."""


class Near(NamedTuple):
    """The part of the ground that some legs can reach: points of edges, sides of boxes, and their numbers."""

    x: Float[Array, "points *lanes"]
    y: Float[Array, "points *lanes"]
    boxes: Float[Array, "4 boxes *lanes"]
    first_edge: Int[Array, "*lanes"]
    first_box: Int[Array, "*lanes"]


class Legs(NamedTuple):
    """Rectangles: centre, angle (as cosine and sine) and half width."""

    x: Float[Array, "*lanes"]
    y: Float[Array, "*lanes"]
    cos: Float[Array, "*lanes"]
    sin: Float[Array, "*lanes"]
    half_width: Float[Array, "*lanes"]


class Manifolds(NamedTuple):
    """What legs touch: up to two points each with one normal.

    If `on_leg`, normal and plane are those of a side of the leg (in its frame), and the points are fixed in the
    world (relative to the centre of the leg as it was). Otherwise normal and plane are those of the ground (the
    plane relative to the centre as it was) and the points are fixed in the frame of the leg.
    """

    count: Int[Array, "*slots_lanes"]
    on_leg: Bool[Array, "*slots_lanes"]
    normal: tuple[Array, Array]
    plane: Float[Array, "*slots_lanes"]
    points: tuple[tuple[Array, Array], tuple[Array, Array]]
    thing: Int[Array, "*slots_lanes"]
    """Which edge or box it is: a number below 24 that stays the same while a leg is near it."""
    names: tuple[Array, Array]
    """What the points are, so that the next step knows them again: corners, or cuts, of which sides."""


def legs_at(x: Array, y: Array, angle: Array, half_width: Array) -> Legs:
    return Legs(x, y, jnp.cos(angle), jnp.sin(angle), half_width)


def reach(legs: Legs) -> Float[Array, "*lanes"]:
    """How far legs extend from their centre in x."""
    return jnp.abs(legs.cos) * legs.half_width + jnp.abs(legs.sin) * HALF_HEIGHT


def near(ground: Ground, number: Int[Array, "*lanes"], left: Array, edges: int = EDGES) -> Near:
    """The ground from `left` on, in the environments of the given numbers."""
    cell = jnp.clip(jnp.floor(left / STEP).astype(jnp.int32), 0, POINTS - 1 - edges)
    points = cell + _column(edges + 1, cell.ndim)
    first = ground.first_box.at[number, cell].get(mode="promise_in_bounds")
    boxes = jnp.minimum(first + _column(NEAR_BOXES, cell.ndim), ground.boxes.shape[1] - 1)
    sides = _column(4, cell.ndim + 1)
    return Near(
        ground.x.at[number, points].get(mode="promise_in_bounds"),
        ground.y.at[number, points].get(mode="promise_in_bounds"),
        ground.boxes.at[number, boxes, sides].get(mode="promise_in_bounds"),
        cell,
        first,
    )


def _column(count: int, ndim: int) -> Int[Array, "count *ones"]:
    return jnp.arange(count, dtype=jnp.int32).reshape((count,) + (1,) * ndim)


class _Reference(NamedTuple):
    """A reference face with the segment that is clipped to it, in the frame of the leg."""

    close: Array
    on_leg: Array
    normal: tuple[Array, Array]
    plane: Array
    bounds: tuple[Array, Array]
    start: tuple[Array, Array]
    end: tuple[Array, Array]
    face: Array
    """The number of the reference face; a cut at its start or end is named after the corner there."""
    corners: tuple[Array, Array]
    incident: tuple[Array, Array]
    """Numbers of the two corners of the incident side."""


def _facing_side(
    nx: Array, ny: Array, half_width: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
    """The side of a leg whose normal opposes (nx, ny) most: its two corners counter-clockwise, its number."""
    w, h = half_width, HALF_HEIGHT
    flat = jnp.minimum(-ny, ny) <= jnp.minimum(nx, -nx)
    below, right = -ny <= ny, nx <= -nx
    sx, sy = jnp.where(right, w, -w), jnp.where(below, -h, h)
    start = jnp.where(flat, jnp.where(below, -w, w), sx), jnp.where(flat, sy, jnp.where(right, -h, h))
    end = jnp.where(flat, jnp.where(below, w, -w), sx), jnp.where(flat, sy, jnp.where(right, h, -h))
    return start, end, jnp.where(flat, jnp.where(below, 0, 2), jnp.where(right, 1, 3))


def _best_side(
    below: Array, right: Array, above: Array, left: Array, half_width: Array
) -> tuple[Array, tuple[Array, Array], Array, Array, Array]:
    """Of the separations along a leg's four normals the largest, its normal, the two half extents, its number."""
    best = jnp.maximum(jnp.maximum(below, right), jnp.maximum(above, left))
    is_below = below >= best
    is_right = ~is_below & (right >= best)
    is_above = ~is_below & ~is_right & (above >= best)
    flat = is_below | is_above
    nx = jnp.where(flat, 0.0, jnp.where(is_right, 1.0, -1.0))
    ny = jnp.where(flat, jnp.where(is_below, -1.0, 1.0), 0.0)
    across = jnp.where(flat, HALF_HEIGHT, half_width)
    along = jnp.where(flat, half_width, HALF_HEIGHT)
    number = jnp.where(flat, jnp.where(is_below, 0, 2), jnp.where(is_right, 1, 3))
    return best, (nx, ny), across, along, number


def _choose(condition: Array, first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    return jnp.where(condition, first[0], second[0]), jnp.where(condition, first[1], second[1])


def _edges(legs: Legs, ground: Near) -> _Reference:
    """Single edges, which have two sides and no neighbours that would smooth them."""
    w = legs.half_width
    dx, dy = ground.x - legs.x, ground.y - legs.y
    px, py = legs.cos * dx + legs.sin * dy, legs.cos * dy - legs.sin * dx
    x1, y1, x2, y2 = px[:-1], py[:-1], px[1:], py[1:]
    length = jnp.sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
    nx, ny = (y2 - y1) / length, (x1 - x2) / length
    front = nx * x1 + ny * y1 <= 0
    nx, ny = jnp.where(front, nx, -nx), jnp.where(front, ny, -ny)
    plane = nx * x1 + ny * y1
    from_edge = -plane - w * jnp.abs(nx) - HALF_HEIGHT * jnp.abs(ny)
    from_leg, leg_normal, across, along, side = _best_side(
        -jnp.maximum(y1, y2) - HALF_HEIGHT,
        jnp.minimum(x1, x2) - w,
        jnp.minimum(y1, y2) - HALF_HEIGHT,
        -jnp.maximum(x1, x2) - w,
        w,
    )
    on_leg = from_leg > 0.98 * from_edge + 0.001
    start, end, facing = _facing_side(nx, ny, w)
    at_1, at_2 = ny * x1 - nx * y1, ny * x2 - nx * y2
    return _Reference(
        (from_edge <= SKIN) & (from_leg <= SKIN),
        on_leg,
        _choose(on_leg, leg_normal, (nx, ny)),
        jnp.where(on_leg, across, plane),
        (
            jnp.where(on_leg, along, jnp.maximum(at_1, at_2)),
            jnp.where(on_leg, along, -jnp.minimum(at_1, at_2)),
        ),
        _choose(on_leg, (x1, y1), start),
        _choose(on_leg, (x2, y2), end),
        jnp.where(on_leg, side, 0),
        _choose(on_leg, (side, (side + 1) % 4), (jnp.where(front, 0, 1), jnp.where(front, 1, 0))),
        _choose(on_leg, (0 * side, 0 * side), (facing, (facing + 1) % 4)),
    )


def _boxes(legs: Legs, ground: Near) -> _Reference:
    w, cos, sin = legs.half_width, legs.cos, legs.sin
    left, bottom, right, top = ground.boxes
    left, right, bottom, top = left - legs.x, right - legs.x, bottom - legs.y, top - legs.y
    # Sides of the box: the leg's extents in the world.
    ex = jnp.abs(cos) * w + jnp.abs(sin) * HALF_HEIGHT
    ey = jnp.abs(sin) * w + jnp.abs(cos) * HALF_HEIGHT
    sides = (-ex - right, -ey - top, left - ex, bottom - ey)
    from_box = jnp.maximum(jnp.maximum(sides[0], sides[1]), jnp.maximum(sides[2], sides[3]))
    is_right = sides[0] >= from_box
    is_top = ~is_right & (sides[1] >= from_box)
    is_left = ~is_right & ~is_top & (sides[2] >= from_box)
    wx = jnp.where(is_right, 1.0, jnp.where(is_left, -1.0, 0.0))
    wy = jnp.where(is_top, 1.0, jnp.where(is_right | is_left, 0.0, -1.0))
    plane = jnp.where(is_right, right, jnp.where(is_top, top, jnp.where(is_left, -left, -bottom)))
    nx, ny = cos * wx + sin * wy, cos * wy - sin * wx
    # Along the side, in the direction (wy, -wx).
    upper = jnp.where(is_right, -bottom, jnp.where(is_top, right, jnp.where(is_left, top, -left)))
    lower = jnp.where(is_right, top, jnp.where(is_top, -left, jnp.where(is_left, -bottom, right)))
    # Sides of the leg: the box's extents in its frame.
    mx, my = (left + right) / 2, (bottom + top) / 2
    hx, hy = (right - left) / 2, (top - bottom) / 2
    bx, by = cos * mx + sin * my, cos * my - sin * mx
    ox = jnp.abs(cos) * hx + jnp.abs(sin) * hy
    oy = jnp.abs(sin) * hx + jnp.abs(cos) * hy
    from_leg, leg_normal, across, along, side = _best_side(
        -by - oy - HALF_HEIGHT, bx - ox - w, by - oy - HALF_HEIGHT, -bx - ox - w, w
    )
    on_leg = from_leg > 0.98 * from_box + 0.001
    start, end, facing = _facing_side(nx, ny, w)
    # The side of the box that faces the leg's normal most.
    lx, ly = cos * leg_normal[0] - sin * leg_normal[1], sin * leg_normal[0] + cos * leg_normal[1]
    upright = jnp.minimum(lx, -lx) <= jnp.minimum(ly, -ly)
    at_right, at_top = lx <= -lx, ly <= -ly
    first = (
        jnp.where(upright, jnp.where(at_right, right, left), jnp.where(at_top, right, left)),
        jnp.where(upright, jnp.where(at_right, bottom, top), jnp.where(at_top, top, bottom)),
    )
    second = (
        jnp.where(upright, jnp.where(at_right, right, left), jnp.where(at_top, left, right)),
        jnp.where(upright, jnp.where(at_right, top, bottom), jnp.where(at_top, top, bottom)),
    )

    box_side = jnp.where(is_right, 0, jnp.where(is_top, 1, jnp.where(is_left, 2, 3)))
    box_facing = jnp.where(upright, jnp.where(at_right, 0, 2), jnp.where(at_top, 1, 3))
    face = jnp.where(on_leg, side, box_side)
    incident = jnp.where(on_leg, box_facing, facing)

    def turned(point: tuple[Array, Array]) -> tuple[Array, Array]:
        return cos * point[0] + sin * point[1], cos * point[1] - sin * point[0]

    return _Reference(
        (from_box <= SKIN) & (from_leg <= SKIN),
        on_leg,
        _choose(on_leg, leg_normal, (nx, ny)),
        jnp.where(on_leg, across, plane),
        (jnp.where(on_leg, along, upper) + SKIN, jnp.where(on_leg, along, lower) + SKIN),
        _choose(on_leg, turned(first), start),
        _choose(on_leg, turned(second), end),
        face,
        (face, (face + 1) % 4),
        (incident, (incident + 1) % 4),
    )


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


def touching(legs: Legs, ground: Near) -> Manifolds:
    """Contact points of legs with every edge and box near them (in this order)."""
    edges, boxes = _edges(legs, ground), _boxes(legs, ground)
    ref = _Reference(
        *(
            tuple(jnp.concatenate(pair) for pair in zip(a, b))
            if isinstance(a, tuple)
            else jnp.concatenate((a, b))
            for a, b in zip(edges, boxes)
        )
    )
    nx, ny = ref.normal

    def along(point: _Point) -> Array:
        return ny * point.x - nx * point.y

    zero = jnp.zeros_like(ref.face)
    first = _Point(*ref.start, zero, ref.face, ref.incident[0])
    second = _Point(*ref.end, zero, ref.face, ref.incident[1])
    low, high = ref.bounds
    valid_1, first, second = _clip(first, second, along(first) - low, along(second) - low, ref.corners[0])
    valid_2, first, second = _clip(first, second, -along(first) - high, -along(second) - high, ref.corners[1])
    valid = ref.close & valid_1 & valid_2
    keeps_1 = valid & (nx * first.x + ny * first.y - ref.plane <= SKIN)
    keeps_2 = valid & (nx * second.x + ny * second.y - ref.plane <= SKIN)
    first = _pick(keeps_1, first, second)

    def in_world(x: Array, y: Array) -> tuple[Array, Array]:
        return legs.cos * x - legs.sin * y, legs.sin * x + legs.cos * y

    edge_numbers = (ground.first_edge + _column(edges.face.shape[0], ground.first_edge.ndim)) % 16
    box_numbers = 16 + (ground.first_box + _column(NEAR_BOXES, ground.first_box.ndim)) % 8
    thing = jnp.concatenate((edge_numbers, box_numbers))

    def name(point: _Point) -> Array:
        return 1 + (((thing * 2 + ref.on_leg) * 2 + point.is_cut) * 4 + point.face) * 4 + point.corner

    return Manifolds(
        keeps_1.astype(jnp.int32) + keeps_2,
        ref.on_leg,
        _choose(ref.on_leg, ref.normal, in_world(nx, ny)),
        ref.plane,
        (
            _choose(ref.on_leg, in_world(first.x, first.y), (first.x, first.y)),
            _choose(ref.on_leg, in_world(second.x, second.y), (second.x, second.y)),
        ),
        thing,
        (jnp.where(keeps_1 | keeps_2, name(first), 0), jnp.where(keeps_1 & keeps_2, name(second), 0)),
    )


def touched_bits(found: Manifolds) -> Int[Array, "*lanes"]:
    """What a leg touches as bits that mean the same edge or box in the next step too."""
    # Distinct bits, so the sum is their union.
    return jnp.where(found.count > 0, jnp.left_shift(1, found.thing), 0).sum(0, dtype=jnp.int32)


def in_slots(manifolds: Manifolds) -> Manifolds:
    """The manifolds that have points, moved to the first places; the latter of them come first."""
    touches = manifolds.count > 0
    total = touches.shape[0]
    rank = [jnp.zeros_like(manifolds.count[0])] * (total + 1)
    for index in reversed(range(total)):
        rank[index] = rank[index + 1] + touches[index]
    slot = jnp.stack([jnp.where(touches[i], rank[i + 1], SLOTS) for i in range(total)])

    def moved(values: Array) -> Array:
        kind = jnp.int32 if values.dtype == jnp.bool_ else values.dtype
        found = [jnp.where(slot == s, values.astype(kind), 0).sum(0) for s in range(SLOTS)]
        return jnp.stack(found).astype(values.dtype)

    return jax.tree.map(moved, manifolds)


class Impact(NamedTuple):
    """Manifolds as impulses see them: the direction from the ground to the leg, and the arms of both points."""

    normal: tuple[Array, Array]
    arms: tuple[tuple[Array, Array], tuple[Array, Array]]


def impact(manifolds: Manifolds, pose: tuple[Array, Array, Array]) -> Impact:
    """How contacts act on legs in a pose (x, y, angle), relative to the centre that they were found at."""
    x, y, angle = pose
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    on_leg = manifolds.on_leg

    def turned(x: Array, y: Array) -> tuple[Array, Array]:
        return cos * x - sin * y, sin * x + cos * y

    nx, ny = _choose(on_leg, turned(*manifolds.normal), manifolds.normal)
    arms = []
    for px, py in manifolds.points:
        rx, ry = _choose(on_leg, (px - x, py - y), turned(px, py))
        # Half way between the surfaces of the skins.
        apart = (
            nx * (rx + jnp.where(on_leg, 0.0, x)) + ny * (ry + jnp.where(on_leg, 0.0, y)) - manifolds.plane
        )
        arms.append((rx - nx * apart / 2, ry - ny * apart / 2))
    sign = jnp.where(on_leg, -1.0, 1.0)
    return Impact((sign * nx, sign * ny), (arms[0], arms[1]))


class Memory(NamedTuple):
    """Impulses of contact points with the names of the points, for the next step to begin with."""

    names: Int[Array, "2 slots *lanes"]
    impulses: Float[Array, "4 slots *lanes"]
    """Of both points: along the normal, then along the tangent."""


def remembered(manifolds: Manifolds, memory: Memory) -> Memory:
    """The impulses of the same points in the memory; of points that are not there, none."""
    names = jnp.stack(manifolds.names)
    impulses = []
    for kind in (0, 2):
        for point in range(2):
            found = jnp.zeros_like(memory.impulses[0])
            # The first of equal names counts.
            for old_point in (1, 0):
                for slot in reversed(range(SLOTS)):
                    same = (names[point] == memory.names[old_point, slot]) & (names[point] > 0)
                    found = jnp.where(same, memory.impulses[kind + old_point, slot], found)
            impulses.append(found)
    return Memory(names, jnp.stack(impulses))
