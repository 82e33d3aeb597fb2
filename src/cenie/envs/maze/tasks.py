"""Mazes by two numbers, for teachers that learn which kinds of mazes to draw."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import TaskSpace
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.generate import BUDGETS, assemble, tile_to_position, uniform_to_index
from cenie.envs.maze.level import MazeLevel


def task_space(config: MazeConfig) -> TaskSpace:
    """The number of walls, and the distance from the start to the goal, walls ignored.

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
