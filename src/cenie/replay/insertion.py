"""Which candidates enter a full buffer, and whom they replace: the rule of one insertion, and its scan.

Candidates come one after another, and all weights are those at that moment. The levels themselves are not
touched here: the scan only decides which candidate ends up in which slot.

The trick: ranks are not sorted anew each time but shifted by one comparison with every stored level, so that
an insertion costs O(c). They are kept twice as large, as whole numbers, because equal levels may share a mean
rank that ends in one half. A buffer of three slots that is full, and a candidate of score 4:

>>> import jax.numpy as jnp
>>> config = ReplayConfig(victim="lowest-priority")
>>> slots = jnp.arange(3)
>>> before = ranking(
...     scores=jnp.array([[5.0], [1.0], [3.0]]), ids=slots, last_played=jnp.zeros_like(slots),
...     size=jnp.array(3), clock=jnp.array(0), next_id=jnp.array(3), config=config.priority)
>>> before.doubled_ranks[0].tolist()  # the ranks 1, 3, 2
[2, 6, 4]
>>> (lowers,), (lowered_by,) = _compare(before, jnp.array([4.0]), jnp.array(3), config.priority)
>>> lowers.tolist()  # the candidate would push the last two back by one rank
[0, 2, 2]
>>> _doubled_rank(lowered_by).item()  # and be second itself, behind the level of score 5
4

The level of score 1 has to leave. It was ahead of nobody, so that only the candidate's own shift counts:

>>> candidates = Candidate(
...     scores=jnp.array([[4.0]]), entry_scores=jnp.array([[4.0]]), eligible=jnp.array([True]),
...     is_copy=jnp.array([False]), known_slot=jnp.array([0]), known_id=jnp.array([-1]),
...     initial_staleness=jnp.array([0]))
>>> after, placement = insert_all(before, candidates, jnp.ones(1), config)
>>> placement.slot.tolist(), placement.inserted.tolist()
([1], [True])
>>> after.doubled_ranks[0].tolist()  # of the scores 5, 4, 3
[2, 4, 6]
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.replay import priority
from cenie.replay.config import PriorityConfig, ReplayConfig
from cenie.xla import exact


class Ranking(eqx.Module):
    """The part of the buffer that changes from one candidate to the next.

    One array per score, so that all work is on adjacent numbers.
    """

    scores: tuple[Float[Array, " c"], ...]
    doubled_ranks: tuple[Int[Array, " c"], ...]
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


class Candidate(eqx.Module):
    """A level that may enter.

    `entry_scores` decide whether it enters, where these are not the `scores` that are stored. `known_slot`
    and `known_id` say where the same level was stored before the batch (the id is -1 if it was not): it still
    is, if the id is unchanged. A level with `eligible` False has no usable score; one with `is_copy` True is
    a copy of an earlier level of the batch and changes nothing. `initial_staleness`, its staleness if it
    enters, is the number of levels after it in the batch.
    """

    scores: Float[Array, "*batch s"]
    entry_scores: Float[Array, "*batch s"]
    eligible: Bool[Array, "*batch"]
    is_copy: Bool[Array, "*batch"]
    known_slot: Int[Array, "*batch"]
    known_id: Int[Array, "*batch"]
    initial_staleness: Int[Array, "*batch"]


class Placement(eqx.Module):
    """The result for a candidate: `slot` is meaningful if it was `inserted` or already `known`."""

    slot: Int[Array, "*batch"]
    inserted: Bool[Array, "*batch"]
    known: Bool[Array, "*batch"]
    id: Int[Array, "*batch"]


def ranking(
    *,
    scores: Float[Array, "c s"],
    ids: Int[Array, " c"],
    last_played: Int[Array, " c"],
    size: Int[Array, ""],
    clock: Int[Array, ""],
    next_id: Int[Array, ""],
    config: PriorityConfig,
) -> Ranking:
    """The ranking before the first candidate; sorts all columns once."""
    mask = jnp.arange(scores.shape[0]) < size
    columns = tuple(scores[:, j] for j in range(scores.shape[1]))
    ranks = tuple(priority.doubled_ranks_of_all(scores, ids, mask, config))
    return Ranking(columns, ranks, ids, last_played, size, clock, next_id)


def insert_all(
    before: Ranking, candidates: Candidate, mix: Float[Array, " s"], config: ReplayConfig
) -> tuple[Ranking, Placement]:
    """Offer the candidates a slot one after another (the leading axis of `candidates`)."""
    return lax.scan(lambda ranked, candidate: _insert(ranked, candidate, mix, config), before, candidates)


def _insert(
    before: Ranking, candidate: Candidate, mix: Float[Array, " s"], config: ReplayConfig
) -> tuple[Ranking, Placement]:
    known = (
        ~candidate.is_copy
        & (candidate.known_id >= 0)
        & (before.ids[candidate.known_slot] == candidate.known_id)
    )
    level_id = jnp.where(known, candidate.known_id, before.next_id)
    compared = _compare(before, candidate.scores, level_id, config.priority)
    if config.repeated == "last":
        entry_compared = _compare(before, candidate.entry_scores, level_id, config.priority)
        victim, wins = _contest(before, candidate.entry_scores, entry_compared, mix, config)
    else:
        victim, wins = _contest(before, candidate.scores, compared, mix, config)
    free = before.size < before.ids.shape[0]
    usable = candidate.eligible & ~candidate.is_copy
    inserted = usable & ~known & (free | wins)
    slot = jnp.where(known, candidate.known_slot, jnp.where(free, before.size, victim))

    changed = inserted | (usable & known)
    scores, ranks = _replaced(before, slot, candidate.scores, compared, changed, config.priority)
    played = jnp.where(inserted | known, before.clock - candidate.initial_staleness, before.last_played[slot])
    after = Ranking(
        scores=scores,
        doubled_ranks=ranks,
        ids=before.ids.at[slot].set(jnp.where(changed, level_id, before.ids[slot])),
        last_played=before.last_played.at[slot].set(played),
        size=before.size + (inserted & free),
        clock=before.clock,
        next_id=before.next_id + inserted,
    )
    return after, Placement(slot, inserted, known, level_id)


Compared = tuple[list[Int[Array, " c"]], list[Int[Array, " c"]]]
"""A candidate against all stored levels, by each score: by how much it would lower each of them (in units of
`doubled_ranks`), and by how much each of them lowers it."""


def _compare(
    ranked: Ranking, scores: Float[Array, " s"], level_id: Int[Array, ""], config: PriorityConfig
) -> Compared:
    all_lowers, all_lowered_by = [], []
    for j, column in enumerate(ranked.scores):
        lowers = priority.rank_shift(scores[j], level_id, column, ranked.ids, config)
        lowered_by = priority.rank_shift(column, ranked.ids, scores[j], level_id, config)
        all_lowers.append(lowers)
        all_lowered_by.append(jnp.where(ranked.mask, lowered_by, 0))
    return all_lowers, all_lowered_by


def _doubled_rank(lowered_by: Int[Array, " c"]) -> Int[Array, ""]:
    """The place of a candidate among all stored levels."""
    return 2 + lowered_by.sum()


def _contest(
    ranked: Ranking,
    scores: Float[Array, " s"],
    compared: Compared,
    mix: Float[Array, " s"],
    config: ReplayConfig,
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The slot to replace in a full buffer, and whether the candidate beats the level in it.

    The victim has the lowest total probability, with staleness or without (CENIE Eq. 5). `mixture` then
    ranks the candidate and all stored levels together and asks for a higher mixed probability than the
    victim's, staleness left out. When one column carries all the weight this is a comparison of raw scores,
    done exactly.
    """
    victim = _victim(ranked, mix, config)
    victim_scores = ranked.scores_at(victim)
    column = jnp.argmax(mix)
    if config.insertion == "raw":
        return victim, scores[column] >= victim_scores[column]
    higher = scores[column] > victim_scores[column]
    if scores.shape[0] == 1:
        return victim, higher
    shifted = [rank + lowers for rank, lowers in zip(ranked.doubled_ranks, compared[0])]
    ranks = [[_doubled_rank(lowered_by) for lowered_by in compared[1]], [rank[victim] for rank in shifted]]
    logs = priority.log_weights(jnp.stack([scores, victim_scores]), jnp.asarray(ranks), config.priority)
    if config.priority.transform != "rank" or config.priority.ties == "average":
        # Stable ranks are 1 .. c+1 in every column, so that their sums of weights agree and cancel.
        logs = logs - _log_sums(ranked, shifted, logs[0], config.priority)
    weights = exact.exp_over_largest(logs, jnp.max(jnp.where(mix > 0, logs, -jnp.inf)))
    gain = jnp.where(mix > 0, mix * (weights[0] - weights[1]), 0.0).sum()
    # A level with the scores of the victim never wins, whatever the rounding.
    differs = ((mix > 0) & (scores != victim_scores)).any()
    return victim, jnp.where((mix > 0).sum() == 1, higher, differs & (gain > 0))


def _victim(ranked: Ranking, mix: Float[Array, " s"], replay: ReplayConfig) -> Int[Array, ""]:
    """The level of lowest total probability; of equal ones the worst ranked, then the lowest slot.

    With `lowest-priority` staleness does not count: what is left is CENIE's Eq. 5. The second criterion
    matters at low temperatures, where most probabilities round to 0.
    """
    mask, config = ranked.mask, replay.priority
    if replay.victim == "lowest-priority":
        config = dataclasses.replace(config, staleness_coef=0.0)
    columns = [
        priority.ranked_probabilities(column, rank, mask, config)
        for column, rank in zip(ranked.scores, ranked.doubled_ranks)
    ]
    staleness = ranked.clock - ranked.last_played
    total = priority.with_staleness(priority.mixed(columns, mix), staleness, mask, config)
    total = jnp.where(mask, total, jnp.inf)
    mixed_rank = sum((mix[j] * rank for j, rank in enumerate(ranked.doubled_ranks)), jnp.zeros_like(total))
    return exact.first_of_lowest(total, then_highest=mixed_rank)


def _log_sums(
    ranked: Ranking,
    shifted: list[Int[Array, " c"]],
    candidate_logs: Float[Array, " s"],
    config: PriorityConfig,
) -> Float[Array, " s"]:
    """Logarithm of the sum of all weights, candidate included, in each column; 0 if all weights are 0."""
    sums = []
    for j, column in enumerate(ranked.scores):
        logs = jnp.where(ranked.mask, priority.log_weights(column, shifted[j], config), -jnp.inf)
        largest = jnp.maximum(logs.max(), candidate_logs[j])
        base = jnp.where(jnp.isfinite(largest), largest, 0.0)
        total = jnp.exp(logs - base).sum() + jnp.exp(candidate_logs[j] - base)
        sums.append(jnp.where(total > 0, base + jnp.log(total), 0.0))
    return jnp.stack(sums)


def _replaced(
    ranked: Ranking,
    slot: Int[Array, ""],
    scores: Float[Array, " s"],
    compared: Compared,
    changed: Bool[Array, ""],
    config: PriorityConfig,
) -> tuple[tuple[Float[Array, " c"], ...], tuple[Int[Array, " c"], ...]]:
    """Scores and ranks with new scores in the slot, if `changed`: its level before, if any, leaves."""
    occupied = slot < ranked.size
    new_scores, new_ranks = [], []
    columns = zip(ranked.scores, ranked.doubled_ranks, *compared)
    for j, (column, rank, lowers, lowered_by) in enumerate(columns):
        leaving = priority.rank_shift(column[slot], ranked.ids[slot], column, ranked.ids, config)
        others = rank + jnp.where(changed, lowers - jnp.where(occupied, leaving, 0), 0)
        own = jnp.where(changed, _doubled_rank(lowered_by) - lowered_by[slot], rank[slot])
        new_ranks.append(others.at[slot].set(own))
        new_scores.append(column.at[slot].set(jnp.where(changed, scores[j], column[slot])))
    return tuple(new_scores), tuple(new_ranks)
