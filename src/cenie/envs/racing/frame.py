"""The student's view: the world from above, turned so that the car drives upwards, and a dashboard.

The rules follow the original code's 96 x 96 picture of a window of 1000 x 800. A pixel has the colour
of the last shape over its centre. Two renderers differ in how they find the road: `analytic` draws the tiles
in view, `texture` looks up a picture of the whole road that was painted once, which is faster and off by at
most a texel at edges. The digits of the score are left out.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, UInt8, UInt16

from cenie.envs.racing.car import (
    HULL,
    WHEEL_HALF_WIDTH,
    WHEEL_RADIUS,
    Car,
    hull_position,
    hull_velocity,
    wheel_angles,
    wheel_positions,
)
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.raster import rasterise
from cenie.envs.racing.track import Track
from cenie.xla.tricks import computed_once_in_batches

WINDOW = (1000.0, 800.0)
"""The picture shows a window of this size, whose origin is at the lower left."""
SCALE = 16.2
"""Pixels of the window to a unit of length."""
CAR_PLACE = (500.0, 200.0)
"""Where in the window the car is."""
BAR_HEIGHT = 100.0
"""The height of the dashboard at the lower edge."""
TEXTURE_REACH = 192.0
"""A painted road reaches so far from its middle in each direction; farther, more coarsely, if it has to."""
SLOW = 0.5
"""Up is where the car drives to, or where it faces if it is not faster than this."""

Colours = Int32[Array, "*shape"]
"""Red, green and blue, eight bits each from the lowest on, in one number."""


def _packed(red: int, green: int, blue: int) -> int:
    return red | green << 8 | blue << 16


_OUTSIDE = _packed(0, 0, 0)
_GRASS, _LIGHT_GRASS = _packed(102, 204, 102), _packed(102, 230, 102)
_ROADS = tuple(_packed(grey, grey, grey) for grey in (102, 104, 107))
"""The colours of three tiles in turn; tiles that were touched have the first."""
_KERBS = (_packed(255, 255, 255), _packed(255, 0, 0))
_HULL = _packed(204, 0, 0)
_WHEEL, _TREAD = _packed(0, 0, 0), _packed(77, 77, 77)
_BAR = _packed(0, 0, 0)
_SPEED, _FRONT_SPIN, _REAR_SPIN = _packed(255, 255, 255), _packed(0, 0, 255), _packed(51, 0, 255)
_STEERING, _TURN = _packed(0, 255, 0), _packed(255, 0, 0)
_SQUARES = 20
"""Squares of grass from the middle of the field to each side; every fourth is light."""

_TREAD_LENGTH = 1.2
"""The length of the mark on a wheel, in radians."""
_ON_EDGE = 1e-3
"""The distance to an edge of the hull below which a point does not count as inside. OpenGL rounds corners to
a 256th of a pixel; the wings of a car that stands would else cover the centres of one row of pixels more."""
_REACH = max(math.hypot(*corner) for part in HULL for corner in part)
"""From the origin of the car to its farthest corner."""


class RoadShapes(eqx.Module):
    """The road as shapes: tile i is number 2i, and 2i + 1 its kerb."""

    quads: Float[Array, "*n 2 4 m"]
    playfield: Float[Array, "*n"]


class Texture(eqx.Module):
    """The road as a picture: each texel is 1 + the number of a shape, or 0; up is down."""

    numbers: UInt16[Array, "*n texels texels"]
    extent: Float[Array, "*n"]
    """From its middle, the origin, to its sides."""
    playfield: Float[Array, "*n"]


View = RoadShapes | Texture


def paint(config: RacingConfig, track: Track) -> View:
    """Prepare the parts of a track that `frame` needs, once."""
    shapes = jnp.stack([track.road, track.kerb], axis=-1)
    quads = shapes.reshape(*shapes.shape[:2], -1)
    if config.renderer == "analytic":
        return RoadShapes(quads, track.playfield)
    size = 2 * math.ceil(TEXTURE_REACH / config.texel)
    exists = jnp.stack([track.exists, track.kerbed], axis=-1).reshape(-1)
    farthest = jnp.max(jnp.abs(jnp.where(exists, quads, 0.0)))
    extent = jnp.maximum(size / 2 * config.texel, farthest + config.texel)
    texels = (quads + extent) * (size / (2.0 * extent))
    return Texture(rasterise(texels, (size, size), _BLOCK), extent, track.playfield)


_BLOCK = 32
"""The side, in pixels, of the blocks in which a tile is painted."""


def frame(
    config: RacingConfig, view: View, car: Car, touched: Bool[Array, " t"]
) -> UInt8[Array, "size size 3"]:
    """The view of a car; tiles that it has touched are all of one grey."""
    colours = computed_once_in_batches(frame_colours(config, view, car, touched), car.on_road)
    return jax.lax.bitcast_convert_type(colours, jnp.uint8)[..., :3]


def frame_colours(
    config: RacingConfig, view: View, car: Car, touched: Bool[Array, " t"]
) -> Int32[Array, "size size"]:
    """The same, each pixel in one number."""
    size = config.frame_size
    wx, wy = _window_of_pixels(size)
    shown = int(np.sum(wy >= BAR_HEIGHT))
    place, cos, sin = _camera(car)
    x, y = _world(wx, wy[:shown, None], place, cos, sin)
    if isinstance(view, Texture):
        numbers = _looked_up(view, x, y)
    else:
        numbers = _drawn(view, (shown, size), place, cos, sin)
    above = jnp.where(
        numbers > 0,
        _road_colours(numbers, computed_once_in_batches(touched, car.on_road)),
        _field(x, y, view.playfield),
    )
    # Parts are written into one array: put together otherwise, XLA on CPU computes each pixel several times.
    picture = jnp.zeros((size, size), jnp.int32)
    for first, part in ((0, above), (shown, _dashboard(wx, wy[shown:, None], car))):
        picture = jax.lax.dynamic_update_slice(picture, part, (first, 0))
    return _with_car(picture, wx, wy, car, place, cos, sin)


def _window_of_pixels(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the centres of the columns and of the rows are in the window; the first row is the highest."""
    centres = (np.arange(size) + 0.5) / size
    return (WINDOW[0] * centres).astype(np.float32), (WINDOW[1] * (1.0 - centres)).astype(np.float32)


def _camera(car: Car) -> tuple[Float[Array, " 2"], Float[Array, ""], Float[Array, ""]]:
    """Where the car is, and the cosine and sine of the angle by which the world is turned."""
    velocity = hull_velocity(car)
    speed = jnp.sqrt(jnp.sum(velocity**2))
    fast = speed > SLOW
    vx, vy = velocity / jnp.where(fast, speed, 1.0)
    cos, sin = jnp.where(fast, vy, jnp.cos(car.angle)), jnp.where(fast, vx, -jnp.sin(car.angle))
    return hull_position(car), cos, sin


def _world(wx: np.ndarray, wy: np.ndarray, place: Array, cos: Array, sin: Array) -> tuple[Array, Array]:
    """World coordinates of places of the window."""
    right, up = (wx - CAR_PLACE[0]) / SCALE, (wy - CAR_PLACE[1]) / SCALE
    return place[0] + cos * right + sin * up, place[1] - sin * right + cos * up


def _looked_up(view: Texture, x: Array, y: Array) -> UInt16[Array, "h w"]:
    """1 + the number of the shape of the road at each place; 0 where there is none."""
    size = view.numbers.shape[-1]
    scale = size / (2.0 * view.extent)
    column, row = (jnp.floor((at + view.extent) * scale).astype(jnp.int32) for at in (x, y))
    within = (column >= 0) & (column < size) & (row >= 0) & (row < size)
    at = jnp.where(within, size * row + column, 0)
    found = view.numbers.reshape(-1).at[at].get(mode="promise_in_bounds")
    return jnp.where(within, found, 0)


def _drawn(
    view: RoadShapes, shape: tuple[int, int], place: Array, cos: Array, sin: Array
) -> UInt16[Array, "h w"]:
    """The same, by drawing the shapes in view."""
    height, width = shape
    east, north = view.quads[0] - place[0], view.quads[1] - place[1]
    wx = CAR_PLACE[0] + SCALE * (cos * east - sin * north)
    wy = CAR_PLACE[1] + SCALE * (sin * east + cos * north)
    pixels = jnp.stack([wx / WINDOW[0], 1.0 - wy / WINDOW[1]]) * width
    return rasterise(pixels, (height, width), _BLOCK)


def _road_colours(numbers: UInt16[Array, "h w"], touched: Bool[Array, " t"]) -> Colours:
    """The colours of the road's shapes. Only `touched` is looked up: a table would be made anew for each
    pixel."""
    shape = jnp.maximum(numbers.astype(jnp.int32) - 1, 0)
    tile = shape // 2
    fresh = jnp.where(tile % 3 == 0, _ROADS[0], jnp.where(tile % 3 == 1, _ROADS[1], _ROADS[2]))
    road = jnp.where(touched.at[tile].get(mode="promise_in_bounds"), _ROADS[0], fresh)
    kerb = jnp.where(tile % 2 == 0, _KERBS[0], _KERBS[1])
    return jnp.where(shape % 2 == 0, road, kerb)


def _field(x: Array, y: Array, playfield: Array) -> Colours:
    """Grass with light squares, and nothing outside of it."""
    side = playfield / _SQUARES
    even = [jnp.floor(at / side).astype(jnp.int32) % 2 == 0 for at in (x, y)]
    inside = (jnp.abs(x) <= playfield) & (jnp.abs(y) <= playfield)
    return jnp.where(inside, jnp.where(even[0] & even[1], _LIGHT_GRASS, _GRASS), _OUTSIDE)


def _with_car(
    colours: Colours, wx: np.ndarray, wy: np.ndarray, car: Car, place: Array, cos: Array, sin: Array
) -> Colours:
    """The car over it, for which only the pixels near its place are looked at."""
    reach = _REACH * SCALE
    columns = np.flatnonzero(np.abs(wx - CAR_PLACE[0]) <= reach)
    rows = np.flatnonzero(np.abs(wy - CAR_PLACE[1]) <= reach)
    part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    x, y = _world(wx[part[1]], wy[part[0], None], place, cos, sin)
    near = colours[part]
    for centre, angle, phase in zip(wheel_positions(car), wheel_angles(car), car.phase):
        across, along = _from_body(x - centre[0], y - centre[1], angle)
        beside = jnp.abs(across) <= WHEEL_HALF_WIDTH
        near = jnp.where(beside & (jnp.abs(along) <= WHEEL_RADIUS), _WHEEL, near)
        first, last, visible = _tread(phase)
        between = (along >= jnp.minimum(first, last)) & (along <= jnp.maximum(first, last))
        near = jnp.where(beside & between & visible, _TREAD, near)
    across, along = _from_body(x - place[0], y - place[1], car.angle)
    for corners in HULL:
        near = jnp.where(_in_polygon(corners, across, along), _HULL, near)
    return jax.lax.dynamic_update_slice(colours, near, (rows[0], columns[0]))


def _from_body(x: Array, y: Array, angle: Array) -> tuple[Array, Array]:
    """Vectors in the frame of a body."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def _tread(phase: Float[Array, ""]) -> tuple[Array, Array, Bool[Array, ""]]:
    """From where to where along a wheel its mark is, and whether it is above the ground's side at all."""
    ends = [phase, phase + _TREAD_LENGTH]
    hidden = [jnp.sin(end) > 0 for end in ends]
    places = [
        WHEEL_RADIUS * jnp.where(under, jnp.sign(jnp.cos(end)), jnp.cos(end))
        for end, under in zip(ends, hidden)
    ]
    return places[0], places[1], ~(hidden[0] & hidden[1])


def _in_polygon(corners: np.ndarray, x: Array, y: Array) -> Bool[Array, "..."]:
    """Whether points lie in a convex polygon, whichever way round its corners are."""
    area = np.sum(np.roll(corners[:, 0], 1) * corners[:, 1] - np.roll(corners[:, 1], 1) * corners[:, 0])
    inside = jnp.ones((), bool)
    for (fx, fy), (tx, ty) in zip(corners, np.roll(corners, -1, axis=0)):
        side = float(np.sign(area)) / math.hypot(tx - fx, ty - fy)
        inside &= ((tx - fx) * (y - fy) - (ty - fy) * (x - fx)) * side > _ON_EDGE
    return inside


def _dashboard(wx: np.ndarray, wy: np.ndarray, car: Car) -> Colours:
    """Bars in cells of 25 x 20: speed, the wheels' spins, steering, and how fast the car turns."""
    cell, line = WINDOW[0] / 40, WINDOW[1] / 40
    speed = jnp.sqrt(jnp.sum(hull_velocity(car) ** 2))
    colours = jnp.full((len(wy), len(wx)), _BAR, jnp.int32)
    spins = [(7 + wheel, 0.01 * car.spin[wheel], (_FRONT_SPIN, _REAR_SPIN)[wheel // 2]) for wheel in range(4)]
    for place, value, colour in ((5, 0.02 * speed, _SPEED), *spins):
        top = line * (1.0 + value)
        high = (wy >= jnp.minimum(line, top)) & (wy < jnp.maximum(line, top))
        colours = jnp.where(high & (wx >= place * cell) & (wx < (place + 1) * cell), colour, colours)
    for place, value, colour in ((20, -10.0 * car.joint[0], _STEERING), (30, -0.8 * car.turn, _TURN)):
        end = (place + value) * cell
        wide = (wx >= jnp.minimum(place * cell, end)) & (wx < jnp.maximum(place * cell, end))
        colours = jnp.where(wide & (wy >= 2 * line) & (wy < 4 * line), colour, colours)
    return colours
