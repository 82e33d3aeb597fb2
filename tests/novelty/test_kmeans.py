from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from cenie.novelty import kmeans

POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [5.0, 0.0]], np.float32)


def oracle(rng: np.random.Generator, points: np.ndarray, count: int) -> tuple[int, ...]:
    """Greedy k-means++ as it is defined, one centre after another."""
    chosen = [int(rng.integers(len(points)))]
    tries = 2 + int(np.log(count))
    while len(chosen) < count:
        nearest = np.min([((points - points[c]) ** 2).sum(axis=1) for c in chosen], axis=0)
        options = rng.choice(len(points), size=tries, p=nearest / nearest.sum())
        left = [np.sqrt(np.minimum(nearest, ((points - points[o]) ** 2).sum(axis=1))).sum() for o in options]
        chosen.append(int(options[int(np.argmin(left))]))
    return tuple(chosen)


def test_draws_have_the_distribution_of_greedy_kmeans() -> None:
    draws = 4000
    chain = jax.jit(lambda keys: jax.vmap(lambda k: kmeans.chain(k, padded, mask, 3).indices)(keys))
    # Missing points in between, far away from all others, must not be drawn.
    padded = jnp.concatenate([jnp.asarray(POINTS[:2]), jnp.full((2, 2), 1e9), jnp.asarray(POINTS[2:])])
    mask = jnp.array([True, True, False, False, True, True, True])
    places = np.array([0, 1, -1, -1, 2, 3, 4])
    ours = places[np.asarray(chain(jax.random.split(jax.random.key(0), draws)))]
    assert (ours >= 0).all()
    rng = np.random.default_rng(0)
    expected = Counter(oracle(rng, POINTS, 3) for _ in range(draws))
    found = Counter(tuple(map(int, row)) for row in ours)
    common = [draw for draw in expected if expected[draw] + found[draw] >= 40]
    table = np.array([[count[draw] for draw in common] for count in (expected, found)])
    table = np.column_stack([table, draws - table.sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    assert len(common) > 10
    assert stats.chi2_contingency(table)[1] > 1e-3


def test_a_chain_starts_like_a_shorter_one_and_labels_by_the_nearest_centre() -> None:
    points = jax.random.normal(jax.random.key(0), (50, 3))
    chain = kmeans.chain(jax.random.key(1), points, jnp.ones(50, bool), 5)
    centres = np.asarray(points)[np.asarray(chain.indices)]
    distances = ((np.asarray(points)[None] - centres[:, None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(chain.distances, distances, rtol=1e-5, atol=1e-6)
    labels = kmeans.nearest_labels(chain.distances, 2)
    assert labels.shape == (4, 50)
    for row, count in zip(np.asarray(labels), range(2, 6)):
        np.testing.assert_array_equal(row, np.argmin(distances[:count], axis=0))


def test_distinct_counts_the_values_that_exist() -> None:
    points = jnp.repeat(jnp.array([[1.0, 2.0], [3.0, 4.0], [1e6, 0.0]]), 4, axis=0)
    for present, count in ((12, 3), (8, 2), (4, 1), (0, 0)):
        chain = kmeans.chain(jax.random.key(0), points, jnp.arange(12) < present, 5)
        assert int(chain.distinct) == count
        assert bool(jnp.isfinite(chain.distances).all())


def test_weighted_draws_skip_weight_zero_at_both_ends() -> None:
    weights = jnp.array([0.0, 1.0, 0.0, 3.0, 0.0])
    uniform = jnp.array([0.0, 0.2499, 0.2501, 0.9999999])
    np.testing.assert_array_equal(kmeans.weighted_draws(weights, uniform), [1, 1, 3, 3])
