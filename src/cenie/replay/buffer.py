"""The level buffer: a fixed number of slots, filled from the front. Pure functions over a frozen state.

Time is counted in replays: the clock advances by 1 for every level sampled for replay; new levels do not age
the stored ones. The staleness of a slot is the clock minus the time at which its level was last sampled. A
level that is offered begins as stale as there are levels behind it in its batch, as in the original code: if
all began at 0, each newcomer would be the least likely level of all, and the next one would replace it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from cenie.records import Level
from cenie.replay import identity, insertion, priority
from cenie.replay.config import PriorityConfig, ReplayConfig
from cenie.replay.play import Play
from cenie.xla import exact
from cenie.xla.tricks import write_rows


class BufferState(eqx.Module):
    """A buffer of `c` slots; the first `size` hold a level.

    Attributes:
        levels: The levels, with a leading axis of slots; empty slots hold an example level.
        scores: The scores [c, s], a column for each name in `columns`; always finite.
        max_return: The highest return ever seen on each level [c]; -inf without any.
        last_played: The `clock` when each level was last drawn for replay [c].
        ids: Numbers of the levels in the order of insertion [c]; they are never used again.
        parents: The id of the edited level [c]; -1 for a level that is not an edited one.
        generations: The number of edits since a generated level [c].
        fingerprints: A hash of each level [c].
        size: The number of stored levels [].
        clock: The number of levels drawn for replay so far [].
        next_id: The id of the next level that enters [].
        columns: The names of the scores, s.
    """

    levels: Level
    scores: Float[Array, "c s"]
    max_return: Float[Array, " c"]
    last_played: Int[Array, " c"]
    ids: Int[Array, " c"]
    parents: Int[Array, " c"]
    generations: Int[Array, " c"]
    fingerprints: UInt32[Array, " c"]
    size: Int[Array, ""]
    clock: Int[Array, ""]
    next_id: Int[Array, ""]
    columns: tuple[str, ...] = eqx.field(static=True)

    def column(self, name: str) -> Float[Array, " c"]:
        """The scores of one name.

        Args:
            name: One of `columns`.

        Returns:
            The scores [c].
        """
        return self.scores[:, self.columns.index(name)]

    def with_column(self, name: str, values: Float[Array, " c"]) -> "BufferState":
        """The same levels with other scores of one name.

        Args:
            name: One of `columns`.
            values: The scores [c].

        Returns:
            The changed buffer.
        """
        scores = self.scores.at[:, self.columns.index(name)].set(values)
        return dataclasses.replace(self, scores=scores)

    @property
    def capacity(self) -> int:
        """The number of slots, c."""
        return self.ids.shape[0]

    @property
    def mask(self) -> Bool[Array, " c"]:
        """The slots that hold a level."""
        return jnp.arange(self.capacity) < self.size

    @property
    def staleness(self) -> Int[Array, " c"]:
        """The number of levels drawn for replay since each level was drawn last [c]."""
        return self.clock - self.last_played


def init(example: Level, capacity: int, columns: Sequence[str]) -> BufferState:
    """Make an empty buffer.

    Args:
        example: One level, or its `jax.ShapeDtypeStruct`s. All levels of the buffer are like it.
        capacity: The number of slots, c.
        columns: The names of the scores by which levels are ranked.

    Returns:
        A buffer without any level.
    """

    def column(value: int) -> Int[Array, " c"]:
        # A new array each time: a caller may donate the state, and a donated array must occur once.
        return jnp.full(capacity, value, jnp.int32)

    return BufferState(
        levels=jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example),
        scores=jnp.zeros((capacity, len(columns)), jnp.float32),
        max_return=jnp.full(capacity, -jnp.inf, jnp.float32),
        last_played=column(0),
        ids=column(-1),
        parents=column(-1),
        generations=column(0),
        fingerprints=jnp.zeros(capacity, jnp.uint32),
        size=jnp.zeros((), jnp.int32),
        clock=jnp.zeros((), jnp.int32),
        next_id=jnp.zeros((), jnp.int32),
        columns=tuple(columns),
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

    The probabilities are P_replay (CENIE Eq. 4 and 5) with staleness. Each sample ages all levels by 1 and
    makes its own fresh, which the next one sees. The score part is the same for all of them. From an empty
    buffer it samples slot 0.
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


def locate(state: BufferState, play: Play) -> Play:
    """Compare the levels of a play with each other and with the stored ones.

    Args:
        state: The buffer before the batch.
        play: A play of `n` levels; only its `levels` are read.

    Returns:
        The play with `leader`, `slot`, `fingerprints`, and in `best_return` what is stored, -inf for levels
        that are not.
    """
    words = identity.words(play.levels)
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
    slot = jnp.where(slot < state.capacity, slot, -1)
    return _located(state, play, leader, slot, fingerprints)


def locate_sampled(state: BufferState, play: Play) -> Play:
    """Return the result of `locate` for levels that were sampled from the slots in `play.slot`."""
    leader = jnp.argmax(play.slot[:, None] == play.slot, axis=1)
    return _located(state, play, leader, play.slot, state.fingerprints[play.slot])


def _located(state: BufferState, play: Play, leader: Array, slot: Array, fingerprints: Array) -> Play:
    best_return = jnp.where(slot >= 0, state.max_return[slot], -jnp.inf)
    return dataclasses.replace(
        play, leader=leader, slot=slot, fingerprints=fingerprints, best_return=best_return
    )


def update(state: BufferState, play: Play, repeated: Literal["average", "last"] = "average") -> BufferState:
    """Write the new scores of replayed levels.

    A slot that was played several times gets the average (or the last) of its valid scores. Rows that are not
    valid or not finite leave the old score; the best return of a level is kept all the same. Ages do not
    change: that happened when the slots were sampled.

    Args:
        state: The buffer from which the levels were sampled.
        play: A located play with `scores` (and `valid`, if not all rows count).
        repeated: What counts of several plays of a level.

    Returns:
        The buffer with the new scores.
    """
    stored = play.slot < state.size
    merged, usable = _merge(play.same_level, _scores(state, play.scores), _valid(play) & stored, repeated)
    slots = jnp.where(stored, play.slot, -1)
    # Rows of one slot all write the same merged values, so that their order does not matter.
    scores = jnp.where(usable[:, None], merged, state.scores[jnp.maximum(slots, 0)])
    columns = (state.scores, state.max_return)
    changed = write_rows(columns, slots, (scores, play.best_return))
    return eqx.tree_at(lambda s: (s.scores, s.max_return), state, changed)


def insert(
    state: BufferState, play: Play, mix: Float[Array, " s"], config: ReplayConfig
) -> tuple[BufferState, Play, insertion.Placement]:
    """Offer the `n` levels of a play a slot one after another, by P_replay (CENIE Eq. 5): see `insertion`.

    Equal levels of the batch are one level, offered where the first of them stands, with the average (or the
    last) of their valid scores. Where the last score is stored, the first one decides about the entry (as in
    the original code). A level that is stored already gets the new score and counts as played now. Levels
    without a valid finite score never enter.

    Args:
        state: The buffer before the batch.
        play: A located play with `scores`; `valid`, if not all rows count; its lineage, if any.
        mix: The weight of each column of scores. They sum to 1.
        config: The settings of replay.

    Returns:
        The buffer after the batch; the play with `stored_in`, where each level is after the whole batch, or
        -1; and what became of each row when it was offered.
    """
    scores, valid = _scores(state, play.scores), _valid(play)
    n = scores.shape[0]
    merged, eligible = _merge(play.same_level, scores, valid, config.repeated)
    entry_scores = merged
    if config.repeated == "last":
        first_scores = scores if play.entry_scores is None else _scores(state, play.entry_scores)
        entry_scores, _ = _merge(play.same_level, first_scores, valid, "first")

    before = insertion.ranking(
        scores=state.scores,
        ids=state.ids,
        last_played=state.last_played,
        size=state.size,
        clock=state.clock,
        next_id=state.next_id,
        config=config.priority,
    )
    candidates = insertion.Candidate(
        scores=merged,
        entry_scores=entry_scores,
        eligible=eligible,
        is_copy=play.is_copy,
        known_slot=jnp.maximum(play.slot, 0),
        known_id=jnp.where(play.slot >= 0, state.ids[play.slot], -1),
        initial_staleness=jnp.arange(n - 1, -1, -1, dtype=jnp.int32),
    )
    after, placement = insertion.insert_all(before, candidates, mix, config)

    stayed = (placement.inserted | placement.known) & (after.ids[placement.slot] == placement.id)
    slots = jnp.where(stayed, placement.slot, -1)
    place, zeros = jnp.maximum(slots, 0), jnp.zeros(n, jnp.int32)
    parents = zeros - 1 if play.parents is None else play.parents
    generations = zeros if play.generations is None else play.generations
    # A level that was stored already keeps its lineage; all else of it is the same.
    new = (
        play.levels,
        jnp.where(placement.inserted, parents, state.parents[place]),
        jnp.where(placement.inserted, generations, state.generations[place]),
        play.fingerprints,
        play.best_return,
    )
    old = state.levels, state.parents, state.generations, state.fingerprints, state.max_return
    levels, parents, generations, fingerprints, max_return = write_rows(old, slots, new)
    state = BufferState(
        levels=levels,
        scores=jnp.stack(after.scores, axis=1),
        max_return=max_return,
        last_played=after.last_played,
        ids=after.ids,
        parents=parents,
        generations=generations,
        fingerprints=fingerprints,
        size=after.size,
        clock=state.clock,
        next_id=after.next_id,
        columns=state.columns,
    )
    return state, dataclasses.replace(play, stored_in=slots[play.leader]), placement


def count_repeats(slots: Int[Array, " n"]) -> Int[Array, ""]:
    """The number of sampled slots of a batch that repeat an earlier one."""
    ordered = jnp.sort(slots)
    return (ordered[1:] == ordered[:-1]).sum()


def _scores(state: BufferState, scores: dict[str, Float[Array, " n"]]) -> Float[Array, "n s"]:
    """Scores by name as the columns of the buffer."""
    return jnp.stack([scores[name] for name in state.columns], axis=1)


def _valid(play: Play) -> Bool[Array, " n"]:
    return jnp.ones(play.slot.shape, bool) if play.valid is None else play.valid


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
