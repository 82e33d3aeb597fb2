"""Pictures of terrains and walkers as arrays of pixels. NumPy, on the host.

Every shape is painted by the distance of each pixel to it, which makes smooth edges.
"""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, UInt8

from cenie.envs.walker.dynamics import WalkerState, body_poses
from cenie.envs.walker.level import WalkerLevel
from cenie.envs.walker.physics.body import HALF_HEIGHT, HALF_WIDTHS, HULL
from cenie.envs.walker.terrain import BASE, FINISH, POINTS, STEP, Terrain, terrain_of

Colour = tuple[int, int, int]

_SKY_ABOVE, _SKY_BELOW = (112, 174, 226), (228, 241, 247)
_HILLS: tuple[tuple[float, float, Colour], ...] = ((0.15, 1.6, (184, 212, 222)), (0.3, 0.6, (158, 196, 190)))
"""Ranges of hills behind the course, far ones first: how far they move along, their height and colour."""
_CLOUD = (255, 255, 255)
_EARTH, _DEEP_EARTH = (140, 102, 70), (72, 52, 44)
_GRASS, _GRASS_TIPS = (92, 152, 62), (146, 204, 88)
_STONE, _STONE_EDGE = (150, 154, 164), (88, 92, 104)
_HULL, _HULL_EDGE, _EYE = (122, 72, 198), (62, 36, 112), (250, 246, 255)
_FRONT_LEG, _FRONT_EDGE = (220, 128, 178), (124, 58, 100)
_BACK_LEG, _BACK_EDGE = (138, 72, 114), (78, 38, 64)
_POLE, _FLAG = (86, 80, 78), (224, 70, 60)

_WINDOW = (20.0, 40 / 3)
"""Width and height of what is seen of an episode, as in gym."""
_BEHIND = 5.0
"""The width of the window behind the hull."""
STANDING = np.array(
    [(4.66, 5.68, 0.0), (4.69, 4.85, 0.04), (4.66, 3.72, -0.1), (4.71, 4.85, 0.08), (4.70, 3.72, -0.06)]
)
"""Where the bodies are when an episode begins."""

_STEEP = 2.5
"""Slopes on which no grass grows."""

_terrain = jax.jit(terrain_of)


@dataclass(frozen=True)
class _View:
    """A picture of a part of the world; a unit of length has `scale` pixels."""

    pixels: Float[np.ndarray, "height width 3"]
    left: float
    bottom: float
    scale: int

    @property
    def x(self) -> Float[np.ndarray, "1 width"]:
        """Where the middles of the pixels are."""
        return (self.left + (np.arange(self.pixels.shape[1])[None] + 0.5) / self.scale).astype(np.float32)

    @property
    def y(self) -> Float[np.ndarray, "height 1"]:
        rows = np.arange(self.pixels.shape[0])[::-1, None]
        return (self.bottom + (rows + 0.5) / self.scale).astype(np.float32)

    @property
    def top(self) -> float:
        return self.bottom + self.pixels.shape[0] / self.scale

    def crop(self, left: float, bottom: float, right: float, top: float) -> "_View":
        """The view of these bounds, and a little more; it paints on the same picture."""
        height, width, _ = self.pixels.shape
        columns = [int((side - self.left) * self.scale) for side in (left, right)]
        rows = [int(height - (side - self.bottom) * self.scale) for side in (top, bottom)]
        first_column, first_row = (max(0, first - 3) for first in (columns[0], rows[0]))
        last_column, last_row = max(0, min(width, columns[1] + 4)), max(0, min(height, rows[1] + 4))
        return _View(
            self.pixels[first_row:last_row, first_column:last_column],
            self.left + first_column / self.scale,
            self.bottom + (height - last_row) / self.scale,
            self.scale,
        )

    def paint(self, distance: np.ndarray, colour: Colour | np.ndarray, strength: float = 1.0) -> None:
        """Paint where the distance to a shape is negative, and its edge in part."""
        if self.pixels.size == 0:
            return
        cover = np.float32(strength) * np.clip(0.5 - distance * self.scale, 0.0, 1.0)[..., None]
        self.pixels[:] += cover * (np.asarray(colour, np.float32) - self.pixels)


def render(level: WalkerLevel, *, scale: int = 10) -> UInt8[np.ndarray, "height width 3"]:
    """The whole course of a level from the start to the end, with the walker at the start."""
    terrain = terrain_on_host(level)
    boxes = terrain.boxes[: int(terrain.num_boxes)]
    lowest = float(min(terrain.y.min(), *boxes[:, 1], BASE))
    highest = float(max(terrain.y.max(), *boxes[:, 3], BASE + 2.5))
    view = _empty_view(0.0, lowest - 1.2, (POINTS - 1) * STEP, highest - lowest + 3.2, scale)
    _paint_world(view, level, terrain)
    _paint_walker(view, STANDING)
    return _finished(view)


def episode_frames(
    level: WalkerLevel, states: WalkerState, *, scale: int = 20
) -> UInt8[np.ndarray, "time height width 3"]:
    """A picture for each state of an episode, seen by a camera that follows the hull."""
    terrain = terrain_on_host(level)
    poses = np.asarray(jax.vmap(body_poses)(states), np.float64)
    return np.stack([frame(level, terrain, pose, scale=scale) for pose in poses])


def frame(
    level: WalkerLevel, terrain: Terrain, poses: Float[np.ndarray, "5 3"], *, scale: int = 20
) -> UInt8[np.ndarray, "height width 3"]:
    """The surroundings of a walker whose bodies are at (x, y, angle)."""
    x, y, _ = poses[0]
    # On steep courses the walker comes before the ground.
    (ground,) = _smooth_ground(terrain, np.array([x + 3.0]))
    bottom = np.clip(ground - 4.2, y + 3.5 - _WINDOW[1], y - 4.5)
    view = _empty_view(x - _BEHIND, float(bottom), *_WINDOW, scale)
    _paint_world(view, level, terrain)
    _paint_walker(view, poses)
    return _finished(view)


def terrain_on_host(level: WalkerLevel) -> Terrain:
    return jax.tree.map(np.asarray, _terrain(level))


def _empty_view(left: float, bottom: float, width: float, height: float, scale: int) -> _View:
    pixels = np.zeros((round(height * scale), round(width * scale), 3), np.float32)
    return _View(pixels, left, bottom, scale)


def _finished(view: _View) -> UInt8[np.ndarray, "height width 3"]:
    return np.round(view.pixels).astype(np.uint8)


def _paint_world(view: _View, level: WalkerLevel, terrain: Terrain) -> None:
    _paint_sky(view, int(level.seed))
    _paint_flag(view, FINISH, float(np.interp(FINISH, terrain.x, terrain.y)))
    _paint_ground(view, terrain)
    for box in terrain.boxes[: int(terrain.num_boxes)]:
        if box[2] > view.left and box[0] < view.x[0, -1]:
            _paint_box(view, box)


def _paint_sky(view: _View, seed: int) -> None:
    """A sky that is bright at the horizon, clouds, and two ranges of hills that pass by slowly."""
    height = np.linspace(1.0, 0.0, view.pixels.shape[0], dtype=np.float32)[:, None, None]
    view.pixels[:] = _between(_SKY_BELOW, _SKY_ABOVE, height)
    rng = np.random.default_rng(seed)
    for place in np.arange(0.0, 100.0, 9.0) + rng.uniform(-3.0, 3.0, 12):
        x = view.left + place - 0.1 * view.left
        y = view.top - rng.uniform(0.08, 0.3) * (view.top - view.bottom)
        for offset, size in ((-1.0, 0.5), (0.0, 0.8), (1.1, 0.6)):
            part = view.crop(x + offset - 2.0, y - 1.0, x + offset + 2.0, y + 1.0)
            distance = np.hypot((part.x - x - offset) / 1.6, part.y - y - 0.3 * size) - 0.7 * size
            part.paint(np.where(part.y > y - 0.2, distance, 1.0), _CLOUD, 0.55)
    for slowness, rise, colour in _HILLS:
        x = view.x - (1.0 - slowness) * view.left + 10.0 * rise
        hills = (
            (view.bottom + view.top) / 2 - 1.5 + rise + 0.9 * np.sin(0.31 * x) + 0.5 * np.sin(0.73 * x + rise)
        )
        view.paint(view.y - hills, colour)


def _between(first: Colour, second: Colour, part: np.ndarray) -> np.ndarray:
    """A mixture of two colours: the first where `part` is 0, the second where it is 1."""
    start, end = np.array(first, np.float32), np.array(second, np.float32)
    return start + part * (end - start)


def _paint_ground(view: _View, terrain: Terrain) -> None:
    """Earth that darkens with depth, and grass where it is not steep; it ends with the course."""
    x, end = view.x[0], terrain.x[-1]
    rises, widths = np.diff(terrain.y), np.diff(terrain.x)
    # The rim of a pit may stand upright: no pixel lies between its two points, and none asks for its slope.
    slopes = np.divide(rises, widths, out=np.zeros_like(rises), where=widths > 0.0)
    slope = slopes[np.clip(np.searchsorted(terrain.x, x) - 1, 0, len(slopes) - 1)]
    depth = np.interp(x, terrain.x, terrain.y).astype(np.float32) - view.y
    distance = np.maximum(-depth / np.sqrt(1.0 + slope**2), view.x - end)
    shade = np.clip((_smooth_ground(terrain, x) - view.y) / 8.0, 0.0, 1.0)[..., None]
    view.paint(distance, _between(_EARTH, _DEEP_EARTH, shade))
    for deep, colour in ((0.24, _GRASS), (0.09, _GRASS_TIPS)):
        thick = np.where(np.abs(slope) < _STEEP, deep, 0.0)
        view.paint(np.maximum(distance, depth - thick), colour)


def _smooth_ground(terrain: Terrain, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The height of the ground without its obstacles and pits."""
    smooth = np.convolve(np.pad(terrain.y, 25, mode="edge"), np.full(51, 1 / 51), mode="valid")
    return np.interp(x, terrain.x, smooth).astype(np.float32)


def _paint_box(view: _View, box: Float[np.ndarray, " 4"]) -> None:
    left, bottom, right, top = map(float, box)
    part = view.crop(left, bottom, right, top)
    distance = np.maximum(np.abs(part.x - (left + right) / 2) - (right - left) / 2, part.y - top)
    distance = np.maximum(distance, bottom - part.y)
    part.paint(distance, _STONE_EDGE)
    part.paint(distance + 0.07, _STONE)


def _paint_flag(view: _View, x: float, ground: float) -> None:
    part = view.crop(x - 0.2, ground - 0.5, x + 1.5, ground + 3.0)
    part.paint(np.maximum(np.abs(part.x - x) - 0.05, part.y - ground - 2.6), _POLE)
    slope = np.abs(part.y - ground - 2.2) - 0.4 * (x + 1.1 - part.x) / 1.1
    part.paint(np.maximum(x - part.x, slope), _FLAG)


def _paint_walker(view: _View, poses: Float[np.ndarray, "5 3"]) -> None:
    """The leg behind, the hull, and the leg before it."""
    for number in (4, 3, 0, 2, 1):
        x, y, angle = poses[number]
        part = view.crop(x - 1.5, y - 1.5, x + 1.5, y + 1.5)
        # The pixels seen from the body.
        across, up = part.x - x, part.y - y
        along = across * np.cos(angle) + up * np.sin(angle)
        high = up * np.cos(angle) - across * np.sin(angle)
        if number == 0:
            distance = _distance_to_polygon(HULL, along, high)
            edge, colour = _HULL_EDGE, _HULL
        else:
            distance = _distance_to_bar(HALF_WIDTHS[number - 1], along, high)
            front = number in (1, 2)
            edge, colour = (_FRONT_EDGE, _FRONT_LEG) if front else (_BACK_EDGE, _BACK_LEG)
        part.paint(distance, edge)
        part.paint(distance + 0.05, colour)
        if number == 0:
            part.paint(np.hypot(along - 0.6, high - 0.02) - 0.12, _EYE)
            part.paint(np.hypot(along - 0.64, high - 0.02) - 0.06, _HULL_EDGE)


def _distance_to_polygon(corners: Float[np.ndarray, "n 2"], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance of points to the edges of a convex polygon, negative inside; its corners are clockwise."""
    sides = np.roll(corners, -1, axis=0) - corners
    normals = np.stack([-sides[:, 1], sides[:, 0]], axis=1) / np.linalg.norm(sides, axis=1, keepdims=True)
    outside = [(x - cx) * nx + (y - cy) * ny for (cx, cy), (nx, ny) in zip(corners, normals)]
    return np.max(outside, axis=0)


def _distance_to_bar(half_width: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance of points to a part of a leg, whose ends are rounded."""
    rounding = 0.6 * half_width
    across = np.abs(x) - half_width + rounding
    along = np.abs(y) - HALF_HEIGHT + rounding
    beyond = np.hypot(np.maximum(across, 0.0), np.maximum(along, 0.0))
    return beyond + np.minimum(np.maximum(across, along), 0.0) - rounding
