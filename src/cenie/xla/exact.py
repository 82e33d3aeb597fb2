"""Arithmetic whose last bits can be relied on. No formulas of any paper.

A run must repeat its bits whatever else is compiled into its program, and a weight of 0 must leave no trace.
Compilers see to neither: they contract products and sums, choose the order of sums by the shape of an array,
and may compute a number twice. What works against that stands here, so that the formulas read like formulas.
"""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from cenie.xla.tricks import rounded

_NEARLY = 1e-6
"""Numbers that differ by a smaller share may be one number that was rounded twice."""


def normalised(weights: Float[Array, " c"], mask: Bool[Array, " c"]) -> Float[Array, " c"]:
    """Weights divided by their sum; uniform over `mask` if they are all 0; 0 if nothing is in it."""
    total = jnp.sum(weights)
    uniform = mask / jnp.maximum(jnp.sum(mask), 1)
    return rounded(jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), uniform))


def exp_over_largest(logs: Float[Array, "*a"], largest: Float[Array, ""]) -> Float[Array, "*a"]:
    """Weights relative to the largest one, so that no temperature can divide 0 by 0; all 0 if it is 0."""
    return jnp.exp(logs - jnp.where(jnp.isfinite(largest), largest, 0.0))


def interpolated(start: Float[Array, " c"], end: Float[Array, " c"], share: float) -> Float[Array, " c"]:
    """(1 - share) start + share end. One product, which can be contracted with a sum in one way only."""
    return start + share * (end - start)


def group_means(
    members: Bool[Array, "n n"], values: Float[Array, "n s"]
) -> tuple[Float[Array, "n s"], Bool[Array, " n"]]:
    """For each row the mean of the `values` of its members, 0 without any; and whether there are any.

    The last bits of a column do not depend on how many columns there are. Hence a loop, which fixes the order
    of the sum, and one division per column: XLA turns that of a matrix into a product.
    """

    def add(total: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        is_member, value = row
        return total + jnp.where(is_member[:, None], value, 0.0), None

    total, _ = lax.scan(add, jnp.zeros_like(values), (members.T, values))
    count = jnp.maximum(members.sum(axis=1), 1)
    return jnp.stack([column / count for column in total.T], axis=1), members.any(axis=1)


def first_of_lowest(values: Float[Array, " c"], then_highest: Float[Array, " c"]) -> Int[Array, ""]:
    """The index of the lowest value; of equal ones that of the highest in `then_highest`; then the first.

    Equal means up to a millionth: a compiler may compute a number twice and round it differently.
    """
    lowest = values <= values.min() * (1 + _NEARLY)
    chosen = lowest & (then_highest >= jnp.where(lowest, then_highest, 0.0).max() * (1 - _NEARLY))
    count = values.shape[0]
    return jnp.where(chosen, jnp.arange(count), count - 1).min()


def descending_keys(scores: Float[Array, " c"], mask: Bool[Array, " c"]) -> UInt32[Array, " c"]:
    """Whole numbers in the order of falling scores, those outside of `mask` last; -0 counts as 0."""
    bits = lax.bitcast_convert_type(jnp.where(scores == 0, 0.0, scores), jnp.uint32)
    upside_down = jnp.where(bits >> 31 == 1, bits, ~(bits | jnp.uint32(1 << 31)))
    return jnp.where(mask, upside_down, ~jnp.uint32(0))


def lexicographic_order(*keys: tuple[UInt32[Array, " c"], int]) -> UInt32[Array, " c"]:
    """Return indices that sort by several keys (values, bits), the last key first, as `lexsort` does.

    A radix sort whose digits share a word with the position: sorting one array of words is several times
    faster than sorting pairs, which is what `lexsort` does.
    """
    count = keys[0][0].shape[0]
    position_bits = max(1, (count - 1).bit_length())
    position = jnp.arange(count, dtype=jnp.uint32)
    width = 32 - position_bits
    shifted = [key >> shift for key, bits in keys for shift in range(0, bits, width)]
    digits = jnp.stack(shifted) << position_bits

    def sort_by(order: UInt32[Array, " c"], digit: UInt32[Array, " c"]) -> tuple[UInt32[Array, " c"], None]:
        words = jnp.sort(digit[order] | position)
        return order[words & jnp.uint32((1 << position_bits) - 1)], None

    return lax.scan(sort_by, position, digits)[0]


def inverse(order: UInt32[Array, " c"]) -> UInt32[Array, " c"]:
    """The place of each index in an order of all indices. A sort: on CPUs, a scatter is a loop over them."""
    return lexicographic_order((order, max(1, (order.shape[0] - 1).bit_length())))


def sample_index(probabilities: Float[Array, " c"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """The index at which the cumulative probabilities reach (1 - uniform) of their total.

    Looks for the block of entries first and then inside it, which saves the running sum over all of them.
    """
    width = math.isqrt(probabilities.shape[0] - 1) + 1
    blocks = jnp.pad(probabilities, (0, -probabilities.shape[0] % width)).reshape(-1, width)
    sums = blocks.sum(axis=1)
    block, rest = _reached(sums, sums.sum() * (1.0 - uniform))
    return block * width + _reached(blocks[block], rest)[0]


def _reached(
    probabilities: Float[Array, " k"], target: Float[Array, ""]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Where the running sum reaches the target, and how much of the target is left there.

    An entry of probability 0 is never returned unless all are 0, and a target that is missed by rounding is
    lowered, so that the answer always exists.
    """
    running = jnp.where(probabilities > 0, jnp.cumsum(probabilities), 0.0)
    target = jnp.minimum(target, running.max())
    index = jnp.argmax((probabilities > 0) & (running >= target))
    return index, target - (running[index] - probabilities[index])
