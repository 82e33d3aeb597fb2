"""The weight of novelty beside the scores when levels are sampled (alpha of CENIE Eq. 5)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.replay import priority
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.config import Adaptive, Alpha, Constant, Linear, PriorityConfig

_RANGE = (0.05, 0.95)
"""The adaptive weight stays inside, so that it can always learn that the other ranking is better."""


class WeightState(eqx.Module):
    """The state of the weight of novelty: the number of replays, and the log-odds of an adaptive one."""

    replays: Int[Array, ""]
    log_odds: Float[Array, ""]


def init(config: Alpha) -> WeightState:
    """The state before the first replay."""
    start = jnp.clip(config.start, *_RANGE) if isinstance(config, Adaptive) else jnp.float32(0.5)
    return WeightState(jnp.zeros((), jnp.int32), jnp.log(start / (1.0 - start)))


def alpha(config: Alpha, state: WeightState) -> Float[Array, ""]:
    """The present weight of novelty."""
    match config:
        case Constant():
            return jnp.float32(config.value)
        case Linear():
            progress = jnp.minimum(state.replays / config.replays, 1.0)
            return config.start + (config.end - config.start) * progress
        case Adaptive():
            return jax.nn.sigmoid(state.log_odds)


def adapt(
    config: Alpha,
    priorities: PriorityConfig,
    state: WeightState,
    *,
    buffer: BufferState,
    shares: Float[Array, " k"],
    replayed: Bool[Array, ""],
    slots: Int[Array, " n"],
    change: Float[Array, " n"],
) -> WeightState:
    """After a replay: move the adaptive weight towards the ranking that chose levels of more `change`.

    Each ranking gets the change of the replayed levels, weighted by how much likelier it alone would have
    sampled them than the mixture did (as if it had chosen the batch itself), and the log-odds move by the
    normalised difference. `buffer` is the one from which the batch was sampled, and `shares` are those of its
    scores in their common ranking.
    """
    replays = state.replays + replayed
    if not isinstance(config, Adaptive):
        return WeightState(replays, state.log_odds)
    columns = priority.score_probabilities(buffer.scores, buffer.ids, buffer.mask, priorities)
    by_name = {name: column[slots] for name, column in zip(buffer.columns, columns, strict=True)}
    by_novelty = by_name.pop(NOVELTY)
    by_scores = priority.mixed([*by_name.values()], shares)
    weight = jax.nn.sigmoid(state.log_odds)
    mixture = jnp.maximum(weight * by_novelty + (1.0 - weight) * by_scores, jnp.finfo(jnp.float32).tiny)
    novelty_gain, score_gain = (jnp.sum(change * part / mixture) for part in (by_novelty, by_scores))
    total = novelty_gain + score_gain
    moved = state.log_odds + config.rate * (novelty_gain - score_gain) / jnp.where(total > 0, total, 1.0)
    low, high = (jnp.log(edge / (1.0 - edge)) for edge in _RANGE)
    log_odds = jnp.where(replayed & jnp.isfinite(moved), jnp.clip(moved, low, high), state.log_odds)
    return WeightState(replays, log_odds)
