import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenie.records import Rollout
from cenie.student.advantage import gae
from tests.student.rollouts import random_rollout

N, T = 3, 9


def oracle(
    rollout: Rollout, gamma: float, gae_lambda: float, at_rollout_end: bool, at_timeout: bool
) -> np.ndarray:
    """Advantages as the sum of discounted errors up to the end of the episode, from their definition."""
    value, reward, terminated, truncated, last, final = (
        np.asarray(array)
        for array in (
            rollout.value, rollout.reward, rollout.terminated, rollout.truncated, rollout.last_value,
            rollout.final_value,
        )
    )  # fmt: skip
    n, t = value.shape
    advantage = np.zeros((n, t))
    for row in range(n):
        for first in range(t):
            weight = 1.0
            for now in range(first, t):
                over = terminated[row, now] or truncated[row, now]
                if truncated[row, now] and at_timeout:
                    after = final[row, now]
                elif over or (now == t - 1 and not at_rollout_end):
                    after = 0.0
                else:
                    after = last[row] if now == t - 1 else value[row, now + 1]
                advantage[row, first] += weight * (reward[row, now] + gamma * after - value[row, now])
                if over:
                    break
                weight *= gamma * gae_lambda
    return advantage


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    gamma=st.floats(0.0, 1.0),
    gae_lambda=st.floats(0.0, 1.0),
    at_rollout_end=st.booleans(),
    at_timeout=st.booleans(),
)
def test_gae_equals_its_definition(
    seed: int, gamma: float, gae_lambda: float, at_rollout_end: bool, at_timeout: bool
) -> None:
    rollout = random_rollout(seed, N, T)
    result = gae(rollout, gamma, gae_lambda, at_rollout_end, at_timeout)
    expected = oracle(rollout, gamma, gae_lambda, at_rollout_end, at_timeout)
    np.testing.assert_allclose(result.advantage, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.target, expected + np.asarray(rollout.value), rtol=1e-4, atol=1e-5)


def test_values_after_an_episode_do_not_leak_into_it() -> None:
    rollout = random_rollout(0, N, T, terminated=jnp.ones((N, T), bool), truncated=jnp.zeros((N, T), bool))
    advantage = gae(rollout, 0.9, 0.9, True, False).advantage
    np.testing.assert_allclose(advantage, rollout.reward - rollout.value, rtol=1e-5, atol=1e-6)


def test_without_bootstrap_the_last_value_is_never_read() -> None:
    rollout = random_rollout(1, N, T)
    poisoned = dataclasses.replace(rollout, last_value=rollout.last_value * np.nan)
    assert np.isfinite(gae(poisoned, 0.9, 0.9, False, False).advantage).all()
    assert not np.isfinite(gae(poisoned, 0.9, 0.9, True, False).advantage).all()


def test_bootstrapping_time_outs_needs_final_values() -> None:
    rollout = random_rollout(0, N, T, final_value=None)
    with pytest.raises(ValueError, match="final values"):
        gae(rollout, 0.9, 0.9, True, True)
