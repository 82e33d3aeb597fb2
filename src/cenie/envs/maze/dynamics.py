"""The maze as an environment: turn, walk, and the reward for reaching the goal."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from cenie.envs.base import spaces_of
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.level import DIRECTIONS, MazeLevel
from cenie.envs.maze.observe import MazeObservation, observe
from cenie.envs.reset import ObservingEnvironment
from cenie.records import Step
from cenie.spaces import Space

LEFT, RIGHT, FORWARD = 0, 1, 2
"""Actions; 3 to 6 (pick up, drop, toggle, done) do nothing, but time passes."""


class MazeState(eqx.Module):
    """The state of an episode: the position (x, y), the direction and the number of steps made."""

    position: Int[Array, "*n 2"]
    direction: Int[Array, "*n"]
    time: Int[Array, "*n"]


class Maze(ObservingEnvironment):
    """Find the goal of a maze in a 5 x 5 view. Plays levels of any size and time limit."""

    reward_decay: float = eqx.field(static=True)
    redraw_direction: bool = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_space: PyTree = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def __init__(self, config: MazeConfig):
        self.reward_decay = config.reward_decay
        self.redraw_direction = config.redraw_direction
        self.max_steps = config.max_steps
        self.observation_space = spaces_of(MazeObservation, config.observation_parts)
        self.action_space = config.action_space

    def reset(self, key: PRNGKeyArray, level: MazeLevel) -> tuple[MazeObservation, MazeState]:
        """Begin an episode. Consumes the key (used only to redraw the direction, if that is asked for)."""
        direction = jnp.asarray(level.direction, jnp.int32)
        if self.redraw_direction:
            direction = jax.random.randint(key, (), 0, 4, jnp.int32)
        state = MazeState(jnp.asarray(level.start, jnp.int32), direction, jnp.int32(0))
        return self.observe(level, state), state

    def step(self, key: PRNGKeyArray, level: MazeLevel, state: MazeState, action: Int[Array, ""]) -> Step:
        """Advance one step; deterministic. A success at step t of H pays 1 - c t / H.

        Walking into the goal ends the episode without moving the agent there.
        """
        time = state.time + 1
        ahead = state.position + jnp.asarray(DIRECTIONS)[state.direction]
        forward = action == FORWARD
        solved = forward & jnp.all(ahead == level.goal)
        moves = forward & ~solved & ~_is_wall(level, ahead)
        turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT)
        state = MazeState(jnp.where(moves, ahead, state.position), (state.direction + turn) % 4, time)
        success_reward = 1.0 - self.reward_decay * time / level.time_limit
        reward = jnp.where(solved, success_reward, 0.0).astype(jnp.float32)
        truncated = (time >= level.time_limit) & ~solved
        return Step(self.observe(level, state), state, reward, solved, truncated, solved)

    def observe(self, level: MazeLevel, state: MazeState) -> MazeObservation:
        return observe(level, state.position, state.direction)


def _is_wall(level: MazeLevel, position: Int[Array, " 2"]) -> Bool[Array, ""]:
    """Whether a tile is a wall; all that lies outside the map is."""
    height, width = level.wall_map.shape
    x, y = position
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return ~inside | jnp.asarray(level.wall_map).reshape(-1).at[y * width + x].get(mode="clip")
