"""Properties of the replay probabilities, and a NumPy oracle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenie.replay import priority
from cenie.replay.config import PriorityConfig

C = 7
MIX = jnp.array([0.6, 0.4])
TRANSFORMS = ("rank", "power", "top-k", "softmax", "uniform")


@functools.partial(jax.jit, static_argnums=5)
def probabilities(scores, mix, ids, staleness, mask, config):
    return priority.probabilities(
        scores=scores, mix=mix, ids=ids, staleness=staleness, mask=mask, config=config
    )


scores_2 = st.lists(
    st.lists(st.floats(-4, 4, width=32, allow_subnormal=False), min_size=2, max_size=2),
    min_size=C,
    max_size=C,
)
ages = st.lists(st.integers(0, 100_000), min_size=C, max_size=C)


def one_column(scores, config, size=None, ids=None, staleness=None):
    count = len(scores)
    mask = jnp.arange(count) < (count if size is None else size)
    return np.asarray(
        probabilities(
            jnp.asarray(scores, jnp.float32)[:, None],
            jnp.ones(1),
            jnp.arange(count) if ids is None else jnp.asarray(ids),
            jnp.zeros(count, jnp.int32) if staleness is None else jnp.asarray(staleness, jnp.int32),
            mask,
            config,
        )
    )


def oracle(scores, mix, ids, age, size, config):
    """The formula in ten lines, over the stored levels only."""
    scores, age, ids = np.asarray(scores, np.float64)[:size], np.asarray(age)[:size], np.asarray(ids)[:size]
    total = np.zeros(size)
    for weight, s in zip(np.asarray(mix, np.float64), scores.T):
        rank = np.array([1 + np.sum((s > x) | ((s == x) & (ids < i))) for x, i in zip(s, ids)])
        if config.ties == "average":
            rank = np.array([np.sum(s > x) + (np.sum(s == x) + 1) / 2 for x in s])
        offset = 0 if config.staleness_coef else 1e-3
        w = {
            "rank": rank ** (-1.0 / config.temperature),
            "power": (np.maximum(s, 0) + offset) ** (1 / config.temperature),
            "top-k": (rank <= config.top_k) * 1.0,
            "softmax": np.exp((s - s.max()) / config.temperature),
            "uniform": np.ones(size),
        }[config.transform]
        total += weight * (w / w.sum() if w.sum() > 0 else np.full(size, 1 / size))
    stale = age / age.sum() if age.sum() > 0 else np.full(size, 1 / size)
    c = config.staleness_coef
    return (1 - c) * total + c * stale


@pytest.mark.parametrize("ties", ["stable", "average"])
@pytest.mark.parametrize("transform", TRANSFORMS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_equals_oracle_and_sums_to_one_for_every_size(transform, ties, data):
    config = PriorityConfig(transform=transform, ties=ties, top_k=3, temperature=0.3, staleness_coef=0.3)
    # Ties are the interesting case: half of the examples have scores from a coarse grid.
    scores = np.asarray(data.draw(scores_2), np.float32)
    scores = np.round(scores) if data.draw(st.booleans()) else scores
    age, size = data.draw(ages), data.draw(st.integers(0, C))
    ids = data.draw(st.permutations(range(C)))
    mask = jnp.arange(C) < size
    got = np.asarray(
        probabilities(jnp.asarray(scores), MIX, jnp.asarray(ids), jnp.asarray(age), mask, config), np.float64
    )
    assert (got >= 0).all()
    assert (got[size:] == 0).all()
    np.testing.assert_allclose(got.sum(), 1.0 if size else 0.0, atol=1e-6)
    if size:
        np.testing.assert_allclose(
            got[:size], oracle(scores, MIX, ids, age, size, config), rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("ties", ["stable", "average"])
@given(scores=st.lists(st.integers(-50, 50), min_size=C, max_size=C), size=st.integers(0, C))
@settings(max_examples=40, deadline=None)
def test_rank_is_invariant_under_monotone_transforms(ties, scores, size):
    config = PriorityConfig(ties=ties)
    base = one_column(scores, config, size)
    for change in (lambda s: 1000.0 * s - 7.0, lambda s: s**3, lambda s: np.arctan(0.1 * s)):
        np.testing.assert_array_equal(one_column(change(np.asarray(scores, np.float32)), config, size), base)


@pytest.mark.parametrize("transform", ["rank", "power", "softmax"])
def test_temperature_limits(transform):
    scores = [0.5, 2.0, 1.0, 1.9]
    cold = PriorityConfig(transform=transform, temperature=1e-3, staleness_coef=0.0)
    hot = PriorityConfig(transform=transform, temperature=1e6, staleness_coef=0.0)
    np.testing.assert_allclose(one_column(scores, cold), [0, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(one_column(scores, hot), [0.25] * 4, atol=1e-5)


def test_published_masses_of_the_first_ranks():
    """Capacity 4000: temperature 0.3 gives 0.872, 0.0865, 0.0224 to the first ranks, 0.1 gives 0.999."""
    scores = -np.arange(4000.0)
    warm = one_column(scores, PriorityConfig(temperature=0.3, staleness_coef=0.0))
    np.testing.assert_allclose(warm[:3], [0.872, 0.0865, 0.0224], atol=5e-4)
    cold = one_column(scores, PriorityConfig(temperature=0.1, staleness_coef=0.0))
    np.testing.assert_allclose(cold[0], 0.999, atol=5e-4)


def test_bug_minimax_7_temperature_is_an_exponent_and_rank_one_divides_nothing():
    config = PriorityConfig(temperature=0.5, staleness_coef=0.0)
    got = one_column([3.0, 2.0, 1.0], config)
    weights = np.array([1.0, 1 / 4, 1 / 9])
    np.testing.assert_allclose(got, weights / weights.sum(), rtol=1e-6)


def test_bug_dcd_empty_slots_are_not_ranked_before_negative_scores():
    """Masked before ranking: three stored negative scores have ranks 1, 2, 3 among seven slots."""
    config = PriorityConfig(temperature=1.0, staleness_coef=0.0)
    got = one_column([-1.0, -2.0, -3.0, 0.0, 0.0, 0.0, 0.0], config, size=3)
    np.testing.assert_allclose(got[:3], np.array([1, 1 / 2, 1 / 3]) / (11 / 6), rtol=1e-6)


def test_ties_go_to_the_older_level_whatever_its_slot():
    config = PriorityConfig(temperature=1.0, staleness_coef=0.0)
    got = one_column([1.0, 1.0, 1.0], config, ids=[9, 2, 5])
    np.testing.assert_allclose(got, np.array([1 / 3, 1, 1 / 2]) / (11 / 6), rtol=1e-6)


def test_average_ties_share_equally():
    config = PriorityConfig(ties="average", staleness_coef=0.0)
    np.testing.assert_allclose(one_column(np.zeros(4), config), [0.25] * 4, rtol=1e-6)


def test_average_ties_at_extreme_temperature_do_not_underflow():
    config = PriorityConfig(ties="average", temperature=0.01, staleness_coef=0.0)
    got = one_column(np.zeros(4000), config)
    np.testing.assert_allclose(got, np.full(4000, 1 / 4000), rtol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("count", [7, 64, 1001])
def test_weight_zero_gives_the_single_score_bit_for_bit(transform, count):
    """alpha = 0 is PLR, alpha = 1 ignores regret; the weights are traced, as under a schedule."""
    config = PriorityConfig(transform=transform, top_k=3)
    rng = np.random.default_rng(count)
    scores = jnp.asarray(rng.normal(size=(count, 2)), jnp.float32)
    age = jnp.asarray(rng.integers(0, 1000, count), jnp.int32)
    ids, mask = jnp.arange(count), jnp.arange(count) < count - 2
    for column, mix in ((0, [1.0, 0.0]), (1, [0.0, 1.0])):
        both = probabilities(scores, jnp.array(mix), ids, age, mask, config)
        single = probabilities(scores[:, [column]], jnp.ones(1), ids, age, mask, config)
        np.testing.assert_array_equal(np.asarray(both), np.asarray(single))


def test_all_fresh_levels_are_equally_stale():
    config = PriorityConfig(staleness_coef=1.0)
    np.testing.assert_allclose(one_column([3.0, 1.0, 2.0], config), [1 / 3] * 3, rtol=1e-6)


@pytest.mark.parametrize("ties", ["stable", "average"])
@given(scores=st.lists(st.integers(0, 3), min_size=C, max_size=C), ids=st.permutations(range(C)))
@settings(max_examples=30, deadline=None)
def test_ranks_are_sums_of_comparisons(ties, scores, ids):
    """What lets insertion shift ranks instead of sorting again."""
    config = PriorityConfig(ties=ties)
    s, i = jnp.asarray(scores, jnp.float32), jnp.asarray(ids)
    sorted_ranks = priority.doubled_ranks(s, i, jnp.ones(C, bool), config)
    over = priority.rank_shift(s[:, None], i[:, None], s[None, :], i[None, :], config)
    over = np.asarray(over) * (1 - np.eye(C, dtype=int))
    np.testing.assert_array_equal(sorted_ranks, 2 + over.sum(axis=0))
