"""Random levels: every parameter uniform in its range, and a seed."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from cenie.envs.walker.config import PARAMETERS, STAIR_PARAMETERS, WalkerConfig
from cenie.envs.walker.level import HIGHEST, LOWEST, WalkerLevel

RANGES = {
    "full": (LOWEST, HIGHEST),
    "easy": (
        np.array([0, 0, 0.8, 0, 0.4, 0, 0.4, 1], np.float32),
        np.array([0.6, 0, 0.8, 0, 0.4, 0, 0.4, 1], np.float32),
    ),
}
"""The generators, and between what they draw each parameter; in an easy level only the roughness differs."""

STAIRS = np.arange(PARAMETERS) >= PARAMETERS - STAIR_PARAMETERS
"""Which parameters levels without stairs leave at their lowest."""


def generate(config: WalkerConfig, name: str, key: PRNGKeyArray) -> WalkerLevel:
    """Draw a level of the named generator. Consumes the key."""
    low, high = map(jnp.asarray, RANGES[name])
    parameter_key, seed_key = jax.random.split(key)
    parameters = low + jax.random.uniform(parameter_key, low.shape) * (high - low)
    return assemble(config, parameters, random_seed(seed_key))


def assemble(config: WalkerConfig, parameters: Float[Array, " 8"], seed: UInt32[Array, ""]) -> WalkerLevel:
    """A level of the configured time limit, without stairs if there are to be none."""
    return WalkerLevel(
        parameters=allowed(config, parameters),
        seed=seed,
        hardcore=jnp.zeros((), bool),
        time_limit=jnp.int32(config.max_steps),
    )


def allowed(config: WalkerConfig, parameters: Float[Array, " 8"]) -> Float[Array, " 8"]:
    """The parameters; for no stairs their parameters are the lowest."""
    return parameters if config.stairs else jnp.where(STAIRS, LOWEST, parameters)


def random_seed(key: PRNGKeyArray) -> UInt32[Array, ""]:
    """Consumes the key."""
    return jax.random.bits(key, (), jnp.uint32)
