"""The ground that a walker walks on: a line of points, and boxes that stand on it or line its pits.

Sections of grass and of one obstacle follow each other. The rules follow the original code's levels of
eight parameters, and of gym's hardcore task; its flat task is a level of roughness 1 without obstacles.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.walker.level import WalkerLevel

POINTS = 200
"""Points of the ground line."""
BOXES = 48
"""More than any level has, unless it draws several pits of no width (each has a chance of 1e-7)."""
STEP = 14 / 30
"""The distance of two points in x, and the unit of all heights and widths of a level."""
BASE = 400 / 30 / 4
"""The height of the ground at the start."""
START_PAD = 20
"""Points before the first obstacle, all at the height of the start."""
FINISH = (POINTS - 10) * STEP
"""Where the course ends: how far a walker has to come."""
PUSH = 5.0
"""The largest force in x on the hull in the first step."""

GRASS, STUMP, STAIRS, PIT = range(4)
SIZE, SLOPE, COUNT, LENGTH, NEXT = range(5)
"""Columns of the random numbers of a point: what is chosen by each."""

_STAIR_WIDTH = 4
_MOST_STAIRS = 8
_SMALLEST_STAIR = 0.01
"""Stairs of lower steps are left out."""
_FAR = 1000.0
_SMALLEST = {STUMP: 0.2, STAIRS: 0.2, PIT: 0.8}
"""The least value of an obstacle's largest size for it to occur at all."""


class Terrain(eqx.Module):
    """Edges join consecutive points. Boxes are sorted by their left side; unused ones stand at the end.

    A box is (left, bottom, right, top). An unused one lies far beyond the course, where nothing touches it.
    """

    x: Float[Array, "*n 200"]
    y: Float[Array, "*n 200"]
    boxes: Float[Array, "*n 48 4"]
    num_boxes: Int[Array, "*n"]
    push: Float[Array, "*n"]
    """The force in x on the hull in the first step, part of the level."""
    time_limit: Int[Array, "*n"]
    """The length of an episode, part of the level."""


class Chances(eqx.Module):
    """All that is random in a terrain, uniform in [0, 1): a row for each point, with `SIZE` and so on."""

    points: Float[Array, "*n 200 5"]
    push: Float[Array, "*n"]


class _Rules(NamedTuple):
    """A level's parameters, sorted and rounded. The sizes are (lowest, highest)."""

    roughness: Float[Array, ""]
    stump: Float[Array, " 2"]
    stair: Float[Array, " 2"]
    pit: Float[Array, " 2"]
    stair_steps: Int[Array, ""]
    hardcore: Bool[Array, ""]
    allowed: Bool[Array, " 3"]


class _Obstacle(NamedTuple):
    """The obstacle that begins at the point of a number. `size` is the height; for a pit it is the distance
    of its walls."""

    kind: Int[Array, "..."]
    number: Int[Array, "..."]
    y: Float[Array, "..."]
    size: Float[Array, "..."]
    slope: Float[Array, "..."]
    steps: Int[Array, "..."]


class _Section(NamedTuple):
    """Where the ground line has got to: how many points of a section are left, and what it remembers."""

    kind: Int[Array, ""]
    left: Int[Array, ""]
    begins: Bool[Array, ""]
    y: Float[Array, ""]
    velocity: Float[Array, ""]
    obstacle: _Obstacle


def terrain_of(level: WalkerLevel) -> Terrain:
    """The terrain of a level, always the same one."""
    # The generator is named, so that a level means the same whatever JAX is set to.
    key = jax.random.key(jnp.asarray(level.seed, jnp.uint32), impl="threefry2x32")
    chances = jax.random.uniform(key, (POINTS * 5 + 1,), jnp.float32)
    return build_terrain(level, Chances(chances[:-1].reshape(POINTS, 5), chances[-1]))


def build_terrain(level: WalkerLevel, chances: Chances) -> Terrain:
    """The terrain of a level and of given random numbers."""
    rules = _rules(level)

    none, zero = jnp.int32(GRASS), jnp.float32(0.0)
    start = _Section(
        kind=none,
        left=jnp.int32(START_PAD),
        begins=jnp.zeros((), bool),
        y=jnp.float32(BASE),
        velocity=zero,
        obstacle=_Obstacle(none, none, y=zero, size=zero, slope=zero, steps=jnp.int32(0)),
    )
    numbers = jnp.arange(POINTS, dtype=jnp.int32)
    _, (x, y, obstacles) = jax.lax.scan(partial(_advance, rules), start, (numbers, chances.points))
    boxes, num_boxes = _boxes(rules, obstacles)
    push = PUSH * (2.0 * chances.push - 1.0)
    return Terrain(x, y, boxes, num_boxes, push, jnp.asarray(level.time_limit, jnp.int32))


def _rules(level: WalkerLevel) -> _Rules:
    roughness, *sizes, steps = jnp.asarray(level.parameters, jnp.float32)
    pit, stump, stair = jnp.sort(jnp.stack(sizes).reshape(3, 2), axis=1)
    hardcore = jnp.asarray(level.hardcore)
    largest = {STUMP: stump[1], STAIRS: stair[1], PIT: pit[1]}
    allowed = jnp.stack([largest[kind] >= _SMALLEST[kind] for kind in (STUMP, STAIRS, PIT)])
    return _Rules(
        roughness, stump, stair, pit, jnp.round(steps).astype(jnp.int32), hardcore, allowed | hardcore
    )


def _advance(
    rules: _Rules, section: _Section, point: tuple[Int[Array, ""], Float[Array, " 5"]]
) -> tuple[_Section, tuple[Float[Array, ""], Float[Array, ""], _Obstacle]]:
    """One point of the ground line, and the obstacle that begins there, if any."""
    number, chance = point
    kind, within = section.kind, ~section.begins
    starts = section.begins & (kind != GRASS)
    begun, length = _begin(rules, section, number, chance)
    obstacle = jax.tree.map(lambda new, old: jnp.where(starts, new, old), begun, section.obstacle)
    left = jnp.where(starts, length, section.left)

    # The first point of a section is as high as the last one before it; what follows depends on the kind.
    velocity = 0.8 * section.velocity + 0.01 * jnp.sign(BASE - section.y)
    velocity += jnp.where(number > START_PAD, (2.0 * chance[SIZE] - 1.0) / 30.0, 0.0)
    velocity = jnp.where(within & (kind == GRASS), velocity, section.velocity)
    grass = section.y + rules.roughness * velocity
    pit = obstacle.y - jnp.where(left > 1, 4 * STEP, 0.0)
    later = jnp.stack([grass, section.y, _stair_ground(rules, obstacle, left), pit])
    y = jnp.where(within, later[kind], section.y)
    # The far rim of a pit may lie between two points: the second of them moves there.
    rim = within & (kind == PIT) & (left == 1)
    x = (number - jnp.where(rim, jnp.ceil(obstacle.size) - obstacle.size, 0.0)) * STEP

    ends = left == 1
    following = jnp.where(kind == GRASS, _next_obstacle(rules, chance[NEXT]), GRASS)
    section = _Section(
        kind=jnp.where(ends, following, kind),
        left=jnp.where(ends, 5 + _choose(chance[LENGTH], 5), left - 1),
        begins=ends,
        y=y,
        velocity=velocity,
        obstacle=obstacle,
    )
    return section, (x, y, begun._replace(kind=jnp.where(starts, kind, GRASS)))


def _begin(
    rules: _Rules, section: _Section, number: Int[Array, ""], chance: Float[Array, " 5"]
) -> tuple[_Obstacle, Int[Array, ""]]:
    """The obstacle of the section, were it to begin at this point, and how many points it then has."""
    kind, hardcore = section.kind, rules.hardcore
    low, high = jnp.stack([jnp.zeros(2), rules.stump, rules.stair, 1.0 + rules.pit])[kind]
    whole = jnp.array([0, 1, 1, 3])[kind] + jnp.where(kind == STAIRS, 0, _choose(chance[SIZE], 2))
    size = jnp.where(hardcore, whole.astype(jnp.float32), low + chance[SIZE] * (high - low))
    steps = jnp.where(hardcore, 3 + _choose(chance[COUNT], 2), _choose(chance[COUNT], rules.stair_steps))
    slope = jnp.where(chance[SLOPE] > 0.5, 1.0, -1.0)
    stairs = jnp.where(size > _SMALLEST_STAIR, _STAIR_WIDTH * steps + 1, section.left)
    lengths = jnp.stack(
        [
            section.left,
            jnp.where(hardcore, whole, section.left),
            jnp.where(hardcore, _STAIR_WIDTH * steps, stairs),
            jnp.ceil(size).astype(jnp.int32) + 2,
        ]
    )
    return _Obstacle(kind, number, section.y, size, slope, steps), lengths[kind]


def _stair_ground(rules: _Rules, stairs: _Obstacle, left: Int[Array, ""]) -> Float[Array, ""]:
    """The ground below stairs: in steps too, or a slope in the hardcore task."""
    passed = _STAIR_WIDTH * stairs.steps - left
    rise = stairs.slope * stairs.size * STEP
    below = jnp.where(stairs.slope < 0.0, stairs.size * STEP, 0.0)
    stepped = stairs.y + (passed // _STAIR_WIDTH) * rise - below
    return jnp.where(rules.hardcore, stairs.y + (passed - stairs.slope) / _STAIR_WIDTH * rise, stepped)


def _next_obstacle(rules: _Rules, chance: Float[Array, ""]) -> Int[Array, ""]:
    """One of the obstacles that the level allows, with equal chances; grass if it allows none."""
    rank = jnp.cumsum(rules.allowed, dtype=jnp.int32)
    found = 1 + jnp.sum(rank <= _choose(chance, rank[-1]), dtype=jnp.int32)
    return jnp.where(rank[-1] > 0, found, GRASS)


def _boxes(rules: _Rules, obstacles: _Obstacle) -> tuple[Float[Array, "48 4"], Int[Array, ""]]:
    """The boxes of all obstacles from left to right, and how many there are."""
    each = jnp.arange(_MOST_STAIRS)
    kind, number, y, size, slope, steps = (value[:, None] for value in obstacles)
    stump_width = jnp.where(rules.hardcore, size, 1.0)
    climbed = each * slope * size
    # In units of STEP, from where the obstacle begins: left, bottom, right, top, and how many there are.
    stump = (0.0, 0.0, stump_width, size, jnp.where(size > 0.0, 1, 0))
    stairs = (
        _STAIR_WIDTH * each,
        climbed - size,
        _STAIR_WIDTH * (each + 1),
        climbed,
        jnp.where(size > _SMALLEST_STAIR, steps, 0),
    )
    pit = (each * size, -4.0, each * size + 1.0, 0.0, 2)
    left, bottom, right, top, count = (
        jnp.select([kind == STUMP, kind == STAIRS, kind == PIT], choices, 0)
        for choices in zip(stump, stairs, pit)
    )
    # The sides as multiples of STEP, as the points are, so that they lie on the same numbers.
    sides = [(number + left) * STEP, y + bottom * STEP, (number + right) * STEP, y + top * STEP]
    boxes = jnp.stack(sides, axis=-1)
    used = (each < count).reshape(-1)
    place = jnp.where(used, jnp.cumsum(used) - 1, BOXES)
    unused = jnp.broadcast_to(jnp.array([_FAR, 0.0, _FAR + 1.0, 1.0]), (BOXES, 4))
    filled = unused.at[place].set(boxes.reshape(-1, 4), mode="drop")
    return filled, jnp.minimum(jnp.sum(used, dtype=jnp.int32), BOXES)


def _choose(chance: Float[Array, ""], options: int | Int[Array, ""]) -> Int[Array, ""]:
    """A whole number from 0 to `options - 1`, evenly, from one that is uniform in [0, 1)."""
    return (chance * options).astype(jnp.int32)
