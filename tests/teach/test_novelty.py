"""Novelty in the curriculum: what it may change, what enters the window, and how much it counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cenie.experiment.build import build
from cenie.methods.cenie import CenieNovelty
from cenie.novelty import coverage
from cenie.novelty.config import MixtureConfig
from cenie.replay import buffer as buffers
from cenie.replay import weight
from cenie.replay.columns import NOVELTY
from cenie.replay.config import Adaptive, Constant, Linear, PriorityConfig
from cenie.replay.outcomes import Points, evenly_spread, in_first_episode
from cenie.replay.play import EDIT, NEW, REPLAY, Play
from cenie.replay.weight import WeightState
from cenie.rundir.checkpoint import digest
from cenie.teach import teacher
from cenie.teach.cycle import play
from cenie.teach.novelty import most_novel
from tests.teach.runs import run
from tests.tiny import tiny

RESCORED = {"teacher__novelty__stored__kind": "rescored", "teacher__novelty__stored__points": 5}


@pytest.fixture(scope="module")
def cenie():
    return run("plr-cenie")


@pytest.mark.parametrize(
    ("with_novelty", "without"),
    [
        ("plr-cenie", "plr-robust"),
        pytest.param("accel-cenie", "accel", marks=pytest.mark.slow),
        pytest.param("diplr", "plr-robust", marks=pytest.mark.slow),
        pytest.param("plr-poet", "plr-robust", marks=pytest.mark.slow),
        pytest.param("plr-epoet", "plr-robust", marks=pytest.mark.slow),
    ],
)
def test_weight_zero_is_the_method_without_novelty_bit_for_bit(with_novelty, without):
    _, ours, rows = run(with_novelty, optimised=True, teacher__alpha__value=0.0, run__devices=1)
    _, theirs, _ = run(without, optimised=True, run__devices=1)
    assert {int(row["teacher/kind"]) for row in rows} >= {NEW, REPLAY}
    for mine, other in zip(ours, theirs):
        assert digest(mine.student) == digest(other.student)
        assert digest(mine.teacher.buffer.levels) == digest(other.teacher.buffer.levels)
        for name in ("ids", "last_played", "parents", "generations", "size", "clock"):
            np.testing.assert_array_equal(
                getattr(mine.teacher.buffer, name), getattr(other.teacher.buffer, name)
            )
        np.testing.assert_array_equal(mine.teacher.buffer.scores[:, 0], other.teacher.buffer.scores[:, 0])


def test_weight_half_is_not_the_method_without_novelty():
    """Otherwise the test above would say nothing."""
    _, ours, _ = run("plr-cenie")
    _, theirs, _ = run("plr-robust", optimised=True, run__devices=1)  # as above
    assert digest(ours[-1].teacher.buffer.ids) != digest(theirs[-1].teacher.buffer.ids)


def test_the_dagger_ignores_regret(cenie):
    _, setup = build(tiny("plr-cenie-dagger"))
    state = cenie[1][-1].teacher
    assert int(state.buffer.size) > 3
    regret = state.buffer.scores.at[:, 0].set(state.buffer.scores[::-1, 0] * 3 + 1)
    other = jax.tree.map(lambda leaf: leaf, state)
    other = _with_scores(other, regret)
    ask = jax.jit(lambda state, key: teacher.ask(setup.curriculum, state, key, setup.student.num_levels)[0])
    for seed in range(5):
        chosen = [ask(s, jax.random.key(seed)) for s in (state, other)]
        np.testing.assert_array_equal(chosen[0].batches[0].slot, chosen[1].batches[0].slot)
        assert int(chosen[0].kind) == int(chosen[1].kind)


def _with_scores(state, scores):
    return eqx.tree_at(lambda s: s.buffers[0].scores, state, scores)


@eqx.filter_jit
def played_again(setup, before):
    """What the cycle after a state plays, and its novelty under the model of that state."""
    keys = jax.random.split(jax.random.fold_in(before.key, before.counters.cycles), 4)
    assignment, _ = teacher.ask(setup.curriculum, before.teacher, keys[0], setup.student.num_levels)
    (batch,) = assignment.batches
    played = play(setup, 0, before.student, batch, keys[1])
    novelty, known = setup.curriculum.novelty, before.teacher.novelty
    points = played.points
    plain = coverage.novelty(novelty.coverage, known.coverage, points.values, points.valid)
    scored = novelty.score(known, played, before.teacher.buffer)
    return batch.slot, played.outcomes.completed, plain, scored


def test_levels_are_scored_before_their_own_experience_enters_the_window(cenie):
    """The stored novelty is that under the model of the cycle before, computed here once more."""
    setup, states, rows = cenie
    checked = 0
    for before, after, row in zip(states, states[1:], rows):
        if int(row["teacher/kind"]) != REPLAY:
            continue
        slots, done, expected, _ = map(np.asarray, played_again(setup, before))
        stored = np.asarray(after.teacher.buffer.scores[slots, 1])
        for slot in np.unique(slots):
            rows_of_slot = (slots == slot) & done
            if rows_of_slot.any():
                mean = expected[rows_of_slot].mean()
                np.testing.assert_allclose(stored[slots == slot], mean, rtol=1e-4, atol=1e-4)
                checked += 1
    assert checked > 2


def test_only_replays_and_what_first_fills_it_enter_the_window(cenie):
    setup, states, rows = cenie
    capacity = setup.curriculum.replay.config.capacity
    seen = set()
    for before, after, row in zip(states, states[1:], rows):
        filling = int(before.teacher.buffer.size) < 0.5 * capacity
        kind = int(row["teacher/kind"])
        full = bool(np.asarray(before.teacher.novelty.coverage.valid).any(axis=1).all())
        enters = kind == REPLAY or (filling and not full)
        assert (
            digest(before.teacher.novelty.coverage.points) != digest(after.teacher.novelty.coverage.points)
            or not enters
        )
        if not enters:
            assert digest(before.teacher.novelty.coverage) == digest(after.teacher.novelty.coverage)
        seen.add((kind, filling))
    assert seen == {(NEW, True), (NEW, False), (REPLAY, False)}


def test_levels_from_before_the_first_fit_are_the_least_novel(cenie):
    """Their 0 used to be above everything that was measured later, often for dozens of replays."""
    _, states, _ = cenie
    first, second = (states[i].teacher.buffer for i in (1, 2))
    before = int(first.size)
    assert (np.asarray(first.column(NOVELTY)) == 0).all()
    later = np.asarray(second.column(NOVELTY))[: int(second.size)]
    assert len(np.unique(later[before:])) > 1
    assert (later[:before] == later[before:].min()).all()


def test_relative_novelty_is_measured_against_the_latest_new_levels():
    setup, states, rows = run("plr-cenie", teacher__novelty__stored__kind="relative")
    seen = set()
    for before, after, row in zip(states, states[1:], rows):
        kind = int(row["teacher/kind"])
        _, _, plain, scored = played_again(setup, before)
        reference = plain.mean() if kind == NEW else before.teacher.novelty.reference
        np.testing.assert_allclose(scored, plain - reference, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(after.teacher.novelty.reference, reference, rtol=1e-4, atol=1e-4)
        seen.add((kind, bool(before.teacher.novelty.coverage.fitted)))
    assert seen == {(NEW, False), (NEW, True), (REPLAY, True)}


def test_rescored_novelty_is_that_of_the_kept_points_under_the_present_model():
    setup, states, rows = run("plr-cenie", **RESCORED)
    refits = 0
    for before, after, row in zip(states, states[1:], rows):
        refitted = bool(after.teacher.novelty.refitted)
        assert refitted == (
            digest(before.teacher.novelty.coverage.model) != digest(after.teacher.novelty.coverage.model)
        )
        buffer = after.teacher.buffer
        size, kept = int(buffer.size), after.teacher.novelty.kept
        present = coverage.novelty(
            setup.curriculum.novelty.coverage,
            after.teacher.novelty.coverage,
            kept,
            jnp.ones(kept.shape[:2], bool),
        )
        if refitted:
            np.testing.assert_allclose(buffer.column(NOVELTY)[:size], present[:size], rtol=1e-4, atol=1e-4)
            refits += 1
        else:
            assert int(row["teacher/kind"]) == NEW
    assert refits > 3


def test_two_devices_share_the_fit_and_the_rescoring_and_find_what_one_finds():
    _, _, on_one = run("plr-cenie", **RESCORED)
    setup, _, on_two = run("plr-cenie", cycles=6, run__devices=2, **RESCORED)
    assert setup.mesh is not None
    compared = ("kind", "fit/components", "novelty", "novelty_weighted", "regret")
    for single, shared in zip(on_one, on_two):
        for name in ("solved", *(f"teacher/{name}" for name in compared)):
            assert shared[name] == pytest.approx(single[name], rel=1e-3, abs=1e-3), name


@settings(deadline=None, max_examples=40)
@given(valid=st.lists(st.booleans(), min_size=9, max_size=9), count=st.sampled_from([1, 4, 20]))
def test_kept_points_are_spread_evenly_over_those_that_exist(valid, count):
    values = jnp.arange(len(valid), dtype=jnp.float32)[None, :, None]
    kept = np.asarray(evenly_spread(Points(values, jnp.asarray([valid])), count))[0, :, 0]
    existing = np.flatnonzero(valid)
    if not len(existing):
        assert np.isnan(kept).all()
        return
    places = [int((place + 0.5) * len(existing) / count) for place in range(count)]
    np.testing.assert_array_equal(kept, existing[places])
    assert len(existing) > count or set(kept) == set(existing)


def test_correlation_of_novelty_with_age_is_logged(cenie):
    _, states, rows = cenie
    buffer, row = states[-1].teacher.buffer, rows[-1]
    size = int(buffer.size)
    expected = stats.spearmanr(buffer.column(NOVELTY)[:size], buffer.staleness[:size]).statistic
    assert row["teacher/novelty_age_correlation"] == pytest.approx(expected, abs=1e-5)


def test_refits_are_made_only_when_due():
    novelty = CenieNovelty(MixtureConfig(components=(2, 2), window=2), 4, refit_every=3)
    state = novelty.init((8, 2))

    @jax.jit
    def learn(state, points, enters, key):
        points = Points(points, jnp.ones((1, 8), bool))
        played = Play((), points=points, kind=jnp.asarray(REPLAY), stored_in=jnp.zeros(1, jnp.int32))
        return novelty.learn(state, played, enters=enters, key=key)

    refitted = []
    for number in range(9):
        key = jax.random.key(number)
        after = learn(state, jax.random.normal(key, (1, 8, 2)), jnp.asarray(number != 1), key)
        refitted.append(digest(after.coverage.model) != digest(state.coverage.model))
        state = after
    assert int(state.pushes) == 8
    # The batch that does not enter does not count; the third is the one that fills the window.
    assert refitted == [True, False, True, False, True, False, False, True, False]


@pytest.mark.parametrize("learned", [False, True])
def test_a_full_window_waits_for_the_student_to_learn(learned):
    """While a buffer was filling, every batch cost a fit to the experience of one and the same student."""
    novelty = CenieNovelty(MixtureConfig(components=(2, 2), window=3), 4)
    state = novelty.init((8, 2))

    @jax.jit
    def learn(state, points, key):
        played = Play(
            (),
            points=Points(points, jnp.ones((2, 8), bool)),
            kind=jnp.asarray(NEW),
            learned=jnp.asarray(learned),
            stored_in=jnp.zeros(2, jnp.int32),
        )
        return novelty.learn(state, played, enters=jnp.asarray(True), key=key)

    models = set()
    for number in range(5):
        key = jax.random.key(number)
        state = learn(state, jax.random.normal(key, (2, 8, 2)), key)
        models.add(digest(state.coverage.model))
    assert int(state.pushes) == len(models) == (5 if learned else 2)


@pytest.mark.parametrize(
    ("takes", "expected"),
    [
        ("replayed", {"filling": True, "new": False, "replay": True, "edit": False}),
        ("generated", {"filling": True, "new": True, "replay": False, "edit": True}),
        ("both", {"filling": True, "new": True, "replay": True, "edit": True}),
    ],
)
def test_the_window_takes_what_it_is_told_to(takes, expected):
    """`enters` is what the teacher says: the batch is replayed, or the level buffer is still filling."""
    novelty = CenieNovelty(MixtureConfig(components=(2, 2), window=3), 4, window_takes=takes)
    batches = {
        "filling": {"enters": True, "kind": NEW, "learned": False},
        "new": {"enters": False, "kind": NEW, "learned": False},
        "replay": {"enters": True, "kind": REPLAY, "learned": True},
        "edit": {"enters": False, "kind": EDIT, "learned": False},
    }

    @jax.jit
    def learn(state, flags, key):
        points = Points(jax.random.normal(key, (2, 8, 2)), jnp.ones((2, 8), bool))
        slots = jnp.zeros(2, jnp.int32)
        told = Play((), points=points, kind=flags["kind"], learned=flags["learned"], stored_in=slots)
        return novelty.learn(state, told, enters=flags["enters"], key=key)

    state, taken = novelty.init((8, 2)), {}
    for number, (name, flags) in enumerate(batches.items()):
        after = learn(state, {k: jnp.asarray(v) for k, v in flags.items()}, jax.random.key(number))
        taken[name] = int(after.pushes) > int(state.pushes)
        state = after
    assert taken == expected


def test_the_novelty_of_a_level_is_measured_as_it_is_told_to():
    """Mean over all steps, highest step, mean over the first episode: each against NumPy."""
    config = MixtureConfig(components=(2, 2), window=2)
    key = jax.random.key(0)
    points = jax.random.normal(key, (2, 8, 2))
    done = jnp.zeros((2, 8), bool).at[0, 2].set(True).at[0, 6].set(True)
    valid = jnp.ones((2, 8), bool)
    state = coverage.fit(config, coverage.push(coverage.init(config, 8, 2), points, valid), key)
    surprise = -np.asarray(coverage.log_density(config, state, points.reshape(-1, 2))).reshape(2, 8)
    played = Play((), points=Points(points, valid, in_first_episode(done)), kind=jnp.asarray(NEW))
    expected = {
        "mean": surprise.mean(axis=1),
        "highest": surprise.max(axis=1),
        "first-episode": [surprise[0, :3].mean(), surprise[1].mean()],
    }
    stored = buffers.init(jnp.zeros(()), 4, ("pvl", NOVELTY))
    for measure, values in expected.items():
        novelty = CenieNovelty(config, 4, measure=measure)
        novelty_state = eqx.tree_at(lambda s: s.coverage, novelty.init((8, 2)), state)
        found = novelty.score(novelty_state, played, stored)
        np.testing.assert_allclose(found, values, rtol=1e-5)


@pytest.mark.slow
def test_of_several_children_only_the_most_novel_can_enter():
    _, states, rows = run("accel-cenie", cycles=20, teacher__edit__children=2)
    edits = [i for i, row in enumerate(rows) if int(row["teacher/kind"]) == EDIT]
    assert len(edits) > 3
    assert any(int(rows[i]["teacher/inserted"]) for i in edits)
    for i in edits:
        assert int(rows[i]["teacher/inserted"]) <= 2
    parents = np.asarray(states[-1].teacher.buffer.parents)
    assert (parents >= 0).any()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(-3, 3), min_size=1, max_size=5), st.randoms())
def test_most_novel_child_of_each_family(children, values, random):
    score = np.array([random.choice(values) for _ in range(children * 3)], np.float32)
    expected = np.zeros(len(score), bool)
    for family in range(3):
        expected[family * children + int(np.argmax(score[family * children :][:children]))] = True
    np.testing.assert_array_equal(most_novel(jnp.asarray(score), children), expected)


def weights(replays=0, log_odds=0.0):
    return WeightState(jnp.asarray(replays, jnp.int32), jnp.asarray(log_odds, jnp.float32))


def test_weight_schedules():
    linear = Linear(start=0.8, end=0.2, replays=10)
    found = [float(weight.alpha(linear, weights(replays=n))) for n in (0, 5, 10, 1000)]
    np.testing.assert_allclose(found, [0.8, 0.5, 0.2, 0.2], rtol=1e-6)
    assert float(weight.alpha(Constant(value=0.3), weights(replays=7))) == np.float32(0.3)
    assert float(weight.alpha(Adaptive(), weights())) == 0.5
    assert float(weight.alpha(Adaptive(), weight.init(Adaptive(start=0.2)))) == pytest.approx(0.2)


def test_the_adaptive_weight_follows_the_ranking_whose_levels_change(cenie):
    buffer = cenie[1][-1].teacher.buffer
    size = int(buffer.size)
    # Two levels: one that only regret would draw, one that only novelty would.
    scores = jnp.zeros_like(buffer.scores).at[0].set(jnp.array([9.0, -9.0])).at[1].set(jnp.array([-9.0, 9.0]))
    buffer = type(buffer)(
        **{**{n: getattr(buffer, n) for n in buffer.__dataclass_fields__}, "scores": scores}
    )
    assert size > 2
    config, start = Adaptive(rate=0.1), weights()

    def moved(changes, replayed=True, state=start):
        return weight.adapt(
            config,
            PriorityConfig(temperature=0.1),
            state,
            buffer=buffer,
            shares=jnp.ones(1),
            replayed=jnp.asarray(replayed),
            slots=jnp.array([0, 1]),
            change=jnp.array(changes, jnp.float32),
        )

    assert float(moved([0.0, 1.0]).log_odds) == pytest.approx(0.1, rel=1e-3)
    assert float(moved([1.0, 0.0]).log_odds) == pytest.approx(-0.1, rel=1e-3)
    assert float(moved([1.0, 1.0]).log_odds) == pytest.approx(0.0, abs=1e-3)
    assert float(moved([0.0, 0.0]).log_odds) == 0.0
    assert float(moved([0.0, 1.0], replayed=False).log_odds) == 0.0
    state = start
    for _ in range(200):
        state = moved([0.0, 1.0], state=state)
    assert float(weight.alpha(config, state)) == pytest.approx(0.95, rel=1e-5)
    assert int(state.replays) == 200


def test_rank_correlation_is_spearmans(cenie):
    _, states, rows = cenie
    compared = 0
    for state, row in zip(states[1:], rows):
        buffer = state.teacher.buffer
        scores = np.asarray(buffer.scores)[: int(buffer.size)]
        if len(np.unique(scores[:, 0])) > 1 and len(np.unique(scores[:, 1])) > 1:
            expected = stats.spearmanr(scores[:, 0], scores[:, 1]).statistic
            assert row["teacher/novelty_regret_correlation"] == pytest.approx(expected, abs=1e-5)
            compared += 1
        else:
            assert np.isnan(row["teacher/novelty_regret_correlation"])
    assert compared > 3


def test_diagnostics_of_the_fit_are_logged(cenie):
    _, _, rows = cenie
    row = rows[-1]
    assert row["teacher/fit/components"] in (2, 3, 4)
    for row in rows:
        ends = row["teacher/fit/at_lowest"], row["teacher/fit/at_highest"]
        assert ends == (row["teacher/fit/components"] == 2, row["teacher/fit/components"] == 4)
    for size in (2, 3, 4):
        assert 1 <= row[f"teacher/fit/iterations/{size}"] <= 100
        score = row[f"teacher/fit/scores/{size}"]
        assert np.isnan(score) or -1 <= score <= 1
    for name in ("alpha", "failed_fits", "regret_total", "score_age", "novelty", "novelty_weighted"):
        assert np.isfinite(row[f"teacher/{name}"])


def test_children_must_divide_the_batch():
    with pytest.raises(ValueError, match=r"teacher\.edit\.children: must divide"):
        tiny("accel-cenie", teacher__edit__children=3)


def test_a_curriculum_with_novelty_says_that_it_needs_points(cenie):
    setup, states, _ = cenie
    key = jax.random.key(0)
    assignment, state = teacher.ask(setup.curriculum, states[0].teacher, key, setup.student.num_levels)
    played = play(setup, 0, states[0].student, assignment.batches[0], key)
    without = eqx.tree_at(lambda p: p.points, played, None)
    with pytest.raises(ValueError, match="needs the points"):
        teacher.tell(setup.curriculum, state, assignment, plays=(without,), key=key)
