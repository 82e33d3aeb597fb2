import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.decomposition import PCA

from cenie.novelty import gmm, pca
from cenie.novelty.config import MixtureConfig

KEY = jax.random.key(0)

fit = jax.jit(pca.fit, static_argnums=0)
log_density = jax.jit(pca.log_likelihood, static_argnums=0)


def stretched(seed: int, n: int = 200, d: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return ((rng.normal(size=(n, d)) * 2.0 ** -np.arange(d)) @ turn + 4).astype(np.float32)


def fitted(config: MixtureConfig, points: np.ndarray, valid: np.ndarray | None = None) -> pca.PcaModel:
    mask = jnp.ones(len(points), bool) if valid is None else jnp.asarray(valid)
    result = fit(config, KEY, jnp.asarray(points), valid=mask, previous=pca.init(config, points.shape[1]))
    assert bool(result.ok)
    return result.model


def test_axes_and_noise_are_those_of_scikit_learn() -> None:
    points = stretched(0)
    points -= points.mean(axis=0)  # ours counts deviations from a trimmed mean
    model = fitted(MixtureConfig(components=(2, 3), pca_dimensions=2, reg=1e-9), points)
    theirs = PCA(2).fit(points)
    overlap = np.abs(np.asarray(model.axes).T @ theirs.components_.T)
    np.testing.assert_allclose(overlap, np.eye(2), atol=0.02)
    assert float(model.noise) == pytest.approx(theirs.noise_variance_, rel=0.02)


def test_all_axes_give_the_density_of_the_mixture_itself() -> None:
    """A full covariance does not care how the axes are turned."""
    config = MixtureConfig(components=(2, 3), covariance="full", pca_dimensions=9)
    points = jnp.asarray(stretched(1))
    straight = jax.jit(gmm.fit, static_argnums=0)(
        config, KEY, points, valid=jnp.ones(200, bool), previous=gmm.init(config, 5)
    ).model
    turned = fitted(config, np.asarray(points))
    expected = gmm.log_likelihood(config, straight, points)
    np.testing.assert_allclose(log_density(config, turned, points), expected, rtol=1e-2, atol=1e-2)


def test_leaving_the_subspace_is_unlikely() -> None:
    config = MixtureConfig(components=(2, 3), pca_dimensions=2)
    points = stretched(2)
    model = fitted(config, points)
    off = np.linalg.svd(np.asarray(model.axes).T)[2][-1]
    usual = log_density(config, model, jnp.asarray(points))
    away = log_density(config, model, jnp.asarray(points + 3 * off.astype(np.float32)))
    assert (np.asarray(away) < np.asarray(usual) - 5).all()


def test_the_density_integrates_to_one() -> None:
    config = MixtureConfig(components=(2, 2), pca_dimensions=1)
    points = stretched(3, d=2)
    model = fitted(config, points)
    line = np.linspace(-8, 16, 400)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2).astype(np.float32)
    density = np.exp(np.asarray(log_density(config, model, jnp.asarray(grid)), np.float64))
    assert density.sum() * (line[1] - line[0]) ** 2 == pytest.approx(1.0, abs=0.01)
