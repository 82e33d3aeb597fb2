"""Which newcomers enter a full buffer, and whom they replace: the rule of one insertion, and its scan.

Levels are offered one after another, and all weights are those at the moment of the offer. Ranks are not
sorted anew each time but shifted by one comparison with every stored level, so that an offer costs O(c).
The levels themselves are not touched here: the scan only decides which offer ends up in which slot.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.teach import priority
from cenie.teach.config import PriorityConfig, ReplayConfig


class Standing(eqx.Module):
    """The part of the buffer that changes from one offer to the next.

    `ranks` are twice the ranks. One row per score here, so that work on a row is work on adjacent numbers.
    """

    scores: Float[Array, "s c"]
    ranks: Int[Array, "s c"]
    ids: Int[Array, " c"]
    last_played: Int[Array, " c"]
    size: Int[Array, ""]
    clock: Int[Array, ""]
    next_id: Int[Array, ""]


class Offer(eqx.Module):
    """A level that wants to enter.

    `known_slot` and `known_id` say where the same level was stored before the batch (the id is -1 if it
    was not): it still is, if the id is unchanged. A level with `eligible` False has no usable score; one
    with `merged` True is a copy of an earlier level of the batch, and only the clock notices it.
    """

    scores: Float[Array, "*batch s"]
    eligible: Bool[Array, "*batch"]
    merged: Bool[Array, "*batch"]
    known_slot: Int[Array, "*batch"]
    known_id: Int[Array, "*batch"]


class Verdict(eqx.Module):
    """What became of an offer: `slot` is meaningful if it was `inserted` or already `known`."""

    slot: Int[Array, "*batch"]
    inserted: Bool[Array, "*batch"]
    known: Bool[Array, "*batch"]
    id: Int[Array, "*batch"]
    clock: Int[Array, "*batch"]


def standing(
    scores: Float[Array, "s c"],
    ids: Int[Array, " c"],
    last_played: Int[Array, " c"],
    size: Int[Array, ""],
    clock: Int[Array, ""],
    next_id: Int[Array, ""],
    config: PriorityConfig,
) -> Standing:
    """The standing before the first offer; sorts each column once."""
    mask = jnp.arange(scores.shape[1]) < size
    ranks = jnp.stack([priority.ranks(row, ids, mask, config) for row in scores])
    return Standing(scores, ranks, ids, last_played, size, clock, next_id)


def offer_all(
    start: Standing, offers: Offer, mix: Float[Array, " s"], config: ReplayConfig
) -> tuple[Standing, Verdict]:
    """Offer the levels one after another (the leading axis of `offers`)."""
    return lax.scan(lambda now, offer: _offer(now, offer, mix, config), start, offers)


def _offer(
    now: Standing, offer: Offer, mix: Float[Array, " s"], config: ReplayConfig
) -> tuple[Standing, Verdict]:
    known = ~offer.merged & (offer.known_id >= 0) & (now.ids[offer.known_slot] == offer.known_id)
    identity = jnp.where(known, offer.known_id, now.next_id)
    over_all, of_all = _against_all(now, offer.scores, identity, config.priority)

    victim, wins = _contest(now, offer.scores, over_all, of_all, mix, config)
    free = now.size < now.ids.shape[0]
    usable = offer.eligible & ~offer.merged
    inserted = usable & ~known & (free | wins)
    slot = jnp.where(known, offer.known_slot, jnp.where(free, now.size, victim))
    clock = now.clock + 1

    seated = _seat(now, slot, offer.scores, identity, over_all, of_all, config.priority)
    changed = inserted | (usable & known)
    after = jax.tree.map(lambda new, old: jnp.where(changed, new, old), seated, now)
    after = eqx.tree_at(
        lambda s: (s.last_played, s.size, s.clock, s.next_id),
        after,
        (
            now.last_played.at[slot].set(jnp.where(inserted | known, clock, now.last_played[slot])),
            now.size + (inserted & free),
            clock,
            now.next_id + inserted,
        ),
    )
    return after, Verdict(slot, inserted, known, identity, clock)


def _against_all(
    now: Standing, scores: Float[Array, " s"], identity: Int[Array, ""], config: PriorityConfig
) -> tuple[Int[Array, "s c"], Int[Array, "s c"]]:
    """How the offered level shifts every stored rank, and how every stored level shifts its rank."""
    stored = jnp.arange(now.ids.shape[0]) < now.size
    new, new_id = scores[:, None], identity[None]
    over_all = priority.outranks(new, new_id, now.scores, now.ids, config)
    of_all = jnp.where(stored, priority.outranks(now.scores, now.ids, new, new_id, config), 0)
    return over_all, of_all


def _contest(
    now: Standing,
    scores: Float[Array, " s"],
    over_all: Int[Array, "s c"],
    of_all: Int[Array, "s c"],
    mix: Float[Array, " s"],
    config: ReplayConfig,
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The slot to replace in a full buffer, and whether the offered level beats it.

    The victim has the lowest total probability, staleness included. `mixture` then ranks the newcomer
    and all stored levels together and asks for a higher mixed probability than the victim's, staleness
    left out. When one column carries all the weight this is a comparison of raw scores, done exactly.
    """
    victim = _victim(now, mix, config.priority)
    column = jnp.argmax(mix)
    if config.insertion == "raw":
        return victim, scores[column] >= now.scores[column, victim]
    higher = scores[column] > now.scores[column, victim]
    if scores.shape[0] == 1:
        return victim, higher
    shifted = now.ranks + over_all
    logs = priority.log_weights(
        jnp.stack([scores, now.scores[:, victim]]),
        jnp.stack([2 + of_all.sum(axis=1), shifted[:, victim]]),
        config.priority,
    )
    if config.priority.transform != "rank" or config.priority.ties == "average":
        # Stable ranks are 1 .. c+1 in every column, so that their sums of weights agree and cancel.
        logs = logs - _log_sums(now, shifted, logs[0], config.priority)
    largest = jnp.max(jnp.where(mix > 0, logs, -jnp.inf))
    weights = jnp.exp(logs - jnp.where(jnp.isfinite(largest), largest, 0.0))
    gain = jnp.where(mix > 0, mix * (weights[0] - weights[1]), 0.0).sum()
    # A level with the scores of the victim never wins, whatever the rounding.
    differs = ((mix > 0) & (scores != now.scores[:, victim])).any()
    return victim, jnp.where((mix > 0).sum() == 1, higher, differs & (gain > 0))


def _victim(now: Standing, mix: Float[Array, " s"], config: PriorityConfig) -> Int[Array, ""]:
    """The level of lowest total probability; of equal ones the worst ranked, then the lowest slot.

    The second criterion matters at low temperatures, where most probabilities round to 0.
    """
    capacity = now.ids.shape[0]
    mask = jnp.arange(capacity) < now.size
    parts = [priority.transformed(row, rank, mask, config) for row, rank in zip(now.scores, now.ranks)]
    total = priority.with_staleness(priority.mixed(parts, mix), now.clock - now.last_played, mask, config)
    total = jnp.where(mask, total, jnp.inf)
    depth = (mix[:, None] * now.ranks).sum(axis=0)
    worst = (jnp.float32(jnp.inf), jnp.float32(-jnp.inf), jnp.int32(capacity))
    index = jnp.arange(capacity, dtype=jnp.int32)
    return jnp.minimum(lax.reduce((total, depth, index), worst, _weaker, (0,))[2], capacity - 1)


def _weaker(one: tuple[Array, Array, Array], other: tuple[Array, Array, Array]) -> tuple[Array, ...]:
    """Of two (probability, rank, slot): the one to replace first."""
    behind = (one[1] > other[1]) | ((one[1] == other[1]) & (one[2] < other[2]))
    first = (one[0] < other[0]) | ((one[0] == other[0]) & behind)
    return tuple(jnp.where(first, a, b) for a, b in zip(one, other))


def _log_sums(
    now: Standing, shifted: Int[Array, "s c"], new_logs: Float[Array, " s"], config: PriorityConfig
) -> Float[Array, " s"]:
    """Logarithm of the sum of all weights, newcomer included, in each column; 0 if all weights are 0."""
    mask = jnp.arange(now.ids.shape[0]) < now.size
    logs = jnp.where(mask, priority.log_weights(now.scores, shifted, config), -jnp.inf)
    largest = jnp.maximum(logs.max(axis=1), new_logs)
    base = jnp.where(jnp.isfinite(largest), largest, 0.0)
    total = jnp.exp(logs - base[:, None]).sum(axis=1) + jnp.exp(new_logs - base)
    return jnp.where(total > 0, base + jnp.log(total), 0.0)


def _seat(
    now: Standing,
    slot: Int[Array, ""],
    scores: Float[Array, " s"],
    identity: Int[Array, ""],
    over_all: Int[Array, "s c"],
    of_all: Int[Array, "s c"],
    config: PriorityConfig,
) -> Standing:
    """Write score and id into the slot and correct all ranks: the former occupant, if any, leaves."""
    left = priority.outranks(now.scores[:, slot, None], now.ids[slot, None], now.scores, now.ids, config)
    ranks = now.ranks + over_all - jnp.where(slot < now.size, left, 0)
    ranks = ranks.at[:, slot].set(2 + of_all.sum(axis=1) - of_all[:, slot])
    return eqx.tree_at(
        lambda s: (s.scores, s.ranks, s.ids),
        now,
        (now.scores.at[:, slot].set(scores), ranks, now.ids.at[slot].set(identity)),
    )
