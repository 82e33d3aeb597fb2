"""The bridge to a jaxued sampler, with jaxued's own weights as the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxued.level_sampler import LevelSampler

from cenie.bridges.jaxued import level_weights, sample_replay_levels
from cenie.teach.config import PriorityConfig

CAPACITY = 8


def sampler_with(scores, novelty, timestamps, count):
    size = len(scores)

    def filled(values, empty):
        return jnp.asarray([*values, *[empty] * (CAPACITY - size)])

    return {
        "levels": {"wall": jnp.arange(CAPACITY) * 10},
        "scores": filled(scores, -jnp.inf).astype(jnp.float32),
        "timestamps": filled(timestamps, 0).astype(jnp.int32),
        "size": size,
        "episode_count": count,
        "levels_extra": {"novelty": filled(novelty, -jnp.inf).astype(jnp.float32)},
    }


LEVELS = st.lists(
    st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.integers(0, 20)),
    min_size=1,
    max_size=CAPACITY,
    unique_by=(lambda row: row[0], lambda row: row[1]),
)


@settings(max_examples=60, deadline=None)
@given(LEVELS, st.sampled_from([0.3, 1.0]), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.5, 1.0]))
def test_weights_mix_jaxueds_own_weights_of_both_columns(levels, temperature, staleness, alpha):
    scores, novelty, timestamps = zip(*levels)
    sampler = sampler_with(scores, novelty, timestamps, 25)
    theirs = LevelSampler(
        CAPACITY, staleness_coeff=staleness, prioritization_params={"temperature": temperature}
    )
    by_score = theirs.score_weights(sampler)
    by_novelty = theirs.score_weights({**sampler, "scores": sampler["levels_extra"]["novelty"]})
    stale = theirs.staleness_weights(sampler)
    expected = (1 - staleness) * (alpha * by_novelty + (1 - alpha) * by_score) + staleness * stale
    config = PriorityConfig(temperature=temperature, staleness_coef=staleness)
    np.testing.assert_allclose(level_weights(sampler, alpha, config), expected, rtol=1e-4, atol=1e-6)


def test_draws_follow_the_weights_and_move_the_clock():
    sampler = sampler_with([1.0, 5.0, 2.0], [9.0, 1.0, 3.0], [0, 0, 0], 7)
    config = PriorityConfig(temperature=0.05, staleness_coef=0.0)
    drawn = {}
    for alpha in (0.0, 1.0):
        after, (indices, levels) = sample_replay_levels(sampler, jax.random.key(0), 4, alpha, config)
        drawn[alpha] = set(indices.tolist())
        np.testing.assert_array_equal(levels["wall"], indices * 10)
        assert int(after["episode_count"]) == 11
        assert int(after["timestamps"][int(indices[-1])]) == 11
        assert after["scores"] is sampler["scores"]
    assert drawn == {0.0: {1}, 1.0: {0}}


def test_staleness_is_seen_by_the_next_draw():
    sampler = sampler_with([1.0, 1.0], [0.0, 0.0], [0, 5], 5)
    config = PriorityConfig(transform="uniform", staleness_coef=1.0)
    _, (indices, _) = sample_replay_levels(sampler, jax.random.key(0), 2, 0.5, config)
    assert indices.tolist() == [0, 1]


def test_missing_novelty_is_named():
    sampler = sampler_with([1.0], [0.0], [0], 1)
    del sampler["levels_extra"]
    with pytest.raises(ValueError, match="novelty"):
        level_weights(sampler, 0.5, PriorityConfig())
