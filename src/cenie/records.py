"""Shared records: what the rooms of the library hand to each other. No logic, but for `strongly_typed`.

Axis names used in all signatures: `n` levels (environments) played side by side, `t` time steps,
`d` features. The level axis leads everywhere, so that one sharding rule covers every batch.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

AnyArray = Array | np.ndarray
"""An array of JAX or of NumPy: levels are made on the host too."""

Level = PyTree[Any]
"""A task: any pytree of arrays. All levels of a domain have the same structure, shapes and dtypes."""

Prepared = PyTree[Any]
"""The input of an environment's play: the level itself, or the result of `Environment.prepare`."""

Observation = PyTree[Any]
EnvState = PyTree[Any]
Memory = PyTree[Any]
"""The memory that a recurrent student carries between steps; the empty tuple for a student without memory."""


class Step(eqx.Module):
    """The result of one environment step.

    Attributes:
        observation: The observation after the step, a tree of arrays.
        state: The state after the step, a tree of arrays.
        reward: The reward [].
        terminated: Whether the episode came to its end []. Never true together with `truncated`.
        truncated: Whether the episode was cut off, by a time limit for example [].
        solved: Whether the episode was solved []; true only where it ends. It is an explicit flag, because a
            return does not always tell (a maze solved on the very last step may pay exactly 0).
    """

    observation: Observation
    state: EnvState
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    solved: Bool[Array, "*batch"]


class Rollout(eqx.Module):
    """`n` levels played for `t` steps each; a finished episode starts the same level again, unless the
    rollout was made without restarts.

    `start[i, j]` says that an episode begins at step `j`: the memory is zeroed before that observation
    is read. `last_value` is the value of the observation after the last step (of the next episode, if
    one ended there: GAE then ignores it). `final_value[i, j]` is the value of the observation that
    ended an episode by truncation, before the restart; it is None unless time-outs are bootstrapped.
    `final_state` is the environment's state after the last step (and after a restart, if one ended there), if
    asked for: in a rollout without restarts it holds what an episode of fixed length has made.
    `features` is the student's state representation and `entropy` its policy's entropy (in nats) at each
    step, if asked for. `masked` counts the non-finite rewards and observation entries that were replaced
    by 0. `counts` says from which steps is learned, if not from all; at least one must count.
    """

    observation: Observation
    action: Array
    log_prob: Float[Array, "n t"]
    value: Float[Array, "n t"]
    reward: Float[Array, "n t"]
    terminated: Bool[Array, "n t"]
    truncated: Bool[Array, "n t"]
    solved: Bool[Array, "n t"]
    start: Bool[Array, "n t"]
    memory: Memory
    last_value: Float[Array, " n"]
    final_value: Float[Array, "n t"] | None = None
    features: Float[Array, "n t d"] | None = None
    entropy: Float[Array, "n t"] | None = None
    masked: Int[Array, " n"] | None = None
    final_state: EnvState | None = None
    counts: Bool[Array, "n t"] | None = None

    @property
    def done(self) -> Bool[Array, "n t"]:
        return self.terminated | self.truncated


class Advantages(eqx.Module):
    """Generalised advantage estimates, and the value targets `advantage + value` they imply.

    `error` is the one-step error r_t + gamma V_{t+1} - V_t; `gamma` and `gae_lambda` are the student's. All
    are in the unit of the values: `unit` says, for each level, how much reward that is, if it is not 1.
    """

    advantage: Float[Array, "n t"]
    target: Float[Array, "n t"]
    error: Float[Array, "n t"]
    gamma: float = eqx.field(static=True)
    gae_lambda: float = eqx.field(static=True)
    unit: Float[Array, " n"] | None = None


def strongly_typed(tree: PyTree) -> PyTree:
    """The same tree, with arrays of definite types.

    An array made of a Python number is weakly typed, unlike the one that a checkpoint brings back: to the
    compiler these are two types, and it would compile everything again.
    """
    return jax.tree.map(_strongly_typed, tree)


def _strongly_typed(leaf: Any) -> Any:
    if not eqx.is_array(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.lax.convert_element_type(leaf, leaf.dtype)
