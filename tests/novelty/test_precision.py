"""Single precision must not show: far clusters, small regularisers, constant columns and near copies."""

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture

from cenie.novelty import Coverage, em, gmm
from cenie.novelty.config import CovarianceName, MixtureConfig
from cenie.novelty.gmm import MixtureModel
from cenie.novelty.mixture import Mixture
from cenie.novelty.silhouette import rough_silhouettes, silhouettes

K, STEPS = 3, 12
KEY = jax.random.key(0)
COLUMNS = ("plain", "one-hot", "sparse", "constant")


@partial(jax.jit, static_argnames=("sizes", "covariance"))
def fit_sizes(
    points: jax.Array,
    sizes: range,
    covariance: CovarianceName,
    reg: float,
    steps: int = STEPS,
    previous: Any = None,
) -> em.Fits:
    """Fits of so many steps, whether they have converged or not."""
    rules = em.Rules(covariance, reg, -1.0, steps)
    return em.fit_sizes(KEY, points, jnp.ones(len(points), bool), sizes=sizes, rules=rules, previous=previous)


def clusters(seed: int, n: int, d: int, separation: float, columns: str) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters of width 1 and such distances, some of their columns replaced; and whose is whose."""
    rng = np.random.default_rng(seed)
    which = rng.permutation(n) % K
    directions = rng.normal(size=(K, d))
    centres = separation * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points = centres[which] + rng.normal(size=(n, d))
    half = max(1, d // 2)
    if columns == "one-hot":
        points[:, :half] = np.eye(half)[(which + rng.integers(0, 2, n)) % half]
    if columns == "sparse":
        points[:, :half] *= rng.random((n, half)) < 0.2
    if columns == "constant":
        points[:, :half] = 0.3 + which[:, None]
    return points.astype(np.float32), which


def around(points: np.ndarray, which: np.ndarray, reg: float) -> tuple[np.ndarray, ...]:
    """Weights, means and variances of the clusters in single precision, a little off the best."""
    parts = [points[which == k].astype(np.float64) for k in range(K)]
    weights = np.array([len(part) for part in parts]) / len(points)
    means = np.stack([part.mean(axis=0) + 0.3 * part.std(axis=0) for part in parts])
    variances = np.stack([1.5 * part.var(axis=0) + reg for part in parts])
    return weights, means.astype(np.float32), variances.astype(np.float32)


def scikit(points: np.ndarray, start: tuple[np.ndarray, ...], reg: float) -> GaussianMixture:
    weights, means, variances = (part.astype(np.float64) for part in start)
    theirs = GaussianMixture(
        K,
        covariance_type="diag",
        reg_covar=reg,
        tol=0.0,
        max_iter=STEPS,
        weights_init=weights,
        means_init=means,
        precisions_init=1.0 / variances,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return theirs.fit(points.astype(np.float64))


def as_previous(start: tuple[np.ndarray, ...]) -> tuple[Mixture, jax.Array]:
    weights, means, variances = (jnp.asarray(part, jnp.float32)[None] for part in start)
    start = Mixture(jnp.zeros((1, means.shape[-1])), jnp.log(weights), means, 1.0 / jnp.sqrt(variances))
    return start, jnp.ones(1, bool)


@pytest.mark.parametrize(("n", "d"), [(50, 2), (200, 300), (65_536, 2)])
def test_a_fit_is_as_likely_as_scikit_learns_from_the_same_start(n: int, d: int) -> None:
    """Within 1e-3 nats of double precision, up to 10,000 widths apart and for all published regularisers."""
    cases = [(separation, reg) for separation in (1.0, 100.0, 1e4) for reg in (1e-6, 1e-2, 1e-1)]
    for number, (separation, reg) in enumerate(cases):
        for columns in COLUMNS if n < 1000 else COLUMNS[number % 4 : number % 4 + 1]:
            points, which = clusters(number, n, d, separation, columns)
            start = around(points, which, reg)
            theirs = scikit(points, start, reg)
            previous = as_previous(start)
            fits = fit_sizes(jnp.asarray(points), range(K, K + 1), "diag", reg, previous=previous)
            expected = theirs.score(points.astype(np.float64))
            assert float(fits.log_likelihood[0]) == pytest.approx(expected, abs=1e-3), (
                separation,
                reg,
                columns,
            )


def test_full_covariances_are_fitted_wherever_scikit_learn_fits_them() -> None:
    """Dependent and constant columns at the smallest regulariser. Once 9 of 10 sizes failed."""
    rng = np.random.default_rng(0)
    free = 3.0 * rng.normal(size=(6, 5))[rng.integers(0, 6, 300)] + rng.normal(size=(300, 5))
    points = np.concatenate([free, free @ rng.normal(size=(5, 5)), np.full((300, 2), 0.7)], axis=1)
    points, sizes = points.astype(np.float32), range(2, 8)
    begin, end = (fit_sizes(jnp.asarray(points), sizes, "full", 1e-6, steps) for steps in (0, STEPS))
    assert np.asarray(end.ok).all()
    for row, size in enumerate(sizes):
        start = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row], np.float64), begin.mixtures)
        whitening = start.whitening[:size]
        theirs = GaussianMixture(
            size,
            covariance_type="full",
            reg_covar=1e-6,
            tol=0.0,
            max_iter=STEPS,
            weights_init=np.exp(start.log_weights[:size]) / np.exp(start.log_weights[:size]).sum(),
            means_init=(start.origin + start.offsets)[:size],
            precisions_init=whitening @ whitening.swapaxes(-1, -2),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            expected = theirs.fit(points.astype(np.float64)).score(points.astype(np.float64))
        assert float(end.log_likelihood[row]) == pytest.approx(expected, abs=1e-2), size


def test_densities_can_be_batched() -> None:
    """Double precision inside of a batched condition: JAX would round it to single precision, and refuse."""
    points = jnp.asarray(clusters(0, 50, 2, 1e4, "plain")[0])
    fits = fit_sizes(points, range(K, K + 1), "diag", 1e-2)
    both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf + 0.1]), fits.mixtures)

    def density(chosen: Mixture) -> jax.Array:
        return gmm.log_likelihood(MixtureConfig(), MixtureModel(chosen, None), points)

    batched = jax.vmap(density)(both)
    for row in range(2):
        alone = density(jax.tree.map(lambda leaf, row=row: leaf[row], both))
        np.testing.assert_allclose(batched[row], alone, rtol=1e-6)


def test_far_points_differ_beside_a_constant_column() -> None:
    """At the walker's regulariser, 0.5 and 2 and 10 once had the same novelty, that of the limit."""
    points = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32) * np.float32([1.0, 0.0])
    model = Coverage(components=(1, 1), reg=1e-6, selection="bic").fit(points)
    steps = np.float32([0.0, 0.5, 2.0, 10.0])
    found = model.log_density(np.stack([np.zeros(4, np.float32), steps], axis=1))
    np.testing.assert_allclose(found - found[0], -0.5 * steps.astype(np.float64) ** 2 / 1e-6, rtol=1e-3)


@pytest.mark.parametrize("columns", COLUMNS)
def test_likelihood_does_not_fall_with_the_smallest_regulariser(columns: str) -> None:
    """From the library's own start, at the walker's regulariser and in the walker's dimensions."""
    points, previous, likelihood = jnp.asarray(clusters(0, 400, 28, 30.0, columns)[0]), None, -np.inf
    for _ in range(15):
        fits = fit_sizes(points, range(6, 7), "diag", 1e-6, 1, previous)
        assert float(fits.log_likelihood[0]) >= likelihood - 1e-5
        previous, likelihood = (fits.mixtures, fits.ok), float(fits.log_likelihood[0])


@pytest.mark.parametrize("reg", [1e-6, 1e-2])
def test_novelty_of_far_clusters_is_that_of_double_precision(reg: float) -> None:
    """Two clusters 3,000 apart once had a novelty of 31.6 in place of 3.5, or of -970."""
    rng = np.random.default_rng(0)
    points = (3000.0 * rng.integers(0, 2, (400, 1)) + rng.normal(size=(400, 3))).astype(np.float32)
    model = Coverage(components=(2, 2), reg=reg, selection="bic").fit(points)
    theirs = GaussianMixture(2, covariance_type="diag", reg_covar=reg, random_state=0).fit(
        points.astype(np.float64)
    )
    theirs.weights_, theirs.means_, theirs.covariances_ = model.weights_, model.means_, model.covariances_
    theirs.precisions_cholesky_ = 1.0 / np.sqrt(model.covariances_)
    assert model.novelty(points) == pytest.approx(-theirs.score(points.astype(np.float64)), abs=1e-3)


def halved(points: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Labels of the two halves of every cluster, so that the distances within it decide."""
    medians = np.array([np.median(points[which == k, 0]) for k in range(K)])
    return 2 * which + (points[:, 0] > medians[which])


def scores_of(points: np.ndarray, labels: np.ndarray, **how: Any) -> float:
    counts, valid = (int(labels.max()) + 1,), jnp.ones(len(labels), bool)
    return float(silhouettes(jnp.asarray(points), jnp.asarray(labels)[None], counts, valid=valid, **how)[0])


@pytest.mark.parametrize("rows", [None, 299], ids=["all rows", "some rows"])
@pytest.mark.parametrize("separation", [1.0, 30.0, 1000.0, 1e4])
def test_silhouettes_of_far_clusters_are_those_of_scikit_learn(separation: float, rows: int | None) -> None:
    """Once 0.05 off."""
    points, which = clusters(0, 300, 5, separation, "plain")
    labels = halved(points, which)
    found = scores_of(points, labels, key=KEY, rows=rows)
    expected = silhouette_score(points.astype(np.float64), labels)
    assert found == pytest.approx(expected, abs=1e-4 if rows is None else 0.01)


@pytest.mark.parametrize("noise", [1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("gap", [0.0, 1e-3, 1e-2, 0.1])
def test_silhouettes_of_near_copies_are_those_of_scikit_learn(noise: float, gap: float) -> None:
    """A stuck agent's states are the same to the last few digits. Once 0.012 off."""
    rng = np.random.default_rng(0)
    states = np.concatenate([rng.normal(size=(4, 8))] * 2)
    states[4:] += gap
    labels = np.arange(320) % 8
    points = (states[labels] + noise * rng.normal(size=(320, 8))).astype(np.float32)
    expected = silhouette_score(points.astype(np.float64), labels)
    assert scores_of(points, labels) == pytest.approx(expected, abs=1e-3)


def test_rough_silhouettes_of_far_clusters_are_those_of_double_precision() -> None:
    points, which = clusters(0, 60, 5, 1e4, "plain")
    labels = halved(points, which)
    squares = ((points[:, None].astype(np.float64) - points) ** 2).sum(axis=-1)
    own = labels[:, None] == np.arange(6)
    means = np.sqrt(squares @ own / (own.sum(axis=0) - own))
    inner, outer = means[own], np.where(own, np.inf, means).min(axis=1)
    expected = np.mean((outer - inner) / np.maximum(inner, outer))
    found = rough_silhouettes(jnp.asarray(points), jnp.asarray(labels)[None], (6,), jnp.ones(60, bool))
    assert float(found[0]) == pytest.approx(expected, abs=1e-4)
