"""DIPLR's novelty: Wasserstein distances between occupancies, and which levels they are measured between."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cenie.methods.diplr import DiplrNovelty
from cenie.methods.occupancy import Exact, Sliced, ascending, pairwise, unit_directions
from cenie.replay import buffer as buffers
from cenie.replay.columns import NOVELTY
from cenie.replay.outcomes import Points
from cenie.replay.play import Play
from cenie.xla.devices import level_mesh
from tests.teach.runs import run

POINTS, DIMENSIONS, DIRECTIONS = 12, 3, 5
DISTANCES = {"sliced": Sliced(directions=DIRECTIONS, quantiles=POINTS), "exact": Exact(points=POINTS)}


def clouds(count, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, POINTS, DIMENSIONS)) * rng.uniform(0.2, 2, (count, 1, 1))).astype(
        np.float32
    )


def all_exist(values):
    return Points(jnp.asarray(values), jnp.ones(values.shape[:2], bool))


@jax.jit
def distances(first, second):
    """By all distances, as a program each time: [n, n] for clouds of the same shapes."""
    return {
        name: distance.between(distance.describe(all_exist(first)), distance.describe(all_exist(second)))
        for name, distance in DISTANCES.items()
    }


def test_the_sliced_distance_is_the_mean_over_directions_of_scipys_distance():
    first, second = clouds(3), clouds(3, seed=1)
    found = distances(first, second)["sliced"]
    directions = unit_directions(DIMENSIONS, DIRECTIONS)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=0), 1.0, rtol=1e-6)
    for i in range(3):
        for j in range(3):
            one, other = first[i] @ directions, second[j] @ directions
            expected = np.mean([stats.wasserstein_distance(a, b) for a, b in zip(one.T, other.T)])
            assert found[i, j] == pytest.approx(expected, rel=1e-5)
            theirs = ot.sliced_wasserstein_distance(first[i], second[j], projections=directions, p=1)
            assert found[i, j] == pytest.approx(float(theirs), rel=1e-4)


def test_the_exact_distance_is_that_of_optimal_transport():
    first, second = clouds(3), clouds(3, seed=1)
    found = distances(first, second)
    for i in range(3):
        for j in range(3):
            expected = ot.emd2([], [], ot.dist(first[i], second[j], metric="euclidean"))
            assert found["exact"][i, j] == pytest.approx(float(expected), rel=1e-5)
    # A projection brings points closer.
    assert (np.asarray(found["sliced"]) < np.asarray(found["exact"])).all()


def test_few_points_know_little_of_levels_that_are_nearly_alike():
    """The assignment between 32 of 256 points measures their luck, which projections of all points do not."""
    rng = np.random.default_rng(0)
    middles = 0.4 * rng.normal(size=(10, 1, 8))
    values = (middles + rng.normal(size=(10, 256, 8))).astype(np.float32)
    pairs = list(itertools.combinations(range(10), 2))
    true = [float(ot.emd2([], [], ot.dist(*values[list(pair)], metric="euclidean"))) for pair in pairs]

    def agreement(distance):
        described = distance.describe(all_exist(values))
        found = np.asarray(jax.jit(distance.between)(described, described))
        return stats.spearmanr([found[pair] for pair in pairs], true).statistic

    few, sliced = agreement(Exact(points=32)), agreement(Sliced())
    assert few < 0.85 < 0.9 < sliced, (few, sliced)
    assert few < agreement(Exact(points=96))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_subnormal=False), min_size=6, max_size=6))
def test_numbers_are_sorted_as_numpy_sorts_them(values):
    found = np.asarray(ascending(jnp.asarray([values], jnp.float32)))
    np.testing.assert_array_equal(found, np.sort(np.float32([values])))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_distances_are_symmetric_and_zero_between_equal_levels(seed, scale):
    first, second = scale * clouds(3, seed), scale * clouds(3, seed + 1)
    shuffled = np.random.default_rng(seed).permutation(first, axis=1)
    there, back, same = distances(first, second), distances(second, first), distances(first, first)
    moved = distances(first, shuffled)
    for name in DISTANCES:
        # A difference of three plans is known less well.
        np.testing.assert_allclose(there[name], back[name].T, rtol=1e-3 if name == "entropic" else 1e-6)
        assert (np.diagonal(same[name]) == 0).all()
        assert (np.asarray(there[name]) > 0).all()
        # The order of the points says nothing.
        np.testing.assert_allclose(moved[name], same[name], rtol=1e-4, atol=1e-4 * scale)


def test_only_points_that_exist_count():
    (values,) = clouds(1)
    half = all_exist(values[None, :6])
    padded = Points(
        jnp.asarray(np.concatenate([values[:6], np.full((6, DIMENSIONS), 1e6)])[None], jnp.float32),
        jnp.arange(POINTS)[None] < 6,
    )
    for distance in DISTANCES.values():
        np.testing.assert_allclose(distance.describe(padded), distance.describe(half), rtol=1e-6)
        nothing = Points(padded.values, jnp.zeros((1, POINTS), bool))
        assert (np.asarray(distance.describe(nothing)) == 0).all()


@pytest.mark.parametrize("name", DISTANCES)
def test_two_devices_find_what_one_finds(name):
    distance = DISTANCES[name]
    rows, others = (distance.describe(all_exist(clouds(count, count))) for count in (3, 7))
    alone, shared = (
        jax.jit(lambda rows, others, mesh=mesh: pairwise(distance, rows, others, mesh))(rows, others)
        for mesh in (None, level_mesh(2))
    )
    assert alone.shape == (3, 7)
    np.testing.assert_allclose(alone, shared, rtol=1e-5)


def stored(values, capacity):
    """A novelty that has learned so many levels, and the buffer that holds them."""
    novelty = DiplrNovelty(capacity, Sliced(directions=DIRECTIONS, quantiles=POINTS))
    state = novelty.init((POINTS, DIMENSIONS))
    empty = buffers.init(jnp.zeros(()), capacity, ("regret", NOVELTY))
    if not len(values):
        return novelty, state, empty
    count = jnp.asarray(len(values), jnp.int32)
    slots = jnp.arange(len(values))
    played = examined(novelty, state, values, slots - len(values) - 1, empty)
    played = dataclasses.replace(played, stored_in=slots)
    state = novelty.learn(state, played, enters=jnp.asarray(True), key=jax.random.key(0))
    full = type(empty)(**{**vars(empty), "size": count})
    return novelty, state, full


def examined(novelty, state, values, slots, buffer):
    played = Play((), points=all_exist(values), slot=slots)
    return dataclasses.replace(played, findings=novelty.examine(state, played, buffer))


def test_a_level_like_a_stored_one_is_not_novel_and_no_level_is_compared_with_itself():
    values = clouds(4)
    novelty, state, buffer = stored(values, capacity=6)
    between = np.asarray(distances(values, values)["sliced"]) + 1e9 * np.eye(4)
    copies = examined(novelty, state, values, jnp.full(4, -1), buffer)
    np.testing.assert_array_equal(novelty.score(state, copies, buffer), 0.0)
    replayed = examined(novelty, state, values, jnp.arange(4), buffer)
    np.testing.assert_allclose(novelty.score(state, replayed, buffer), between.min(axis=1), rtol=1e-5)
    np.testing.assert_allclose(novelty.rescore(state, buffer)[:4], between.min(axis=1), rtol=1e-5)
    far = examined(novelty, state, values + 100, jnp.full(4, -1), buffer)
    assert (np.asarray(novelty.score(state, far, buffer)) > 10).all()


def test_without_others_a_level_is_as_novel_as_the_most_novel_one():
    novelty, state, buffer = stored(clouds(0), capacity=3)
    first = examined(novelty, state, clouds(2), jnp.full(2, -1), buffer)
    np.testing.assert_array_equal(novelty.score(state, first, buffer), 0.0)
    novelty, state, buffer = stored(clouds(1), capacity=3)
    again = examined(novelty, state, clouds(1), jnp.zeros(1, jnp.int32), buffer)
    scored = type(buffer)(**{**vars(buffer), "scores": buffer.scores.at[0, 1].set(7.0)})
    np.testing.assert_array_equal(novelty.score(state, again, scored), 7.0)


def test_the_distances_of_a_run_are_those_between_the_stored_levels():
    """Kept distances are renewed for what was played: they must be those of all pairs, computed anew."""
    setup, states, rows = run("accel-diplr", cycles=12)
    distance = setup.curriculum.novelty.distance
    assert {int(row["teacher/kind"]) for row in rows} == {0, 1, 2}
    for state, row in zip(states[2:], rows[1:]):
        buffer, size = state.teacher.buffer, int(state.teacher.buffer.size)
        known = state.teacher.novelty
        anew = np.asarray(distance.between(known.occupancies[:size], known.occupancies[:size]))
        expected = np.full(known.distances.shape, np.inf)
        expected[:size, :size] = np.where(np.eye(size), np.inf, anew)
        np.testing.assert_allclose(known.distances, expected, rtol=1e-5, atol=1e-6)
        nearest = expected.min(axis=1)[:size]
        np.testing.assert_allclose(buffer.column(NOVELTY)[:size], nearest, rtol=1e-5, atol=1e-6)
        expected = anew.sum() / (size * (size - 1))
        assert row["teacher/mean_distance"] == pytest.approx(expected, rel=1e-4)
