import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import silhouette_samples, silhouette_score

from cenie.novelty import silhouette
from cenie.novelty.silhouette import rough_silhouettes, silhouettes

COUNTS = (2, 3, 5)


def labelled(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = (rng.normal(size=(n, d)) + 3 * rng.integers(0, 3, (n, 1)) + 20).astype(np.float32)
    labels = np.stack([rng.integers(0, k, n) for k in COUNTS]).astype(np.int32)
    labels[2] = np.digitize(points[:, 0], np.quantile(points[:, 0], [0.2, 0.4, 0.6, 0.8]))
    return points, labels


def ours(
    points: np.ndarray, labels: np.ndarray, valid: np.ndarray | None = None, **how: object
) -> np.ndarray:
    mask = np.ones(len(points), bool) if valid is None else valid
    # Compiled anew each time, because the size of a tile is no argument.
    call = jax.jit(lambda points, labels, mask: silhouettes(points, labels, COUNTS, valid=mask, **how))
    return np.asarray(call(points, labels, mask))


@pytest.fixture(params=[16, 1024], ids=["many tiles", "one tile"])
def _tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silhouette, "_TILE", request.param)


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("d", [1, 7])
def test_equals_scikit_learn(d: int) -> None:
    points, labels = labelled(0, 75, d)
    labels[1, labels[1] == 1] = 2  # a cluster that is absent
    labels[0] = 0
    labels[0, 7] = 1  # a point alone in its cluster
    expected = [silhouette_score(points, row) for row in labels]
    np.testing.assert_allclose(ours(points, labels), expected, atol=1e-4)


def test_equals_scikit_learn_on_copies_far_from_the_origin() -> None:
    points, labels = labelled(1, 60, 5)
    points = np.repeat(points[::4], 4, axis=0) + 100
    labels[1] = np.repeat(np.arange(15) % 3, 4)
    expected = [silhouette_score(points.astype(np.float64), row) for row in labels]
    np.testing.assert_allclose(ours(points, labels), expected, atol=1e-4)


def test_all_rows_equal_brute_force_row_by_row() -> None:
    points, labels = labelled(2, 30, 3)
    distances = np.linalg.norm(points[:, None].astype(np.float64) - points, axis=-1)
    for row, result in zip(labels, ours(points, labels)):
        scores = []
        for i in range(30):
            means = {c: distances[i, row == c].sum() / (row == c).sum() for c in set(row) - {row[i]}}
            inner = distances[i, row == row[i]].sum() / max((row == row[i]).sum() - 1, 1)
            outer = min(means.values())
            scores.append((outer - inner) / max(inner, outer) if (row == row[i]).sum() > 1 else 0.0)
        assert -1.0 <= result <= 1.0
        assert result == pytest.approx(np.mean(scores), abs=1e-5)


@pytest.mark.usefixtures("_tiles")
def test_missing_points_do_not_matter() -> None:
    points, labels = labelled(3, 40, 3)
    holes = np.arange(40) % 4 == 1
    expected = [silhouette_score(points[~holes], row[~holes]) for row in labels]
    far = np.where(holes[:, None], 1e9, points).astype(np.float32)
    np.testing.assert_allclose(ours(far, labels, ~holes), expected, atol=1e-4)
    sampled = ours(far, labels, ~holes, key=jax.random.key(0), rows=35)
    np.testing.assert_allclose(sampled, expected, atol=1e-4)  # 35 rows of 30 valid points are all of them


def test_fewer_than_two_clusters_score_minus_one() -> None:
    points, labels = labelled(4, 20, 3)
    assert ours(points, np.zeros_like(labels)) == pytest.approx([-1, -1, -1])
    assert ours(points, labels, np.zeros(20, bool)) == pytest.approx([-1, -1, -1])


@pytest.mark.usefixtures("_tiles")
def test_sampled_rows_estimate_the_mean_without_bias() -> None:
    points, labels = labelled(5, 60, 3)
    exact = ours(points, labels)
    estimate = jax.jit(
        lambda key: silhouettes(
            jnp.asarray(points), jnp.asarray(labels), COUNTS, valid=jnp.ones(60, bool), key=key, rows=10
        )
    )
    estimates = np.array([estimate(key) for key in jax.random.split(jax.random.key(0), 400)])
    error = estimates.std(axis=0) / np.sqrt(400)
    assert (error > 1e-4).all()
    assert (np.abs(estimates.mean(axis=0) - exact) < 4 * error).all()


def separated(seed: int, n: int, d: int) -> tuple[jax.Array, jax.Array]:
    """Points around three centres, and three labelings of which only the second is theirs."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, n)
    points = 4 * rng.normal(size=(3, d))[which] + rng.normal(size=(n, d))
    return jnp.asarray(points, jnp.float32), jnp.asarray(np.stack([which // 2, which, rng.integers(0, 5, n)]))


def test_rough_silhouettes_are_those_of_root_mean_squares_and_near_the_exact_ones() -> None:
    points, labels = separated(0, 200, 12)
    rough = rough_silhouettes(points, labels, COUNTS, jnp.ones(200, bool))
    exact = silhouettes(points, labels, COUNTS, valid=jnp.ones(200, bool))
    np.testing.assert_allclose(rough, exact, atol=0.1)
    squares = ((np.asarray(points)[:, None] - np.asarray(points)) ** 2).sum(axis=-1)
    row = np.asarray(labels[1])
    means = np.stack(
        [squares[:, row == c].sum(axis=1) / ((row == c).sum() - (row == c)) for c in range(3)], 1
    )
    inner = np.sqrt(means[np.arange(200), row])
    outer = np.sqrt(np.where(np.arange(3) == row[:, None], np.inf, means).min(axis=1))
    assert float(rough[1]) == pytest.approx(((outer - inner) / np.maximum(inner, outer)).mean(), abs=1e-4)


def test_the_correction_makes_estimates_from_few_rows_much_better() -> None:
    points, labels = separated(1, 300, 12)
    valid = jnp.ones(300, bool)
    exact = np.asarray(silhouettes(points, labels, COUNTS, valid=valid))
    estimate = jax.jit(lambda key: silhouettes(points, labels, COUNTS, valid=valid, key=key, rows=30))
    keys = jax.random.split(jax.random.key(0), 50)
    error = np.std([np.asarray(estimate(key)) - exact for key in keys], axis=0)
    rng = np.random.default_rng(0)
    scores = silhouette_samples(np.asarray(points), np.asarray(labels[1]))
    plain = np.std([rng.choice(scores, 30, replace=False).mean() - scores.mean() for _ in range(50)])
    assert error[1] < plain / 3
