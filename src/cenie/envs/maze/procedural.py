"""Test mazes drawn by a rule: perfect mazes, four rooms, crossings and corridors. NumPy, on the host."""

import numpy as np
from jaxtyping import Bool

from cenie.envs.maze.level import MazeLevel, make_level

PERFECT_SIDES = {"Small": 11, "Medium": 21, "Large": 51, "XL": 101}
"""Sides of the perfect mazes, border included."""

_LARGEST_ROOM = 5


def perfect_maze(rng: np.random.Generator, side: int, time_limit: int | None = None) -> MazeLevel:
    """A maze without loops, by Kruskal's rule; start and goal are two of its corners. H is 2 side^2."""
    walls = _spanning_tree(rng, side - 2)
    last = side - 3
    corners = [(0, 0), (last, 0), (0, last), (last, last)]
    start, goal = rng.choice(4, 2, replace=False)
    return make_level(walls, corners[goal], corners[start], time_limit=time_limit or 2 * side**2)


def _spanning_tree(rng: np.random.Generator, size: int) -> Bool[np.ndarray, "size size"]:
    """The walls of a maze without loops; cells are the tiles with two even coordinates."""
    cells = (size + 1) // 2
    walls = np.ones((size, size), bool)
    walls[::2, ::2] = False
    root = list(range(cells * cells))

    def find(cell: int) -> int:
        while root[cell] != cell:
            root[cell] = root[root[cell]]
            cell = root[cell]
        return cell

    east = [(y, x, 0, 1) for y in range(cells) for x in range(cells - 1)]
    south = [(y, x, 1, 0) for y in range(cells - 1) for x in range(cells)]
    for y, x, down, right in rng.permutation(np.array(east + south)).tolist():
        here, there = find(y * cells + x), find((y + down) * cells + x + right)
        if here != there:
            root[here] = there
            walls[2 * y + down, 2 * x + right] = False
    return walls


def open_maze(rng: np.random.Generator, size: int) -> Bool[np.ndarray, "size size"]:
    """A maze without loops, less up to a quarter of the walls between two neighbouring cells.

    The share that is taken away is uniform, so that some mazes have few loops and some many.
    """
    walls = _spanning_tree(rng, size)
    y, x = np.indices(walls.shape)
    between = walls & ((x + y) % 2 == 1)
    return walls & ~(between & (rng.random(walls.shape) < rng.uniform(0.0, 0.25)))


def room_maze(rng: np.random.Generator, size: int) -> Bool[np.ndarray, "size size"]:
    """Rooms of 2 to 5 tiles by recursive division: each wall has one door, so that there are no loops."""
    walls = np.zeros((size, size), bool)
    parts = [(0, 0, size, size)]
    while parts:
        top, left, height, width = parts.pop()
        if max(height, width) <= _LARGEST_ROOM:
            continue
        # The longer side is divided. Walls stand on odd lines and doors on even ones: none is blocked.
        upright = width > height or (width == height and bool(rng.integers(2)))
        length = width if upright else height
        line = 1 + 2 * int(rng.integers((length - 1) // 2))
        door = 2 * int(rng.integers((height if upright else width) // 2 + 1))
        if upright:
            walls[top : top + height, left + line] = True
            walls[top + door, left + line] = False
            parts += [(top, left, height, line), (top, left + line + 1, height, width - line - 1)]
        else:
            walls[top + line, left : left + width] = True
            walls[top + line, left + door] = False
            parts += [(top, left, line, width), (top + line + 1, left, height - line - 1, width)]
    return walls


def four_rooms(rng: np.random.Generator) -> MazeLevel:
    """Four rooms of 8 x 8 tiles with a door in each of the four walls between them; occluded, H = 100."""
    walls = np.zeros((17, 17), bool)
    walls[8, :] = walls[:, 8] = True
    for first in (0, 9):
        walls[first + rng.integers(8), 8] = False
        walls[8, first + rng.integers(8)] = False
    free = np.argwhere(~walls)[:, ::-1]
    start, goal = free[rng.choice(len(free), 2, replace=False)]
    return make_level(walls, goal, start, direction=int(rng.integers(4)), time_limit=100, occluded=True)


def simple_crossing(rng: np.random.Generator, side: int, rivers: int) -> MazeLevel:
    """Walls across the whole maze, each with one opening on a path from corner to corner; occluded.

    Works in coordinates of the full grid, in which lines and borders are both limits of rooms.
    """
    lines = [(axis, offset) for axis in (0, 1) for offset in range(2, side - 2, 2)]
    walls = [lines[number] for number in rng.permutation(len(lines))[:rivers]]
    limits = [
        [0, *sorted(offset for wall_axis, offset in walls if wall_axis == axis), side - 1] for axis in (0, 1)
    ]
    grid = np.zeros((side, side), bool)
    for axis, offset in walls:
        grid[(slice(None), offset) if axis == 0 else (offset, slice(None))] = True
    room = [0, 0]
    for axis in rng.permutation([axis for axis, _ in walls]).tolist():
        other = 1 - axis
        opening = [0, 0]
        opening[axis] = limits[axis][room[axis] + 1]
        opening[other] = int(rng.integers(limits[other][room[other]] + 1, limits[other][room[other] + 1]))
        grid[opening[1], opening[0]] = False
        room[axis] += 1
    far = side - 3
    return make_level(grid[1:-1, 1:-1], (far, far), (0, 0), time_limit=4 * side**2, occluded=True)


def corridor(size: int, goal: tuple[int, int]) -> MazeLevel:
    """Dead-end corridors on both sides of a middle wall, inside a ring; the goal is in one of them."""
    middle = size // 2
    x, y = np.meshgrid(np.arange(size), np.arange(size))
    inner = (x >= 1) & (x <= size - 2) & (y >= 1) & (y <= size - 2)
    walls = inner & ((x % 2 == 1) | (y == middle))
    return make_level(walls, goal, (0, middle), time_limit=2 * (size + 2) ** 2)


def corridor_goals(size: int) -> list[tuple[int, int]]:
    """Every goal of a corridor maze: the closed end of each dead end, above and below the middle."""
    middle = size // 2
    return [(x, y) for y in (middle - 1, middle + 1) for x in range(2, size - 2, 2)]
