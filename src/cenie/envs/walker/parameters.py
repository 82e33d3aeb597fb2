"""Levels as points of a box, for teachers that search it."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import ParameterSpace, TaskSpace
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.generate import STAIRS, assemble, random_seed
from cenie.envs.walker.level import HIGHEST, LOWEST, WalkerLevel

_HALF = 2**16


def encoding(level: WalkerLevel, *, stairs: bool) -> Float[Array, " d"]:
    """The parameters on a scale from 0 to 1, each pair sorted; stairs only with `stairs`.

    The seed is left out: one encoding stands for many terrains, as in POET.
    """
    roughness, *sizes, steps = jnp.asarray(level.parameters)
    pairs = jnp.sort(jnp.stack(sizes).reshape(-1, 2), axis=1).reshape(-1)
    ordered = jnp.concatenate([roughness[None], pairs, steps[None]])
    return ((ordered - LOWEST) / (HIGHEST - LOWEST))[np.flatnonzero(~STAIRS | stairs)]


def parameter_space(config: WalkerConfig) -> ParameterSpace:
    """The parameters that levels have, and the two halves of the seed, which single precision can hold.

    The seed is a part of the point because it is one of the level; a search will find that it has no order.
    """
    used = _used(config)

    def encode(level: WalkerLevel) -> Float[Array, " d"]:
        seed = jnp.asarray(level.seed)
        halves = jnp.stack([seed // _HALF, seed % _HALF]).astype(jnp.float32)
        return jnp.concatenate([jnp.asarray(level.parameters)[used], halves])

    def decode(point: Float[Array, " d"]) -> WalkerLevel:
        parameters = jnp.asarray(LOWEST).at[used].set(point[:-2])
        upper, lower = jnp.round(point[-2:]).astype(jnp.uint32)
        return assemble(config, parameters, upper * _HALF + lower)

    seed = np.full(2, _HALF - 1, np.float32)
    low, high = np.concatenate([LOWEST[used], 0 * seed]), np.concatenate([HIGHEST[used], seed])
    return ParameterSpace(low, high, encode, decode)


def task_space(config: WalkerConfig) -> TaskSpace:
    """The parameters that levels have; the seed is drawn."""
    used = _used(config)

    def draw(key: PRNGKeyArray, point: Float[Array, " d"]) -> WalkerLevel:
        return assemble(config, jnp.asarray(LOWEST).at[used].set(point), random_seed(key))

    return TaskSpace(LOWEST[used], HIGHEST[used], draw)


def _used(config: WalkerConfig) -> np.ndarray:
    return np.flatnonzero(~STAIRS | config.stairs)
