"""Steps of a batch of levels, and the one auto-reset rule: a finished episode starts the same level again."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from cenie.envs.base import Environment
from cenie.records import EnvState, Observation, Prepared, Step


class ObservingEnvironment(Environment):
    """An environment whose observation follows from level and state alone.

    A restart can then choose the state first and observe once; any other environment has to observe both
    the last state of the old episode and the first one of the new.
    """

    @abc.abstractmethod
    def observe(self, level: Prepared, state: EnvState) -> Observation:
        """The observation of a state; the one that `reset` and `step` return with it."""


def step_and_restart(
    environment: Environment, keys: Key[Array, "n 2"], levels: Prepared, states: EnvState, actions: Array
) -> tuple[Step, Observation]:
    """Step a batch of prepared levels; an ended episode begins the same level again. Consumes the keys.

    All arrays have the level axis first; a level has a key for its step and one for a restart. The
    observation and the state of the `Step` are those to go on with, after the restart; its reward and flags
    belong to the step that was made. The second result is the observation before any restart; under `jit`
    it costs nothing if it is not used.
    """
    result = jax.vmap(environment.step)(keys[:, 0], levels, states, actions)
    first_observation, first_state = jax.vmap(environment.reset)(keys[:, 1], levels)
    done = result.terminated | result.truncated

    def choose(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(_like(done, b), a, b), new, old)

    state = choose(first_state, result.state)
    if isinstance(environment, ObservingEnvironment):
        observation = jax.vmap(environment.observe)(levels, state)
    else:
        observation = choose(first_observation, result.observation)
    step = Step(observation, state, result.reward, result.terminated, result.truncated, result.solved)
    return step, result.observation


def step_only(
    environment: Environment, keys: Key[Array, "n 2"], levels: Prepared, states: EnvState, actions: Array
) -> tuple[Step, Observation]:
    """Step a batch of prepared levels without restarts, for episodes of a fixed length. Consumes the keys.

    Takes and returns what `step_and_restart` does. A rollout as long as the episode ends with its last state,
    which is how a design environment hands over the level that was made in it.
    """
    result = jax.vmap(environment.step)(keys[:, 0], levels, states, actions)
    return result, result.observation


def _like(flags: Bool[Array, " n"], array: Array) -> Bool[Array, "n ..."]:
    return flags.reshape(flags.shape + (1,) * (array.ndim - 1))
