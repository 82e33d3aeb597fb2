"""The curriculum in numbers, for the logs."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cenie.teach import buffer as buffers
from cenie.teach import priority
from cenie.teach.buffer import BufferState
from cenie.teach.config import PriorityConfig

Metrics = dict[str, Array]


def not_measured(shapes: Any) -> Metrics:
    """Metrics of something that did not happen: NaN, written to the logs as null."""
    return {
        name: jnp.full(leaf.shape, jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0, leaf.dtype)
        for name, leaf in shapes.items()
    }


def batch_metrics(score: Float[Array, " n"], scored: Bool[Array, " n"]) -> Metrics:
    """What a batch cannot be learned from: levels without a score, or with scores that say nothing."""
    lowest = jnp.where(scored, score, jnp.inf).min()
    highest = jnp.where(scored, score, -jnp.inf).max()
    return {"unscored": jnp.sum(~scored), "equal_scores": (scored.sum() > 1) & (lowest == highest)}


def buffer_metrics(buffer: BufferState, mix: Float[Array, " s"], config: PriorityConfig) -> Metrics:
    """The buffer in numbers; `weighted` means are over the probabilities of replay."""
    probabilities = buffers.probabilities(buffer, mix, config)
    share = buffer.mask / jnp.maximum(buffer.size, 1)
    metrics = {
        "buffer_size": buffer.size,
        "buffer_fill": buffer.size / buffer.capacity,
        "generation": jnp.sum(share * buffer.generations),
        "generation_weighted": jnp.sum(probabilities * buffer.generations),
        "score_age": jnp.sum(share * buffer.staleness),
        "largest_probability": jnp.max(probabilities),
    }
    for name in buffer.columns:
        column = buffer.column(name)
        metrics[name] = jnp.sum(share * column)
        metrics[f"{name}_weighted"] = jnp.sum(probabilities * column)
        metrics[f"{name}_total"] = jnp.sum(jnp.where(buffer.mask, column, 0.0))
    return metrics


def rank_correlation(buffer: BufferState, first_column: str, second_column: str) -> Float[Array, ""]:
    """Spearman's correlation of two columns over the stored levels; NaN below two levels."""
    config = PriorityConfig(ties="average")
    first, second = (
        jnp.where(buffer.mask, priority.doubled_ranks(column, buffer.ids, buffer.mask, config), 0) / 2.0
        for column in (buffer.column(first_column), buffer.column(second_column))
    )
    middle = (buffer.size + 1) / 2.0
    first, second = (jnp.where(buffer.mask, ranks - middle, 0.0) for ranks in (first, second))
    spread = jnp.sqrt(jnp.sum(first**2) * jnp.sum(second**2))
    return jnp.where(spread > 0, jnp.sum(first * second) / jnp.where(spread > 0, spread, 1.0), jnp.nan)
