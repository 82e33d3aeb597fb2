"""Play levels with the current student."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray

from cenie.records import EnvState, Level, Memory, Observation, Prepared, Rollout, Step
from cenie.student.networks.base import Network
from cenie.xla import devices

Advance = Callable[[Any, Key[Array, "n 2"], Prepared, EnvState, Array], tuple[Step, Observation]]
"""`advance(environment, keys, levels, states, actions)` steps a batch of prepared levels and may restart
finished episodes: the observation and state of the `Step` are those after a restart, the second result is
the observation before it. Each level has two keys, one of them for a restart."""


class _Play(eqx.Module):
    """The state carried from step to step. `masked` counts the non-finite numbers met so far."""

    state: EnvState
    observation: Observation
    memory: Memory
    start: Bool[Array, " n"]
    masked: Int[Array, " n"]


def collect(
    environment: Any,
    network: Network,
    levels: Level,
    *,
    key: PRNGKeyArray,
    num_steps: int,
    advance: Advance,
    bootstrap_at_timeout: bool = False,
    keep_features: bool = False,
    keep_entropy: bool = False,
    keep_final_state: bool = False,
    mesh: Mesh | None = None,
) -> Rollout:
    """Play `num_steps` steps of each level with sampled actions, from new episodes. Consumes the key.

    Levels that are split over a mesh are stepped by each device for itself.
    Non-finite rewards and observations are replaced by 0 and counted in `Rollout.masked`.
    """
    count = jax.tree.leaves(levels)[0].shape[0]
    # Once for each level, outside the loop over steps: what a domain derives from a level may be costly.
    prepared = devices.on_own_rows(mesh, jax.vmap(environment.prepare), levels)
    reset_key, key = jax.random.split(key)
    reset_keys = jax.random.split(reset_key, count)
    observation, state = devices.on_own_rows(mesh, jax.vmap(environment.reset), reset_keys, prepared)
    observation, masked = _finite(observation, count)
    memory = network.initial_memory(count)
    # Each device decides for its own levels, so that the compiler adds no collective for a memory at every
    # step. It steps its own: a loop in an environment must not wait for the loops of other devices.
    decide = partial(devices.on_own_rows, mesh, network.step)
    make_step = partial(advance, environment)

    def step(play: _Play, keys: Key[Array, " 2"]) -> tuple[_Play, dict[str, Any]]:
        action_key, step_key = keys
        memory, decision = decide(play.memory, play.observation, play.start)
        action = decision.policy.sample(action_key)
        step_keys = jax.random.split(step_key, (count, 2))
        result, final_observation = devices.on_own_rows(
            mesh, make_step, step_keys, prepared, play.state, action
        )
        (observation, reward), masked = _finite((result.observation, result.reward), count)
        record = {
            "observation": play.observation,
            "action": action,
            "log_prob": decision.policy.log_prob(action),
            "value": decision.value,
            "reward": reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "solved": result.solved,
            "start": play.start,
        }
        if bootstrap_at_timeout:
            final_observation, _ = _finite(final_observation, count)
            no_start = jnp.zeros(count, bool)
            record["final_value"] = decide(memory, final_observation, no_start)[1].value
        if keep_features:
            record["features"] = decision.features
        if keep_entropy:
            record["entropy"] = decision.policy.entropy()
        done = result.terminated | result.truncated
        return _Play(result.state, observation, memory, done, play.masked + masked), record

    play = _Play(state, observation, memory, jnp.ones(count, bool), masked)
    play, record = jax.lax.scan(step, play, jax.random.split(key, (num_steps, 2)))
    last_value = decide(play.memory, play.observation, play.start)[1].value
    record = jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), record)
    if keep_final_state:
        # Not a record of every step, so it has no time axis.
        record["final_state"] = play.state
    return Rollout(**record, memory=memory, last_value=last_value, masked=play.masked)


def _finite(tree: Any, count: int) -> tuple[Any, Int[Array, " n"]]:
    """The tree with its non-finite numbers set to 0, and how many there were in each of `count` rows."""
    masked = jnp.zeros(count, jnp.int32)
    leaves, structure = jax.tree.flatten(tree)
    for index, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            bad = ~jnp.isfinite(leaf)
            leaves[index] = jnp.where(bad, 0.0, leaf)
            masked += jnp.sum(bad.reshape(count, -1), axis=1, dtype=jnp.int32)
    return jax.tree.unflatten(structure, leaves), masked
