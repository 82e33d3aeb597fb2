import jax.numpy as jnp
import numpy as np

from cenie.student.returns import initial_scale, scale_rewards


def oracle(rollouts: list[tuple[np.ndarray, np.ndarray]], gamma: float) -> list[np.ndarray]:
    """All returns so far kept in a list, their variance taken anew at each step."""
    seen: list[float] = []
    results = []
    for reward, done in rollouts:
        total = np.zeros(len(reward))
        scaled = np.zeros_like(reward)
        for now in range(reward.shape[1]):
            total = gamma * total + reward[:, now]
            seen.extend(total)
            scaled[:, now] = np.clip(reward[:, now] / np.sqrt(np.var(seen) + 1e-8), -10, 10)
            total[done[:, now]] = 0.0
        results.append(scaled)
    return results


def test_rewards_are_scaled_by_the_deviation_of_all_returns_so_far() -> None:
    rng = np.random.default_rng(0)
    rollouts = [(rng.normal(3, 2, (4, 12)), rng.random((4, 12)) < 0.2) for _ in range(3)]
    scale = initial_scale()
    for (reward, done), expected in zip(rollouts, oracle(rollouts, 0.9)):
        scale, scaled = scale_rewards(scale, jnp.asarray(reward, jnp.float32), jnp.asarray(done), 0.9)
        # The statistics start with a made-up count of 1e-4, which the oracle does not have.
        np.testing.assert_allclose(scaled, expected, rtol=2e-3)


def test_scaled_rewards_are_clipped_and_keep_their_sign() -> None:
    reward = jnp.full((2, 500), 1e-3).at[:, -1].set(-1.0)
    scaled = scale_rewards(initial_scale(), reward, jnp.zeros((2, 500), bool), 0.0)[1]
    assert (np.asarray(scaled[:, -1]) == -10.0).all()
    assert (np.asarray(scaled[:, :-1]) > 0.0).all()


def test_a_column_that_ended_starts_its_return_from_zero() -> None:
    reward, done = jnp.ones((2, 6)), jnp.zeros((2, 6), bool).at[0].set(True)
    apart = scale_rewards(initial_scale(), reward, done, 0.5)[0]
    totals = np.stack([np.ones(6), 2.0 - 0.5 ** np.arange(6)])
    np.testing.assert_allclose(apart.mean, totals.mean(), rtol=1e-4)
    np.testing.assert_allclose(apart.variance, totals.var(), rtol=1e-3)
