"""The curriculum in numbers, for the logs."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from cenie.replay import buffer as buffers
from cenie.replay import priority
from cenie.replay.buffer import BufferState
from cenie.replay.config import PriorityConfig
from cenie.xla.tricks import Several

Metrics = dict[str, Any]
"""Scalars by name, or `Several` under the beginning of their names."""


def apart(metrics: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Metrics on the host, each number [...] under a name of its own.

    >>> scores = Several(("6", "7"), np.array([[0.1, 0.2], [0.3, 0.4]]))
    >>> apart({"kind": np.array([0, 2]), "fit/": scores})
    {'kind': array([0, 2]), 'fit/6': array([0.1, 0.3]), 'fit/7': array([0.2, 0.4])}
    """
    found = {}
    for name, values in metrics.items():
        if isinstance(values, Several):
            found |= {f"{name}{own}": values.values[..., place] for place, own in enumerate(values.names)}
        else:
            found[name] = values
    return found


def not_measured(shapes: Any) -> Metrics:
    """Metrics of something that did not happen: NaN, written to the logs as null."""

    def nothing(leaf: Any) -> Array:
        return jnp.full(leaf.shape, jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0, leaf.dtype)

    return jax.tree.map(nothing, shapes)


def batch_metrics(scores: Sequence[Float[Array, " n"]], scored: Bool[Array, " n"]) -> Metrics:
    """The levels of a batch that teach nothing: without a score, or with scores that say nothing."""
    equal = scored.sum() > 1
    for score in scores:
        lowest = jnp.where(scored, score, jnp.inf).min()
        highest = jnp.where(scored, score, -jnp.inf).max()
        equal &= lowest == highest
    return {"unscored": jnp.sum(~scored), "equal_scores": equal}


def buffer_metrics(buffer: BufferState, mix: Float[Array, " s"], config: PriorityConfig) -> Metrics:
    """The buffer in numbers; `weighted` means are over the probabilities of replay."""
    probabilities = buffers.probabilities(buffer, mix, config)
    share = buffer.mask / jnp.maximum(buffer.size, 1)
    sums = {
        "generation": share * buffer.generations,
        "generation_weighted": probabilities * buffer.generations,
        "score_age": share * buffer.staleness,
    }
    for name in buffer.columns:
        column = buffer.column(name)
        sums[name] = share * column
        sums[f"{name}_weighted"] = probabilities * column
        sums[f"{name}_total"] = jnp.where(buffer.mask, column, 0.0)
    return {
        "buffer_size": buffer.size,
        "buffer_fill": buffer.size / buffer.capacity,
        "largest_probability": jnp.max(probabilities),
        "": Several(tuple(sums), jnp.sum(jnp.stack([*sums.values()]), axis=1)),
    }


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
