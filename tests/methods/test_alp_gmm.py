"""ALP-GMM: where it looks, what it measures, and how it fits, each against something that is known."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from cenie.envs.base import TaskSpace
from cenie.methods.alp_gmm import AlpGmmSource, AlpGmmTeacher, AlpState
from cenie.novelty import gmm
from cenie.novelty.config import MixtureConfig
from cenie.novelty.gmm import MixtureModel
from cenie.replay.outcomes import Outcomes

BATCH = 20


def outcomes_of(returns, finished=None):
    """What a student is said to have returned, and in how many episodes."""
    finished = jnp.ones(len(returns), jnp.int32) if finished is None else jnp.asarray(finished)
    nothing = jnp.zeros(len(returns))
    return (Outcomes(finished, jnp.zeros_like(finished), jnp.asarray(returns), nothing, nothing, nothing),)


@functools.cache
def source(dimensions=1, **changes):
    """Levels are the points themselves, of a box from -1 to 3."""
    low, high = np.full(dimensions, -1.0), np.full(dimensions, 3.0)
    settings = {"fit_every": 100, "database": 1000, "components": (2, 6), **changes}
    return AlpGmmSource(TaskSpace(low, high, lambda key, point: point), AlpGmmTeacher(**settings))


@functools.cache
def compiled(teacher):
    return jax.jit(teacher.propose, static_argnums=2), jax.jit(teacher.learn)


def curve(practice):
    """A student that has mastered the first third of the tasks, can learn the second, and never the last."""
    return np.array([1.0, min(practice / 1500, 1.0), 0.0])


def test_it_samples_where_progress_is_and_no_longer_when_it_is_over():
    teacher = source()
    propose, learn = compiled(teacher)
    state, practice, shares = teacher.init(jax.random.key(0)), 0, []
    for step in range(200):
        key = jax.random.fold_in(jax.random.key(1), step)
        levels, proposal = propose(state, key, BATCH)
        zone = np.minimum((np.asarray(levels)[:, 0] + 1.0) / 4.0 * 3, 2.0).astype(int)
        returns = curve(practice)[zone] + 0.02 * np.random.default_rng(step).normal(size=BATCH)
        state, metrics = learn(state, proposal, outcomes_of(returns.astype(np.float32)), key)
        practice += np.sum(zone == 1)
        shares.append((np.mean(zone == 1), practice, int(metrics["components"])))
    share, practice, components = np.array(shares).T
    learning = (practice > 150) & (practice < 1400)
    assert learning.sum() > 40
    assert share[learning].mean() > 0.6
    assert share[:5].mean() == pytest.approx(1 / 3, abs=0.15)
    # Long after the end of progress, what is left is noise, and the whole box is sampled again.
    assert share[practice > 2000].mean() < 0.5
    assert (components[:4] == 0).all()
    assert ((components[5:] >= 2) & (components[5:] <= 6)).all()


@pytest.mark.parametrize("random_share", [0.0, 0.3, 1.0])
def test_the_random_share_is_uniform_and_the_rest_is_the_mixture(random_share):
    teacher = source(random_share=random_share)
    state = teacher.init(jax.random.key(0))
    # One component far in a corner, in which all progress is.
    narrow = state.mixture._replace(
        offsets=state.mixture.offsets.at[0].set(jnp.array([0.05, 0.5])),
        whitening=state.mixture.whitening * 1e3,
    )
    levels = {}
    for fitted in (False, True):
        known = AlpState(state.tasks, state.returns, state.rows, state.told, narrow, jnp.asarray(fitted))
        found, points = compiled(teacher)[0](known, jax.random.key(2), 2000)
        np.testing.assert_allclose(found, -1.0 + 4.0 * points, rtol=1e-5)
        levels[fitted] = np.asarray(points)[:, 0]
    near = {fitted: np.mean(np.abs(points - 0.05) < 0.01) for fitted, points in levels.items()}
    assert near[False] == pytest.approx(0.02, abs=0.015)
    assert near[True] == pytest.approx(1.0 - random_share * 0.98, abs=0.04)


def test_components_are_chosen_in_proportion_to_their_progress_whatever_their_weights():
    teacher = source(random_share=0.0)
    state = teacher.init(jax.random.key(0))
    offsets = jnp.zeros((6, 2)).at[:3].set(jnp.array([[0.1, 0.1], [0.5, 0.3], [0.9, -0.2]]))
    weights = jnp.full(6, -jnp.inf).at[:3].set(jnp.log(jnp.array([0.8, 0.1, 0.1])))
    known = state.mixture._replace(
        offsets=offsets, log_weights=weights, whitening=state.mixture.whitening * 1e3
    )
    known = AlpState(state.tasks, state.returns, state.rows, state.told, known, jnp.asarray(True))
    _, points = compiled(teacher)[0](known, jax.random.key(3), 2000)
    nearest = np.argmin(np.abs(np.asarray(points) - [0.1, 0.5, 0.9]), axis=1)
    np.testing.assert_allclose(np.bincount(nearest, minlength=3) / 2000, [0.25, 0.75, 0.0], atol=0.04)


def progress_oracle(batches, size):
    """(task, progress) of everything told, and the last `size` tasks with their returns, one by one."""
    known, rows = [], []
    for points, returns, finished in batches:
        new = [(p, r) for p, r, f in zip(points, returns, finished, strict=True) if f]
        for point, value in new:
            old = 0.0
            if len(known) > 5:
                old = abs(value - min(known[-size:], key=lambda past: np.sum((past[0] - point) ** 2))[1])
            rows.append((*point, old))
        known += new
    return known[-size:], np.array(rows)


def test_progress_is_the_change_from_the_nearest_earlier_task():
    teacher, rng = source(dimensions=2, fit_every=16, database=11), np.random.default_rng(0)
    learn, state, batches = compiled(teacher)[1], teacher.init(jax.random.key(0)), []
    for step in range(8):
        points, returns = rng.random((4, 2)).astype(np.float32), rng.random(4).astype(np.float32)
        finished = rng.integers(0, 3, 4)
        batches.append((points, returns, finished))
        state, metrics = learn(
            state, jnp.asarray(points), outcomes_of(returns, finished), jax.random.key(step)
        )
        known, rows = progress_oracle(batches, 11)
        told = len(rows)
        assert int(state.told) == int(metrics["told"]) == told
        held = sorted(zip(np.asarray(state.tasks)[:, 0].tolist(), np.asarray(state.returns).tolist()))
        assert held[-len(known) :] == sorted((float(p[0]), float(r)) for p, r in known)
        window = np.asarray(state.rows)[np.arange(max(0, told - 16), told) % 16]
        np.testing.assert_allclose(window, rows[-16:], rtol=1e-5, atol=1e-6)
        assert bool(state.fitted) == (told >= 16)


def test_a_task_that_comes_again_is_compared_with_its_last_time():
    """Corners of the box come again, because what is drawn is clipped; the oldest was taken."""
    teacher = source(fit_every=6, database=6)
    learn = compiled(teacher)[1]
    state = teacher.init(jax.random.key(0))
    seen = []
    for step, value in enumerate([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]):
        # After six tasks the ring begins anew, so that the latest is not the last.
        state, metrics = learn(
            state, jnp.ones((1, 1)), outcomes_of(np.array([value], np.float32)), jax.random.key(step)
        )
        seen.append(float(metrics["progress"]))
    np.testing.assert_allclose(seen, [0.0] * 6 + [0.1] * 3, atol=1e-6)


def test_a_batch_larger_than_the_rings_leaves_its_last_tasks():
    teacher = source(fit_every=6, database=6)
    points = np.linspace(0, 1, 25).astype(np.float32)[:, None]
    told = outcomes_of(points[:, 0], np.arange(25) % 2)
    state, _ = compiled(teacher)[1](
        teacher.init(jax.random.key(0)), jnp.asarray(points), told, jax.random.key(1)
    )
    assert int(state.told) == 12
    np.testing.assert_array_equal(np.sort(state.returns), points[13::2, 0])


def test_returns_are_scaled_and_clipped():
    teacher = source(returns=(-200.0, 350.0), fit_every=6, database=6)
    told = outcomes_of(np.array([-300.0, -200.0, 75.0, 350.0, 900.0], np.float32))
    state, _ = compiled(teacher)[1](
        teacher.init(jax.random.key(0)), jnp.zeros((5, 1)), told, jax.random.key(1)
    )
    np.testing.assert_allclose(state.returns[:5], [0.0, 0.0, 0.5, 1.0, 1.0])


@pytest.mark.parametrize("groups", [2, 4])
def test_the_mixture_is_as_good_as_the_one_that_scikit_learn_chooses_by_aic(groups):
    """Groups of tasks that progress differently; full covariances, in double precision there."""
    rng = np.random.default_rng(groups)
    centres = np.array([[0.1, 0.1, 0.0], [0.9, 0.2, 0.6], [0.2, 0.9, 0.3], [0.8, 0.8, 0.1]])[:groups]
    shear = np.array([[0.05, 0.03, 0.0], [0.0, 0.04, 0.02], [0.0, 0.0, 0.02]])
    rows = (centres[np.arange(100) % groups] + rng.normal(size=(100, 3)) @ shear).astype(np.float32)
    teacher = source(dimensions=2)
    told = dataclasses.replace(teacher.init(jax.random.key(0)), rows=jnp.asarray(rows))
    state = refitted(teacher)(told, jax.random.key(1))
    assert bool(state.fitted)
    fits = [GaussianMixture(k, reg_covar=1e-6, n_init=3, random_state=0).fit(rows) for k in range(2, 7)]
    chosen = int(jnp.sum(state.mixture.log_weights > -jnp.inf))
    # Ten numbers describe a Gaussian of three dimensions and its weight; the weights sum to 1.
    config, model = MixtureConfig(covariance="full"), MixtureModel(state.mixture, None)
    log_likelihood = np.asarray(gmm.log_likelihood(config, model, jnp.asarray(rows))).sum()
    criterion = -2 * log_likelihood + 2 * (10 * chosen - 1)
    # AIC is nearly the same for some sizes, and both searches end in a local optimum: theirs is the best of
    # three for each size.
    theirs = [fit.aic(rows) for fit in fits]
    assert criterion < theirs[groups - 2] + 2.0
    assert criterion < min(theirs) + 10.0
    # Both have found the groups: the progress that is expected of each.
    means = np.asarray(state.mixture.means)[:chosen]
    for centre in centres:
        assert np.abs(means - centre).max(axis=1).min() < 0.06


@functools.cache
def refitted(teacher):
    return jax.jit(teacher._refitted)
