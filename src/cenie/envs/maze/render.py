"""Pictures of mazes as arrays of pixels. NumPy, on the host."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import UInt8

from cenie.envs.maze.dynamics import MazeState
from cenie.envs.maze.level import DIRECTIONS, MazeLevel, Position

_FLOOR, _GRID, _WALL = (24, 26, 32), (40, 43, 52), (128, 132, 142)
_GOAL, _AGENT, _PATH = (64, 184, 108), (226, 78, 68), (244, 190, 86)


def render(
    level: MazeLevel, path: Iterable[tuple[int, int, int]] = (), *, tile: int = 16
) -> UInt8[np.ndarray, "height width 3"]:
    """The level with its border, the goal, and the agent as a triangle that points where it faces.

    `path` lists (x, y, direction) of the agent over time: the visited tiles are dotted, and the triangle
    stands at the last entry instead of the start.
    """
    canvas = _Canvas(level, tile)
    pose = (int(level.start[0]), int(level.start[1]), int(level.direction))
    for pose in path:
        canvas.dot(pose)
    return canvas.with_agent(pose)


def episode_frames(level: MazeLevel, states: MazeState) -> UInt8[np.ndarray, "time height width 3"]:
    """A picture for each state of an episode, with the path so far.

    An episode ends with the step into the goal, which the environment does not make; the last picture does.
    """
    canvas, frames = _Canvas(level, 16), []
    for pose in _with_step_into_goal(level, states):
        canvas.dot(pose)
        frames.append(canvas.with_agent(pose))
    return np.stack(frames)


def _with_step_into_goal(level: MazeLevel, states: MazeState) -> list[tuple[int, int, int]]:
    """The poses; the last one is on the goal if the agent faced it there and neither turned nor went on."""
    times = np.asarray(states.time).tolist()
    poses = [
        (int(x), int(y), int(direction))
        for (x, y), direction in zip(np.asarray(states.position), np.asarray(states.direction), strict=True)
    ]
    x, y, direction = poses[-1]
    ahead = x + int(DIRECTIONS[direction][0]), y + int(DIRECTIONS[direction][1])
    stayed = len(poses) > 1 and poses[-2] == poses[-1] and times[-1] == times[-2] + 1
    if stayed and ahead == (int(level.goal[0]), int(level.goal[1])):
        poses[-1] = (*ahead, direction)
    return poses


class _Canvas:
    """A picture of a level that fills with the path of the agent."""

    def __init__(self, level: MazeLevel, tile: int):
        walls = np.pad(np.asarray(level.wall_map), 1, constant_values=True)
        self._image = np.empty((*(side * tile for side in walls.shape), 3), np.uint8)
        self._image[:] = _FLOOR
        self._image[::tile], self._image[:, ::tile] = _GRID, _GRID
        self._image[np.kron(walls, np.ones((tile, tile), bool))] = _WALL
        self._tile = tile
        y, x = np.mgrid[:tile, :tile]
        # Tile coordinates of the pixel centres, from -1 to 1.
        self._across, self._down = (2 * x + 1) / tile - 1, (2 * y + 1) / tile - 1
        self._paint(self._image, np.asarray(level.goal), (x > 0) & (y > 0), _GOAL)

    def dot(self, position: Position) -> None:
        """Mark a visited tile."""
        self._paint(self._image, position, self._across**2 + self._down**2 < 0.12, _PATH)

    def with_agent(self, pose: tuple[int, int, int]) -> UInt8[np.ndarray, "height width 3"]:
        """A copy with the agent at (x, y), facing a direction."""
        image = self._image.copy()
        ahead_x, ahead_y = DIRECTIONS[pose[2]]
        forward = self._across * ahead_x + self._down * ahead_y
        sideways = self._across * ahead_y - self._down * ahead_x
        self._paint(image, pose, (forward > -0.7) & (np.abs(sideways) < (0.8 - forward) / 2), _AGENT)
        return image

    def _paint(
        self, image: np.ndarray, position: Position, mask: np.ndarray, colour: tuple[int, int, int]
    ) -> None:
        tile = self._tile
        top, left = (int(position[1]) + 1) * tile, (int(position[0]) + 1) * tile
        image[top : top + tile, left : left + tile][mask] = colour
