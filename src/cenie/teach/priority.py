"""From scores to probabilities of replay. Pure functions over columns of scores, no state.

A level that is not stored (`mask` False) is taken out before anything is ranked and has probability 0.
All weights are computed as logarithms relative to the largest one, so that no temperature can divide zero
by zero. An empty buffer has all probabilities 0.
"""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from cenie.teach.config import PriorityConfig

# What the power transform adds to a score when staleness does not keep levels of score 0 alive (dcd).
POWER_OFFSET = 1e-3


def probabilities(
    scores: Float[Array, "c s"],
    mix: Float[Array, " s"],
    ids: Int[Array, " c"],
    staleness: Int[Array, " c"],
    mask: Bool[Array, " c"],
    config: PriorityConfig,
) -> Float[Array, " c"]:
    """P = (1 - c) sum_j mix_j P_j + c P_C: CENIE Eq. 5 with the staleness of PLR around it.

    `mix` sums to 1; for CENIE it is (1 - alpha, alpha) over (regret, novelty). `ids` grow with the
    order of insertion.
    """
    columns = [
        transformed(scores[:, j], ranks(scores[:, j], ids, mask, config), mask, config)
        for j in range(scores.shape[1])
    ]
    return with_staleness(mixed(columns, mix), staleness, mask, config)


def ranks(
    scores: Float[Array, " c"], ids: Int[Array, " c"], mask: Bool[Array, " c"], config: PriorityConfig
) -> Int[Array, " c"]:
    """Twice the rank of each stored level: 2 for the highest score. Meaningless where `mask` is False.

    Of equal levels the older one (lower id) ranks higher, or all get their mean rank, which may end in
    one half: hence twice the rank, a whole number that can be updated without rounding.
    """
    # Whole numbers in the order of -score; -0 counts as 0.
    bits = lax.bitcast_convert_type(jnp.where(scores == 0, 0.0, scores), jnp.uint32)
    upside_down = jnp.where(bits >> 31 == 1, bits, ~(bits | jnp.uint32(1 << 31)))
    key = jnp.where(mask, upside_down, ~jnp.uint32(0))
    if config.ties == "average":
        ordered = jnp.sort(key)
        left = jnp.searchsorted(ordered, key, side="left")
        return left + jnp.searchsorted(ordered, key, side="right") + 1
    # The second key is the age; 30 bits last for a billion insertions.
    order = _order((ids.astype(jnp.uint32), 30), (key, 32))
    places = 2 * jnp.arange(1, key.shape[0] + 1, dtype=jnp.int32)
    return jnp.zeros_like(places).at[order].set(places)


def _order(*keys: tuple[UInt32[Array, " c"], int]) -> UInt32[Array, " c"]:
    """Indices that sort by several keys of so many bits, the last key first; what `lexsort` returns.

    A radix sort whose digits share a word with the position: sorting one array of words is several times
    faster than sorting pairs, which is what `lexsort` does.
    """
    count = keys[0][0].shape[0]
    room = max(1, (count - 1).bit_length())
    position = jnp.arange(count, dtype=jnp.uint32)
    order = position
    for key, width in keys:
        for shift in range(0, width, 32 - room):
            words = ((key[order] >> shift) << room) | position
            order = order[jnp.sort(words) & jnp.uint32((1 << room) - 1)]
    return order


def outranks(
    scores: Float[Array, "*a"],
    ids: Int[Array, "*a"],
    other_scores: Float[Array, "*b"],
    other_ids: Int[Array, "*b"],
    config: PriorityConfig,
) -> Int[Array, "..."]:
    """By how much the presence of a level raises twice the rank of another: 0, 1 or 2. Broadcasts.

    `ranks` is 2 plus the sum of this over all other stored levels.
    """
    tied = scores == other_scores
    if config.ties == "average":
        return 2 * (scores > other_scores) + 1 * tied
    return 2 * ((scores > other_scores) | (tied & (ids < other_ids)))


def log_weights(
    scores: Float[Array, "*a"], twice_rank: Int[Array, "*a"], config: PriorityConfig
) -> Float[Array, "*a"]:
    """Logarithm of the weight of each level before normalisation (CENIE Eq. 4 for `rank`).

    The exponent is 1 / temperature. `top-k` and `uniform` give equal weights.
    """
    if config.transform == "rank":
        return jnp.log(0.5 * twice_rank) * (-1.0 / config.temperature)
    if config.transform == "power":
        offset = 0.0 if config.staleness_coef > 0 else POWER_OFFSET
        return jnp.log(jnp.maximum(scores, 0.0) + offset) / config.temperature
    if config.transform == "softmax":
        return scores / config.temperature
    if config.transform == "top-k":
        return jnp.where(twice_rank <= 2 * config.top_k, 0.0, -jnp.inf)
    return jnp.zeros_like(scores)


def transformed(
    scores: Float[Array, " c"], twice_rank: Int[Array, " c"], mask: Bool[Array, " c"], config: PriorityConfig
) -> Float[Array, " c"]:
    """The probabilities that one column of scores implies; uniform where all weights are 0."""
    logs = jnp.where(mask, log_weights(scores, twice_rank, config), -jnp.inf)
    largest = jnp.max(logs)
    return _normalised(jnp.exp(logs - jnp.where(jnp.isfinite(largest), largest, 0.0)), mask)


def mixed(columns: list[Float[Array, " c"]], mix: Float[Array, " s"]) -> Float[Array, " c"]:
    """Sum of the columns weighted by `mix` (CENIE Eq. 5).

    A weight of exactly 1 among zeros returns its column bit for bit: every column is finite and not
    negative, so that the others add exactly 0.
    """
    total = mix[0] * columns[0]
    for j in range(1, len(columns)):
        total = total + mix[j] * columns[j]
    return _rounded(total)


def with_staleness(
    score_part: Float[Array, " c"],
    staleness: Int[Array, " c"],
    mask: Bool[Array, " c"],
    config: PriorityConfig,
) -> Float[Array, " c"]:
    """(1 - c) P_S + c P_C, with P_C proportional to how long ago a level was played."""
    stale_part = _normalised(jnp.where(mask, staleness, 0).astype(jnp.float32), mask)
    # One product instead of two: there is only one way to contract it into a fused multiply-add.
    return score_part + config.staleness_coef * (stale_part - score_part)


def drawn(chances: Float[Array, " c"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """The slot at which the cumulative chances reach (1 - uniform) of their total.

    Looks for the block of slots first and then inside it, which saves the running sum over all slots.
    """
    width = math.isqrt(chances.shape[0] - 1) + 1
    blocks = jnp.pad(chances, (0, -chances.shape[0] % width)).reshape(-1, width)
    sums = blocks.sum(axis=1)
    block, rest = _reached(sums, sums.sum() * (1.0 - uniform))
    return block * width + _reached(blocks[block], rest)[0]


def _reached(chances: Float[Array, " k"], goal: Float[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Where the running sum reaches the goal, and how much of the goal is left there.

    An entry of chance 0 is never returned unless all are 0, and a goal that is missed by rounding is
    lowered, so that the answer always exists.
    """
    running = jnp.where(chances > 0, jnp.cumsum(chances), 0.0)
    goal = jnp.minimum(goal, running.max())
    index = jnp.argmax((chances > 0) & (running >= goal))
    return index, goal - (running[index] - chances[index])


def _normalised(weights: Float[Array, " c"], mask: Bool[Array, " c"]) -> Float[Array, " c"]:
    """Weights divided by their sum; uniform over `mask` if they are all 0; 0 if nothing is stored."""
    total = jnp.sum(weights)
    flat = mask / jnp.maximum(jnp.sum(mask), 1)
    return _rounded(jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), flat))


def _rounded(values: Float[Array, " c"]) -> Float[Array, " c"]:
    """The same values (none negative), kept from being merged unrounded into a later addition.

    Compilers turn a product and a sum into one operation with one rounding, and which product they pick
    depends on the rest of the program. The bits of a number that is not negative are a whole number that
    is not negative either, so that the maximum changes nothing, which a compiler cannot know.
    """
    bits = lax.bitcast_convert_type(values, jnp.int32)
    return lax.bitcast_convert_type(jnp.maximum(bits, 0), jnp.float32)
