"""Designing a track as an environment: a learned teacher places one control point per step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

from cenie.envs.base import Design, Environment, spaces_of
from cenie.envs.racing.config import CELLS, DESIGN_NOISE, POINTS, RacingConfig
from cenie.envs.racing.generate import cell_points
from cenie.envs.racing.level import RacingLevel
from cenie.records import AnyArray, Step
from cenie.spaces import Space


class DesignTask(eqx.Module):
    """The input of the designer: the number of points to place, and nothing else."""

    points: Int[AnyArray, "*n"]


class DesignState(eqx.Module):
    """The cells of the points so far, in the order in which they were placed, and which cells are taken."""

    cells: Int[Array, "*n 12"]
    taken: Bool[Array, "*n 100"]
    time: Int[Array, "*n"]


class DesignObservation(eqx.Module):
    """`image[x, y]`: the cells that are taken; `noise` is drawn anew at each step."""

    image: UInt8[Array, "*n 10 10 1"]
    time: Int[Array, "*n"]
    noise: Float[Array, "*n z"]


class RacingDesign(Environment):
    """Choose a cell of the grid for one control point per step.

    A cell that is taken stands for the next free one, so that all points differ: the original code means to
    forbid cells that are taken, and forbids others. All rewards are 0: the utility of the finished track is
    known only after students have played it.
    """

    max_steps: int = eqx.field(static=True)
    observation_space: PyTree = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def __init__(self, config: RacingConfig, name: str):
        spec = config.design_spec(name)
        self.max_steps = spec.steps
        self.action_space = spec.action_space
        self.observation_space = spaces_of(DesignObservation, spec.observation_parts)

    def reset(self, key: PRNGKeyArray, level: DesignTask) -> tuple[DesignObservation, DesignState]:
        """Nothing is placed yet. Consumes the key."""
        state = DesignState(jnp.zeros(POINTS, jnp.int32), jnp.zeros(CELLS**2, bool), jnp.int32(0))
        return _observe(key, state), state

    def step(self, key: PRNGKeyArray, level: DesignTask, state: DesignState, action: Int[Array, ""]) -> Step:
        """Place the next point. Consumes the key."""
        distance = jnp.mod(jnp.arange(CELLS**2) - action, CELLS**2)
        cell = jnp.argmin(jnp.where(state.taken, CELLS**2, distance)).astype(jnp.int32)
        state = DesignState(
            cells=jnp.where(jnp.arange(POINTS) == state.time, cell, state.cells),
            taken=state.taken.at[cell].set(True),
            time=state.time + 1,
        )
        finished, no = state.time >= level.points, jnp.zeros((), bool)
        return Step(_observe(key, state), state, jnp.float32(0.0), finished, no, no)

    def finished_level(self, state: DesignState) -> RacingLevel:
        """The level of a finished design."""
        return RacingLevel(cell_points(state.cells))


def _observe(key: PRNGKeyArray, state: DesignState) -> DesignObservation:
    by_row = state.taken.reshape(CELLS, CELLS, 1).astype(jnp.uint8)
    noise = jax.random.uniform(key, (DESIGN_NOISE,))
    return DesignObservation(by_row.swapaxes(0, 1), state.time, noise)


def racing_design(config: RacingConfig, name: str) -> Design:
    """The designer's environment; it takes the place of any generator."""
    environment = RacingDesign(config, name)
    return Design(environment, DesignTask(np.array(POINTS, np.int32)), environment.finished_level)
