"""The ACCEL editor: a few small steps in the space of parameters, and always a new seed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from cenie.envs.walker.generate import STAIRS, random_seed
from cenie.envs.walker.level import HIGHEST, LOWEST, WalkerLevel

STEPS = np.array([0.6, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 1.0], np.float32)
"""The change of each parameter by an edit; for the roughness it is the largest one."""


def edit(key: PRNGKeyArray, level: WalkerLevel, *, num_edits: int, stairs: bool) -> WalkerLevel:
    """Move `num_edits` parameters, drawn with replacement, by -1, 0 or 1 step. Consumes the key.

    The pairs are edited as they are stored, unsorted, and all parameters stay between their bounds. Without
    `stairs` only the first five parameters are drawn.
    """
    change_key, seed_key = jax.random.split(key)
    # One draw for all: each random function called adds about a second of compile time.
    which_chances, way_chances, length_chances = jax.random.uniform(change_key, (3, num_edits))
    targets = len(STEPS) if stairs else int(np.sum(~STAIRS))
    which = (which_chances * targets).astype(jnp.int32)
    way = jnp.floor(way_chances * 3.0) - 1.0
    length = jnp.asarray(STEPS)[which] * jnp.where(which == 0, length_chances, 1.0)
    parameters = jnp.asarray(level.parameters)
    for index in range(num_edits):
        # One after the other, because each is clipped.
        moved = parameters.at[which[index]].add(way[index] * length[index])
        parameters = jnp.clip(moved, LOWEST, HIGHEST)
    return with_new_seed(seed_key, dataclasses.replace(level, parameters=parameters))


def with_new_seed(key: PRNGKeyArray, level: WalkerLevel) -> WalkerLevel:
    """Another terrain of the same parameters. Consumes the key."""
    return dataclasses.replace(level, seed=random_seed(key))
