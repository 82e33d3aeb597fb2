"""The level buffer against a sampler in plain Python, its invariants, and named bugs of other code."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.teach.sampler_oracle import Sampler

from cenie.teach import buffer, identity
from cenie.teach.config import PriorityConfig, ReplayConfig

CAPACITY, BATCH, STEPS = 6, 4, 10
SINGLE = jnp.ones(1)


def numbered(numbers):
    """Levels of two leaves that hold a number: equal numbers are equal levels."""
    numbers = jnp.asarray(numbers, jnp.int32)
    return {"a": jnp.stack([numbers % 3, numbers // 3], axis=-1), "b": (numbers % 2 == 0)}


def empty(capacity, names=("regret",)):
    return buffer.init(jax.tree.map(lambda leaf: leaf[0], numbered([0])), capacity, names)


@functools.partial(jax.jit, static_argnames="config")
def insert(state, levels, scores, valid, returns, mix, config):
    n = scores.shape[0]
    facts = (jnp.arange(n, dtype=jnp.int32), jnp.full(n, 2, jnp.int32))
    return buffer.insert(state, levels, scores, valid, {"max_return": returns}, *facts, mix, config)


def put(state, numbers, scores, config=None, valid=None, mix=SINGLE):
    """Insert with ordinary facts; `scores` is one column or several."""
    scores = jnp.asarray(scores, jnp.float32).reshape(len(numbers), -1)
    config = config or ReplayConfig(capacity=state.capacity)
    valid = jnp.ones(len(numbers), bool) if valid is None else jnp.asarray(valid)
    return insert(state, numbered(numbers), scores, valid, scores[:, 0], mix, config)


draw = jax.jit(buffer.sample, static_argnums=(2, 4))
renew = jax.jit(buffer.update, static_argnums=5)
chances = jax.jit(buffer.probabilities, static_argnums=2)


# -- against the oracle --------------------------------------------------------------------------------

VARIANTS = {
    "cenie": ((0.5, 0.5), ReplayConfig()),
    "average ties": (
        (0.7, 0.3),
        ReplayConfig(priority=PriorityConfig(ties="average", temperature=0.7, staleness_coef=0.5)),
    ),
    "dcd": ((1.0,), ReplayConfig(insertion="raw", repeated="last")),
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
        "valid": rng.random(shape) < 0.85,
        "returns": returns.astype(np.float32),
    }


def run_library(operations, mix, config):
    """All sequences in one program; returns the slots of every operation and every state."""
    mix = jnp.asarray(mix)

    def one_step(state, op):
        extras = {"max_return": op["returns"]}

        def replay(state):
            key = jax.random.key(op["seed"])
            slots, state = buffer.sample(state, key, BATCH, mix, config.priority)
            return buffer.update(state, slots, op["scores"], op["valid"], extras, config.repeated), slots

        def offer(state):
            facts = (op["number"], op["number"] % 4)
            state, info = buffer.insert(
                state, numbered(op["number"]), op["scores"], op["valid"], extras, *facts, mix, config
            )
            return state, info.slots

        replayed = op["replay"] & (state.size > 0)
        state, slots = lax.cond(replayed, replay, offer, state)
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
        "inserted_at": [e.born for e in entries],
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
    np.testing.assert_array_equal(state.extras["max_return"][:size], [e.max_return for e in entries])


@pytest.mark.parametrize("variant", VARIANTS)
def test_agrees_with_plain_python_over_200_sequences(variant):
    """Five variants, so 1,000 random sequences of draws, updates and insertions in all."""
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
                    numbers, op["scores"], op["valid"], op["returns"], numbers, [n % 4 for n in numbers]
                )
                assert slots[i, t].tolist() == [-1 if s is None else s for s in stored]
            assert_same(jax.tree.map(lambda leaf, i=i, t=t: leaf[i, t], states), oracle)
        replacements += oracle.next_number > CAPACITY
    # The comparison would be worth little if the buffers never filled up.
    assert replacements > 20


# -- invariants at all sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "batch"),
    [(1, 8), (2, 8), (7, 8), (8, 8), (9, 8), (3, 1024), (4000, 1), (4000, 1024), (100_000, 32)],
)
def test_keeps_the_best_levels_at_every_size(capacity, batch):
    """Without staleness, sequential insertion keeps exactly the highest scores of everything offered."""
    config = ReplayConfig(capacity=capacity, priority=PriorityConfig(staleness_coef=0.0))
    rng = np.random.default_rng(capacity)
    state = empty(capacity)
    if capacity > 10 * batch:  # begin nearly full, so that the last offers have to replace
        state = nearly_full(state, capacity - batch // 2, rng)
    offered = list(np.asarray(state.scores)[: int(state.size), 0])
    for first in range(0, 6 * batch, batch):
        scores = rng.random(batch).astype(np.float32)
        state, info = put(state, 10**6 + np.arange(first, first + batch), scores, config)
        offered += list(scores)
        assert int(state.size) == min(len(offered), capacity)
        assert (np.asarray(info.slots) < capacity).all()
    kept = np.sort(np.asarray(state.scores)[: int(state.size), 0])
    np.testing.assert_array_equal(kept, np.sort(offered)[-len(kept) :])
    for staleness in (0.0, 0.5):
        p = np.asarray(chances(state, SINGLE, PriorityConfig(staleness_coef=staleness)), np.float64)
        np.testing.assert_allclose(p.sum(), 1.0, atol=1e-6)
        assert (p >= 0).all()
    slots, state = draw(state, jax.random.key(0), 8, SINGLE, PriorityConfig())
    assert ((np.asarray(slots) >= 0) & (np.asarray(slots) < int(state.size))).all()
    found = jax.jit(buffer.find)(state, buffer.levels_at(state, slots))
    np.testing.assert_array_equal(found, slots)


def nearly_full(state, size, rng):
    """A state as if `size` levels had been inserted one by one, without the cost of doing so."""
    count = state.capacity
    levels = numbered(np.arange(count))
    return buffer.BufferState(
        levels=levels,
        scores=jnp.asarray(rng.random((count, 1)), jnp.float32),
        extras={"max_return": jnp.zeros(count)},
        last_played=jnp.arange(1, count + 1),
        inserted_at=jnp.arange(1, count + 1),
        ids=jnp.where(jnp.arange(count) < size, jnp.arange(count), -1),
        parents=jnp.full(count, -1),
        generations=jnp.zeros(count, jnp.int32),
        fingerprints=identity.fingerprint(identity.words(levels)),
        size=jnp.asarray(size, jnp.int32),
        clock=jnp.asarray(count + 7, jnp.int32),
        next_id=jnp.asarray(count, jnp.int32),
        score_names=state.score_names,
    )


def test_equal_scores_never_replace_anything():
    state, _ = put(empty(4), range(4), np.ones(4))
    after, info = put(state, range(4, 8), np.ones(4))
    assert not np.asarray(info.inserted).any()
    np.testing.assert_array_equal(after.ids, state.ids)
    assert int(after.clock) == 8


def test_raw_insertion_lets_an_equal_score_in():
    config = ReplayConfig(capacity=4, insertion="raw")
    state, _ = put(empty(4), range(4), np.ones(4), config)
    _, info = put(state, range(4, 8), np.ones(4), config)
    assert np.asarray(info.inserted).all()


def test_all_copies_of_one_level_take_one_slot():
    state, info = put(empty(4), [5, 5, 5, 5], [1.0, 2.0, 3.0, 6.0])
    assert int(state.size) == 1
    assert float(state.scores[0, 0]) == 3.0
    assert float(state.extras["max_return"][0]) == 6.0
    assert np.asarray(info.copies).tolist() == [False, True, True, True]
    assert np.asarray(info.slots).tolist() == [0, 0, 0, 0]
    assert int(state.clock) == 4


def test_level_met_again_is_updated_in_place():
    state, _ = put(empty(4), [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    after, info = put(state, [2, 9, 4, 2], [10.0, 0.5, 0.0, 20.0])
    assert np.asarray(info.duplicates).tolist() == [True, False, True, False]
    assert np.asarray(info.slots).tolist() == [1, -1, 3, 1]
    np.testing.assert_array_equal(after.scores[:, 0], [1.0, 15.0, 3.0, 0.0])
    np.testing.assert_array_equal(after.extras["max_return"], [1.0, 20.0, 3.0, 4.0])
    np.testing.assert_array_equal(after.ids, state.ids)
    np.testing.assert_array_equal(after.inserted_at, state.inserted_at)
    np.testing.assert_array_equal(after.staleness, [7, 3, 5, 1])


def test_levels_with_one_fingerprint_are_still_told_apart(monkeypatch):
    """The fingerprint only preselects: with a constant one, everything behaves the same."""
    monkeypatch.setattr(identity, "fingerprint", lambda bits: jnp.zeros(bits.shape[0], jnp.uint32))
    state = empty(8)
    for numbers in ([1, 2, 1, 3], [4, 3, 2, 5]):
        facts = (jnp.full(4, -1), jnp.zeros(4, jnp.int32))
        scores = jnp.asarray(numbers, jnp.float32)
        state, _ = buffer.insert(
            state,
            numbered(numbers),
            scores[:, None],
            jnp.ones(4, bool),
            {"max_return": scores},
            *facts,
            SINGLE,
            ReplayConfig(capacity=8),
        )
    assert int(state.size) == 5
    np.testing.assert_array_equal(state.scores[:5, 0], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(buffer.find(state, numbered([5, 6, 1])), [4, -1, 0])


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
    state, info = put(empty(4), [1, 2], [bad, 1.0])
    assert np.asarray(info.slots).tolist() == [-1, 0]
    state = renew(
        state,
        jnp.array([0, 0]),
        jnp.array([[bad], [bad]]),
        jnp.ones(2, bool),
        {"max_return": jnp.full(2, bad)},
    )
    assert np.isfinite(state.scores).all()
    assert float(state.extras["max_return"][0]) == 1.0


def test_newcomer_with_zero_weight_column_is_judged_like_a_single_score():
    """alpha = 0 must decide exactly as PLR does, also where probabilities underflow."""
    rng = np.random.default_rng(0)
    config = ReplayConfig(capacity=30, priority=PriorityConfig(temperature=0.02))
    one, two = empty(30), empty(30, ("regret", "novelty"))
    for first in range(0, 120, 10):
        scores = rng.normal(size=(10, 2)).astype(np.float32)
        numbers = np.arange(first, first + 10)
        one, info_one = put(one, numbers, scores[:, 0], config)
        two, info_two = put(two, numbers, scores, config, mix=jnp.array([1.0, 0.0]))
        np.testing.assert_array_equal(info_one.slots, info_two.slots)
        np.testing.assert_array_equal(one.scores[:, 0], two.scores[:, 0])
    assert int(one.next_id) > 33


def test_low_temperature_does_not_freeze_the_buffer():
    """Most probabilities round to 0 here; the worst ranked level must still be the one that goes."""
    config = ReplayConfig(capacity=50, priority=PriorityConfig(temperature=0.01, staleness_coef=0.0))
    state, _ = put(empty(50), range(50), np.arange(50.0), config)
    state, info = put(state, [60], [0.5], config)
    assert np.asarray(info.slots).tolist() == [0]


@pytest.mark.parametrize("schedule", ["fixed", "proportionate"])
def test_replay_decision(schedule):
    decide = jax.jit(
        lambda state, keys, config: jax.vmap(lambda key: buffer.should_replay(state, key, config))(keys),
        static_argnums=2,
    )
    keys = jax.random.split(jax.random.key(0), 2000)
    config = ReplayConfig(capacity=10, replay_prob=0.9, min_fill=0.7, schedule=schedule)
    for size in (0, 6, 7, 10):
        state, _ = put(empty(10), range(size), np.ones(size)) if size else (empty(10), None)
        share = float(decide(state, keys, config).mean())
        expected = 0.0 if size < 7 else (0.9 if schedule == "fixed" else min(0.9, size / 10))
        assert abs(share - expected) < 0.03
    never_empty = ReplayConfig(capacity=10, replay_prob=1.0, min_fill=0.0, schedule="fixed")
    assert not decide(empty(10), keys, never_empty).any()


def test_draws_follow_the_probabilities():
    state, _ = put(empty(5), range(4), [4.0, 1.0, 3.0, 2.0])
    _, state = draw(state, jax.random.key(1), 3, SINGLE, PriorityConfig())
    expected = np.asarray(chances(state, SINGLE, PriorityConfig(temperature=1.0)))
    one = jax.jit(
        jax.vmap(lambda key: buffer.sample(state, key, 1, SINGLE, PriorityConfig(temperature=1.0))[0][0])
    )
    drawn = np.bincount(one(jax.random.split(jax.random.key(2), 20_000)), minlength=5) / 20_000
    np.testing.assert_allclose(drawn, expected, atol=0.012)


def test_pure_staleness_visits_every_level_before_any_twice_as_long_waited():
    """A drawn level has staleness 0 and cannot be drawn again at once."""
    state, _ = put(empty(4), range(4), np.ones(4))
    slots, state = draw(state, jax.random.key(0), 64, SINGLE, PriorityConfig(staleness_coef=1.0))
    assert (np.diff(np.asarray(slots)) != 0).all()
    assert set(np.asarray(slots).tolist()) == {0, 1, 2, 3}


def test_drawing_from_an_empty_buffer_and_updating_it_changes_no_score():
    state = empty(3)
    slots, after = draw(state, jax.random.key(0), 2, SINGLE, PriorityConfig())
    after = renew(after, slots, jnp.ones((2, 1)), jnp.ones(2, bool), {"max_return": jnp.ones(2)})
    np.testing.assert_array_equal(after.scores, state.scores)
    np.testing.assert_array_equal(after.extras["max_return"], state.extras["max_return"])
    assert int(after.size) == 0


def test_state_can_be_donated():
    """No array occurs twice in a fresh state."""
    leaves = jax.tree.leaves(empty(3))
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)


def test_count_repeats():
    assert int(buffer.count_repeats(jnp.array([3, 1, 3, 3, 0, 1]))) == 3
    assert int(buffer.count_repeats(jnp.array([2]))) == 0


# -- bugs of other implementations ---------------------------------------------------------------------


@pytest.mark.parametrize(("repeated", "expected"), [("average", 3.0), ("last", 5.0)])
def test_bug_dcd_7_level_drawn_several_times_keeps_only_the_last_score(repeated, expected):
    """The average by default; the last valid one for comparison with dcd."""
    state, _ = put(empty(4), [1, 2], [9.0, 8.0])
    slots = jnp.array([1, 1, 1, 0])
    scores, valid = jnp.array([[1.0], [5.0], [7.0], [2.0]]), jnp.array([True, True, False, False])
    after = renew(state, slots, scores, valid, {"max_return": jnp.zeros(4)}, repeated)
    np.testing.assert_array_equal(after.scores[:2, 0], [9.0, expected])


def test_bug_jaxued_unfinished_replay_overwrites_the_score():
    """A replayed level that completed no episode keeps its score; a new one is refused."""
    state, info = put(empty(4), [1, 2], [3.0, 4.0], valid=[True, False])
    assert np.asarray(info.inserted).tolist() == [True, False]
    after = renew(
        state, jnp.array([0]), jnp.array([[0.0]]), jnp.array([False]), {"max_return": jnp.array([-jnp.inf])}
    )
    assert float(after.scores[0, 0]) == 3.0
    assert float(after.extras["max_return"][0]) == 3.0


def test_bug_minimax_forgets_the_maximum_return_after_two_visits():
    state, _ = put(empty(2), [1], [5.0])
    for seen in (-3.0, 2.0):
        state = renew(
            state, jnp.array([0]), jnp.ones((1, 1)), jnp.ones(1, bool), {"max_return": jnp.array([seen])}
        )
    assert float(state.extras["max_return"][0]) == 5.0


def test_bug_jaxued_maximum_return_starts_at_zero():
    state, _ = put(empty(2), [1], [-5.0])
    assert np.asarray(state.extras["max_return"]).tolist() == [-5.0, -np.inf]


def test_bug_dcd_stale_id_map_scores_the_level_that_took_the_slot():
    """A stored level is evicted by an earlier newcomer of the batch in which it is offered again."""
    config = ReplayConfig(capacity=2, priority=PriorityConfig(staleness_coef=0.0))
    state, _ = put(empty(2), [1, 2], [5.0, 1.0], config)
    state, info = put(state, [7, 2], [4.0, 3.0], config)
    assert np.asarray(info.slots).tolist() == [1, -1]
    np.testing.assert_array_equal(state.scores[:, 0], [5.0, 4.0])
    np.testing.assert_array_equal(buffer.find(state, numbered([7, 2])), [1, -1])


def test_bug_jaxued_newcomer_is_ranked_against_its_victim_only_by_raw_score():
    """CENIE: a level of low regret enters if its novelty lifts the mixture above the victim's."""
    mix = jnp.array([0.5, 0.5])
    config = ReplayConfig(capacity=3, priority=PriorityConfig(staleness_coef=0.0))
    stored = [[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]
    state, _ = put(empty(3, ("regret", "novelty")), [1, 2, 3], stored, config, mix=mix)
    _, info = put(state, [4], [[0.0, 9.0]], config, mix=mix)
    assert np.asarray(info.slots).tolist() == [2]


def test_bug_flashbax_67_full_state_keeps_its_size():
    state, _ = put(empty(3), range(3), [1.0, 2.0, 3.0])
    for number in range(3, 9):
        state, _ = put(state, [number], [float(number + 1)])
        assert int(state.size) == 3
    assert sorted(np.asarray(state.ids).tolist())[-1] == int(state.next_id) - 1
