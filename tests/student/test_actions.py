import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cenie.student.actions import ActionDistribution, Beta, Categorical, DiagonalGaussian

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(3, 4, 5)).astype(np.float32) * 2
MEAN, LOG_STD = (RNG.normal(size=(3, 4, 2)).astype(np.float32) for _ in range(2))
ALPHA, BETA = (1.0 + RNG.gamma(2.0, size=(3, 4, 2)).astype(np.float32) for _ in range(2))
DRAWS = 20_000


def probabilities() -> np.ndarray:
    p = np.exp(LOGITS.astype(np.float64))
    return p / p.sum(-1, keepdims=True)


def draws(distribution: ActionDistribution) -> np.ndarray:
    keys = jax.random.split(jax.random.key(1), DRAWS)
    return np.asarray(jax.vmap(distribution.sample)(keys), np.float64)


def test_categorical_agrees_with_scipy() -> None:
    policy = Categorical(jnp.asarray(LOGITS))
    action = RNG.integers(0, 5, size=(3, 4))
    expected = np.take_along_axis(np.log(probabilities()), action[..., None], -1)[..., 0]
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(action, jnp.int32)), expected, rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(), stats.entropy(probabilities(), axis=-1), rtol=1e-5)


def test_categorical_samples_have_the_stated_probabilities() -> None:
    sampled = draws(Categorical(jnp.asarray(LOGITS)))
    frequency = np.stack([(sampled == action).mean(0) for action in range(5)], axis=-1)
    error = np.sqrt(probabilities() * (1 - probabilities()) / DRAWS)
    assert (np.abs(frequency - probabilities()) < 5 * error + 1e-4).all()


def test_gaussian_agrees_with_scipy() -> None:
    policy = DiagonalGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    oracle = stats.norm(MEAN.astype(np.float64), np.exp(LOG_STD.astype(np.float64)))
    action = RNG.normal(size=MEAN.shape).astype(np.float32)
    np.testing.assert_allclose(
        policy.log_prob(jnp.asarray(action)), oracle.logpdf(action).sum(-1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(policy.entropy(), oracle.entropy().sum(-1), rtol=1e-5)


def test_beta_agrees_with_scipy() -> None:
    policy = Beta(jnp.asarray(ALPHA), jnp.asarray(BETA))
    oracle = stats.beta(ALPHA.astype(np.float64), BETA.astype(np.float64))
    action = RNG.uniform(0.05, 0.95, size=ALPHA.shape).astype(np.float32)
    np.testing.assert_allclose(
        policy.log_prob(jnp.asarray(action)), oracle.logpdf(action).sum(-1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(policy.entropy(), oracle.entropy().sum(-1), rtol=1e-3, atol=1e-5)


def test_beta_on_another_interval_agrees_with_scipy() -> None:
    policy = Beta(jnp.asarray(ALPHA), jnp.asarray(BETA), -1.0, 2.0)
    oracle = stats.beta(ALPHA.astype(np.float64), BETA.astype(np.float64), -1.0, 3.0)
    action = RNG.uniform(-0.9, 1.9, size=ALPHA.shape).astype(np.float32)
    log_prob = policy.log_prob(jnp.asarray(action))
    np.testing.assert_allclose(log_prob, oracle.logpdf(action).sum(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.entropy(), oracle.entropy().sum(-1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("policy", "oracle"),
    [
        (DiagonalGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD)), stats.norm(MEAN, np.exp(LOG_STD))),
        (Beta(jnp.asarray(ALPHA), jnp.asarray(BETA)), stats.beta(ALPHA, BETA)),
        (Beta(jnp.asarray(ALPHA), jnp.asarray(BETA), -1.0, 2.0), stats.beta(ALPHA, BETA, -1.0, 3.0)),
    ],
)
def test_continuous_samples_have_the_stated_moments(policy: ActionDistribution, oracle: object) -> None:
    sampled = draws(policy)
    mean, variance = oracle.stats(moments="mv")  # pyright: ignore
    assert (np.abs(sampled.mean(0) - mean) < 5 * np.sqrt(variance / DRAWS)).all()
    np.testing.assert_allclose(sampled.var(0), variance, rtol=0.1)


def test_beta_samples_at_the_ends_keep_a_finite_log_prob() -> None:
    policy = Beta(jnp.array([[1.0001, 400.0]]), jnp.array([[400.0, 1.0001]]))
    actions = jax.vmap(policy.sample)(jax.random.split(jax.random.key(0), 5000))
    assert bool(jnp.isfinite(jax.vmap(policy.log_prob)(actions)).all())


def test_beta_samples_are_distributed_as_stated() -> None:
    """Ours are made of a fixed number of proposals, not by JAX's loop."""
    shapes = jnp.array([[1.0, 1.0], [1.0, 3.0], [1.7, 1.2], [40.0, 7.0]])
    policy = Beta(shapes[:, 0], shapes[:, 1])
    sampled = jax.vmap(policy.sample)(jax.random.split(jax.random.key(1), 4000))
    for column, (alpha, beta) in zip(np.asarray(sampled).T, np.asarray(shapes), strict=True):
        assert stats.kstest(column, stats.beta(alpha, beta).cdf).pvalue > 1e-3
