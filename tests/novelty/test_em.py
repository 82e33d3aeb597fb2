import warnings
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from cenie.novelty import em, em_schedule, gmm, kmeans
from cenie.novelty.config import CovarianceName, MixtureConfig
from cenie.novelty.covariance import SHAPES
from cenie.novelty.em import Fits
from cenie.novelty.gmm import MixtureModel
from cenie.novelty.mixture import Mixture, count_parameters
from tests.novelty.plain_em import plain_em

KINDS = get_args(CovarianceName)
N, D, K = 120, 3, 3
REG = 1e-3
SETS = {"diag": 50, "full": 12}
"""Sets of points to compare on; shapes that are slow without optimisation get fewer."""

KEY = jax.random.key(0)


@partial(jax.jit, static_argnames=("sizes", "covariance"))
def fit_sizes(
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    sizes: range,
    covariance: CovarianceName,
    reg: float = REG,
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    previous: Any = None,
) -> Fits:
    rules = em.Rules(covariance, reg, tolerance, max_iterations)
    return em.fit_sizes(key, points, valid, sizes=sizes, rules=rules, previous=previous)


@partial(jax.jit, static_argnames="covariance")
def log_likelihood(mixture: Mixture, points: jax.Array, covariance: CovarianceName) -> jax.Array:
    return gmm.log_likelihood(MixtureConfig(covariance=covariance), MixtureModel(mixture, None), points)


def random_set(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(K, D)) * 3 + 10
    spread = 0.3 + rng.random((K, D))
    which = rng.integers(0, K, N)
    return (centres[which] + spread[which] * rng.normal(size=(N, D))).astype(np.float32)


def random_start(
    seed: int, points: np.ndarray, kind: str, n: int = N
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances as scikit-learn shapes them."""
    rng = np.random.default_rng(seed + 1000)
    weights = rng.dirichlet(np.full(K, 5.0))
    means = points[rng.choice(n, K, replace=False)].astype(np.float64)
    shapes = {
        "diag": 0.5 + rng.random((K, D)),
        "full": np.stack([np.diag(0.5 + rng.random(D)) for _ in range(K)]),
    }
    return weights, means, shapes[kind]


def as_starts(weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str) -> Any:
    is_matrix = kind == "full"
    inverse = np.linalg.inv(covariances) if is_matrix else 1 / np.sqrt(covariances)
    start = Mixture(
        jnp.zeros((1, D)),
        jnp.log(jnp.asarray(weights))[None],
        jnp.asarray(means)[None],
        jnp.asarray(np.linalg.cholesky(inverse) if is_matrix else inverse)[None],
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), start), jnp.ones(1, bool)


def scikit(points: np.ndarray, kind: str, **how: Any) -> GaussianMixture:
    fitted = GaussianMixture(K, covariance_type=kind, reg_covar=REG, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fitted.fit(points.astype(np.float64))


def covariances_of(model: Mixture, size: int, kind: CovarianceName) -> np.ndarray:
    whitening = np.asarray(model.whitening, np.float64)
    return SHAPES[kind].covariances(whitening[:size])


def one_of(fits: Fits, row: int) -> Mixture:
    return jax.tree.map(lambda leaf: leaf[row], fits.mixtures)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_scikit_learn_from_the_same_start(kind: CovarianceName) -> None:
    """The likelihood of many sets of points, after as many steps from the same parameters."""
    differences = []
    for seed in range(SETS[kind]):
        points = random_set(seed)
        weights, means, covariances = random_start(seed, points, kind)
        precisions = np.linalg.inv(covariances) if kind == "full" else 1 / covariances
        theirs = scikit(
            points,
            kind,
            weights_init=weights,
            means_init=means,
            precisions_init=precisions,
            max_iter=25,
            tol=0.0,
        )
        fits = fit_sizes(
            KEY,
            jnp.asarray(points),
            jnp.ones(N, bool),
            range(K, K + 1),
            kind,
            REG,
            -1.0,
            25,
            as_starts(weights, means, covariances, kind),
        )
        assert fits.ok.all()
        assert int(fits.iterations[0]) == 25
        expected = theirs.score_samples(points.astype(np.float64))
        differences.append(float(fits.log_likelihood[0]) / expected.mean() - 1.0)
        if seed < 5:
            found = log_likelihood(one_of(fits, 0), jnp.asarray(points), kind)
            np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)
    assert np.abs(differences).max() < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_is_as_likely_as_scikit_learn_from_its_own_start(kind: CovarianceName) -> None:
    ours, theirs = [], []
    for seed in range(SETS[kind]):
        points = random_set(seed)
        key = jax.random.key(seed)
        fits = fit_sizes(key, jnp.asarray(points), jnp.ones(N, bool), range(K, K + 1), kind, REG)
        ours.append(float(fits.log_likelihood[0]))
        theirs.append(scikit(points, kind, init_params="k-means++", random_state=seed).score(points))
    assert np.mean(ours) > np.mean(theirs) - 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_starts_from_points_as_centres(kind: CovarianceName) -> None:
    """The first parameters: nearest centre, cluster fractions, spread around the centre."""
    points = random_set(0)
    fits = fit_sizes(KEY, jnp.asarray(points), jnp.ones(N, bool), range(2, 4), kind, REG, 1e-3, 0)
    assert (np.asarray(fits.iterations) == 0).all()
    for row, size in enumerate((2, 3)):
        start = one_of(fits, row)
        means = np.asarray(start.means)[:size]
        distances = ((points[:, None] - means) ** 2).sum(axis=-1)
        assert np.allclose(distances.min(axis=0), 0.0, atol=1e-4)
        labels = distances.argmin(axis=1)
        share = np.bincount(labels, minlength=size) / N
        np.testing.assert_allclose(np.exp(start.log_weights), [*share, *[0.0] * (3 - size)], atol=1e-6)
        spread = [(points - m)[labels == k] for k, m in enumerate(means)]
        expected = {
            "diag": np.stack([(s**2).mean(axis=0) for s in spread]) + REG,
            "full": np.stack([s.T @ s / len(s) for s in spread]) + REG * np.eye(D),
        }[kind]
        np.testing.assert_allclose(covariances_of(start, size, kind), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_density_equals_scipy(kind: CovarianceName) -> None:
    points = random_set(3)
    fits = fit_sizes(KEY, jnp.asarray(points), jnp.ones(N, bool), range(2, 4), kind, REG)
    model = one_of(fits, 0)
    weights = np.exp(np.asarray(model.log_weights))[:2]
    assert weights.sum() == pytest.approx(1.0, abs=1e-5)
    full = {
        "diag": lambda c: [np.diag(row) for row in c],
        "full": list,
    }[kind](covariances_of(model, 2, kind))
    parts = [
        np.log(w) + multivariate_normal(m, c).logpdf(points)
        for w, m, c in zip(weights, np.asarray(model.means), full)
    ]
    expected = logsumexp(np.stack(parts), axis=0)
    np.testing.assert_allclose(
        log_likelihood(model, jnp.asarray(points), kind), expected, rtol=1e-3, atol=1e-3
    )
    assert float(fits.log_likelihood[0]) == pytest.approx(expected.mean(), rel=1e-4)
    np.testing.assert_array_equal(fits.labels[0], np.argmax(parts, axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_never_falls(kind: CovarianceName) -> None:
    points = jnp.asarray(random_set(4))
    starts = None
    previous = -np.inf
    for _ in range(15):
        fits = fit_sizes(KEY, points, jnp.ones(N, bool), range(K, K + 1), kind, 1e-8, -1.0, 1, starts)
        assert float(fits.log_likelihood[0]) >= previous - 1e-5
        previous = float(fits.log_likelihood[0])
        starts = (fits.mixtures, fits.ok)


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_of_the_likelihood_does_not_end_a_fit(seed: int) -> None:
    """A `reg` that is large beside a variance lowers the likelihood at first; scikit-learn goes on too."""
    rng = np.random.default_rng(seed)
    points = np.stack([rng.integers(0, 2, 400), rng.normal(size=400)], axis=1).astype(np.float32)
    means, deviation = np.array([[0.0, 0.0], [1.0, 0.0]], np.float32), np.sqrt(0.02)
    theirs = GaussianMixture(
        2,
        covariance_type="diag",
        reg_covar=0.1,
        weights_init=[0.5, 0.5],
        means_init=means,
        precisions_init=np.full((2, 2), deviation**-2),
    ).fit(points.astype(np.float64))
    start = Mixture(
        jnp.zeros((1, 2)),
        jnp.log(jnp.full((1, 2), 0.5)),
        jnp.asarray(means)[None],
        jnp.full((1, 2, 2), 1 / deviation, jnp.float32),
    )
    starts = (start, jnp.ones(1, bool))
    fits = fit_sizes(
        KEY, jnp.asarray(points), jnp.ones(400, bool), range(2, 3), "diag", 0.1, 1e-3, 100, starts
    )
    assert int(fits.iterations[0]) == theirs.n_iter_ > 3
    assert float(fits.log_likelihood[0]) == pytest.approx(theirs.score(points), abs=1e-4)


def test_each_size_stops_when_it_has_converged() -> None:
    """The steps of a size are those that it takes alone, and one fewer would not have been enough."""
    points, valid = jnp.asarray(random_set(5)), jnp.ones(N, bool)
    fits = fit_sizes(KEY, points, valid, range(1, 11), "diag", REG)
    iterations = np.asarray(fits.iterations)
    assert 1 < iterations.min() < iterations.max() < 100
    longest = int(iterations.argmax())
    cut = fit_sizes(KEY, points, valid, range(1, 11), "diag", REG, 1e-3, int(iterations.max()) - 1)
    others = np.arange(10) != longest
    # In which company a size takes its last steps may change its last bit.
    np.testing.assert_allclose(cut.log_likelihood[others], fits.log_likelihood[others], rtol=1e-6)
    assert (np.asarray(cut.iterations) == np.minimum(iterations, iterations.max() - 1)).all()


def test_warm_starts_converge_at_once_wherever_the_origin_is() -> None:
    points, valid = jnp.asarray(random_set(6)), jnp.ones(N, bool)
    fits = fit_sizes(KEY, points, valid, range(2, 5), "diag", REG, 1e-5)
    moved = fits.mixtures._replace(origin=fits.mixtures.origin + 1.0, offsets=fits.mixtures.offsets - 1.0)
    known = jnp.array([True, False, True])
    again = fit_sizes(jax.random.key(9), points, valid, range(2, 5), "diag", REG, 1e-3, 100, (moved, known))
    assert int(again.iterations[0]) == int(again.iterations[2]) == 2
    assert int(again.iterations[1]) > 2
    np.testing.assert_allclose(again.log_likelihood[::2], fits.log_likelihood[::2], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_points_do_not_matter(kind: CovarianceName) -> None:
    points = random_set(7)
    holes = np.zeros(N, bool)
    holes[80:] = True
    zeros = jnp.where(jnp.asarray(holes)[:, None], 0.0, points)
    fits = fit_sizes(KEY, zeros, jnp.asarray(~holes), range(K, K + 1), kind, REG)
    other = jnp.where(jnp.asarray(holes)[:, None], 1e9, points)
    again = fit_sizes(KEY, other, jnp.asarray(~holes), range(K, K + 1), kind, REG)
    np.testing.assert_array_equal(fits.log_likelihood, again.log_likelihood)
    # scikit-learn, which has no mask, gets only the points that are there.
    weights, means, covariances = random_start(7, points[:80], kind, 80)
    precisions = np.linalg.inv(covariances) if kind == "full" else 1 / covariances
    how = {"weights_init": weights, "means_init": means, "precisions_init": precisions}
    theirs = scikit(points[:80], kind, **how, max_iter=25, tol=0.0)
    starts = as_starts(weights, means, covariances, kind)
    masked = fit_sizes(KEY, zeros, jnp.asarray(~holes), range(K, K + 1), kind, REG, -1.0, 25, starts)
    assert float(masked.log_likelihood[0]) == pytest.approx(theirs.score(points[:80]), rel=1e-3)


def test_parameters_are_counted_like_scikit_learn() -> None:
    points = random_set(8)
    for kind in KINDS:
        assert count_parameters(K, D, kind) == scikit(points, kind, random_state=0)._n_parameters()


@pytest.mark.parametrize("cached", [0, 2**20])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_are_wanted_alone_are_fitted_as_among_all(
    kind: CovarianceName, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups and their order change with the sizes that are wanted; the fits must not."""
    monkeypatch.setattr(em_schedule, "_CACHED_NUMBERS", cached)
    points, valid = jnp.asarray(random_set(8)), jnp.ones(N, bool)
    sizes = range(2, 7)

    @jax.jit
    def fits_of(wanted: jax.Array) -> em.Fits:
        data = em.dataset(points, valid, em.Rules(kind, REG))
        chain = kmeans.chain(KEY, data.points, valid, sizes[-1])
        progress = em.begin(data, chain, sizes)
        progress = em.advance(data, progress, wanted, iterations=100, sizes=sizes)
        return em.judge(data, progress, sizes[::-1])

    everything, some = fits_of(jnp.ones(5, bool)), fits_of(jnp.array([True, False, False, True, False]))
    assert np.asarray(everything.ok).all()
    assert np.asarray(some.iterations).tolist() == [
        count if row in (0, 3) else 0 for row, count in enumerate(everything.iterations.tolist())
    ]
    for row in (0, 3):
        np.testing.assert_array_equal(everything.labels[row], some.labels[row])
        for one, other in zip(jax.tree.leaves(everything.mixtures), jax.tree.leaves(some.mixtures)):
            np.testing.assert_allclose(one[row], other[row], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cached", [0, 2**20])
@pytest.mark.parametrize("kind", KINDS)
def test_no_width_of_a_step_leaves_out_components(
    kind: CovarianceName, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps one after another or side by side, and steps all as wide as the largest size."""
    points, valid, sizes = jnp.asarray(random_set(10)), jnp.ones(N, bool), range(1, 8)

    @partial(jax.jit, static_argnames="as_wide_as")
    def fit_with(as_wide_as: range) -> em.Fits:
        data = em.dataset(points, valid, em.Rules(kind, REG))
        progress = em.begin(data, kmeans.chain(KEY, data.points, valid, 7), sizes)
        everything = jnp.ones(len(sizes), bool)
        progress = em.advance(data, progress, everything, iterations=4, sizes=as_wide_as)
        return em.judge(data, progress, sizes[::-1])

    wide = fit_with(sizes[-1:])
    monkeypatch.setattr(em_schedule, "_CACHED_NUMBERS", cached)
    fits = fit_with(sizes)
    assert (np.asarray(fits.iterations) > 1).all()
    np.testing.assert_array_equal(fits.iterations, wide.iterations)
    np.testing.assert_allclose(fits.log_likelihood, wide.log_likelihood, rtol=1e-5)
    for row, size in enumerate(sizes[::-1]):
        weights = np.exp(np.asarray(fits.mixtures.log_weights[row]))
        np.testing.assert_array_equal(weights > 0.0, np.arange(7) < size)
        np.testing.assert_allclose(weights, np.exp(wide.mixtures.log_weights[row]), atol=1e-4)


def test_a_fit_in_two_parts_is_the_same_fit() -> None:
    """Screening lets all sizes take some steps, and only a few of them the others."""
    points, valid, sizes = jnp.asarray(random_set(9)), jnp.ones(N, bool), range(2, 6)

    @partial(jax.jit, static_argnames="stops")
    def fit_with(stops: tuple[int, ...]) -> em.Fits:
        data = em.dataset(points, valid, em.Rules("diag", REG))
        progress = em.begin(data, kmeans.chain(KEY, data.points, valid, 5), sizes)
        for stop in stops:
            everything = jnp.ones(4, bool)
            progress = em.advance(data, progress, everything, iterations=stop, sizes=sizes)
        return em.judge(data, progress, sizes[::-1])

    whole, parts = fit_with((100,)), fit_with((3, 4, 100))
    assert np.asarray(whole.iterations).max() > 4
    np.testing.assert_array_equal(whole.iterations, parts.iterations)
    np.testing.assert_allclose(whole.log_likelihood, parts.log_likelihood, rtol=1e-6)


def test_a_subset_has_the_labels_of_all_points() -> None:
    points, valid, sizes = jnp.asarray(random_set(9)), jnp.ones(N, bool), range(2, 4)
    data = em.dataset(points, valid, em.Rules("diag", REG))
    progress = em.begin(data, kmeans.chain(KEY, data.points, valid, 3), sizes)
    index = jnp.arange(0, N, 7)
    part = em.judge(em.subset(data, index, index < 100), progress, sizes[::-1])
    labels = em.judge(data, progress, sizes[::-1]).labels[:, index]
    np.testing.assert_array_equal(part.labels[:, index < 100], labels[:, index < 100])


@pytest.mark.parametrize("cached", [0, 2**20], ids=["side by side", "one after another"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_sizes_are_fitted_as_by_plain_em(
    kind: CovarianceName, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule, the packing and single precision change no step, no label and no digit that counts."""
    monkeypatch.setattr(em_schedule, "_CACHED_NUMBERS", cached)
    points, valid, sizes = random_set(11), jnp.ones(N, bool), range(1, 8)
    rules = em.Rules(kind, REG)
    fits = jax.jit(lambda points: em.fit_sizes(KEY, points, valid, sizes=sizes, rules=rules))(points)
    data = em.dataset(jnp.asarray(points), valid, rules)
    centres = points[np.asarray(kmeans.chain(KEY, data.points, valid, sizes[-1]).indices)]
    for row, size in enumerate(sizes):
        weights, means, spreads, log_likelihood, steps = plain_em(
            points.astype(np.float64), centres[:size].astype(np.float64), kind, REG, 1e-3, 100
        )
        found = one_of(fits, row)
        assert int(fits.iterations[row]) == steps
        assert float(fits.log_likelihood[row]) == pytest.approx(log_likelihood, abs=1e-4)
        np.testing.assert_allclose(np.exp(found.log_weights)[:size], weights, atol=1e-4)
        np.testing.assert_allclose(found.means[:size], means, atol=2e-3)
        np.testing.assert_allclose(covariances_of(found, size, kind), spreads, rtol=2e-3, atol=2e-3)
