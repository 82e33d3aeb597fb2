"""The student's experience as points: what novelty is measured on."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cenie.records import Observation, Rollout
from cenie.spaces import Discrete, Space
from cenie.student.encoders import flatten, parts_of


def rollout_features(rollout: Rollout, action_space: Space) -> Float[Array, "n t d"]:
    """The points x of CENIE's Eq. 2 and 3: state representation and action of each step, side by side.

    Args:
        rollout: A rollout that was collected with `keep_features`.
        action_space: Where its actions are from.

    Returns:
        The points [n, t, d], through which no gradient flows.

    Raises:
        ValueError: If the rollout was collected without features.
    """
    if rollout.features is None:
        raise ValueError("the rollout was collected without features")
    return jax.lax.stop_gradient(with_action(rollout.features, rollout.action, action_space))


def observed_features(observation: Observation, observation_space: PyTree[Space]) -> Float[Array, "*steps f"]:
    """The observation of each step as numbers: a bit for each value of a discrete part, whole numbers
    scaled."""
    return jnp.moveaxis(flatten(parts_of(observation_space), observation), 0, -1)


def with_action(features: Float[Array, "*steps f"], action: Array, action_space: Space) -> Array:
    """The features of some steps and what was done there, side by side.

    A discrete action is appended as a one-hot vector: an index would have a far larger spread than the
    units of a memory.
    """
    if isinstance(action_space, Discrete):
        action = jax.nn.one_hot(action, action_space.n, dtype=features.dtype)
    else:
        action = action.reshape(*features.shape[:-1], -1).astype(features.dtype)
    return jnp.concatenate([features, action], axis=-1)
