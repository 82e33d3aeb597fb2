"""Enhanced POET's novelty: ranks of past students, who play every level that is stored."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import cenie
from cenie.experiment.build import build
from cenie.methods.epoet_novelty import EpoetNovelty, first_returns
from cenie.replay import buffer as buffers
from cenie.replay.columns import NOVELTY
from cenie.replay.outcomes import Points
from cenie.replay.play import REPLAY, Play
from cenie.rundir.checkpoint import digest
from cenie.teach.cycle import init
from tests.teach.runs import run
from tests.tiny import tiny

N, CAPACITY, STUDENTS = 4, 10, 3


class Skilled(cenie.Network):
    """A student is a vector of skills, a level what it asks for."""

    recurrent = False

    skills: jax.Array

    def initial_memory(self, count):
        raise NotImplementedError

    step = sequence = initial_memory


def fake_play(network, levels):
    return levels @ network.skills


def novelty_of(**changes):
    parts = {"returns_of": fake_play, "capacity": CAPACITY, "neighbours": 2, "students": STUDENTS}
    return EpoetNovelty(**{**parts, "snapshot_every": 2, "bounds": (-1.0, 1.0), **changes})


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=4, max_size=4))
def test_ranks_are_scipys_on_a_scale_from_minus_to_plus_one_half(returns):
    novelty = novelty_of(students=4, bounds=(-2.0, 2.0))
    found = np.asarray(novelty.ranks(jnp.asarray([returns], jnp.float32)))[0]
    expected = (stats.rankdata(np.clip(returns, -2, 2)) - 1) / 3 - 0.5
    np.testing.assert_allclose(found, expected, atol=1e-6)


@jax.jit
def tell(state, levels, slots_before, slots_after, buffer, student):
    """What the teacher does with a batch, and the buffer after it."""
    novelty = novelty_of()
    points = Points(jnp.zeros((N, 1, 1)), jnp.ones((N, 1), bool))
    played = Play(levels, points=points, slot=slots_before)
    found = novelty.examine(state, played, buffer, student=student)
    played = dataclasses.replace(played, findings=found, stored_in=slots_after)
    scores = novelty.score(state, played, buffer)
    after = novelty.learn(state, played, enters=jnp.asarray(True), key=jax.random.key(0))
    kept = jnp.where(slots_after >= 0, slots_after, CAPACITY)
    size = jnp.maximum(buffer.size, jnp.max(slots_after) + 1)
    changed = {"levels": buffer.levels.at[kept].set(levels, mode="drop"), "size": size}
    return scores, after, found.changed, type(buffer)(**{**vars(buffer), **changed})


def test_every_stored_level_has_been_played_by_all_of_the_present_population():
    """Levels come, go and are replayed while students join: no return may be missing or outdated."""
    rng = np.random.default_rng(0)
    novelty = novelty_of()
    buffer = buffers.init(jnp.zeros(2), CAPACITY, ("regret", NOVELTY))
    state = novelty.with_student(novelty.init((1, 1)), Skilled(jnp.zeros(2)))
    joined = [np.zeros(2)] * STUDENTS
    for cycle in range(14):
        student = rng.normal(size=2).astype(np.float32)
        if cycle % 3 == 2:  # a replay
            before = after = rng.integers(0, int(buffer.size), N)
            levels = np.asarray(buffer.levels)[before]
        else:
            levels = rng.normal(size=(N, 2)).astype(np.float32)
            before = np.full(N, -1)
            first = int(buffer.size)
            after = np.arange(first, first + N) if first + N <= CAPACITY else rng.permutation(CAPACITY)[:N]
            after = np.where(np.arange(N) == 1, -1, after) if cycle > 4 else after
        told = tell(
            state,
            jnp.asarray(levels),
            jnp.asarray(before),
            jnp.asarray(after),
            buffer,
            Skilled(jnp.asarray(student)),
        )
        scores, state, changed, buffer = told
        if changed:
            joined = [*joined[1:], student]
        size = int(buffer.size)
        present = np.asarray(state.population.students.skills)
        assert {tuple(one) for one in present} == {tuple(one) for one in np.float32(joined)}
        expected = np.asarray(buffer.levels)[:size] @ present.T
        np.testing.assert_allclose(state.population.returns[:size], expected, rtol=1e-4, atol=1e-5)
        assert np.isfinite(np.asarray(scores)).all()
    assert len({tuple(one) for one in present}) == STUDENTS


def test_a_level_that_ranks_the_students_like_no_other_is_the_most_novel():
    novelty = novelty_of()
    buffer = buffers.init(jnp.zeros(2), CAPACITY, ("regret", NOVELTY))
    buffer = type(buffer)(**{**vars(buffer), "size": jnp.asarray(5, jnp.int32)})
    state = novelty.with_student(novelty.init((1, 1)), Skilled(jnp.zeros(2)))
    returns = jnp.zeros((CAPACITY, STUDENTS)).at[:4].set(jnp.array([0.1, 0.2, 0.3]))
    returns = returns.at[4].set(jnp.array([0.3, 0.2, 0.1]))
    population = type(state.population)(state.population.students, state.population.newest, returns)
    found = np.asarray(novelty.rescore(type(state)(population, state.learned), buffer))
    np.testing.assert_array_equal(found[:4], 0.0)
    np.testing.assert_allclose(found[4], np.sqrt(2), rtol=1e-6)


def test_the_population_of_a_run_are_its_past_students():
    _, states, rows = run("accel-epoet", cycles=12)
    past = {digest(state.student.network) for state in states}
    first = digest(states[0].student.network)
    students = states[-1].teacher.novelty.population.students
    members = [digest(jax.tree.map(lambda leaf, n=n: leaf[n], students)) for n in range(3)]
    assert set(members) <= past
    assert set(members) != {first}
    assert {int(row["teacher/kind"]) for row in rows} >= {REPLAY}


def test_past_students_play_the_first_episode_of_a_level():
    domain, setup = build(tiny("plr-epoet", run__devices=1))
    student = init(setup, 0).student.network
    levels = jax.vmap(domain.generator("simple"))(jax.random.split(jax.random.key(1), 64))

    @functools.partial(jax.jit, static_argnums=0)
    def returns(steps, levels):
        return first_returns(domain.environment, steps)(student, levels)

    # With a time limit of 8 steps every level has two episodes or more; each is worth 1 at most.
    found = np.asarray(returns(16, levels))
    assert ((found >= 0) & (found <= 1)).all()
    assert 0 < (found > 0).mean() < 1
    # Wherever a level stands in a batch, it brings the same random numbers.
    turned = jax.tree.map(lambda leaf: leaf[::-1], levels)
    np.testing.assert_array_equal(returns(16, turned)[::-1], found)
