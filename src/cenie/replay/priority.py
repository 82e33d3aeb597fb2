"""From scores to probabilities of replay. Pure functions over columns of scores, no state.

A level that is not stored (`mask` False) is taken out before anything is ranked and has probability 0. An
empty buffer has all probabilities 0. How the last bits are kept is the business of `exact`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.replay.config import PriorityConfig
from cenie.xla import exact
from cenie.xla.tricks import rounded

POWER_OFFSET = 1e-3
"""The number that the power transform adds to a score when staleness does not keep levels of score 0 alive
(dcd)."""


def probabilities(
    *,
    scores: Float[Array, "c s"],
    mix: Float[Array, " s"],
    ids: Int[Array, " c"],
    staleness: Int[Array, " c"],
    mask: Bool[Array, " c"],
    config: PriorityConfig,
) -> Float[Array, " c"]:
    """P = (1 - c) sum_j mix_j P_j + c P_C: CENIE Eq. 5 with the staleness of PLR around it.

    `mix` sums to 1; for CENIE it is (1 - alpha, alpha) over (regret, novelty). Of several scores each has its
    share of the 1 - alpha. `ids` grow with the order of insertion.
    """
    columns = score_probabilities(scores, ids, mask, config)
    return with_staleness(mixed(columns, mix), staleness, mask, config)


def score_probabilities(
    scores: Float[Array, "c s"], ids: Int[Array, " c"], mask: Bool[Array, " c"], config: PriorityConfig
) -> list[Float[Array, " c"]]:
    """P_j: the probabilities that each column of scores implies (CENIE Eq. 4).

    P_j = h(S)^(1 / temperature), divided by its sum over all stored levels; h(S) = 1 / rank(S) for `rank`.
    """
    ranks = doubled_ranks_of_all(scores, ids, mask, config)
    return [ranked_probabilities(column, rank, mask, config) for column, rank in zip(scores.T, ranks)]


def ranked_probabilities(
    scores: Float[Array, " c"],
    doubled_rank: Int[Array, " c"],
    mask: Bool[Array, " c"],
    config: PriorityConfig,
) -> Float[Array, " c"]:
    """The distribution P_j of one column with known ranks (CENIE Eq. 4); uniform where all weights are 0."""
    logs = jnp.where(mask, log_weights(scores, doubled_rank, config), -jnp.inf)
    return exact.normalised(exact.exp_over_largest(logs, jnp.max(logs)), mask)


def log_weights(
    scores: Float[Array, "*a"], doubled_rank: Int[Array, "*a"], config: PriorityConfig
) -> Float[Array, "*a"]:
    """Logarithm of the weight of each level before normalisation (CENIE Eq. 4 for `rank`).

    The exponent is 1 / temperature. `top-k` and `uniform` give equal weights.
    """
    if config.transform == "rank":
        return jnp.log(0.5 * doubled_rank) * (-1.0 / config.temperature)
    if config.transform == "power":
        offset = 0.0 if config.staleness_coef > 0 else POWER_OFFSET
        return jnp.log(jnp.maximum(scores, 0.0) + offset) / config.temperature
    if config.transform == "softmax":
        return scores / config.temperature
    if config.transform == "top-k":
        return jnp.where(doubled_rank <= 2 * config.top_k, 0.0, -jnp.inf)
    return jnp.zeros_like(scores)


def mixed(columns: list[Float[Array, " c"]], mix: Float[Array, " s"]) -> Float[Array, " c"]:
    """sum_j mix_j P_j (CENIE Eq. 5): alpha P_novelty + (1 - alpha) P_regret.

    A weight of exactly 1 among zeros returns its column bit for bit: every column is finite and not
    negative, so that the others add exactly 0.
    """
    total = mix[0] * columns[0]
    for j in range(1, len(columns)):
        total = total + mix[j] * columns[j]
    return rounded(total)


def with_staleness(
    score_part: Float[Array, " c"],
    staleness: Int[Array, " c"],
    mask: Bool[Array, " c"],
    config: PriorityConfig,
) -> Float[Array, " c"]:
    """(1 - c) P_S + c P_C, with P_C proportional to how long ago a level was played."""
    staleness_part = exact.normalised(jnp.where(mask, staleness, 0).astype(jnp.float32), mask)
    return exact.interpolated(score_part, staleness_part, config.staleness_coef)


def doubled_ranks(
    scores: Float[Array, " c"], ids: Int[Array, " c"], mask: Bool[Array, " c"], config: PriorityConfig
) -> Int[Array, " c"]:
    """Twice the rank of each stored level: 2 for the highest score. Meaningless where `mask` is False.

    Of equal levels the older one (lower id) ranks higher, or all get their mean rank, which may end in
    one half: hence twice the rank, a whole number that can be updated without rounding.
    """
    keys = exact.descending_keys(scores, mask)
    if config.ties == "average":
        ordered = jnp.sort(keys)
        # Keys are whole numbers: equal ones end where the next higher ones begin.
        first, behind = jnp.searchsorted(ordered, jnp.stack([keys, keys + 1]))
        return first + behind + 1
    # The second key is the age; 30 bits last for a billion insertions.
    order = exact.lexicographic_order((ids.astype(jnp.uint32), 30), (keys, 32))
    return 2 * exact.inverse(order).astype(jnp.int32) + 2


def doubled_ranks_of_all(
    scores: Float[Array, "c s"], ids: Int[Array, " c"], mask: Bool[Array, " c"], config: PriorityConfig
) -> Int[Array, "s c"]:
    """The same of every column. Whole numbers have no last bits: columns may share one program, which is
    compiled once and not once for each."""
    return jax.vmap(lambda column: doubled_ranks(column, ids, mask, config))(scores.T)


def rank_shift(
    scores: Float[Array, "*a"],
    ids: Int[Array, "*a"],
    other_scores: Float[Array, "*b"],
    other_ids: Int[Array, "*b"],
    config: PriorityConfig,
) -> Int[Array, "..."]:
    """By how much the presence of a level raises twice the rank of another: 0, 1 or 2. Broadcasts.

    `doubled_ranks` is 2 plus the sum of this over all other stored levels.
    """
    tied = scores == other_scores
    if config.ties == "average":
        return 2 * (scores > other_scores) + 1 * tied
    return 2 * ((scores > other_scores) | (tied & (ids < other_ids)))
