import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import KDTree
from scipy.special import gammaln

from cenie.novelty import neighbours
from cenie.novelty.config import NeighboursConfig

CONFIG = NeighboursConfig(rank=4, kept=64, reg=1e-9)
KEY = jax.random.key(0)


def fitted(
    points: np.ndarray, valid: np.ndarray, config: NeighboursConfig = CONFIG
) -> neighbours.NeighboursModel:
    start = neighbours.init(config, points.shape[1])
    result = neighbours.fit(config, KEY, jnp.asarray(points), valid=jnp.asarray(valid), previous=start)
    assert bool(result.ok)
    assert int(result.diagnostics["kept"]) == min(valid.sum(), config.kept)
    return result.model


@pytest.mark.parametrize("tile", [8, 1024])
def test_equals_a_search_tree(monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    monkeypatch.setattr(neighbours, "_TILE", tile)
    rng = np.random.default_rng(0)
    points, valid = rng.normal(size=(50, 3)).astype(np.float32) + 5, rng.random(50) < 0.8
    queries = rng.normal(size=(21, 3)).astype(np.float32) + 5
    distance = KDTree(points[valid]).query(queries, k=[4])[0][:, 0]
    ball = 1.5 * np.log(np.pi) - gammaln(2.5)
    expected = np.log(4 / valid.sum()) - ball - 3 * np.log(distance)
    found = neighbours.log_density(CONFIG, fitted(points, valid), jnp.asarray(queries))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_fewer_points_than_neighbours_use_the_farthest_there_is() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0]], np.float32)
    model = fitted(points, np.ones(2, bool))
    density = neighbours.log_density(CONFIG, model, jnp.array([[0.0, 0.0], [3.0, 0.0]]))
    np.testing.assert_allclose(density, -np.log(np.pi * np.array([1.0, 9.0])), atol=1e-3)


def test_too_many_points_are_sampled() -> None:
    points = np.random.default_rng(1).normal(size=(200, 2)).astype(np.float32)
    model = fitted(points, np.ones(200, bool))
    kept = np.asarray(model.points + model.origin)
    assert kept.shape == (64, 2)
    assert KDTree(points).query(kept)[0].max() < 1e-5
    assert len(np.unique(kept.round(4), axis=0)) == 64
