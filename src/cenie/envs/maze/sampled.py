"""Held-out levels in bands of their shortest path, sampled by a fixed seed. NumPy, on the host."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from jaxtyping import Bool, Int

from cenie.envs.base import Suite, SuiteEntry
from cenie.envs.maze.level import MazeLevel, make_level
from cenie.envs.maze.procedural import open_maze, room_maze

SIDE = 21
"""Tiles along each side of a sampled level, without the border, as in the preset `hard`."""
TIME_LIMIT = 150
FILL = (0.0, 0.6)
"""Between what the share of walls lies: the level space of the preset `hard`."""
LEVELS_PER_BAND = 100
_SEED = 2_024
_BATCH = 1000


@dataclass(frozen=True)
class Band:
    """Levels of one rule whose shortest path has from `low` to `high` steps."""

    rule: str
    low: int
    high: int

    @property
    def name(self) -> str:
        return f"{self.rule} {self.low}-{self.high}"


BANDS = (
    *(Band("filled", low, low + 9) for low in (1, 11, 21, 31)),
    Band("filled", 41, 60),
    *(Band("rooms", low, low + 19) for low in (1, 21, 41)),
    *(Band("opened", low, low + 19) for low in (1, 21)),
)
"""The bands of `hard1000`. Half of the levels are of the kind that students of `hard` are trained on."""


def sampled_suite() -> Suite:
    """1,000 solvable levels, always the same, 100 for each band, which is the `level` of its entries."""
    return Suite(
        "hard1000",
        [
            SuiteEntry(band.name, f"{place:03d}", partial(_as_it_is, level))
            for band, levels in _sampled().items()
            for place, level in enumerate(levels)
        ],
    )


@cache
def _sampled() -> Mapping[Band, Sequence[MazeLevel]]:
    """The levels of every band, drawn once in a process: that takes some seconds."""
    levels: dict[Band, Sequence[MazeLevel]] = {}
    for number, rule in enumerate(dict.fromkeys(band.rule for band in BANDS)):
        bands = [band for band in BANDS if band.rule == rule]
        levels |= _fill_bands(_RULES[rule], bands, np.random.default_rng((_SEED, number)))
    return levels


def _as_it_is(level: MazeLevel, rng: np.random.Generator) -> MazeLevel:
    return level


@dataclass(frozen=True)
class _Draws:
    """Some levels as arrays, with their shortest paths (0 where there is none)."""

    walls: Bool[np.ndarray, "n h w"]
    start: Int[np.ndarray, "n 2"]
    goal: Int[np.ndarray, "n 2"]
    direction: Int[np.ndarray, " n"]

    def level(self, row: int) -> MazeLevel:
        return make_level(
            self.walls[row],
            self.goal[row],
            self.start[row],
            direction=int(self.direction[row]),
            time_limit=TIME_LIMIT,
        )


def _fill_bands(
    draw: Callable[[np.random.Generator], _Draws], bands: Sequence[Band], rng: np.random.Generator
) -> dict[Band, list[MazeLevel]]:
    """Draw levels until every band has its number; a level whose band is full is dropped."""
    levels: dict[Band, list[MazeLevel]] = {band: [] for band in bands}
    while any(len(found) < LEVELS_PER_BAND for found in levels.values()):
        draws = draw(rng)
        paths = shortest_paths(~draws.walls, draws.start, draws.goal)
        for band, found in levels.items():
            rows = np.flatnonzero((paths >= band.low) & (paths <= band.high))
            found += [draws.level(row) for row in rows[: LEVELS_PER_BAND - len(found)].tolist()]
    return levels


def _draw_filled(rng: np.random.Generator) -> _Draws:
    """Levels of the generator "filled": each tile is a wall with one probability, which is drawn first."""
    shares = rng.uniform(*FILL, _BATCH)
    walls = rng.random((_BATCH, SIDE, SIDE)) < shares[:, None, None]
    start, goal = rng.integers(SIDE, size=(2, _BATCH, 2))
    rows = np.arange(_BATCH)
    for x, y in (start.T, goal.T):
        walls[rows, y, x] = False
    return _Draws(walls, start, goal, rng.integers(4, size=_BATCH))


def _draw_built(build: Callable[[np.random.Generator, int], np.ndarray], rng: np.random.Generator) -> _Draws:
    """Levels of a rule that builds one map after the other, with start and goal on random free tiles."""
    walls = np.stack([build(rng, SIDE) for _ in range(_BATCH // 10)])
    places = np.array(
        [np.argwhere(~each)[:, ::-1][rng.choice(np.sum(~each), 2, replace=False)] for each in walls]
    )
    return _Draws(walls, places[:, 0], places[:, 1], rng.integers(4, size=len(walls)))


_RULES: dict[str, Callable[[np.random.Generator], _Draws]] = {
    "filled": _draw_filled,
    "rooms": partial(_draw_built, room_maze),
    "opened": partial(_draw_built, open_maze),
}


def shortest_paths(
    free: Bool[np.ndarray, "n h w"], start: Int[np.ndarray, "n 2"], goal: Int[np.ndarray, "n 2"]
) -> Int[np.ndarray, " n"]:
    """Lengths of the shortest 4-connected paths from start to goal, places (x, y); 0 where there is none."""
    rows = np.arange(len(free))
    flood = np.zeros_like(free)
    flood[rows, start[:, 1], start[:, 0]] = True
    paths, length = np.zeros(len(free), int), 0
    while True:
        spread = flood.copy()
        spread[:, 1:] |= flood[:, :-1]
        spread[:, :-1] |= flood[:, 1:]
        spread[:, :, 1:] |= flood[:, :, :-1]
        spread[:, :, :-1] |= flood[:, :, 1:]
        spread &= free
        length += 1
        arrived = spread[rows, goal[:, 1], goal[:, 0]] & (paths == 0)
        paths[arrived] = length
        if np.array_equal(spread, flood):
            return np.where((start == goal).all(axis=1), 0, paths)
        flood = spread
