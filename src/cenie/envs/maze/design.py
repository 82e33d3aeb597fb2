"""Designing a maze as an environment: the level editor that a learned teacher plays."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

from cenie.envs.base import Design, Environment, spaces_of
from cenie.envs.maze.config import DESIGN_NOISE, FILLED, MazeConfig
from cenie.envs.maze.generate import MISSING, assemble, place_start, uniform_to_index
from cenie.envs.maze.level import MazeLevel
from cenie.envs.maze.observe import EMPTY, GOAL, WALL
from cenie.records import AnyArray, Step
from cenie.spaces import Space

_AGENT = 10


class DesignTask(eqx.Module):
    """The input of the designer: the wall budget, and whether its first action scales it down."""

    budget: Int[AnyArray, "*n"]
    uniform: Bool[AnyArray, "*n"]


class DesignState(eqx.Module):
    """The maze so far, by tile numbers; the goal and the start are -1 until they are placed."""

    walls: Bool[Array, "*n tiles"]
    goal: Int[Array, "*n"]
    start: Int[Array, "*n"]
    direction: Int[Array, "*n"]
    budget: Int[Array, "*n"]
    time: Int[Array, "*n"]


class DesignObservation(eqx.Module):
    """`image[x, y]`: the whole grid with its border; `noise` is drawn anew at each step."""

    image: UInt8[Array, "*n s s 3"]
    time: Int[Array, "*n"]
    noise: Float[Array, "*n z"]


class MazeDesign(Environment):
    """Choose a tile per step: first the walls, then the goal, then the start, with which the episode ends.
    A rollout goes on after a maze of few walls; these actions are ignored.

    All rewards are 0: the utility of the finished maze is known only after students have played it.
    """

    config: MazeConfig = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_space: PyTree = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def __init__(self, config: MazeConfig, name: str):
        spec = config.design_spec(name)
        self.config = config
        self.max_steps = spec.steps
        self.action_space = spec.action_space
        self.observation_space = spaces_of(DesignObservation, spec.observation_parts)

    def reset(self, key: PRNGKeyArray, level: DesignTask) -> tuple[DesignObservation, DesignState]:
        """An empty maze whose start direction is already drawn. Consumes the key."""
        uniforms = jax.random.uniform(key, (DESIGN_NOISE + 1,))
        state = DesignState(
            walls=jnp.zeros(self.config.size**2, bool),
            goal=jnp.int32(MISSING),
            start=jnp.int32(MISSING),
            direction=uniform_to_index(uniforms[0], 4),
            budget=jnp.asarray(level.budget, jnp.int32),
            time=jnp.int32(0),
        )
        return self._observe(uniforms[1:], state), state

    def step(self, key: PRNGKeyArray, level: DesignTask, state: DesignState, action: Int[Array, ""]) -> Step:
        """Place one thing at the tile. Consumes the key."""
        uniforms = jax.random.uniform(key, (DESIGN_NOISE + 1,))
        scaled = level.budget * action // self.config.size**2
        budget = jnp.where(level.uniform & (state.time == 0), scaled, state.budget)
        is_wall, is_goal, is_start = state.time < budget, state.time == budget, state.time == budget + 1
        walls_with_goal = state.walls.at[action].set(False)
        walls_with_start, start = place_start(uniforms[0], state.walls, state.goal, action)
        walls = jnp.where(is_wall, state.walls.at[action].set(True), state.walls)
        walls = jnp.where(is_goal, walls_with_goal, jnp.where(is_start, walls_with_start, walls))
        state = DesignState(
            walls=walls,
            goal=jnp.where(is_goal, action, state.goal),
            start=jnp.where(is_start, start, state.start),
            direction=state.direction,
            budget=budget,
            time=state.time + 1,
        )
        finished = state.time == budget + 2
        false = jnp.zeros((), bool)
        return Step(self._observe(uniforms[1:], state), state, jnp.float32(0.0), finished, false, false)

    def finished_level(self, state: DesignState) -> MazeLevel:
        """The maze of a finished design."""
        return assemble(state.walls, state.goal, state.start, state.direction, self.config)

    def _observe(self, noise: Float[Array, " z"], state: DesignState) -> DesignObservation:
        """The grid so far, the time and the noise."""
        size = self.config.size
        codes = jnp.asarray(np.array([EMPTY, WALL], np.uint8))[state.walls.astype(jnp.int32)]
        tiles = jnp.arange(size**2)[:, None]
        codes = jnp.where(tiles == state.goal, jnp.array(GOAL, jnp.uint8), codes)
        agent = jnp.array([_AGENT, 0, 0], jnp.uint8).at[2].set(state.direction.astype(jnp.uint8))
        codes = jnp.where(tiles == state.start, agent, codes)
        inside = codes.reshape(size, size, 3).swapaxes(0, 1)
        border = jnp.broadcast_to(jnp.array(WALL, jnp.uint8), (size + 2, size + 2, 3))
        image = border.at[1:-1, 1:-1].set(inside)
        return DesignObservation(image, state.time, noise)


def maze_design(config: MazeConfig, name: str) -> Design:
    """The designer's environment in the place of the named generator."""
    environment = MazeDesign(config, name)
    return Design(environment, design_task(config, name), environment.finished_level)


def design_task(config: MazeConfig, name: str) -> DesignTask:
    """The task in which the designer takes the place of the named generator."""
    return DesignTask(np.array(config.wall_budget(name), np.int32), np.array(name in ("uniform60", FILLED)))
