"""Designing a level as an environment: a learned teacher sets one parameter per step."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt32

from cenie.envs.base import Design, Environment
from cenie.envs.walker.config import DESIGN_NOISE, WalkerConfig
from cenie.envs.walker.generate import RANGES, STAIRS, allowed, assemble, random_seed
from cenie.envs.walker.level import WalkerLevel
from cenie.records import AnyArray, Step
from cenie.spaces import Space

_BLANK = (0.0, 0.0, 10.0, 0.0, 5.0, 0.0, 5.0, 9.0)
"""The parameters before the designer has set them."""


class DesignTask(eqx.Module):
    """The input of the designer: the bounds of each parameter."""

    low: Float[AnyArray, "*n 8"]
    high: Float[AnyArray, "*n 8"]


class DesignState(eqx.Module):
    """The parameters so far, the seed that the level will have, and how many steps were made."""

    parameters: Float[Array, "*n 8"]
    seed: UInt32[Array, "*n"]
    time: Int[Array, "*n"]


class WalkerDesign(Environment):
    """Set one parameter per step, in their order, by any number; its tanh spans the range of the parameter.

    The designer sees the parameters so far, ten numbers of noise that are drawn anew at each step, and the
    time, all as they are. All rewards are 0: the utility of the finished level is known only after students
    have played it.
    """

    config: WalkerConfig = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_space: PyTree = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def __init__(self, config: WalkerConfig, name: str):
        spec = config.design_spec(name)
        self.config = config
        self.max_steps = spec.steps
        (self.observation_space,) = spec.observation_parts
        self.action_space = spec.action_space

    def reset(self, key: PRNGKeyArray, level: DesignTask) -> tuple[Float[Array, " o"], DesignState]:
        """Nothing is set yet, but the seed is already drawn. Consumes the key."""
        noise_key, seed_key = jax.random.split(key)
        blank = allowed(self.config, jnp.array(_BLANK))
        state = DesignState(blank, random_seed(seed_key), jnp.int32(0))
        return _observe(noise_key, state), state

    def step(
        self, key: PRNGKeyArray, level: DesignTask, state: DesignState, action: Float[Array, " 1"]
    ) -> Step:
        """Set the next parameter. Consumes the key."""
        part = 0.5 * (jnp.tanh(action[0]) + 1.0)
        chosen = level.low + part * (level.high - level.low)
        now = jnp.arange(len(STAIRS)) == state.time
        state = DesignState(jnp.where(now, chosen, state.parameters), state.seed, state.time + 1)
        finished = state.time >= self.max_steps
        no = jnp.zeros((), bool)
        return Step(_observe(key, state), state, jnp.float32(0.0), finished, no, no)

    def finished_level(self, state: DesignState) -> WalkerLevel:
        """The level of a finished design."""
        return assemble(self.config, state.parameters, state.seed)


def _observe(key: PRNGKeyArray, state: DesignState) -> Float[Array, " o"]:
    noise = jax.random.uniform(key, (DESIGN_NOISE,))
    return jnp.concatenate([state.parameters, noise, state.time[None].astype(jnp.float32)])


def walker_design(config: WalkerConfig, name: str) -> Design:
    """The designer's environment in the place of the named generator."""
    environment = WalkerDesign(config, name)
    return Design(environment, design_task(name), environment.finished_level)


def design_task(name: str) -> DesignTask:
    """The task in which the designer takes the place of the named generator."""
    low, high = RANGES[name]
    return DesignTask(low, high)
