"""Novelty for a jaxued sampler: its dictionary of arrays goes in and comes out, jaxued is not imported.

Keep the novelty of each level (`cenie.novelty.novelty`) beside its score, as `levels_extra["novelty"]`, by
passing `level_extras={"novelty": ..., ...}` to the sampler's own `insert_batch` and `update_batch`; then draw
the levels to replay with `sample_replay_levels` from here instead of the sampler's method. jaxued's rule for
who leaves a full buffer still looks at the score alone.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cenie.teach import exact, priority
from cenie.teach.config import PriorityConfig

Sampler = Mapping[str, Any]
"""jaxued's sampler: `levels`, `scores`, `timestamps`, `size`, `episode_count` and `levels_extra`."""


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
