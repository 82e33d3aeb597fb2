"""The ACCEL editor: a few random changes of a level, repaired so that it stays valid."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.envs.maze.config import Operation
from cenie.envs.maze.generate import MISSING, random_free_tile, tile_to_position, uniform_to_index
from cenie.envs.maze.level import MazeLevel


class _Draft(eqx.Module):
    """A level by tile numbers, in which the goal and the start may be missing for the time being."""

    walls: Bool[Array, " tiles"]
    goal: Int[Array, ""]
    start: Int[Array, ""]


def edit(
    key: PRNGKeyArray, level: MazeLevel, *, num_edits: int, operations: tuple[Operation, ...]
) -> MazeLevel:
    """Change up to `num_edits` tiles, each by a uniformly drawn operation. Consumes the key.

    Tiles are drawn with replacement and each distinct one is edited once, in the order of the draw. The
    tile is cleared first; a goal or a start that was cleared and not placed again goes to a random free
    tile at the end. The direction, the time limit and the occlusion stay.
    """
    width = level.wall_map.shape[1]
    # One draw for all: each random function called adds about a second of compile time.
    uniforms = jax.random.uniform(key, (2 * num_edits + 2,))
    goal_uniform, start_uniform = uniforms[:2]
    tiles = uniform_to_index(uniforms[2 : 2 + num_edits], level.wall_map.size)
    chosen_operations = uniform_to_index(uniforms[2 + num_edits :], len(operations))
    repeated = jnp.any(jnp.tril(tiles[:, None] == tiles[None, :], k=-1), axis=1)

    def apply(draft: _Draft, change: tuple[Array, Array, Array]) -> tuple[_Draft, None]:
        tile, operation, skip = change
        is_chosen = {name: operation == index for index, name in enumerate(operations)}
        false = jnp.zeros((), bool)
        goal = jnp.where(draft.goal == tile, MISSING, draft.goal)
        start = jnp.where(draft.start == tile, MISSING, draft.start)
        changed = _Draft(
            draft.walls.at[tile].set(is_chosen.get("wall", false)),
            jnp.where(is_chosen.get("goal", false), tile, goal),
            jnp.where(is_chosen.get("agent", false), tile, start),
        )
        return jax.tree.map(lambda old, new: jnp.where(skip, old, new), draft, changed), None

    draft = _Draft(
        jnp.asarray(level.wall_map).reshape(-1),
        jnp.asarray(level.goal[1] * width + level.goal[0], jnp.int32),
        jnp.asarray(level.start[1] * width + level.start[0], jnp.int32),
    )
    draft, _ = jax.lax.scan(apply, draft, (tiles, chosen_operations, repeated))
    walls, goal = _place_if_missing(goal_uniform, draft.walls, draft.goal, occupied=draft.start)
    walls, start = _place_if_missing(start_uniform, walls, draft.start, occupied=goal)
    return MazeLevel(
        wall_map=walls.reshape(level.wall_map.shape),
        goal=tile_to_position(goal, width),
        start=tile_to_position(start, width),
        direction=level.direction,
        time_limit=level.time_limit,
        occluded=level.occluded,
    )


def _place_if_missing(
    uniform: Float[Array, ""], walls: Bool[Array, " tiles"], tile: Int[Array, ""], occupied: Int[Array, ""]
) -> tuple[Bool[Array, " tiles"], Int[Array, ""]]:
    """The tile, or the free one that `uniform` decides on if it is missing, with no wall on it."""
    tile = jnp.where(tile == MISSING, random_free_tile(uniform, walls, occupied), tile)
    return walls.at[tile].set(False), tile
