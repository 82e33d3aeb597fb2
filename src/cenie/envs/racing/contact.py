"""Which tiles of a road the wheels touch: the overlap of rectangles with the hulls of quadrilaterals.

Every tile is looked at, for roads cross themselves. Tiles are the last axis throughout, and everything else
is written out, which on a CPU is ten times as fast as small arrays inside of large ones.
"""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from cenie.envs.racing.car import (
    HULL,
    WHEEL_HALF_WIDTH,
    WHEEL_RADIUS,
    Car,
    hull_position,
    rotate,
    wheel_positions,
)
from cenie.envs.racing.car import wheel_angles as angles_of
from cenie.envs.racing.track import Track
from cenie.xla.tricks import computed_once_in_batches

MARGIN = 0.02
"""Both shapes have a skin of half of this in Box2D."""

_PAIRS = tuple(itertools.combinations(range(4), 2))
_CORNERS = np.concatenate(HULL)
HULL_MIDDLE = (_CORNERS.min(0) + _CORNERS.max(0)) / 2
HULL_HALF = (_CORNERS.max(0) - _CORNERS.min(0)) / 2
"""The smallest rectangle around the hull, in its frame: middle, half width and half length."""


class Tiles(eqx.Module):
    """The tiles of a road for the test: corners, and up to four directions across edges of their hulls.

    In each direction a tile lies between `low` and `high`.
    """

    corners_x: Float[Array, "*n 4 t"]
    corners_y: Float[Array, "*n 4 t"]
    across_x: Float[Array, "*n 4 t"]
    across_y: Float[Array, "*n 4 t"]
    low: Float[Array, "*n 4 t"]
    high: Float[Array, "*n 4 t"]


def tiles_of(track: Track) -> Tiles:
    """Find the edges of the hulls; where the sides of a quadrilateral cross, they are not all sides of it."""
    x, y = track.road
    edges, normals = [], []
    for first, second in _PAIRS:
        along_x, along_y = x[second] - x[first], y[second] - y[first]
        length = jnp.sqrt(along_x**2 + along_y**2)
        sides = [
            along_x * (y[other] - y[first]) - along_y * (x[other] - x[first])
            for other in range(4)
            if other not in (first, second)
        ]
        edges.append((sides[0] * sides[1] >= 0) & (length > 0))
        safe = jnp.where(length > 0, length, 1.0)
        normals.append(jnp.stack([jnp.where(length > 0, -along_y / safe, 1.0), along_x / safe]))
    # Non-edges are harmless: they are just more separating axes.
    chosen = jnp.argsort(~jnp.stack(edges), axis=0, stable=True)[:4]
    across = jnp.take_along_axis(jnp.stack(normals, axis=1), chosen[None], axis=1)
    reach = across[0][:, None] * x[None] + across[1][:, None] * y[None]
    low = jnp.where(track.exists, jnp.min(reach, axis=1), jnp.inf)
    return Tiles(x, y, across[0], across[1], low, jnp.max(reach, axis=1))


def touched_by_wheels(
    tiles: Tiles, positions: Float[Array, "4 2"], angles: Float[Array, " 4"]
) -> Bool[Array, "4 t"]:
    """Which tiles each wheel touches. Both front wheels have one angle, and both rear wheels."""
    return _of_wheels(_wheels_over(tiles, positions, angles))


def touched_by_car(tiles: Tiles, car: Car) -> Bool[Array, "4 t"]:
    """Which tiles each wheel of a car touches."""
    return _of_wheels(
        computed_once_in_batches(_wheels_over(tiles, wheel_positions(car), angles_of(car)), car.on_road)
    )


def _wheels_over(
    tiles: Tiles, positions: Float[Array, "4 2"], angles: Float[Array, " 4"]
) -> UInt8[Array, " t"]:
    """The wheels that touch each tile, a bit for each: on a CPU, rows are put together far slower."""
    size = (WHEEL_HALF_WIDTH, WHEEL_RADIUS)
    front = _overlaps(tiles, [positions[0], positions[1]], angles[0], size)
    rear = _overlaps(tiles, [positions[2], positions[3]], angles[2], size)
    bits = [over.astype(jnp.uint8) << number for number, over in enumerate([*front, *rear])]
    return bits[0] | bits[1] | bits[2] | bits[3]


def _of_wheels(bits: UInt8[Array, " t"]) -> Bool[Array, "4 t"]:
    return (bits & (1 << np.arange(4, dtype=np.uint8))[:, None]) > 0


def under_hull(tiles: Tiles, car: Car) -> Bool[Array, " t"]:
    """Which tiles the rectangle around the hull touches."""
    middle = hull_position(car) + rotate(car.angle, HULL_MIDDLE)
    (found,) = _overlaps(tiles, [middle], car.angle, (float(HULL_HALF[0]), float(HULL_HALF[1])))
    return found


def _overlaps(
    tiles: Tiles, centres: list[Float[Array, " 2"]], angle: Float[Array, ""], size: tuple[float, float]
) -> list[Bool[Array, " t"]]:
    """Which tiles overlap rectangles of one size and angle: those that no direction keeps apart."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    x, y = tiles.corners_x, tiles.corners_y
    apart = [jnp.zeros(x.shape[-1:], bool) for _ in centres]
    for across_x, across_y, low, high in zip(tiles.across_x, tiles.across_y, tiles.low, tiles.high):
        sideways, forward = across_x * cos + across_y * sin, across_y * cos - across_x * sin
        reach = size[0] * jnp.abs(sideways) + size[1] * jnp.abs(forward) + MARGIN
        nearest, farthest = low - reach, high + reach
        for number, centre in enumerate(centres):
            place = across_x * centre[0] + across_y * centre[1]
            apart[number] |= (place < nearest) | (place > farthest)
    for along_x, along_y, half in ((cos, sin, size[0]), (-sin, cos, size[1])):
        reach = [along_x * x[corner] + along_y * y[corner] for corner in range(4)]
        low = jnp.minimum(jnp.minimum(reach[0], reach[1]), jnp.minimum(reach[2], reach[3]))
        high = jnp.maximum(jnp.maximum(reach[0], reach[1]), jnp.maximum(reach[2], reach[3]))
        for number, centre in enumerate(centres):
            place = along_x * centre[0] + along_y * centre[1]
            apart[number] |= (place < low - (half + MARGIN)) | (place > high + (half + MARGIN))
    return [~each for each in apart]
