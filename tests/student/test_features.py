import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.spaces import Box, Discrete
from cenie.student.features import rollout_features
from tests.student.rollouts import random_rollout


def test_a_discrete_action_is_appended_as_a_one_hot_vector() -> None:
    features = jax.random.normal(jax.random.key(0), (2, 5, 3))
    rollout = random_rollout(0, 2, 5, actions=4, features=features)
    points = rollout_features(rollout, Discrete(4))
    np.testing.assert_array_equal(points[..., :3], features)
    np.testing.assert_array_equal(points[..., 3:], np.eye(4)[np.asarray(rollout.action)])


def test_a_continuous_action_is_appended_as_it_is() -> None:
    action = jax.random.normal(jax.random.key(1), (2, 5, 2))
    rollout = random_rollout(0, 2, 5, action=action, features=jnp.zeros((2, 5, 3)))
    points = rollout_features(rollout, Box((2,), -1.0, 1.0))
    np.testing.assert_array_equal(points[..., 3:], action)


def test_no_gradient_flows_into_the_student() -> None:
    def total(features: jax.Array) -> jax.Array:
        return rollout_features(random_rollout(0, 2, 5, features=features), Discrete(3)).sum()

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones((2, 5, 3))), 0.0)


def test_a_rollout_without_features_is_refused() -> None:
    with pytest.raises(ValueError, match="without features"):
        rollout_features(random_rollout(0, 2, 5), Discrete(3))
