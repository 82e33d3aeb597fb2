"""jaxued's environments as ours, and novelty for its sampler. jaxued is not imported.

The sampler's dictionary of arrays goes in and comes out. Keep the novelty of each level
(`cenie.novelty.novelty`) beside its score, as `levels_extra["novelty"]`, by passing
`level_extras={"novelty": ..., ...}` to the sampler's own `insert_batch` and `update_batch`; then draw the
levels to replay with `sample_replay_levels` from here instead of the sampler's method. jaxued's rule for who
leaves a full buffer still looks at the score alone.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cenie.bridges import environment as shared
from cenie.bridges.environment import ForeignEnvironment, Solved, as_level
from cenie.envs.base import Environment
from cenie.records import EnvState, Level
from cenie.replay import priority
from cenie.replay.config import PriorityConfig
from cenie.xla import exact

Sampler = Mapping[str, Any]
"""jaxued's sampler: `levels`, `scores`, `timestamps`, `size`, `episode_count` and `levels_extra`."""


def from_jaxued(
    environment: Any,
    level: Level,
    params: Any = None,
    *,
    observation_space: PyTree | None = None,
    max_steps: int | None = None,
    solved: Solved | None = None,
) -> Environment:
    """An `UnderspecifiedEnv` as an environment of ours, with the same levels.

    If `params` have `max_steps_in_episode`, episodes that only ran out of time are truncated.

    Args:
        environment: The environment of jaxued, without wrappers.
        level: Any one of its levels; `as_level` makes arrays of its numbers.
        params: Its parameters, which are fixed; by default its own.
        observation_space: The spaces of an observation, in its structure. Without it, bounds are as the
            environment declares them, or else all that the types can hold.
        max_steps: The largest number of steps of an episode; needed only if `params` have no
            `max_steps_in_episode`.
        solved: Says from a level and the last step of an episode whether it was solved; a boolean array [].
            By default no episode is.

    Returns:
        The environment.

    Raises:
        ValueError: The environment is a wrapper, or nothing says how long episodes are.
    """
    if type(environment).__module__.startswith("jaxued.wrappers"):
        raise ValueError(
            f"{type(environment).__name__} restarts episodes by itself: give the environment inside"
        )
    # Not made arrays: a fixed parameter may be used as a Python number.
    fixed = environment.default_params if params is None else params

    def begin(key: PRNGKeyArray, level: Level) -> tuple[Any, Any]:
        return environment.reset_env_to_level(key, level, fixed)

    def advance(key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> tuple[Any, ...]:
        return shared.step_with_one_flag(environment, key, state, action, fixed)

    if observation_space is None:
        declares = hasattr(environment, "observation_space")
        declared = environment.observation_space(fixed) if declares else None
        observation, _ = jax.eval_shape(begin, jax.random.key(0), as_level(level))
        observation_space = shared.observation_spaces(observation, declared)
    return ForeignEnvironment(
        begin=begin,
        advance=advance,
        solved=solved,
        max_steps=shared.longest_episode(max_steps, [fixed]),
        observation_space=observation_space,
        action_space=shared.action_space(environment.action_space(fixed)),
    )


def level_weights(sampler: Sampler, alpha: float, config: PriorityConfig) -> Float[Array, " c"]:
    """The probability of each level: novelty with weight `alpha`, the score with the rest (Eq. 5)."""
    capacity = sampler["scores"].shape[0]
    index = jnp.arange(capacity)
    mask = index < sampler["size"]
    columns = jnp.stack([sampler["scores"], _novelty(sampler)], axis=1)
    # Empty slots hold -inf, which would not vanish when multiplied by 0.
    columns = jnp.where(mask[:, None], columns, 0.0).astype(jnp.float32)
    staleness = (sampler["episode_count"] - sampler["timestamps"]).astype(jnp.int32)
    mix = jnp.array([1.0 - alpha, alpha], jnp.float32)
    return priority.probabilities(
        scores=columns, mix=mix, ids=index, staleness=staleness, mask=mask, config=config
    )


def sample_replay_levels(
    sampler: Sampler, key: PRNGKeyArray, num: int, alpha: float, config: PriorityConfig
) -> tuple[dict[str, Any], tuple[Int[Array, " n"], Any]]:
    """Draw `num` levels one by one; returns what the sampler's method of this name does. Consumes the key."""

    def sample_one(clock: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], Array]:
        timestamps, episodes = clock
        now = {**sampler, "timestamps": timestamps, "episode_count": episodes}
        index = exact.sample_index(level_weights(now, alpha, config), jax.random.uniform(key))
        return (timestamps.at[index].set(episodes + 1), episodes + 1), index

    clock = sampler["timestamps"], jnp.asarray(sampler["episode_count"])
    (timestamps, episodes), indices = jax.lax.scan(sample_one, clock, jax.random.split(key, num))
    levels = jax.tree.map(lambda leaf: leaf[indices], sampler["levels"])
    return {**sampler, "timestamps": timestamps, "episode_count": episodes}, (indices, levels)


def _novelty(sampler: Sampler) -> Float[Array, " c"]:
    extra = sampler.get("levels_extra")
    if not isinstance(extra, Mapping) or "novelty" not in extra:
        raise ValueError('the sampler has no levels_extra["novelty"]: initialise it with such a placeholder')
    return extra["novelty"]
