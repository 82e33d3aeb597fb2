"""Which newcomers enter a full buffer, and whom they replace: the rule of one insertion, and its scan.

Levels are offered one after another, and all weights are those at the moment of the offer. Ranks are not
sorted anew each time but shifted by one comparison with every stored level, so that an offer costs O(c).
The levels themselves are not touched here: the scan only decides which offer ends up in which slot.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.teach import priority
from cenie.teach.config import PriorityConfig, ReplayConfig


class Standing(eqx.Module):
    """The part of the buffer that changes from one offer to the next.

    One array per score, so that all work is on adjacent numbers. `ranks` are twice the ranks.
    """

    scores: tuple[Float[Array, " c"], ...]
    ranks: tuple[Int[Array, " c"], ...]
    ids: Int[Array, " c"]
    last_played: Int[Array, " c"]
    size: Int[Array, ""]
    clock: Int[Array, ""]
    next_id: Int[Array, ""]

    @property
    def mask(self) -> Bool[Array, " c"]:
        return jnp.arange(self.ids.shape[0]) < self.size

    def scores_at(self, slot: Int[Array, ""]) -> Float[Array, " s"]:
        return jnp.stack([column[slot] for column in self.scores])


class Offer(eqx.Module):
    """A level that wants to enter.

    `entry` are the scores that decide whether it enters, where these are not the `scores` that are stored.
    `known_slot` and `known_id` say where the same level was stored before the batch (the id is -1 if it was
    not): it still is, if the id is unchanged. A level with `eligible` False has no usable score; one with
    `merged` True is a copy of an earlier level of the batch and changes nothing. `behind` is the number of
    levels after it in the batch, and its staleness if it enters.
    """

    scores: Float[Array, "*batch s"]
    entry: Float[Array, "*batch s"]
    eligible: Bool[Array, "*batch"]
    merged: Bool[Array, "*batch"]
    known_slot: Int[Array, "*batch"]
    known_id: Int[Array, "*batch"]
    behind: Int[Array, "*batch"]


class Verdict(eqx.Module):
    """What became of an offer: `slot` is meaningful if it was `inserted` or already `known`."""

    slot: Int[Array, "*batch"]
    inserted: Bool[Array, "*batch"]
    known: Bool[Array, "*batch"]
    id: Int[Array, "*batch"]


class Comparison(eqx.Module):
    """An offered level against all stored ones, by one score.

    `over` is by how much it would lower each stored level (in units of `ranks`), `under` by how much each
    stored level lowers it, and `rank` its place among all of them.
    """

    over: Int[Array, " c"]
    under: Int[Array, " c"]
    rank: Int[Array, ""]


def standing(
    scores: Float[Array, "c s"],
    ids: Int[Array, " c"],
    last_played: Int[Array, " c"],
    size: Int[Array, ""],
    clock: Int[Array, ""],
    next_id: Int[Array, ""],
    config: PriorityConfig,
) -> Standing:
    """The standing before the first offer; sorts each column once."""
    mask = jnp.arange(scores.shape[0]) < size
    columns = tuple(scores[:, j] for j in range(scores.shape[1]))
    ranks = tuple(priority.ranks(column, ids, mask, config) for column in columns)
    return Standing(columns, ranks, ids, last_played, size, clock, next_id)


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
    compared = _compare(now, offer.scores, identity, config.priority)
    if config.repeated == "last":
        victim, wins = _contest(
            now, offer.entry, _compare(now, offer.entry, identity, config.priority), mix, config
        )
    else:
        victim, wins = _contest(now, offer.scores, compared, mix, config)
    free = now.size < now.ids.shape[0]
    usable = offer.eligible & ~offer.merged
    inserted = usable & ~known & (free | wins)
    slot = jnp.where(known, offer.known_slot, jnp.where(free, now.size, victim))

    changed = inserted | (usable & known)
    scores, ranks = _seat(now, slot, offer.scores, compared, changed, config.priority)
    played = jnp.where(inserted | known, now.clock - offer.behind, now.last_played[slot])
    after = Standing(
        scores=scores,
        ranks=ranks,
        ids=now.ids.at[slot].set(jnp.where(changed, identity, now.ids[slot])),
        last_played=now.last_played.at[slot].set(played),
        size=now.size + (inserted & free),
        clock=now.clock,
        next_id=now.next_id + inserted,
    )
    return after, Verdict(slot, inserted, known, identity)


def _compare(
    now: Standing, scores: Float[Array, " s"], identity: Int[Array, ""], config: PriorityConfig
) -> list[Comparison]:
    compared = []
    for j, column in enumerate(now.scores):
        over = priority.outranks(scores[j], identity, column, now.ids, config)
        under = jnp.where(now.mask, priority.outranks(column, now.ids, scores[j], identity, config), 0)
        compared.append(Comparison(over, under, 2 + under.sum()))
    return compared


def _contest(
    now: Standing,
    scores: Float[Array, " s"],
    compared: list[Comparison],
    mix: Float[Array, " s"],
    config: ReplayConfig,
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The slot to replace in a full buffer, and whether the offered level beats it.

    The victim has the lowest total probability, staleness included, or the lowest score. `mixture` then
    ranks the newcomer and all stored levels together and asks for a higher mixed probability than the
    victim's, staleness left out. When one column carries all the weight this is a comparison of raw scores,
    done exactly.
    """
    victim = _victim(now, mix, config)
    old = now.scores_at(victim)
    column = jnp.argmax(mix)
    if config.insertion == "raw":
        return victim, scores[column] >= old[column]
    higher = scores[column] > old[column]
    if scores.shape[0] == 1:
        return victim, higher
    shifted = [rank + one.over for rank, one in zip(now.ranks, compared)]
    places = [[one.rank for one in compared], [rank[victim] for rank in shifted]]
    logs = priority.log_weights(jnp.stack([scores, old]), jnp.asarray(places), config.priority)
    if config.priority.transform != "rank" or config.priority.ties == "average":
        # Stable ranks are 1 .. c+1 in every column, so that their sums of weights agree and cancel.
        logs = logs - _log_sums(now, shifted, logs[0], config.priority)
    largest = jnp.max(jnp.where(mix > 0, logs, -jnp.inf))
    weights = jnp.exp(logs - jnp.where(jnp.isfinite(largest), largest, 0.0))
    gain = jnp.where(mix > 0, mix * (weights[0] - weights[1]), 0.0).sum()
    # A level with the scores of the victim never wins, whatever the rounding.
    differs = ((mix > 0) & (scores != old)).any()
    return victim, jnp.where((mix > 0).sum() == 1, higher, differs & (gain > 0))


def _victim(now: Standing, mix: Float[Array, " s"], replay: ReplayConfig) -> Int[Array, ""]:
    """The level of lowest total probability; of equal ones the worst ranked, then the lowest slot.

    By `lowest-score` staleness does not count.

    The second criterion matters at low temperatures, where most probabilities round to 0. Equal means up
    to a millionth: a compiler may compute a number twice and round it differently.
    """
    mask, config = now.mask, replay.priority
    if replay.victim == "lowest-score":
        config = dataclasses.replace(config, staleness_coef=0.0)
    parts = [priority.transformed(column, rank, mask, config) for column, rank in zip(now.scores, now.ranks)]
    total = priority.with_staleness(priority.mixed(parts, mix), now.clock - now.last_played, mask, config)
    total = jnp.where(mask, total, jnp.inf)
    depth = sum((mix[j] * rank for j, rank in enumerate(now.ranks)), jnp.zeros_like(total))
    lowest = total <= total.min() * (1 + 1e-6)
    worst = lowest & (depth >= jnp.where(lowest, depth, 0.0).max() * (1 - 1e-6))
    return jnp.where(worst, jnp.arange(mask.shape[0]), mask.shape[0] - 1).min()


def _log_sums(
    now: Standing, shifted: list[Int[Array, " c"]], new_logs: Float[Array, " s"], config: PriorityConfig
) -> Float[Array, " s"]:
    """Logarithm of the sum of all weights, newcomer included, in each column; 0 if all weights are 0."""
    sums = []
    for j, column in enumerate(now.scores):
        logs = jnp.where(now.mask, priority.log_weights(column, shifted[j], config), -jnp.inf)
        largest = jnp.maximum(logs.max(), new_logs[j])
        base = jnp.where(jnp.isfinite(largest), largest, 0.0)
        total = jnp.exp(logs - base).sum() + jnp.exp(new_logs[j] - base)
        sums.append(jnp.where(total > 0, base + jnp.log(total), 0.0))
    return jnp.stack(sums)


def _seat(
    now: Standing,
    slot: Int[Array, ""],
    scores: Float[Array, " s"],
    compared: list[Comparison],
    changed: Bool[Array, ""],
    config: PriorityConfig,
) -> tuple[tuple[Float[Array, " c"], ...], tuple[Int[Array, " c"], ...]]:
    """Put the scores into the slot, if `changed`, and correct all ranks: the occupant, if any, leaves."""
    occupied = slot < now.size
    new_scores, new_ranks = [], []
    for j, (column, rank, one) in enumerate(zip(now.scores, now.ranks, compared)):
        left = priority.outranks(column[slot], now.ids[slot], column, now.ids, config)
        others = rank + jnp.where(changed, one.over - jnp.where(occupied, left, 0), 0)
        own = jnp.where(changed, one.rank - one.under[slot], rank[slot])
        new_ranks.append(others.at[slot].set(own))
        new_scores.append(column.at[slot].set(jnp.where(changed, scores[j], column[slot])))
    return tuple(new_scores), tuple(new_ranks)
