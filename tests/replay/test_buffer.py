"""The level buffer against a sampler in plain Python, its invariants, and named bugs of other code."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cenie.replay import buffer, identity
from cenie.replay.config import PriorityConfig, ReplayConfig
from cenie.replay.outcomes import Outcomes
from cenie.replay.play import Play
from tests.replay.original_sampler import OriginalSampler
from tests.replay.sampler_oracle import Sampler

CAPACITY, BATCH, STEPS = 6, 4, 10
SINGLE = jnp.ones(1)
PLAIN = ReplayConfig(capacity=4)
COLD = ReplayConfig(capacity=4, priority=PriorityConfig(temperature=0.01, staleness_coef=0.0))


def numbered(numbers):
    """Levels of two leaves that hold a number: equal numbers are equal levels."""
    numbers = jnp.asarray(numbers, jnp.int32)
    return {"a": jnp.stack([numbers % 3, numbers // 3], axis=-1), "b": (numbers % 2 == 0)}


def empty(capacity=4, names=("regret",)):
    example = jax.tree.map(lambda leaf: leaf[0], numbered([0]))
    return buffer.init(example, capacity, names)


class Info(NamedTuple):
    """What became of the levels of a batch."""

    slots: Any
    inserted: Any
    duplicates: Any
    copies: Any


def a_play(state, scores, valid, returns, *, levels=(), slots=None, first_scores=None, **lineage):
    """A located play of levels, or of the levels in some slots, with returns and scores [n, s]."""
    returns = jnp.asarray(returns, jnp.float32)
    zeros = jnp.zeros(returns.shape, jnp.int32)
    outcomes = Outcomes(zeros, zeros, returns, returns, returns, returns)
    play = Play(levels, outcomes=outcomes, slot=slots, valid=valid, **lineage)
    play = buffer.locate(state, play) if slots is None else buffer.locate_sampled(state, play)
    first_scores = scores if first_scores is None else first_scores
    by_name = [dict(zip(state.columns, each.T, strict=True)) for each in (scores, first_scores)]
    return dataclasses.replace(play.with_best_return(), scores=by_name[0], entry_scores=by_name[1])


def inserted(state, play, mix, config):
    """The buffer after a play was offered, and what became of it."""
    state, play, placement = buffer.insert(state, play, mix, config)
    return state, Info(play.stored_in, placement.inserted, placement.known, play.is_copy)


def offer(state, numbers, scores, valid, mix, config):
    """Insert with the first score as return."""
    n = scores.shape[0]
    lineage = {"parents": jnp.arange(n, dtype=jnp.int32), "generations": jnp.full(n, 2, jnp.int32)}
    returns = jnp.where(valid, scores[:, 0], -jnp.inf)
    play = a_play(state, scores, valid, returns, levels=numbered(numbers), **lineage)
    return inserted(state, play, mix, config)


insert = jax.jit(offer, static_argnums=5)


def put(state, numbers, scores, config=PLAIN, valid=None, mix=SINGLE):
    """Insert up to 4 levels, filled up with copies of the last: one shape, so one compiled program."""
    count = len(numbers)
    rows = np.minimum(np.arange(4), count - 1)
    valid = np.ones(count, bool) if valid is None else np.asarray(valid)
    state, info = insert(
        state,
        jnp.asarray(numbers)[rows],
        jnp.asarray(scores, jnp.float32).reshape(count, -1)[rows],
        jnp.asarray(valid[rows] & (np.arange(4) < count)),
        mix,
        config,
    )
    return state, jax.tree.map(lambda leaf: np.asarray(leaf)[:count].tolist(), info)


def sized(size, capacity=10):
    """A buffer that claims to hold `size` levels."""
    return eqx.tree_at(lambda s: s.size, empty(capacity), jnp.asarray(size, jnp.int32))


draw = jax.jit(buffer.sample, static_argnums=(2, 4))


@functools.partial(jax.jit, static_argnums=5)
def renew(state, slots, scores, valid, returns, repeated):
    return buffer.update(state, a_play(state, scores, valid, returns, slots=slots), repeated)


chances = jax.jit(buffer.probabilities, static_argnums=2)


def rescore(state, slots, scores, returns, valid=None, repeated="average"):
    """Update with up to 4 plays, filled up with plays of a slot that does not exist."""
    count = len(slots)
    pad = 4 - count
    valid = [True] * count if valid is None else list(valid)
    return renew(
        state,
        jnp.asarray([*slots, *[state.capacity] * pad], jnp.int32),
        jnp.asarray([*scores, *[0.0] * pad], jnp.float32)[:, None],
        jnp.asarray([*valid, *[False] * pad]),
        jnp.asarray([*returns, *[0.0] * pad], jnp.float32),
        repeated,
    )


# -- against the oracle --------------------------------------------------------------------------------

VARIANTS = {
    "cenie": ((0.5, 0.5), ReplayConfig()),
    "average ties": (
        (0.7, 0.3),
        ReplayConfig(priority=PriorityConfig(ties="average", temperature=0.7, staleness_coef=0.5)),
    ),
    "dcd": ((1.0,), ReplayConfig(insertion="raw", repeated="last")),
    "lowest score": ((0.5, 0.5), ReplayConfig(victim="lowest-priority")),
    "plr without staleness": ((1.0,), ReplayConfig(priority=PriorityConfig(staleness_coef=0.0))),
    "power": (
        (0.6, 0.4),
        ReplayConfig(priority=PriorityConfig(transform="power", temperature=0.9, staleness_coef=0.5)),
    ),
}


def random_operations(rng, sequences, columns):
    """Batches of offers and of new scores, many of them equal, some invalid or not finite."""
    shape = (sequences, STEPS, BATCH)
    scores = rng.integers(-2, 6, (*shape, columns)) / 2.0
    scores[rng.random(scores.shape) < 0.02] = rng.choice([np.nan, np.inf, -np.inf])
    returns = rng.integers(-4, 4, shape) / 4.0
    returns[rng.random(shape) < 0.1] = -np.inf
    return {
        "replay": rng.random((sequences, STEPS)) < 0.5,
        "seed": rng.integers(0, 2**31, (sequences, STEPS)),
        "number": rng.integers(0, 15, shape),
        "scores": scores.astype(np.float32),
        "first_scores": (rng.integers(-2, 6, scores.shape) / 2.0).astype(np.float32),
        "valid": rng.random(shape) < 0.85,
        "returns": returns.astype(np.float32),
    }


def run_library(operations, mix, config):
    """All sequences in one program; returns the slots of every operation and every state."""
    mix = jnp.asarray(mix)

    def one_step(state, op):
        played = functools.partial(
            a_play,
            scores=op["scores"],
            valid=op["valid"],
            returns=op["returns"],
            first_scores=op["first_scores"],
        )

        def replay(state):
            key = jax.random.key(op["seed"])
            slots, state = buffer.sample(state, key, BATCH, mix, config.priority)
            return buffer.update(state, played(state, slots=slots), config.repeated), slots

        def offered(state):
            lineage = {"parents": op["number"], "generations": op["number"] % 4}
            play = played(state, levels=numbered(op["number"]), **lineage)
            state, info = inserted(state, play, mix, config)
            return state, info.slots

        replayed = op["replay"] & (state.size > 0)
        state, slots = lax.cond(replayed, replay, offered, state)
        return state, (replayed, slots, jax.random.uniform(jax.random.key(op["seed"]), (BATCH,)), state)

    start = empty(CAPACITY, [f"s{j}" for j in range(len(mix))])
    run = jax.jit(lambda ops: lax.map(lambda seq: lax.scan(one_step, start, seq)[1], ops))
    return jax.tree.map(np.asarray, run(jax.tree.map(jnp.asarray, operations)))


def assert_same(state, oracle):
    entries = oracle.entries
    size = len(entries)
    assert (state.size, state.clock, state.next_id) == (size, oracle.clock, oracle.next_number)
    for name, expected in {
        "last_played": [e.last for e in entries],
        "ids": [e.number for e in entries],
        "parents": [e.parent for e in entries],
        "generations": [e.generation for e in entries],
    }.items():
        assert getattr(state, name)[:size].tolist() == expected, name
    levels = numbered([e.level for e in entries] or [0])
    for name in levels:
        assert state.levels[name][:size].tolist() == np.asarray(levels[name])[:size].tolist()
    columns = state.scores.shape[1]
    np.testing.assert_allclose(
        state.scores[:size], np.reshape([e.scores for e in entries], (size, columns)), rtol=1e-6
    )
    np.testing.assert_array_equal(state.max_return[:size], [e.max_return for e in entries])


@pytest.mark.parametrize("variant", VARIANTS)
def test_agrees_with_plain_python_over_200_sequences(variant):
    """Six variants, so 1,200 random sequences of draws, updates and insertions in all."""
    mix, config = VARIANTS[variant]
    operations = random_operations(np.random.default_rng(len(variant)), 200, len(mix))
    replayed, slots, uniforms, states = run_library(operations, mix, config)
    replacements = 0
    for i in range(len(replayed)):
        oracle = Sampler(
            CAPACITY,
            list(mix),
            config.priority.temperature,
            config.priority.staleness_coef,
            config.priority.ties,
            config.priority.transform,
            config.insertion,
            config.repeated,
            config.victim,
        )
        for t in range(STEPS):
            op = {name: values[i, t].tolist() for name, values in operations.items()}
            if replayed[i, t]:
                for slot, uniform in zip(slots[i, t], uniforms[i, t]):
                    oracle.draw(slot, uniform)
                oracle.update(slots[i, t].tolist(), op["scores"], op["valid"], op["returns"])
            else:
                numbers = op["number"]
                stored = oracle.insert(
                    numbers,
                    op["scores"],
                    op["valid"],
                    op["returns"],
                    numbers,
                    [n % 4 for n in numbers],
                    op["first_scores"],
                )
                assert slots[i, t].tolist() == [-1 if s is None else s for s in stored]
            assert_same(jax.tree.map(lambda leaf, i=i, t=t: leaf[i, t], states), oracle)
        replacements += oracle.next_number > CAPACITY
    # The comparison would be worth little if the buffers never filled up.
    assert replacements > 20


# -- invariants at all sizes ---------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=1)
def inspect(state, config):
    slots, state = buffer.sample(state, jax.random.key(0), 8, SINGLE, config)
    found = buffer.locate(state, Play(buffer.levels_at(state, slots))).slot
    return buffer.probabilities(state, SINGLE, config), slots, found


@pytest.mark.parametrize(
    ("capacity", "batch"),
    [(1, 8), (2, 8), (7, 8), (8, 8), (9, 8), (5, 1), (3, 1024), (4000, 1024), (100_000, 32)],
)
def test_keeps_the_best_levels_at_every_size(capacity, batch):
    """Without staleness, sequential insertion keeps exactly the highest scores of everything offered."""
    config = ReplayConfig(capacity=capacity, priority=PriorityConfig(staleness_coef=0.0))
    rng = np.random.default_rng(capacity)
    state = empty(capacity)
    if capacity > 1000:  # begin nearly full, so that the last offers have to replace
        state = nearly_full(state, capacity - batch // 2, rng)
    offered = list(np.asarray(state.scores)[: int(state.size), 0])
    for turn in range(6 if batch > 1 else 12):
        scores = jnp.asarray(rng.random((batch, 1)), jnp.float32)
        numbers = 10**6 + turn * batch + jnp.arange(batch)
        state, info = insert(state, numbers, scores, jnp.ones(batch, bool), SINGLE, config)
        offered += np.asarray(scores)[:, 0].tolist()
        assert int(state.size) == min(len(offered), capacity)
        assert (np.asarray(info.slots) < capacity).all()
    kept = np.sort(np.asarray(state.scores)[: int(state.size), 0])
    np.testing.assert_array_equal(kept, np.sort(np.asarray(offered, np.float32))[-len(kept) :])
    p, slots, found = (np.asarray(x) for x in inspect(state, PriorityConfig(staleness_coef=0.5)))
    np.testing.assert_allclose(p.astype(np.float64).sum(), 1.0, atol=1e-6)
    assert (p >= 0).all()
    assert ((slots >= 0) & (slots < int(state.size))).all()
    np.testing.assert_array_equal(found, slots)


def nearly_full(state, size, rng):
    """A state as if `size` levels had been inserted one by one, without the cost of doing so."""
    count = state.capacity
    levels = numbered(np.arange(count))
    return buffer.BufferState(
        levels=levels,
        scores=jnp.asarray(rng.random((count, 1)), jnp.float32),
        max_return=jnp.zeros(count),
        last_played=jnp.arange(1, count + 1),
        ids=jnp.where(jnp.arange(count) < size, jnp.arange(count), -1),
        parents=jnp.full(count, -1),
        generations=jnp.zeros(count, jnp.int32),
        fingerprints=identity.fingerprint(identity.words(levels)),
        size=jnp.asarray(size, jnp.int32),
        clock=jnp.asarray(count + 7, jnp.int32),
        next_id=jnp.asarray(count, jnp.int32),
        columns=state.columns,
    )


@pytest.mark.parametrize("ones", [0.0, 0.5])
def test_100_000_probabilities_sum_to_one(ones):
    """A running sum of so many equal numbers in single precision could drift."""
    state = nearly_full(empty(100_000), 100_000, np.random.default_rng(0))
    config = PriorityConfig(transform="uniform", staleness_coef=ones)
    np.testing.assert_allclose(np.asarray(chances(state, SINGLE, config), np.float64).sum(), 1.0, atol=1e-6)


def test_equal_scores_never_replace_anything():
    state, _ = put(empty(), range(4), np.ones(4))
    after, info = put(state, range(4, 8), np.ones(4))
    assert info.inserted == [False] * 4
    np.testing.assert_array_equal(after.ids, state.ids)
    assert int(after.clock) == 0


def test_raw_insertion_lets_an_equal_score_in():
    config = ReplayConfig(capacity=4, insertion="raw")
    state, _ = put(empty(), range(4), np.ones(4), config)
    _, info = put(state, range(4, 8), np.ones(4), config)
    assert info.inserted == [True] * 4


def test_all_copies_of_one_level_take_one_slot():
    state, info = put(empty(), [5, 5, 5, 5], [1.0, 2.0, 3.0, 6.0])
    assert int(state.size) == 1
    assert float(state.scores[0, 0]) == 3.0
    assert float(state.max_return[0]) == 6.0
    assert info.copies == [False, True, True, True]
    assert info.slots == [0, 0, 0, 0]
    assert int(state.clock) == 0


def test_level_met_again_is_updated_in_place():
    state, _ = put(empty(), [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    after, info = put(state, [2, 9, 4, 2], [10.0, 0.5, 0.0, 20.0])
    assert info.duplicates == [True, False, True, False]
    assert info.slots == [1, -1, 3, 1]
    np.testing.assert_array_equal(after.scores[:, 0], [1.0, 15.0, 3.0, 0.0])
    np.testing.assert_array_equal(after.max_return, [1.0, 20.0, 3.0, 4.0])
    np.testing.assert_array_equal(after.ids, state.ids)
    np.testing.assert_array_equal(state.staleness, [3, 2, 1, 0])
    np.testing.assert_array_equal(after.staleness, [3, 3, 1, 1])


def test_levels_with_one_fingerprint_are_still_told_apart(monkeypatch):
    """The fingerprint only preselects: with a constant one, everything behaves the same."""
    monkeypatch.setattr(identity, "fingerprint", lambda bits: jnp.zeros(bits.shape[0], jnp.uint32))
    config = ReplayConfig(capacity=8)
    again = jax.jit(
        lambda state, numbers: offer(
            state, numbers, 1.0 * numbers[:, None], jnp.ones(4, bool), SINGLE, config
        )[0]
    )
    state = again(again(empty(8), jnp.array([1, 2, 1, 3])), jnp.array([4, 3, 2, 5]))
    assert int(state.size) == 5
    np.testing.assert_array_equal(state.scores[:5, 0], [1, 2, 3, 4, 5])
    look = jax.jit(lambda numbers: buffer.locate(state, Play(numbered(numbers))))
    np.testing.assert_array_equal(look(jnp.array([5, 6, 1])).slot, [4, -1, 0])


def test_levels_of_different_types_are_compared_by_their_bits():
    levels = {
        "f": jnp.asarray([0.0, -0.0, 0.0, jnp.nan, jnp.nan]),
        "h": jnp.asarray([1, 1, 2, 1, 1], jnp.int16),
        "u": jnp.zeros((5, 2), jnp.uint8),
    }
    bits = identity.words(levels)
    prints = identity.fingerprint(bits)
    first = identity.first_equal(bits, prints, prints, jnp.ones(5, bool), lambda index: bits[index])
    assert np.asarray(first).tolist() == [0, 1, 2, 3, 3]


# -- the rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_never_enter(bad):
    state, info = put(empty(), [1, 2], [bad, 1.0])
    assert info.slots == [-1, 0]
    state = rescore(state, [0, 0], [bad, bad], [bad, bad])
    np.testing.assert_array_equal(state.scores[:, 0], [1.0, 0.0, 0.0, 0.0])
    assert float(state.max_return[0]) == 1.0


def test_newcomer_with_zero_weight_column_is_judged_like_a_single_score():
    """alpha = 0 must decide exactly as PLR does, also where probabilities underflow."""
    rng = np.random.default_rng(0)
    one, two = empty(), empty(names=("regret", "novelty"))
    for first in range(0, 80, 4):
        scores = rng.normal(size=(4, 2)).astype(np.float32)
        numbers = np.arange(first, first + 4)
        one, info_one = put(one, numbers, scores[:, 0], COLD)
        two, info_two = put(two, numbers, scores, COLD, mix=jnp.array([1.0, 0.0]))
        assert info_one == info_two
        np.testing.assert_array_equal(one.scores[:, 0], two.scores[:, 0])
    assert int(one.next_id) > 8


def test_low_temperature_does_not_freeze_the_buffer():
    """Most probabilities round to 0 here; the worst ranked level must still be the one that goes."""
    state, _ = put(empty(), range(4), [3.0, 1.0, 4.0, 2.0], COLD)
    assert np.count_nonzero(chances(state, SINGLE, COLD.priority)) < 3
    state, info = put(state, [60], [1.5], COLD)
    assert info.slots == [1]


@pytest.mark.parametrize(("share", "count", "result"), [(0.7, 10, 7), (0.5, 5, 3), (1.0, 4, 4), (0.0, 9, 0)])
def test_levels_before_replay_are_a_share_rounded_up(share, count, result):
    assert ReplayConfig(min_fill=share, capacity=count).levels_before_replay == result


@pytest.mark.parametrize("schedule", ["fixed", "proportionate"])
def test_replay_decision(schedule):
    decide = jax.jit(
        lambda state, keys, config: jax.vmap(lambda key: buffer.should_replay(state, key, config))(keys),
        static_argnums=2,
    )
    keys = jax.random.split(jax.random.key(0), 2000)
    config = ReplayConfig(capacity=10, replay_prob=0.9, min_fill=0.7, schedule=schedule)
    for size in (0, 6, 7, 10):
        share = float(decide(sized(size), keys, config).mean())
        expected = 0.0 if size < 7 else (0.9 if schedule == "fixed" else min(0.9, size / 10))
        assert abs(share - expected) < 0.03
    never_empty = ReplayConfig(capacity=10, replay_prob=1.0, min_fill=0.0, schedule="fixed")
    assert not decide(sized(0), keys, never_empty).any()
    assert decide(sized(1), keys, never_empty).all()


def test_draws_follow_the_probabilities():
    config = PriorityConfig(temperature=1.0)
    state, _ = put(empty(), range(3), [4.0, 1.0, 3.0])
    _, state = draw(state, jax.random.key(1), 4, SINGLE, config)
    expected = np.asarray(chances(state, SINGLE, config))
    one = jax.jit(jax.vmap(lambda key: buffer.sample(state, key, 1, SINGLE, config)[0][0]))
    drawn = np.bincount(one(jax.random.split(jax.random.key(2), 20_000)), minlength=4) / 20_000
    assert drawn[3] == 0
    np.testing.assert_allclose(drawn, expected, atol=0.012)


def test_a_drawn_level_is_fresh_for_the_next_draw_of_the_batch():
    """With staleness alone, a level just drawn has probability 0."""
    state, _ = put(empty(), range(4), np.ones(4))
    slots, state = draw(state, jax.random.key(0), 64, SINGLE, PriorityConfig(staleness_coef=1.0))
    assert (np.diff(np.asarray(slots)) != 0).all()
    assert set(np.asarray(slots).tolist()) == {0, 1, 2, 3}
    assert int(state.clock) == 64


def test_drawing_from_an_empty_buffer_and_updating_it_changes_no_score():
    state = empty()
    slots, after = draw(state, jax.random.key(0), 4, SINGLE, PriorityConfig(temperature=1.0))
    assert np.asarray(slots).tolist() == [0] * 4
    after = rescore(after, slots.tolist(), np.ones(4), np.ones(4))
    np.testing.assert_array_equal(after.scores, state.scores)
    np.testing.assert_array_equal(after.max_return, state.max_return)


def test_state_can_be_donated():
    """No array occurs twice in a fresh state."""
    leaves = jax.tree.leaves(empty())
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)


def test_types_do_not_change():
    """A state that comes back with other types would compile every program a second time."""
    kinds = [(leaf.dtype, leaf.weak_type, leaf.shape) for leaf in jax.tree.leaves(empty())]
    state, _ = put(empty(), [1, 2], [1.0, 2.0])
    _, state = draw(state, jax.random.key(0), 4, SINGLE, PriorityConfig(temperature=1.0))
    state = rescore(state, [0], [1.0], [1.0])
    assert [(leaf.dtype, leaf.weak_type, leaf.shape) for leaf in jax.tree.leaves(state)] == kinds


def test_the_best_return_of_a_level_is_that_of_all_its_plays():
    """Whether its rows have a score or not; a refused level leaves none."""
    state = buffer.init(jnp.int32(0), 3, ["regret"])
    config = ReplayConfig(capacity=3, priority=PriorityConfig(staleness_coef=0.0))
    valid = jnp.ones(4, bool)

    @jax.jit
    def offered(state, levels, scores, returns):
        play = a_play(state, scores[:, None], valid, returns, levels=levels)
        return inserted(state, play, SINGLE, config)[0]

    state = offered(state, jnp.array([7, 8, 7, 9]), jnp.arange(4.0), jnp.array([5, 1, 2, np.nan]))
    assert state.max_return.tolist() == [5.0, 1.0, -np.inf]
    # Level 8 again, level 6 instead of level 7, whose return must not stay behind; level 5 is refused.
    scores = jnp.array([9.0, 2.5, -5.0, 9.0])
    state = offered(state, jnp.array([8, 6, 5, 8]), scores, jnp.array([0, 4, 9, 0.5]))
    assert dict(zip(state.levels.tolist(), state.max_return.tolist())) == {6: 4.0, 8: 1.0, 9: -np.inf}
    state = rescore(state, [1, 1, 2, 1], [0.0] * 4, [3.0, 2.0, 1.0, 0.0], [False] * 4)
    assert state.max_return[1:].tolist() == [3.0, 1.0]


def test_count_repeats():
    assert int(buffer.count_repeats(jnp.array([3, 1, 3, 3, 0, 1]))) == 3
    assert int(buffer.count_repeats(jnp.array([2]))) == 0


# -- bugs of our own -----------------------------------------------------------------------------------


def test_bug_newcomers_of_a_batch_replace_each_other():
    """Every offer once aged all stored levels, so that the newcomer accepted just before was the next to go.

    The same stream of scores and draws for the original code's rule and for ours: the same levels stay.
    """
    config = ReplayConfig(capacity=1000, insertion="raw", repeated="last")
    rng = np.random.default_rng(5)
    state = nearly_full(empty(1000), 1000, rng)
    # Of a buffer from which levels have been drawn for a while.
    state = eqx.tree_at(lambda s: s.last_played, state, jnp.asarray(rng.permutation(1000) + 1, jnp.int32))
    original = OriginalSampler(state.scores[:, 0], state.staleness, 0.3, 0.3)
    kept, stayed = [], []
    for batch in range(12):
        if batch % 2:
            scores = rng.random((32, 1)).astype(np.float32) ** 0.5
            before = int(state.next_id)
            numbers = jnp.arange(32) + 10**6 * (batch + 1)
            state, info = insert(state, numbers, jnp.asarray(scores), jnp.ones(32, bool), SINGLE, config)
            kept.append(original.insert(scores[:, 0].astype(np.float64)))
            stayed.append(int((np.asarray(state.ids) >= before).sum()))
            assert int((info.inserted & (info.slots >= 0)).sum()) == stayed[-1]
            np.testing.assert_array_equal(state.ids, original.numbers)
            np.testing.assert_array_equal(state.staleness, original.staleness)
        else:
            slots, state = draw(state, jax.random.key(batch), 32, SINGLE, config.priority)
            for slot in np.asarray(slots):
                original.draw(slot)
    assert stayed == kept
    assert np.mean(stayed) > 2.5


def best_levels_stored(victim):
    """Which shares are stored after many batches: of the best `capacity` levels by Eq. 5, and of the best
    sixth as many by regret."""
    capacity, offered = 200, 60
    priority_config = PriorityConfig(temperature=0.3, staleness_coef=0.5)
    config = ReplayConfig(capacity=capacity, victim=victim, priority=priority_config)
    mix, rng = jnp.array([0.5, 0.5]), np.random.default_rng(1)
    scores = rng.random((offered * 32, 2)).astype(np.float32)
    state = empty(capacity, ("regret", "novelty"))
    for batch in range(offered):
        numbers = jnp.arange(32) + 32 * batch
        rows = jnp.asarray(scores[32 * batch : 32 * batch + 32])
        state, _ = insert(state, numbers, rows, jnp.ones(32, bool), mix, config)
        if batch % 2 and int(state.size) == capacity:
            _, state = draw(state, jax.random.key(batch), 32, mix, config.priority)
    ranks = (-scores).argsort(axis=0).argsort(axis=0) + 1.0
    weights = ranks ** (-1 / priority_config.temperature)
    by_eq5 = (weights / weights.sum(axis=0)).mean(axis=1)
    stored = state.levels["a"] @ np.array([1, 3])
    best = np.argsort(-by_eq5)[:capacity], np.argsort(-scores[:, 0])[: capacity // 6]
    return [np.isin(each, stored).mean() for each in best]


def test_the_rule_of_the_listings_keeps_the_best_levels_by_eq5():
    """A level enters a full buffer if its P_replay (Eq. 5) exceeds the lowest one that is stored.

    The original sampler removes by the probability with staleness, so that newcomers replace newcomers.
    """
    by_eq5, by_regret = best_levels_stored("lowest-priority")
    assert by_eq5 > 0.9
    assert by_regret == 1.0
    by_eq5, by_regret = best_levels_stored("least-likely")
    assert by_eq5 < 0.6
    assert by_regret < 0.9


def test_rising_scores_do_not_share_one_slot():
    """Of 8 rising scores offered to 40 levels all were accepted, and 1 was left."""
    config = ReplayConfig(capacity=40, victim="lowest-priority")
    state = nearly_full(empty(40), 40, np.random.default_rng(0))
    scores = jnp.linspace(2.0, 3.0, 8)[:, None]
    for victim, left in (("lowest-priority", 8), ("least-likely", 3)):
        chosen = dataclasses.replace(config, victim=victim)
        after, info = insert(state, 1000 + jnp.arange(8), scores, jnp.ones(8, bool), SINGLE, chosen)
        assert bool(info.inserted.all())
        assert int((after.ids >= int(state.next_id)).sum()) >= left


def test_offers_do_not_age_the_stored_levels():
    state, _ = put(empty(8), range(4), np.arange(4.0), ReplayConfig(capacity=8))
    after, _ = put(state, range(4, 8), np.arange(4.0), ReplayConfig(capacity=8))
    np.testing.assert_array_equal(after.staleness[:4], state.staleness[:4])


def test_bug_dcd_preset_decides_entry_by_the_last_play():
    """In the original code the first completed episode decides, and the last one is stored."""
    config = ReplayConfig(capacity=4, insertion="raw", repeated="last", priority=COLD.priority)
    state, _ = put(empty(), range(4), np.full(4, 5.0), config)
    levels = numbered([7, 8, 7, 8])
    scores, first = (jnp.asarray(rows, jnp.float32)[:, None] for rows in ([1, 9, 6, 8], [6, 4, 0, 9]))
    after, info = jax.jit(
        lambda state: inserted(
            state,
            a_play(state, scores, jnp.ones(4, bool), jnp.zeros(4), levels=levels, first_scores=first),
            SINGLE,
            config,
        )
    )(state)
    assert np.asarray(info.inserted).tolist() == [True, False, False, False]
    assert sorted(np.asarray(after.scores)[:, 0].tolist()) == [5.0, 5.0, 5.0, 6.0]


# -- bugs of other implementations ---------------------------------------------------------------------


@pytest.mark.parametrize(("repeated", "expected"), [("average", 3.0), ("last", 5.0)])
def test_bug_dcd_7_level_drawn_several_times_keeps_only_the_last_score(repeated, expected):
    """The average by default; the last valid one for comparison with dcd."""
    state, _ = put(empty(), [1, 2], [9.0, 8.0])
    after = rescore(
        state, [1, 1, 1, 0], [1.0, 5.0, 7.0, 2.0], np.zeros(4), [True, True, False, False], repeated
    )
    np.testing.assert_array_equal(after.scores[:2, 0], [9.0, expected])


def test_bug_jaxued_unfinished_replay_overwrites_the_score():
    """A replayed level that completed no episode keeps its score; a new one is refused."""
    state, info = put(empty(), [1, 2], [3.0, 4.0], valid=[True, False])
    assert info.inserted == [True, False]
    after = rescore(state, [0], [0.0], [-np.inf], [False])
    assert float(after.scores[0, 0]) == 3.0
    assert float(after.max_return[0]) == 3.0


def test_bug_minimax_forgets_the_maximum_return_after_two_visits():
    state, _ = put(empty(), [1], [5.0])
    for seen in (-3.0, 2.0):
        state = rescore(state, [0], [1.0], [seen])
    assert float(state.max_return[0]) == 5.0


def test_bug_jaxued_maximum_return_starts_at_zero():
    state, _ = put(empty(), [1], [-5.0])
    assert np.asarray(state.max_return).tolist() == [-5.0, -np.inf, -np.inf, -np.inf]


def test_bug_dcd_stale_id_map_scores_the_level_that_took_the_slot():
    """A stored level is evicted by an earlier newcomer of the batch in which it is offered again."""
    state, _ = put(empty(), [1, 2, 3, 4], [5.0, 1.0, 6.0, 7.0], COLD)
    state, info = put(state, [9, 2], [4.0, 3.0], COLD)
    assert info.slots == [1, -1]
    np.testing.assert_array_equal(state.scores[:, 0], [5.0, 4.0, 6.0, 7.0])
    assert np.asarray(state.levels["a"][1]).tolist() == [0, 3]


def test_bug_newcomer_is_compared_by_regret_although_novelty_counts():
    """CENIE: a level of low regret enters if its novelty lifts the mixture above the victim's."""
    mix = jnp.array([0.5, 0.5])
    stored = [[4.0, 4.0], [3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]
    state, _ = put(empty(names=("regret", "novelty")), [1, 2, 3, 4], stored, COLD, mix=mix)
    _, info = put(state, [5], [[0.0, 9.0]], COLD, mix=mix)
    assert info.slots == [3]


def test_bug_flashbax_67_full_state_loses_count():
    state, _ = put(empty(), range(4), [1.0, 2.0, 3.0, 4.0])
    for number in range(4, 10):
        state, _ = put(state, [number], [float(number + 1)])
        assert int(state.size) == 4
    assert max(np.asarray(state.ids).tolist()) == int(state.next_id) - 1 == 9
