"""The maze level, how levels are stacked, and what the logs say about one."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from cenie.envs.base import stack_same_shapes
from cenie.records import AnyArray

Position = Sequence[int] | np.ndarray
"""Coordinates (x, y) on the host."""

DIRECTIONS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.int32)
"""Unit vectors (x, y) of the directions 0 = east, 1 = south, 2 = west, 3 = north."""


class MazeLevel(eqx.Module):
    """One maze. Coordinates are (x, y) with x to the east and y to the south, inside the border.

    `time_limit` is the length H of an episode; `occluded` says that walls block the view. Both belong to
    the level, so that one compiled program plays levels that differ in them.
    """

    wall_map: Bool[AnyArray, "*n h w"]
    goal: Int[AnyArray, "*n 2"]
    start: Int[AnyArray, "*n 2"]
    direction: Int[AnyArray, "*n"]
    time_limit: Int[AnyArray, "*n"]
    occluded: Bool[AnyArray, "*n"]


def make_level(
    wall_map: np.ndarray,
    goal: Position,
    start: Position,
    *,
    direction: int = 0,
    time_limit: int = 250,
    occluded: bool = False,
) -> MazeLevel:
    """A level of host arrays from plain values. Raises `ValueError` with every reason if it is not valid."""
    level = MazeLevel(
        np.array(wall_map, bool),
        np.array(goal, np.int32),
        np.array(start, np.int32),
        np.array(direction, np.int32),
        np.array(time_limit, np.int32),
        np.array(occluded, bool),
    )
    problems = level_problems(level)
    if problems:
        raise ValueError("not a valid maze: " + "; ".join(problems))
    return level


def level_problems(level: MazeLevel) -> list[str]:
    """The problems of a level, in words; empty if it is valid. Runs on the host."""
    walls = np.asarray(level.wall_map)
    height, width = walls.shape
    problems = []
    for name, position in (("goal", level.goal), ("start", level.start)):
        x, y = (int(value) for value in np.asarray(position))
        if not (0 <= x < width and 0 <= y < height):
            problems.append(f"the {name} ({x}, {y}) lies outside the {width} x {height} tiles")
        elif walls[y, x]:
            problems.append(f"the {name} ({x}, {y}) is on a wall")
    if np.array_equal(np.asarray(level.goal), np.asarray(level.start)):
        problems.append("the goal and the start are the same tile")
    if not 0 <= int(level.direction) <= 3:
        problems.append(f"the direction must be 0, 1, 2 or 3, got {int(level.direction)}")
    if int(level.time_limit) < 1:
        problems.append(f"the time limit must be at least 1, got {int(level.time_limit)}")
    return problems


def stack_levels(levels: Sequence[MazeLevel]) -> MazeLevel:
    """Stack levels along a new leading axis of host arrays, padding the maps with walls to one size.

    The padding changes nothing for the agent: what lies outside the map reads as a wall anyway.
    """
    shapes = [np.shape(level.wall_map) for level in levels]
    height, width = (max(shape[axis] for shape in shapes) for axis in (0, 1))

    def padded(level: MazeLevel, shape: tuple[int, ...]) -> MazeLevel:
        margins = ((0, height - shape[0]), (0, width - shape[1]))
        walls = np.pad(np.asarray(level.wall_map), margins, constant_values=True)
        return eqx.tree_at(lambda level: level.wall_map, level, walls)

    padded_levels = [padded(level, shape) for level, shape in zip(levels, shapes)]
    return stack_same_shapes(padded_levels)


def statistics(level: MazeLevel) -> dict[str, Array]:
    """Scalars for the logs: walls, Manhattan distance, shortest path, and whether a path exists.

    A level without a path has the length 0, so that the mean of the others is the mean of all divided by that
    of `solvable`.
    """
    walls, manhattan, path = _measures(level)
    solvable = path <= level.wall_map.size
    return {
        "walls": walls,
        "manhattan": manhattan,
        "path": jnp.where(solvable, path, 0),
        "solvable": solvable,
    }


def encoding(level: MazeLevel) -> Float[Array, " 3"]:
    """Walls, Manhattan distance and shortest path, as shares of the largest possible numbers.

    No path is longer than every path.
    """
    height, width = level.wall_map.shape
    walls, manhattan, path = _measures(level)
    shares = walls / level.wall_map.size, path / (level.wall_map.size + 1), manhattan / (height + width - 2)
    return jnp.stack(shares).astype(jnp.float32)


def _measures(level: MazeLevel) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """The number of walls, the Manhattan distance from start to goal, and the length of the shortest path."""
    walls = jnp.sum(level.wall_map, dtype=jnp.int32)
    return walls, jnp.sum(jnp.abs(level.goal - level.start)), shortest_path(level)


def shortest_path(level: MazeLevel) -> Int[Array, ""]:
    """Length of the shortest 4-connected path from start to goal, or `h * w + 1` if there is none.

    A flood fill over rows packed into 32-bit words. It stops when the flood meets the goal or stands
    still; for a batch (under `vmap`) when this is so in every level.
    """
    height, width = level.wall_map.shape
    free = pack_bits(~jnp.asarray(level.wall_map))
    start, goal = (_tile_bit(free.shape, jnp.asarray(position)) for position in (level.start, level.goal))

    def still_spreading(carry):
        flood, before, _ = carry
        return jnp.any(flood != before) & ~jnp.any(flood & goal)

    def spread(carry):
        flood, _, length = carry
        return (flood | _neighbours(flood)) & free, flood, length + 1

    flood, _, length = jax.lax.while_loop(
        still_spreading, spread, (start, jnp.zeros_like(start), jnp.int32(0))
    )
    return jnp.where(jnp.any(flood & goal), length, height * width + 1)


def pack_bits(cells: Bool[Array, "h w"]) -> UInt32[Array, "h k"]:
    """Rows as 32-bit words: bit `x % 32` of word `x // 32` is cell x; bits past the width are 0."""
    height, width = cells.shape
    words = -(-width // 32)
    padded = jnp.pad(cells, ((0, 0), (0, 32 * words - width))).reshape(height, words, 32)
    return jnp.sum(padded.astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def _tile_bit(shape: tuple[int, ...], position: Int[Array, " 2"]) -> UInt32[Array, "h k"]:
    rows, words = (
        jnp.arange(size)[:, None] if axis == 0 else jnp.arange(size) for axis, size in enumerate(shape)
    )
    is_tile = (rows == position[1]) & (words == position[0] // 32)
    return jnp.where(is_tile, jnp.uint32(1) << (position[0] % 32).astype(jnp.uint32), jnp.uint32(0))


def _neighbours(flood: UInt32[Array, "h k"]) -> UInt32[Array, "h k"]:
    """The four neighbours of every set bit; bits that leave the map fall off."""
    # The bit at the end of a word moves to the other end of the next one.
    step, carry = jnp.uint32(1), jnp.uint32(31)
    east = (flood << step) | jnp.pad(flood >> carry, ((0, 0), (1, 0)))[:, :-1]
    west = (flood >> step) | jnp.pad(flood << carry, ((0, 0), (0, 1)))[:, 1:]
    south = jnp.pad(flood, ((1, 0), (0, 0)))[:-1]
    north = jnp.pad(flood, ((0, 1), (0, 0)))[1:]
    return east | west | south | north
