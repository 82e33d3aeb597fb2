"""The level buffer: a fixed number of slots, filled from the front. Pure functions over a frozen state.

Time is counted in replays: the clock advances by 1 for every level sampled for replay; new levels do not age
the stored ones. The staleness of a slot is the clock minus the time at which its level was last sampled. A
level that is offered begins as stale as there are levels behind it in its batch, as in the original code: if
all began at 0, each newcomer would be the least likely level of all, and the next one would replace it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from cenie.records import Level
from cenie.replay import identity, insertion, priority
from cenie.replay.config import PriorityConfig, ReplayConfig
from cenie.xla import exact


@dataclass(frozen=True)
class Remembered:
    """What else is kept of each level: arrays of a shape, and what a new play does to them.

    `maximum` keeps the highest number seen, -inf at first, and ignores what is not finite; `last` keeps what
    the last play brought, 0 at first.
    """

    rule: Literal["maximum", "last"]
    shape: tuple[int, ...] = ()


class BufferState(eqx.Module):
    """`c` slots, of which the first `size` hold a level.

    `scores` has one column per name in `columns` and is always finite. `memory` is what else is kept of each
    level, such as its highest return, by the rules in `remembered`. `ids` number the levels in the order of
    insertion and are never used again; `parents` holds the id of the edited level, or -1, and
    `generations` the number of edits since a generated level. Empty slots hold an example level.
    """

    levels: Level
    scores: Float[Array, "c s"]
    memory: dict[str, Float[Array, "c ..."]]
    last_played: Int[Array, " c"]
    ids: Int[Array, " c"]
    parents: Int[Array, " c"]
    generations: Int[Array, " c"]
    fingerprints: UInt32[Array, " c"]
    size: Int[Array, ""]
    clock: Int[Array, ""]
    next_id: Int[Array, ""]
    columns: tuple[str, ...] = eqx.field(static=True)
    remembered: tuple[tuple[str, Remembered], ...] = eqx.field(static=True)

    def column(self, name: str) -> Float[Array, " c"]:
        """The scores of one name."""
        return self.scores[:, self.columns.index(name)]

    def with_column(self, name: str, values: Float[Array, " c"]) -> "BufferState":
        """The same levels with other scores of one name."""
        scores = self.scores.at[:, self.columns.index(name)].set(values)
        return dataclasses.replace(self, scores=scores)

    @property
    def capacity(self) -> int:
        return self.ids.shape[0]

    @property
    def mask(self) -> Bool[Array, " c"]:
        """The slots that hold a level."""
        return jnp.arange(self.capacity) < self.size

    @property
    def staleness(self) -> Int[Array, " c"]:
        return self.clock - self.last_played


class Recognised(eqx.Module):
    """Which of `n` played levels are the same level, and which are stored.

    `leader` is the first level of the batch with the same bits, `slot` where it is stored, or -1.
    """

    leader: Int[Array, " n"]
    slot: Int[Array, " n"]

    @property
    def same_level(self) -> Bool[Array, "n n"]:
        """Pairs of plays of one level."""
        return self.leader[:, None] == self.leader


class Plays(eqx.Module):
    """What `n` plays say of their levels: scores (a column each), whether they count, what to remember.

    `first_scores` are those of the first episodes only, where these decide about the entry.
    """

    scores: Float[Array, "n s"]
    valid: Bool[Array, " n"]
    memory: dict[str, Float[Array, "n ..."]]
    first_scores: Float[Array, "n s"] | None = None


class Insertion(eqx.Module):
    """What became of `n` offered levels.

    `slots` is where the level is stored after the whole batch, or -1. `inserted` levels entered (and may
    have been replaced later in the same batch); `duplicates` were in the buffer already; `copies` equal
    an earlier level of the batch and were merged with it.
    """

    slots: Int[Array, " n"]
    inserted: Bool[Array, " n"]
    duplicates: Bool[Array, " n"]
    copies: Bool[Array, " n"]


def init(
    example: Level, capacity: int, columns: Sequence[str], remembered: Mapping[str, Remembered]
) -> BufferState:
    """An empty buffer for levels like `example`: one level, or its `jax.ShapeDtypeStruct`s."""

    def column(value: int) -> Int[Array, " c"]:
        # A new array each time: a caller may donate the state, and a donated array must occur once.
        return jnp.full(capacity, value, jnp.int32)

    def nothing(memory: Remembered) -> Float[Array, "c ..."]:
        fill = -jnp.inf if memory.rule == "maximum" else 0.0
        return jnp.full((capacity, *memory.shape), fill, jnp.float32)

    return BufferState(
        levels=jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example),
        scores=jnp.zeros((capacity, len(columns)), jnp.float32),
        memory={name: nothing(memory) for name, memory in remembered.items()},
        last_played=column(0),
        ids=column(-1),
        parents=column(-1),
        generations=column(0),
        fingerprints=jnp.zeros(capacity, jnp.uint32),
        size=jnp.zeros((), jnp.int32),
        clock=jnp.zeros((), jnp.int32),
        next_id=jnp.zeros((), jnp.int32),
        columns=tuple(columns),
        remembered=tuple(remembered.items()),
    )


def probabilities(state: BufferState, mix: Float[Array, " s"], config: PriorityConfig) -> Float[Array, " c"]:
    """The probability of each slot to be sampled next."""
    return priority.probabilities(
        scores=state.scores,
        mix=mix,
        ids=state.ids,
        staleness=state.staleness,
        mask=state.mask,
        config=config,
    )


def levels_at(state: BufferState, slots: Int[Array, " n"]) -> Level:
    """The levels in the given slots."""
    return jax.tree.map(lambda leaf: leaf[slots], state.levels)


def should_replay(state: BufferState, key: PRNGKeyArray, config: ReplayConfig) -> Bool[Array, ""]:
    """Decide for a whole batch between replay and new levels. Consumes the key.

    Never replays before `min_fill` of the slots hold a level, nor from an empty buffer.
    """
    probability = jnp.float32(config.replay_prob)
    if config.schedule == "proportionate":
        probability = jnp.minimum(probability, state.size / state.capacity)
    return ~is_filling(state, config) & (jax.random.uniform(key) < probability)


def is_filling(state: BufferState, config: ReplayConfig) -> Bool[Array, ""]:
    """Whether fewer than `min_fill` of the slots hold a level."""
    return state.size < max(1, config.levels_before_replay)


def sample(
    state: BufferState, key: PRNGKeyArray, n: int, mix: Float[Array, " s"], config: PriorityConfig
) -> tuple[Int[Array, " n"], BufferState]:
    """Sample `n` slots with replacement, one after another. Consumes the key.

    Each sample ages all levels by 1 and makes its own fresh, which the next one sees. The score part is the
    same for all of them. From an empty buffer it samples slot 0.
    """
    mask = state.mask
    score_part = priority.mixed(priority.score_probabilities(state.scores, state.ids, mask, config), mix)

    def sample_one(carry: tuple[Array, Array], uniform: Array) -> tuple[tuple[Array, Array], Array]:
        last_played, clock = carry
        probabilities = priority.with_staleness(score_part, clock - last_played, mask, config)
        slot = exact.sample_index(probabilities, uniform)
        return (last_played.at[slot].set(clock + 1), clock + 1), slot

    (last_played, clock), slots = lax.scan(
        sample_one, (state.last_played, state.clock), jax.random.uniform(key, (n,))
    )
    return slots, eqx.tree_at(lambda s: (s.last_played, s.clock), state, (last_played, clock))


def recognise(state: BufferState, levels: Level) -> Recognised:
    """Compare levels with each other and with the stored ones."""
    words = identity.words(levels)
    fingerprints = identity.fingerprint(words)
    whole_batch = jnp.ones(fingerprints.shape[0], bool)
    leader = identity.first_equal(words, fingerprints, fingerprints, whole_batch, lambda index: words[index])
    slot = identity.first_equal(
        words,
        fingerprints,
        state.fingerprints,
        state.mask,
        lambda slots: identity.words(levels_at(state, slots)),
    )
    return Recognised(leader, jnp.where(slot < state.capacity, slot, -1))


def recognise_slots(slots: Int[Array, " n"]) -> Recognised:
    """What `recognise` would say of the levels in these slots, without looking at them."""
    return Recognised(jnp.argmax(slots[:, None] == slots, axis=1), slots)


def stored_maximum(state: BufferState, name: str, batch: Recognised) -> Float[Array, " n"]:
    """The running maximum `name` of each level, -inf for those that are not stored."""
    return jnp.where(batch.slot >= 0, state.memory[name][batch.slot], -jnp.inf)


def update(
    state: BufferState,
    batch: Recognised,
    plays: Plays,
    repeated: Literal["average", "last"] = "average",
) -> BufferState:
    """Write the new scores of replayed levels.

    A slot that was played several times gets the average (or the last) of its valid scores. Rows that
    are not valid or not finite leave the old score; `memory` follows its own rules. Ages do not change:
    that happened when the slots were sampled.
    """
    stored = batch.slot < state.size
    merged, usable = _merge(batch.same_level, plays.scores, plays.valid & stored, repeated)

    def renew(old: Any, play: Any) -> Any:
        (old_score, old_memory), (score, is_usable, memory) = old, play
        return jnp.where(is_usable, score, old_score), _remembered(state, old_memory, memory)

    # Rows of one slot all write the same merged values, so that their order does not matter.
    rows = merged, usable, _merged_memory(state, batch, plays.memory)
    changed = _change_rows((state.scores, state.memory), jnp.where(stored, batch.slot, -1), renew, rows)
    return eqx.tree_at(lambda s: (s.scores, s.memory), state, changed)


def insert(
    state: BufferState,
    levels: Level,
    batch: Recognised,
    *,
    plays: Plays,
    parents: Int[Array, " n"],
    generations: Int[Array, " n"],
    mix: Float[Array, " s"],
    config: ReplayConfig,
) -> tuple[BufferState, Insertion]:
    """Offer `n` levels a slot one after another; see `insertion` for the rule.

    `batch` is what `recognise` says of them. Equal levels of the batch are one level, offered where the first
    of them stands, with the average (or the last) of their valid scores. Where the last score is stored, the
    first one decides about the entry (as in the original code). A level that is stored already gets the new
    score and counts as played now. Levels without a valid finite score never enter.
    """
    n = parents.shape[0]
    merged, eligible = _merge(batch.same_level, plays.scores, plays.valid, config.repeated)
    entry_scores = merged
    if config.repeated == "last":
        first_scores = plays.scores if plays.first_scores is None else plays.first_scores
        entry_scores, _ = _merge(batch.same_level, first_scores, plays.valid, "first")

    before = insertion.ranking(
        scores=state.scores,
        ids=state.ids,
        last_played=state.last_played,
        size=state.size,
        clock=state.clock,
        next_id=state.next_id,
        config=config.priority,
    )
    copies = batch.leader < jnp.arange(n)
    candidates = insertion.Candidate(
        scores=merged,
        entry_scores=entry_scores,
        eligible=eligible,
        is_copy=copies,
        known_slot=jnp.maximum(batch.slot, 0),
        known_id=jnp.where(batch.slot >= 0, state.ids[batch.slot], -1),
        initial_staleness=jnp.arange(n - 1, -1, -1, dtype=jnp.int32),
    )
    after, placement = insertion.insert_all(before, candidates, mix, config)

    stayed = (placement.inserted | placement.known) & (after.ids[placement.slot] == placement.id)
    slots = jnp.where(stayed, placement.slot, -1)
    fingerprints = identity.fingerprint(identity.words(levels))
    memory = _merged_memory(state, batch, plays.memory)
    facts = levels, parents, generations, fingerprints
    state = _write(state, after, slots, placement.inserted, facts, memory)
    return state, Insertion(slots[batch.leader], placement.inserted, placement.known, copies)


def count_repeats(slots: Int[Array, " n"]) -> Int[Array, ""]:
    """How many sampled slots of a batch repeat an earlier one."""
    ordered = jnp.sort(slots)
    return (ordered[1:] == ordered[:-1]).sum()


def _write(
    state: BufferState,
    ranked: insertion.Ranking,
    slots: Int[Array, " n"],
    inserted: Bool[Array, " n"],
    facts: tuple[Level, Array, Array, Array],
    memory: Mapping[str, Float[Array, "n ..."]],
) -> BufferState:
    """The state after all insertions, with everything that is known of the newcomers that stayed."""

    def write(old: Any, candidate: Any) -> Any:
        (old_facts, old_memory), (is_new, new_facts, new_memory) = old, candidate
        played_again = old_facts, _remembered(state, old_memory, new_memory)
        return jax.tree.map(partial(jnp.where, is_new), (new_facts, new_memory), played_again)

    stored = (state.levels, state.parents, state.generations, state.fingerprints), state.memory
    rows = inserted, facts, dict(memory)
    (levels, parents, generations, fingerprints), kept = _change_rows(stored, slots, write, rows)
    return BufferState(
        levels=levels,
        scores=jnp.stack(ranked.scores, axis=1),
        memory=kept,
        last_played=ranked.last_played,
        ids=ranked.ids,
        parents=parents,
        generations=generations,
        fingerprints=fingerprints,
        size=ranked.size,
        clock=state.clock,
        next_id=ranked.next_id,
        columns=state.columns,
        remembered=state.remembered,
    )


def _merge(
    same_level: Bool[Array, "n n"],
    scores: Float[Array, "n s"],
    valid: Bool[Array, " n"],
    repeated: Literal["average", "first", "last"],
) -> tuple[Float[Array, "n s"], Bool[Array, " n"]]:
    """One score per group of rows that play the same level, and whether the group has any."""
    usable = valid & jnp.isfinite(scores).all(axis=1)
    members = same_level & usable
    if repeated == "average":
        return exact.group_means(members, scores)
    order = members if repeated == "first" else members[:, ::-1]
    place = jnp.argmax(order, axis=1)
    chosen = place if repeated == "first" else scores.shape[0] - 1 - place
    return jnp.where(usable[chosen][:, None], scores[chosen], 0.0), members.any(axis=1)


def _merged_memory(
    state: BufferState, batch: Recognised, values: Mapping[str, Float[Array, "n ..."]]
) -> dict[str, Float[Array, "n ..."]]:
    """What all plays of a level in the batch leave behind together, the same in each of their rows."""
    last_play = batch.same_level.shape[0] - 1 - jnp.argmax(batch.same_level[:, ::-1], axis=1)

    def merged(rule: Literal["maximum", "last"], rows: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        if rule == "last":
            return rows[last_play]
        finite = jnp.where(jnp.isfinite(rows), rows, -jnp.inf)
        same_level = batch.same_level.reshape(*batch.same_level.shape, *(1,) * (rows.ndim - 1))
        return jnp.where(same_level, finite, -jnp.inf).max(axis=1)

    return {name: merged(kept.rule, values[name]) for name, kept in state.remembered}


def _remembered(
    state: BufferState, old: Mapping[str, Float[Array, "..."]], new: Mapping[str, Float[Array, "..."]]
) -> dict[str, Float[Array, "..."]]:
    """The memory of one level after another play of it."""
    return {
        name: jnp.maximum(old[name], new[name]) if kept.rule == "maximum" else new[name]
        for name, kept in state.remembered
    }


def _change_rows(stored: Any, slots: Int[Array, " n"], change: Callable[[Any, Any], Any], inputs: Any) -> Any:
    """Arrays [c, ...] after `change(old row, input)` in each of the slots, one after another; -1 is none.

    One loop for all arrays: XLA compiles one for every scatter on CPUs.
    """

    def visit(stored: Any, row: tuple[Array, Any]) -> tuple[Any, None]:
        slot, one_input = row
        place = jnp.maximum(slot, 0)
        old = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, place, keepdims=False), stored)
        new = jax.tree.map(partial(jnp.where, slot >= 0), change(old, one_input), old)
        return jax.tree.map(
            lambda leaf, row: lax.dynamic_update_index_in_dim(leaf, row.astype(leaf.dtype), place, 0),
            stored,
            new,
        ), None

    return lax.scan(visit, stored, (slots, inputs))[0]
