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


def rank_correlations(
    buffer: BufferState, values: Float[Array, " c"], others: Float[Array, "c s"]
) -> Float[Array, " s"]:
    """Spearman's correlations of a number with others over the stored levels; NaN below two levels."""
    columns = jnp.concatenate([values[:, None], others], axis=1)
    config = PriorityConfig(ties="average")
    ranks = priority.doubled_ranks_of_all(columns, buffer.ids, buffer.mask, config) / 2.0
    ranks = jnp.where(buffer.mask, ranks - (buffer.size + 1) / 2.0, 0.0)
    squares = jnp.sum(ranks**2, axis=1)
    spread = jnp.sqrt(squares[0] * squares[1:])
    products = jnp.sum(ranks[0] * ranks[1:], axis=1)
    return jnp.where(spread > 0, products / jnp.where(spread > 0, spread, 1.0), jnp.nan)
