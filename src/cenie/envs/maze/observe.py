"""The student's view: five sight lines of five tiles each, and its direction.

The view is read through packed words: every line of the map is one or more 32-bit words, five tiles ahead
are five bits of one word, and these five bits index a table that holds the finished 15 bytes of that
sight line. The words depend on the level only, so XLA computes them once outside a rollout's loop.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from cenie.envs.maze.level import MazeLevel

VIEW = 5
EMPTY, WALL, GOAL = (1, 0, 0), (2, 5, 0), (8, 1, 0)
"""Codes (object, colour, state) of a tile. An unseen tile is (0, 0, 0)."""


class MazeObservation(eqx.Module):
    """`image[u, v]`: column u from left to right, row v from far to near; the agent is at u = 2, v = 4."""

    image: UInt8[Array, "*n 5 5 3"]
    direction: Int[Array, "*n"]


def observe(level: MazeLevel, position: Int[Array, " 2"], direction: Int[Array, ""]) -> MazeObservation:
    """The egocentric view of an agent at `position` facing `direction`."""
    walls, goal = _sight_lines(level, position, direction)
    unseen = jnp.where(level.occluded, ~_visible(walls), jnp.uint32(0))
    lines = jnp.arange(VIEW, dtype=jnp.uint32)
    unseen = (unseen >> (VIEW * lines)) & 31
    rows = (unseen.astype(jnp.int32) * (VIEW + 1) + goal) * 32 + walls.astype(jnp.int32)
    image = jnp.asarray(_SIGHT).at[rows].get(mode="promise_in_bounds")
    return MazeObservation(image.reshape(VIEW, VIEW, 3), direction)


def _sight_lines(
    level: MazeLevel, position: Int[Array, " 2"], direction: Int[Array, ""]
) -> tuple[UInt32[Array, " 5"], Int[Array, " 5"]]:
    """For each view column u: walls as five bits, nearest tile lowest, and how far ahead the goal is.

    The distance of the goal is 5 if it is not on this line or not in sight.
    """
    height, width = level.wall_map.shape
    words = max(_word_count(height), _word_count(width))
    walls = jnp.asarray(level.wall_map)
    lines = jnp.concatenate([_pack(walls, words), _pack(walls.T, words)]).reshape(-1)
    vertical, backward = (direction & 1) == 1, direction >= 2
    along, across = _along_and_across(vertical, position)
    goal_along, goal_across = _along_and_across(vertical, jnp.asarray(level.goal))
    right = jnp.where((direction == 0) | (direction == 3), 1, -1)
    line = across + right * (jnp.arange(VIEW) - VIEW // 2)
    inside = (line >= 0) & (line < jnp.where(vertical, width, height))
    nearest = along - jnp.where(backward, VIEW - 1, 0) + 8
    index = (line + jnp.where(vertical, height, 0)) * words + along // 16
    word = jnp.where(inside, lines.at[index].get(mode="clip"), jnp.uint32(2**32 - 1))
    bits = (word >> (nearest - 16 * (along // 16)).astype(jnp.uint32)) & 31
    bits = jnp.where(backward, _reverse(bits), bits)
    ahead = jnp.where(backward, along - goal_along, goal_along - along)
    in_sight = (line == goal_across) & (ahead >= 0) & (ahead < VIEW)
    return bits, jnp.where(in_sight, ahead, VIEW)


def _along_and_across(
    vertical: Bool[Array, ""], position: Int[Array, " 2"]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """The coordinates (along, across) the facing axis of a position (x, y)."""
    return jnp.where(vertical, position[1], position[0]), jnp.where(vertical, position[0], position[1])


def _word_count(length: int) -> int:
    return -(-length // 16)


def _pack(walls: Bool[Array, "h w"], words: int) -> UInt32[Array, "h k"]:
    """Overlapping words: bit b of word k is the tile 16 k + b - 8; tiles outside the map are walls.

    A word serves the sixteen tiles in its middle, so that five tiles ahead of them are always in it.
    """
    _, width = walls.shape
    margin = ((0, 0), (8, 16 * words + 8 - width))
    padded = jnp.pad(walls, margin, constant_values=True).astype(jnp.uint32)
    tiles = jnp.stack([padded[:, 16 * k : 16 * k + 32] for k in range(words)], axis=1)
    return jnp.sum(tiles << jnp.arange(32, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def _reverse(bits: UInt32[Array, " 5"]) -> UInt32[Array, " 5"]:
    return (bits & 4) | (bits & 1) << 4 | (bits & 2) << 2 | (bits & 8) >> 2 | bits >> 4


def _visible(walls: UInt32[Array, " 5"]) -> UInt32[Array, ""]:
    """Which of the 25 tiles are in sight where walls block it: bit 5 u + k is column u, k tiles ahead.

    Row by row away from the agent, sight floods from the tiles seen so far to both sides through tiles
    that are not walls. Every tile it passes shows its two neighbours, and the three tiles beyond these.
    (The rule is told as a sweep to the right and one to the left; both together are this flood.)
    """
    clear = ~jnp.sum(walls << (VIEW * jnp.arange(VIEW, dtype=jnp.uint32)), dtype=jnp.uint32)
    shown = jnp.uint32(1 << VIEW * (VIEW // 2))
    seen = jnp.uint32(0)
    for ahead in range(VIEW):
        row = np.uint32(sum(1 << (VIEW * column + ahead) for column in range(VIEW)))
        flooded = shown & clear & row
        for _ in range(VIEW - 1):
            flooded = _widen(flooded) & clear & row
        wide = _widen(flooded) & row
        seen = seen | shown | wide
        shown = wide << 1
    return seen


def _widen(tiles: UInt32[Array, ""]) -> UInt32[Array, ""]:
    return tiles | tiles << VIEW | tiles >> VIEW


def _sight_table() -> np.ndarray:
    """The bytes of a sight line, uint8[32 * 6 * 32, 15], by unseen bits, distance of the goal, wall bits."""
    bits = (np.arange(32)[:, None] >> np.arange(VIEW)) & 1
    table = np.where(bits[:, :, None] == 1, np.array(WALL), np.array(EMPTY))
    table = np.tile(table, (32, VIEW + 1, 1, 1, 1))
    for ahead in range(VIEW):
        table[:, ahead, :, ahead] = GOAL
    table = np.where(bits[:, None, None, :, None] == 1, 0, table)
    return table[..., ::-1, :].reshape(-1, 3 * VIEW).astype(np.uint8)


_SIGHT = _sight_table()
