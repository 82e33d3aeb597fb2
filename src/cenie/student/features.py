"""The student's experience as points: what novelty is measured on."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cenie.spaces import Discrete, Space
from cenie.types import Rollout


def state_action_features(rollout: Rollout, action_space: Space) -> Float[Array, "n t d"]:
    """State representation and action of each step, side by side (the points x of Eq. 2 and 3).

    A discrete action is appended as a one-hot vector: an index would have a far larger spread than the
    units of a memory. The rollout must have been collected with `keep_features`. No gradient flows.
    """
    if rollout.features is None:
        raise ValueError("the rollout was collected without features")
    if isinstance(action_space, Discrete):
        action = jax.nn.one_hot(rollout.action, action_space.n, dtype=rollout.features.dtype)
    else:
        action = rollout.action.reshape(*rollout.reward.shape, -1).astype(rollout.features.dtype)
    return jax.lax.stop_gradient(jnp.concatenate([rollout.features, action], axis=-1))
