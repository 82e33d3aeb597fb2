"""What the student sees. A stand-in: a grey picture, until there are renderers."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt8

from cenie.envs.racing.car import Car
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.track import Track


def paint(config: RacingConfig, track: Track) -> Track:
    """What `frame` needs of a track, made once."""
    return track


def frame(
    config: RacingConfig, view: Track, car: Car, touched: Bool[Array, " t"]
) -> UInt8[Array, "size size 3"]:
    """The view of a car."""
    return jnp.full((config.frame_size, config.frame_size, 3), 128, jnp.uint8)
