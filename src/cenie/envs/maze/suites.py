"""Held-out test levels and the named suites made of them. NumPy, on the host."""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import resources

import numpy as np

from cenie.envs.base import Suite, SuiteEntry
from cenie.envs.maze.formats import from_text
from cenie.envs.maze.level import MazeLevel, make_level
from cenie.envs.maze.procedural import (
    PERFECT_SIDES,
    corridor,
    corridor_goals,
    four_rooms,
    perfect_maze,
    simple_crossing,
)
from cenie.envs.maze.sampled import sampled_suite

CENIE8 = (
    "SixteenRooms",
    "SixteenRoomsFewerDoors",
    "Labyrinth",
    "Labyrinth2",
    "Maze",
    "Maze2",
    "PerfectMazeMedium",
    "LargeCorridor",
)
ACCEL12 = (*CENIE8, "Maze3", "SimpleCrossingS11N5", "FourRooms", "SmallCorridor")
PLR7 = ("SixteenRooms", "Labyrinth", "Labyrinth2", "Maze", "Maze2", "SimpleCrossingS11N5", "SmallCorridor")
ORIENTATIONS = tuple(f"{kind}{angle}" for kind in ("turned", "mirrored") for angle in (0, 90, 180, 270))
FRESH_MAZES = 8
"""The entries of `cenie8-sym` that are perfect mazes, each with its own draws."""

_CORRIDORS = {"SmallCorridor": 13, "LargeCorridor": 19}
_CROSSINGS = {"S9N1": (9, 1), "S9N2": (9, 2), "S9N3": (9, 3), "S11N5": (11, 5)}


def _drawings() -> dict[str, str]:
    """The hand-made mazes as drawings, by name."""
    text = resources.files("cenie.envs.maze").joinpath("data/mazes.txt").read_text("utf-8")
    mazes = (maze.partition("\n") for maze in text.strip().split("\n\n"))
    return {name: drawing for name, _, drawing in mazes}


HAND_MADE = _drawings()


def hand_made(name: str) -> MazeLevel:
    """A hand-made maze as published: the start faces east, H = 450."""
    return from_text(f"time_limit: 450\n{HAND_MADE[name]}\n")


def labyrinth_flipped() -> MazeLevel:
    """Labyrinth mirrored left to right, with a start that faces west, as jaxued and minimax have it."""
    return oriented(hand_made("Labyrinth"), "mirrored0")


def oriented(level: MazeLevel, orientation: str) -> MazeLevel:
    """A level mirrored left to right or not, then turned clockwise by 0, 90, 180 or 270 degrees.

    The places and the start direction move with the map, so the shortest solution is as long as before.
    """
    mirrored = orientation.startswith("mirrored")
    walls, direction = np.asarray(level.wall_map), int(level.direction)
    places = [np.asarray(place) for place in (level.goal, level.start)]
    if mirrored:
        places = [np.array([walls.shape[1] - 1 - x, y]) for x, y in places]
        walls = walls[:, ::-1]
        direction = (2 - direction) % 4
    for _ in range(int(orientation.removeprefix("mirrored" if mirrored else "turned")) // 90):
        places = [np.array([walls.shape[0] - 1 - y, x]) for x, y in places]
        walls = np.rot90(walls, -1)
        direction = (direction + 1) % 4
    limit, occluded = int(level.time_limit), bool(level.occluded)
    return make_level(walls, places[0], places[1], direction=direction, time_limit=limit, occluded=occluded)


def suites() -> dict[str, Callable[[], Suite]]:
    """Every named suite, built when called.

    `all` leaves out PerfectMazeXL: its 101 x 101 tiles and 20402 steps would set the cost of the rest.
    """
    named = {"cenie8": CENIE8, "accel12": ACCEL12, "plr7": PLR7, "perfect-large": ("PerfectMazeLarge",)}
    named["all"] = tuple(name for name in _draw_functions() if name != "PerfectMazeXL")
    built: dict[str, Callable[[], Suite]] = {
        name: partial(maze_suite, name, mazes) for name, mazes in named.items()
    }
    built["cenie8-sym"] = _symmetric_suite
    built["hard1000"] = sampled_suite
    return built


def maze_suite(name: str, mazes: Iterable[str]) -> Suite:
    """A suite of one entry per named maze; those that are drawn by a rule are drawn for each episode."""
    draws = _draw_functions()
    return Suite(name, [SuiteEntry(maze, "original", draws[maze]) for maze in mazes])


def _draw_functions() -> dict[str, Callable[[np.random.Generator], MazeLevel]]:
    """Every test maze by name, as a function that draws one episode's level."""
    draws: dict[str, Callable[[np.random.Generator], MazeLevel]] = {}
    for name in HAND_MADE:
        draws[name] = _fixed(hand_made(name))
    draws["LabyrinthFlipped"] = _fixed(labyrinth_flipped())
    for name, size in _CORRIDORS.items():
        draws[name] = partial(_random_corridor, size)
    for name, side in PERFECT_SIDES.items():
        draws[f"PerfectMaze{name}"] = partial(perfect_maze, side=side)
    draws["FourRooms"] = four_rooms
    for name, (side, rivers) in _CROSSINGS.items():
        draws[f"SimpleCrossing{name}"] = partial(simple_crossing, side=side, rivers=rivers)
    return draws


def _symmetric_suite() -> Suite:
    """The mazes of `cenie8` in all orientations, eight series of perfect mazes, and all corridor goals.

    A student that follows walls on one side solves a maze or its mirror image; the mean over both is
    steadier than either.
    """
    entries = []
    for name in CENIE8:
        if name in HAND_MADE:
            level = hand_made(name)
            entries += [
                SuiteEntry(name, orientation, _fixed(oriented(level, orientation)))
                for orientation in ORIENTATIONS
            ]
        elif name in _CORRIDORS:
            size = _CORRIDORS[name]
            for goal in corridor_goals(size):
                variant = f"goal {goal[0]},{goal[1]}"
                entries.append(SuiteEntry(name, variant, _fixed(corridor(size, goal))))
        else:
            draw = _draw_functions()[name]
            entries += [SuiteEntry(name, f"fresh {number}", draw) for number in range(FRESH_MAZES)]
    return Suite("cenie8-sym", entries)


def _random_corridor(size: int, rng: np.random.Generator) -> MazeLevel:
    goals = corridor_goals(size)
    return corridor(size, goals[rng.integers(len(goals))])


def _fixed(level: MazeLevel) -> Callable[[np.random.Generator], MazeLevel]:
    return lambda rng: level
