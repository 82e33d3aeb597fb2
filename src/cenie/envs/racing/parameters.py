"""Levels as points of a box, kinds of levels, and what the logs say of a level."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import ParameterSpace, TaskSpace
from cenie.envs.racing.config import POINTS
from cenie.envs.racing.curve import clockwise
from cenie.envs.racing.generate import ring_level
from cenie.envs.racing.level import PLAYFIELD, RacingLevel
from cenie.envs.racing.track import HALF_WIDTH, Track, track_of_level

SMALLEST_RING = 0.3
_CLOSE, _NEIGHBOURING = 2 * HALF_WIDTH, 5 * HALF_WIDTH
"""Parts of a road touch if they are so close, unless they are no farther apart than that along the road."""


def parameter_space() -> ParameterSpace:
    """The coordinates of all control points, in the order in which they are stored."""
    side = np.full(2 * POINTS, PLAYFIELD, np.float32)

    def encode(level: RacingLevel) -> Float[Array, " d"]:
        return jnp.asarray(level.points).reshape(-1)

    def decode(point: Float[Array, " d"]) -> RacingLevel:
        return RacingLevel(point.reshape(POINTS, 2))

    return ParameterSpace(0 * side, side, encode, decode)


def encoding(level: RacingLevel) -> Float[Array, " d"]:
    """The coordinates on a scale from 0 to 1, clockwise around the centre, whatever order they are stored in.

    The track goes through them in this order, so that equal tracks have equal encodings.
    """
    points = jnp.asarray(level.points)
    return points[clockwise(points)].reshape(-1) / PLAYFIELD


def task_space() -> TaskSpace:
    """Two numbers: how large a ring of points is, and how irregular."""

    def draw(key: PRNGKeyArray, point: Float[Array, " d"]) -> RacingLevel:
        return ring_level(key, point[0], point[1])

    return TaskSpace(np.array([SMALLEST_RING, 0.0]), np.array([1.0, 1.0]), draw)


def statistics(level: RacingLevel, *, samples: int) -> dict[str, Array]:
    """Scalars for the logs: tiles, length, how much the road turns, kerbs, and whether it touches itself."""
    track = track_of_level(level, samples)
    return {
        "tiles": track.count,
        "length": jnp.sum(_steps(track)),
        "turning": jnp.sum(jnp.abs(_turns(track))) / (2 * math.pi),
        "kerbs": jnp.sum(track.kerbed) / track.count,
        "touches_itself": _touches_itself(track),
    }


def _steps(track: Track) -> Float[Array, " t"]:
    """The distance of each node from the one before it."""
    before = jnp.roll(track.nodes, 1, axis=1).at[:, 0].set(track.nodes[:, track.count - 1])
    return jnp.where(track.exists, jnp.sqrt(jnp.sum((track.nodes - before) ** 2, axis=0)), 0.0)


def _turns(track: Track) -> Float[Array, " t"]:
    """By how much the road turns at each node, within half a turn."""
    before = jnp.roll(track.normal, 1).at[0].set(track.normal[track.count - 1])
    turn = jnp.mod(track.normal - before + math.pi, 2 * math.pi) - math.pi
    return jnp.where(track.exists, turn, 0.0)


def _touches_itself(track: Track) -> Array:
    """Whether parts of the road that are not neighbours touch; every third node is looked at."""
    nodes, exists = track.nodes[:, ::3], track.exists[::3]
    steps = _steps(track)
    along = jnp.cumsum(steps)[::3]
    apart = jnp.abs(along[:, None] - along[None])
    apart = jnp.minimum(apart, jnp.sum(steps) - apart)
    distance = jnp.sum((nodes[:, :, None] - nodes[:, None]) ** 2, axis=0)
    pairs = exists[:, None] & exists[None] & (apart > _NEIGHBOURING)
    return jnp.any(pairs & (distance < _CLOSE**2))
