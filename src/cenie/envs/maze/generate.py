"""Random levels, and kinds of levels: walls by a budget or a share of tiles, then the goal, then the agent.

Tiles are numbered `size * y + x`, as in the action space of a level designer.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.envs.base import TaskSpace
from cenie.envs.maze.config import BUDGETS, FILLED, MazeConfig
from cenie.envs.maze.level import MazeLevel

MISSING = -1
"""The number of a tile that is not placed yet."""


def generate(config: MazeConfig, name: str, key: PRNGKeyArray) -> MazeLevel:
    """Draw a level of the named generator. Consumes the key.

    Walls are drawn with replacement, and the goal and the start remove a wall they land on, so a level
    has fewer walls than its budget; with `replacement = False` it has exactly as many.
    """
    if name == FILLED:
        return _filled(config, key)
    tiles, max_walls = config.size**2, BUDGETS[name]
    # One draw for all: each random function called adds about a second of compile time.
    uniforms = jax.random.uniform(key, (3 + (max_walls + 2 if config.replacement else tiles),))
    budget_uniform, direction_uniform, repair_uniform, *_ = uniforms
    if config.replacement:
        sampled_tiles = uniform_to_index(uniforms[3:], tiles)
    else:
        sampled_tiles = jnp.argsort(uniforms[3:])[: max_walls + 2].astype(jnp.int32)
    if name != "uniform60":
        budget = jnp.int32(max_walls)
    elif config.coupled_budget:
        budget = max_walls * sampled_tiles[0] // tiles
    else:
        budget = uniform_to_index(budget_uniform, max_walls)
    used = jnp.arange(max_walls + 2) < budget
    # Compared with every tile, because a scatter is a loop over all levels and walls on CPUs.
    walls = (used & (sampled_tiles == jnp.arange(tiles)[:, None])).any(axis=1)
    # The goal and the start are the first two draws that no wall has used.
    goal, start = sampled_tiles[budget], sampled_tiles[budget + 1]
    walls, start = place_start(repair_uniform, _cleared(walls, goal), goal, start)
    return assemble(walls, goal, start, uniform_to_index(direction_uniform, 4), config)


def _filled(config: MazeConfig, key: PRNGKeyArray) -> MazeLevel:
    """Each tile is a wall with one probability, which is drawn first. Consumes the key.

    Near a share of 0.4 the free tiles begin to fall apart: paths wind, and many levels have none.
    """
    tiles = config.size**2
    # One draw for all: each random function called adds about a second of compile time.
    uniforms = jax.random.uniform(key, (5 + tiles,))
    share_uniform, goal_uniform, start_uniform, direction_uniform, repair_uniform = uniforms[:5]
    low, high = config.fill
    walls = uniforms[5:] < low + (high - low) * share_uniform
    goal, start = (uniform_to_index(uniform, tiles) for uniform in (goal_uniform, start_uniform))
    walls, start = place_start(repair_uniform, _cleared(walls, goal), goal, start)
    return assemble(walls, goal, start, uniform_to_index(direction_uniform, 4), config)


def task_space(config: MazeConfig) -> TaskSpace:
    """Kinds of mazes: the number of walls, and the distance from the start to the goal, walls ignored.

    Places are random. A goal in the middle has no tile at the largest distance: the start is then on one of
    the farthest.
    """
    tiles = config.size**2
    tile = np.arange(tiles)

    def draw(key: PRNGKeyArray, point: Float[Array, " 2"]) -> MazeLevel:
        walls, distance = jnp.round(point)
        # One draw for all: each random function called adds about a second of compile time.
        uniforms = jax.random.uniform(key, (2 + 2 * tiles,))
        goal = uniform_to_index(uniforms[0], tiles)
        places = tile_to_position(jnp.asarray(tile), config.size)
        away = jnp.abs(places.T - tile_to_position(goal, config.size))
        # Of tiles that fit equally well the one with the smallest number: below 1/2, it decides nothing else.
        misfit = jnp.abs(away.sum(axis=1) - distance) + 0.499 * uniforms[2 : 2 + tiles]
        start = jnp.argmin(jnp.where(tile == goal, jnp.inf, misfit)).astype(jnp.int32)
        order = jnp.where((tile == goal) | (tile == start), 2.0, uniforms[2 + tiles :])
        is_wall = jnp.zeros(tiles, bool).at[jnp.argsort(order)].set(tile < walls)
        return assemble(is_wall, goal, start, uniform_to_index(uniforms[1], 4), config)

    most_walls = min(max(BUDGETS.values()), tiles - 2)
    return TaskSpace(np.array([0.0, 1.0]), np.array([most_walls, 2.0 * (config.size - 1)]), draw)


def uniform_to_index(uniform: Float[Array, "*n"], options: int | Int[Array, ""]) -> Int[Array, "*n"]:
    """Whole numbers from 0 to `options - 1`, evenly, from numbers that are uniform in [0, 1)."""
    return (uniform * options).astype(jnp.int32)


def place_start(
    uniform: Float[Array, ""], walls: Bool[Array, " tiles"], goal: Int[Array, ""], preferred: Int[Array, ""]
) -> tuple[Bool[Array, " tiles"], Int[Array, ""]]:
    """Put the agent on the preferred tile, without a wall; on a random empty one if the goal is there.

    `uniform`, a number in [0, 1), decides which empty tile.
    """
    start = jnp.where(preferred == goal, random_free_tile(uniform, walls, goal), preferred)
    return _cleared(walls, start), start


def _cleared(walls: Bool[Array, " tiles"], tile: Int[Array, ""]) -> Bool[Array, " tiles"]:
    return walls & (jnp.arange(walls.shape[0]) != tile)


def random_free_tile(
    uniform: Float[Array, ""], walls: Bool[Array, " tiles"], occupied: Int[Array, ""]
) -> Int[Array, ""]:
    """The tile without a wall and not `occupied` that `uniform`, a number in [0, 1), decides on.

    If walls have left no such tile, any tile that is not `occupied`; the caller removes its wall.
    """
    others = jnp.arange(walls.shape[0]) != occupied
    free = others & ~walls
    free = jnp.where(jnp.any(free), free, others)
    rank = jnp.cumsum(free)
    return jnp.sum(rank <= uniform_to_index(uniform, rank[-1]), dtype=jnp.int32)


def assemble(
    walls: Bool[Array, " tiles"],
    goal: Int[Array, ""],
    start: Int[Array, ""],
    direction: Int[Array, ""],
    config: MazeConfig,
) -> MazeLevel:
    """A level of the configured size and time limit from tile numbers."""
    return MazeLevel(
        wall_map=walls.reshape(config.size, config.size),
        goal=tile_to_position(goal, config.size),
        start=tile_to_position(start, config.size),
        direction=direction,
        time_limit=jnp.int32(config.max_steps),
        occluded=jnp.zeros((), bool),
    )


def tile_to_position(tile: Int[Array, "..."], width: int) -> Int[Array, "2 ..."]:
    return jnp.stack([tile % width, tile // width])
