"""When are two levels the same level? When all their leaves are equal bit for bit.

A 32-bit fingerprint finds the candidates quickly; the bits themselves decide.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

from cenie.records import Level


def words(levels: Level) -> UInt32[Array, "n w"]:
    """The bits of each level as a row of 32-bit words."""
    return jnp.concatenate([_leaf_words(leaf) for leaf in jax.tree.leaves(levels)], axis=1)


def fingerprint(words: UInt32[Array, "n w"]) -> UInt32[Array, " n"]:
    """Sum of the scrambled words, each with its position mixed in."""
    position = jnp.arange(1, words.shape[1] + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    mixed = words ^ position
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    return jnp.sum(mixed ^ (mixed >> 16), axis=1, dtype=jnp.uint32)


def first_equal(
    level_words: UInt32[Array, "n w"],
    fingerprints: UInt32[Array, " n"],
    stored_fingerprints: UInt32[Array, " m"],
    mask: Bool[Array, " m"],
    read_words: Callable[[Int[Array, " n"]], UInt32[Array, "n w"]],
) -> Int[Array, " n"]:
    """For each level the first stored index with the same bits, or `m` if there is none.

    `mask` says which of the `m` indices are stored, `read_words` returns the words of levels by their index.
    Levels that share a fingerprint by accident cost another turn of the loop and nothing else.
    """
    count = stored_fingerprints.shape[0]
    index = jnp.arange(count)

    def candidate(after: Int[Array, " n"]) -> Int[Array, " n"]:
        hit = mask & (fingerprints[:, None] == stored_fingerprints) & (index > after[:, None])
        return jnp.where(hit, index, count).min(axis=1)

    def mistaken(found: Int[Array, " n"]) -> Bool[Array, " n"]:
        return (found < count) & (read_words(jnp.minimum(found, count - 1)) != level_words).any(axis=1)

    def advance(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        found, wrong = carry
        found = jnp.where(wrong, candidate(found), found)
        return found, mistaken(found)

    start = jnp.full(level_words.shape[0], -1, index.dtype), jnp.ones(level_words.shape[0], bool)
    return lax.while_loop(lambda carry: carry[1].any(), advance, start)[0]


def _leaf_words(leaf: Array) -> UInt32[Array, "n k"]:
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.uint8)
    size = leaf.dtype.itemsize
    target = {1: jnp.uint8, 2: jnp.uint16}.get(size, jnp.uint32)
    return lax.bitcast_convert_type(leaf, target).reshape(leaf.shape[0], -1).astype(jnp.uint32)
