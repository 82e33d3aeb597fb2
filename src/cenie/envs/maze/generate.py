"""Random levels: walls by a budget, then the goal, then the agent.

Tiles are numbered `size * y + x`, as in the action space of a level designer.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.level import MazeLevel

BUDGETS = {"uniform60": 60, "blocks25": 25, "empty": 0}
"""The generators and their wall budgets; "uniform60" draws its budget from 0 .. 59."""


def generate(config: MazeConfig, name: str, key: PRNGKeyArray) -> MazeLevel:
    """Draw a level of the named generator. Consumes the key.

    Walls are drawn with replacement, and the goal and the start remove a wall they land on, so a level
    has fewer walls than its budget; with `replacement = False` it has exactly as many.
    """
    tile_key, budget_key, direction_key, repair_key = jax.random.split(key, 4)
    tiles, most = config.size**2, BUDGETS[name]
    if config.replacement:
        drawn = jax.random.randint(tile_key, (most + 2,), 0, tiles, jnp.int32)
    else:
        drawn = jax.random.permutation(tile_key, tiles)[: most + 2].astype(jnp.int32)
    if name != "uniform60":
        budget = jnp.int32(most)
    elif config.coupled_budget:
        budget = most * drawn[0] // tiles
    else:
        budget = jax.random.randint(budget_key, (), 0, most, jnp.int32)
    used = jnp.arange(most + 2) < budget
    walls = jnp.zeros(tiles, bool).at[drawn].max(used)
    # The goal and the start are the first two draws that no wall has used.
    goal, start = drawn[budget], drawn[budget + 1]
    walls, start = place_start(repair_key, walls.at[goal].set(False), goal, start)
    direction = jax.random.randint(direction_key, (), 0, 4, jnp.int32)
    return assemble(walls, goal, start, direction, config)


def place_start(
    key: PRNGKeyArray, walls: Bool[Array, " tiles"], goal: Int[Array, ""], wish: Int[Array, ""]
) -> tuple[Bool[Array, " tiles"], Int[Array, ""]]:
    """Put the agent on the wished tile, removing a wall there; on a random empty tile if the goal is there.

    Consumes the key.
    """
    start = jnp.where(wish == goal, random_free_tile(key, walls, goal), wish)
    return walls.at[start].set(False), start


def random_free_tile(
    key: PRNGKeyArray, walls: Bool[Array, " tiles"], taken: Int[Array, ""]
) -> Int[Array, ""]:
    """A uniformly drawn tile without a wall that is not `taken`. Consumes the key.

    If walls have left no such tile, any tile that is not `taken`; the caller removes its wall.
    """
    others = jnp.arange(walls.shape[0]) != taken
    free = others & ~walls
    free = jnp.where(jnp.any(free), free, others)
    rank = jnp.cumsum(free)
    chosen = jax.random.randint(key, (), 0, rank[-1])
    return jnp.sum(rank <= chosen, dtype=jnp.int32)


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
        goal=tile_to_place(goal, config.size),
        start=tile_to_place(start, config.size),
        direction=direction,
        time_limit=jnp.int32(config.max_steps),
        occluded=jnp.zeros((), bool),
    )


def tile_to_place(tile: Int[Array, ""], width: int) -> Int[Array, " 2"]:
    return jnp.stack([tile % width, tile // width])
