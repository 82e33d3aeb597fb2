"""Pictures of tracks and of drives as arrays of pixels, for people: no window and no OpenGL is needed.

A track is seen from above, north up, with smooth edges; an episode as the student sees it, only finer.
"""

import dataclasses
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from cenie.envs.racing.car import HULL, hull_position, hull_velocity
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.dynamics import RacingState
from cenie.envs.racing.frame import frame, paint
from cenie.envs.racing.level import RacingLevel
from cenie.envs.racing.raster import rasterise
from cenie.envs.racing.track import Circuit, Track, track_of_circuit, track_of_level

Picture = UInt8[np.ndarray, "height width 3"]

_GRASS, _LIGHT_GRASS = (104, 176, 96), (114, 188, 104)
_ROAD, _EDGE = (92, 94, 100), (236, 236, 230)
_KERBS = ((250, 250, 250), (214, 54, 48))
_START, _CAR = (250.0, 250.0, 250.0), (204.0, 30.0, 30.0)
_SPEEDS = np.array(
    [(48, 18, 130), (40, 110, 220), (30, 190, 170), (150, 220, 60), (250, 200, 40), (240, 60, 30)]
)
"""Colours from standing still to `FASTEST`."""
FASTEST = 100.0
"""No car is faster, in units of length per second."""

_USUAL = RacingConfig()
_MARGIN = 14.0
"""The width of the grass around a track."""
_FINER = 3
"""Finer pixels, in each direction, whose mean is one pixel."""
_BLOCK = 64
_CAR_SIZE = 3.0
"""The car in pictures of whole tracks, to its size."""


def render(level: RacingLevel | Circuit, *, config: RacingConfig = _USUAL, size: int = 480) -> Picture:
    """The whole track from above, with a line at the start and the car before it, facing the way to drive."""
    track = track_on_host(level, config.curve_samples)
    view = _View(track, size)
    pixels = _ground(track, view)
    _paint_line(pixels, view, _start_line(track), _START, 1.6)
    _paint_car(pixels, view, np.asarray(track.nodes)[:, 0], float(track.normal[0]))
    return np.round(pixels).astype(np.uint8)


def drive_picture(
    level: RacingLevel | Circuit,
    states: RacingState,
    *,
    config: RacingConfig = _USUAL,
    size: int = 480,
) -> Picture:
    """The track from above with the line that was driven: dark blue where the car stood, red at full speed.

    `states` are one episode's, with a leading axis of time.
    """
    track = track_on_host(level, config.curve_samples)
    view = _View(track, size)
    pixels = _ground(track, view)
    _paint_line(pixels, view, _start_line(track), _START, 1.6)
    places = np.asarray(hull_position(states.car), np.float64)
    speeds = np.linalg.norm(np.asarray(hull_velocity(states.car), np.float64), axis=-1)
    for here, there, speed in zip(places, places[1:], (speeds[:-1] + speeds[1:]) / 2):
        _paint_line(pixels, view, np.stack([here, there]), tuple(speed_colour(float(speed))), 2.0)
    _paint_car(pixels, view, places[-1], float(states.car.angle[-1]))
    return np.round(pixels).astype(np.uint8)


def episode_frames(
    level: RacingLevel | Circuit,
    states: RacingState,
    *,
    config: RacingConfig = _USUAL,
    size: int = 288,
) -> UInt8[np.ndarray, "time size size 3"]:
    """The student's view of each state of an episode, by the analytic renderer and in finer pixels."""
    finer = dataclasses.replace(config, frame_size=size, renderer="analytic")
    return np.asarray(_frames(finer, level, states))


def speed_colour(speed: float) -> np.ndarray:
    """Red, green and blue."""
    at = np.clip(speed / FASTEST, 0.0, 1.0) * (len(_SPEEDS) - 1)
    return np.array([np.interp(at, np.arange(len(_SPEEDS)), channel) for channel in _SPEEDS.T])


@partial(jax.jit, static_argnums=0)
def _frames(config: RacingConfig, level: Any, states: RacingState) -> jax.Array:
    track = _track(level, config.curve_samples)
    view = paint(config, track)
    return jax.lax.map(lambda state: frame(config, view, state.car, state.shown), states)


class _View:
    """Where in a picture the places around a track are; its longer side has `size` pixels."""

    def __init__(self, track: Track, size: int):
        corners = track.road[:, :, track.exists].reshape(2, -1)
        low, high = corners.min(axis=1) - _MARGIN, corners.max(axis=1) + _MARGIN
        self.left, self.top = float(low[0]), float(high[1])
        self.scale = size / float(np.max(high - low))
        width, height = (max(1, round(float(side) * self.scale)) for side in high - low)
        self.shape = height, width

    def pixels_of(self, points: np.ndarray) -> np.ndarray:
        """[2, ...] places to columns and rows."""
        x, y = points
        return np.stack([(x - self.left) * self.scale, (self.top - y) * self.scale])


@lru_cache(maxsize=8)
def _painter(shape: tuple[int, int]) -> Any:
    return jax.jit(lambda quads: rasterise(quads, shape, _BLOCK))


def _ground(track: Track, view: _View) -> Float[np.ndarray, "height width 3"]:
    """Grass in squares, the road with light edges, and the kerbs, each pixel the mean of finer ones."""
    fine = tuple(_FINER * length for length in view.shape)
    shapes = np.stack([track.road, track.kerb], axis=-1).reshape(2, 4, -1)
    exists = np.stack([track.exists, track.kerbed], axis=-1).reshape(-1)
    quads = np.where(exists, _FINER * view.pixels_of(shapes), -1e6).astype(np.float32)
    numbers = np.asarray(_painter(fine)(jnp.asarray(quads))).astype(np.int64)
    tile = np.maximum(numbers - 1, 0) // 2
    kerb = np.array(_KERBS)[tile % 2]
    colours = np.where((numbers % 2 == 1)[..., None], _ROAD, kerb)
    step = _FINER * view.scale
    x = view.left + (np.arange(fine[1]) + 0.5) / step
    y = view.top - (np.arange(fine[0])[:, None] + 0.5) / step
    side = float(track.playfield) / 20
    light = (np.floor(x / side) % 2 == 0) & (np.floor(y / side) % 2 == 0)
    grass = np.where(light[..., None], _LIGHT_GRASS, _GRASS)
    inside = numbers > 0
    # A light line of the width of a pixel, where the road ends.
    border = np.zeros_like(inside)
    for axis in (0, 1):
        for shift in range(1, _FINER + 1):
            border |= inside & (~np.roll(inside, shift, axis) | ~np.roll(inside, -shift, axis))
    colours = np.where((border & (numbers % 2 == 1))[..., None], _EDGE, colours)
    whole = np.where(inside[..., None], colours, grass).astype(np.float32)
    return whole.reshape(view.shape[0], _FINER, view.shape[1], _FINER, 3).mean(axis=(1, 3))


def _start_line(track: Track) -> Float[np.ndarray, "2 2"]:
    """The two ends of a line across the road at the start."""
    return np.asarray(track.road)[:, :2, 0].T.astype(np.float64)


def _paint_line(
    pixels: np.ndarray, view: _View, ends: np.ndarray, colour: tuple[int | float, ...], width: float
) -> None:
    """Draw a line with round ends from one place to another; its width is in pixels."""
    (ax, bx), (ay, by) = view.pixels_of(ends.T)
    reach = width + 2
    columns, rows = _within(pixels, (ax, bx), 1, reach), _within(pixels, (ay, by), 0, reach)
    x, y = np.arange(columns.start, columns.stop) + 0.5, np.arange(rows.start, rows.stop)[:, None] + 0.5
    length = max((bx - ax) ** 2 + (by - ay) ** 2, 1e-9)
    along = np.clip(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length, 0.0, 1.0)
    distance = np.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))
    _cover(pixels[rows, columns], distance - width / 2, colour)


def _paint_car(pixels: np.ndarray, view: _View, place: np.ndarray, angle: float) -> None:
    cos, sin = np.cos(angle), np.sin(angle)
    for corners in HULL:
        turned = corners @ np.array([(cos, sin), (-sin, cos)]) * _CAR_SIZE + np.asarray(place, np.float64)
        cx, cy = view.pixels_of(turned.T)
        columns, rows = _within(pixels, cx, 1, 2.0), _within(pixels, cy, 0, 2.0)
        x, y = np.arange(columns.start, columns.stop) + 0.5, np.arange(rows.start, rows.stop)[:, None] + 0.5
        area = np.sum(np.roll(cx, 1) * cy - np.roll(cy, 1) * cx)
        outside = np.full(np.broadcast_shapes(x.shape, y.shape), -np.inf)
        for fx, fy, tx, ty in zip(cx, cy, np.roll(cx, -1), np.roll(cy, -1)):
            away = ((ty - fy) * (x - fx) - (tx - fx) * (y - fy)) / max(np.hypot(tx - fx, ty - fy), 1e-9)
            outside = np.maximum(outside, away * np.sign(area))
        _cover(pixels[rows, columns], outside, _CAR)


def _within(pixels: np.ndarray, places: Any, axis: int, reach: int | float) -> slice:
    """The rows or columns around some places, as far as they are in the picture."""
    limit = pixels.shape[axis]
    first, last = int(np.min(places) - reach), int(np.max(places) + reach) + 1
    return slice(min(max(first, 0), limit), max(min(last, limit), min(max(first, 0), limit)))


def _cover(pixels: np.ndarray, distance: np.ndarray, colour: tuple[int | float, ...]) -> None:
    """Paint where the distance to a shape is negative, and its edge in part."""
    cover = np.clip(0.5 - distance, 0.0, 1.0)[..., None]
    pixels += cover * (np.asarray(colour, np.float32) - pixels)


def _track(level: RacingLevel | Circuit, samples: int) -> Track:
    return track_of_circuit(level) if isinstance(level, Circuit) else track_of_level(level, samples)


_track_of = jax.jit(_track, static_argnums=1)


def track_on_host(level: RacingLevel | Circuit, samples: int) -> Track:
    """The track of a level, in NumPy arrays."""
    return jax.tree.map(np.asarray, _track_of(level, samples))
