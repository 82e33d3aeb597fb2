"""The closed curve through the control points of a level: cubic Bezier segments, sampled evenly."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_LEAN = math.atan(0.2) / math.pi + 0.5
"""The share of the direction after a point in the tangent there; the rest is the direction before it."""
_HANDLE = 0.2
"""The distance of a handle from its point, as a part of the distance of the next."""
_BINS = 2**15
"""Bins into which half a turn is divided: points within one are taken to lie in the same direction."""


def sample_curve(
    points: Float[Array, "p 2"], samples: int
) -> tuple[Float[Array, "2 n"], Float[Array, " n"], Int[Array, ""]]:
    """Return nodes of the curve, the direction from each to the next in (-pi, pi], and the number of nodes.

    A segment has `samples` points; its last one is the first of the next segment and counts there. Points
    that are there twice have no segment, so that fewer nodes exist; those that do come first.
    """
    order = clockwise(points)
    count = len(points) - jnp.sum(_repeated(points), dtype=jnp.int32)
    ordered = points[order]
    after = _next(jnp.arange(len(points)), count)
    chords = ordered[after] - ordered
    direction = jnp.arctan2(chords[:, 1], chords[:, 0])
    direction = jnp.where(direction < 0, direction + 2 * math.pi, direction)
    before = direction[_previous(jnp.arange(len(points)), count)]
    # Not a mean of directions: where they jump by a turn, half a turn is added to the weighted sum.
    tangent = _LEAN * direction + (1 - _LEAN) * before
    tangent += jnp.where(jnp.abs(before - direction) > math.pi, math.pi, 0.0)
    length = _HANDLE * jnp.sqrt(jnp.sum(chords**2, axis=1))
    unit = jnp.stack([jnp.cos(tangent), jnp.sin(tangent)], axis=1)
    first, last = length[:, None] * unit, length[:, None] * unit[after]
    middle = chords - first - last

    t = (jnp.arange(samples) / (samples - 1))[:, None, None]
    s = 1 - t
    # From the handles rather than from the points, whose differences would lose digits.
    place = ordered + t * (3 * s**2 + 3 * s * t + t**2) * first
    place += t**2 * (3 * s + t) * middle + t**3 * last
    here, there, left, right = t[:-1], t[1:], s[:-1], s[1:]
    mixed = here**2 + here * there + there**2
    way = first * (left**2 + left * right + right**2) + last * mixed
    way += middle * (3 * (here + there) - 2 * mixed)
    angle = jnp.arctan2(way[..., 1], way[..., 0])
    nodes = jnp.moveaxis(place[:-1], -1, 0).swapaxes(1, 2).reshape(2, -1)
    return nodes, angle.T.reshape(-1), count * (samples - 1)


def clockwise(points: Float[Array, "p 2"]) -> Int[Array, " p"]:
    """The order of the points clockwise around their centre, from straight down; repeated ones come last.

    Directions that differ by rounding only are equal, and then the number of the point decides; otherwise the
    same level could have two tracks in two programs.
    """
    x, y = (points - jnp.mean(points, axis=0)).T
    bins = jnp.round(jnp.arctan2(x, y) * (_BINS / math.pi)).astype(jnp.int32)
    bins = jnp.where(bins == -_BINS, _BINS, bins)
    return jnp.argsort(jnp.where(_repeated(points), 2 * _BINS, bins), stable=True)


def _repeated(points: Float[Array, "p 2"]) -> Bool[Array, " p"]:
    """Which points are equal to an earlier one."""
    number = jnp.arange(len(points))
    same = jnp.all(points[:, None] == points[None], axis=-1)
    return jnp.any(same & (number[None] < number[:, None]), axis=1)


def _next(index: Int[Array, " p"], count: Int[Array, ""]) -> Int[Array, " p"]:
    return jnp.where(index + 1 >= count, 0, index + 1)


def _previous(index: Int[Array, " p"], count: Int[Array, ""]) -> Int[Array, " p"]:
    return jnp.where(index == 0, count - 1, index - 1)
