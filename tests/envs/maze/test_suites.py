"""Held-out levels against the published check values, by an independent search."""

import hashlib

import jax
import numpy as np
import pytest

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.level import level_problems, make_level
from cenie.envs.maze.procedural import (
    PERFECT_SIDES,
    corridor,
    corridor_goals,
    four_rooms,
    open_maze,
    perfect_maze,
    room_maze,
    simple_crossing,
)
from cenie.envs.maze.sampled import BANDS, FILL, LEVELS_PER_BAND, SIDE, TIME_LIMIT, shortest_paths
from cenie.envs.maze.suites import HAND_MADE, ORIENTATIONS, hand_made, labyrinth_flipped, oriented, suites
from cenie.experiment.presets import preset
from tests.envs.maze.oracle import fewest_actions, path_length, random_level_values

CHECKS = {  # walls, shortest path, fewest actions
    "SixteenRooms": (46, 20, 26),
    "SixteenRoomsFewerDoors": (53, 22, 28),
    "Labyrinth": (72, 96, 113),
    "Labyrinth2": (72, 96, 113),
    "Maze": (73, 40, 54),
    "Maze2": (72, 56, 73),
    "Maze3": (71, 39, 54),
    "NineRooms": (36, 20, 24),
    "NineRoomsFewerDoors": (39, 34, 42),
}


def measures(level):
    walls = np.asarray(level.wall_map)
    return int(walls.sum()), path_length(walls, level.start, level.goal), fewest_actions(level)


@pytest.mark.parametrize("name", list(HAND_MADE))
def test_hand_made_mazes_have_the_published_check_values(name):
    level = hand_made(name)
    assert measures(level) == CHECKS[name]
    assert (int(level.time_limit), int(level.direction), bool(level.occluded)) == (450, 0, False)


def test_labyrinth_flipped_starts_bottom_right_and_faces_west():
    level = labyrinth_flipped()
    assert (level.start.tolist(), level.goal.tolist(), int(level.direction)) == ([12, 12], [6, 6], 2)
    assert measures(level) == CHECKS["Labyrinth"]


@pytest.mark.parametrize("name", ["SixteenRooms", "Labyrinth2", "Maze3"])
def test_all_orientations_differ_and_are_equally_hard(name):
    levels = [oriented(hand_made(name), kind) for kind in ORIENTATIONS]
    assert len({level.wall_map.tobytes() + level.start.tobytes() for level in levels}) == 8
    assert {int(level.direction) for level in levels} == {0, 1, 2, 3}
    for level in levels:
        assert measures(level) == CHECKS[name]
    assert jax.tree.all(jax.tree.map(np.array_equal, levels[0], hand_made(name)))


@pytest.mark.parametrize(("size", "walls", "limit", "rows"), [(13, 71, 450, (6, 8)), (19, 161, 882, (9, 11))])
def test_corridors_have_the_published_check_values(size, walls, limit, rows):
    goals = corridor_goals(size)
    assert sorted({x + 1 for x, _ in goals}) == list(range(3, size, 2))
    assert {y + 1 for _, y in goals} == set(rows)
    assert len(goals) == 2 * ((size - 3) // 2)
    for goal in goals:
        level = corridor(size, goal)
        column = goal[0] + 1
        fewest = (16 if size == 13 else 22) + column - 3
        assert int(level.wall_map.sum()) == walls
        assert fewest_actions(level) == fewest
        assert int(level.time_limit) == limit


@pytest.mark.parametrize(("name", "limit"), [("Small", 242), ("Medium", 882), ("Large", 5202), ("XL", 20402)])
def test_perfect_mazes_are_spanning_trees_between_two_corners(name, limit):
    side = PERFECT_SIDES[name]
    level = perfect_maze(np.random.default_rng(3), side)
    nodes = ((side - 1) // 2) ** 2
    # A tree on the nodes: as many open tiles between them as edges, and every open tile is reachable.
    assert int((~level.wall_map).sum()) == nodes + nodes - 1
    assert not level.wall_map[::2, ::2].any()
    assert path_length(level.wall_map, level.start, (side - 3, side - 3)) is not None
    assert reachable(level) == 2 * nodes - 1
    corners = {0, side - 3}
    assert {*level.start.tolist(), *level.goal.tolist()} <= corners
    assert (int(level.time_limit), int(level.direction)) == (limit, 0)
    assert int(perfect_maze(np.random.default_rng(3), side, 5000).time_limit) == 5000


def reachable(level):
    walls = np.asarray(level.wall_map)
    seen, queue = {tuple(level.start.tolist())}, [tuple(level.start.tolist())]
    while queue:
        x, y = queue.pop()
        for place in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            inside = 0 <= place[0] < walls.shape[1] and 0 <= place[1] < walls.shape[0]
            if inside and not walls[place[1], place[0]] and place not in seen:
                seen.add(place)
                queue.append(place)
    return len(seen)


def test_perfect_mazes_use_all_twelve_ordered_pairs_of_corners():
    mazes = [perfect_maze(np.random.default_rng(seed), 11) for seed in range(200)]
    assert len({(*maze.start.tolist(), *maze.goal.tolist()) for maze in mazes}) == 12


def test_four_rooms_have_one_door_in_each_of_four_walls():
    doors, directions = set(), set()
    for seed in range(200):
        level = four_rooms(np.random.default_rng(seed))
        walls = level.wall_map
        assert walls.shape == (17, 17)
        assert walls[8, 8]
        for segment in (walls[:8, 8], walls[9:, 8], walls[8, :8], walls[8, 9:]):
            assert segment.sum() == 7
            doors.add(int(np.argmin(segment)))
        walls = walls.copy()
        walls[8], walls[:, 8] = False, False
        assert not walls.any()
        assert (int(level.time_limit), bool(level.occluded)) == (100, True)
        assert fewest_actions(level) is not None
        directions.add(int(level.direction))
    assert doors == set(range(8))
    assert directions == {0, 1, 2, 3}


@pytest.mark.parametrize(("side", "rivers", "limit"), [(9, 1, 324), (9, 2, 324), (9, 3, 324), (11, 5, 484)])
def test_crossings_have_one_opening_per_river_and_a_path(side, rivers, limit):
    patterns = set()
    for seed in range(200):
        level = simple_crossing(np.random.default_rng(seed), side, rivers)
        walls = np.asarray(level.wall_map)
        inner = side - 2
        # Rivers cover odd lines inside the border; openings leave more than half of a line standing.
        columns = [x for x in range(1, inner - 1, 2) if walls[:, x].sum() > inner / 2]
        rows = [y for y in range(1, inner - 1, 2) if walls[y].sum() > inner / 2]
        assert len(columns) + len(rows) == rivers
        full = np.zeros_like(walls)
        full[:, columns], full[rows] = True, True
        assert (full & ~walls).sum() == rivers
        assert not (walls & ~full).any()
        assert fewest_actions(level) is not None
        assert (level.start.tolist(), level.goal.tolist()) == ([0, 0], [side - 3, side - 3])
        assert (int(level.time_limit), bool(level.occluded)) == (limit, True)
        patterns.add((len(columns), len(rows)))
    assert len(patterns) > 1


def test_suites_hold_the_published_levels():
    names = {name: [entry.level for entry in build().entries] for name, build in suites().items()}
    assert len(names["cenie8"]) == 8
    assert len(names["accel12"]) == 12
    assert len(names["plr7"]) == 7
    assert set(names["plr7"]) < set(names["accel12"]) < set(names["all"])
    assert names["perfect-large"] == ["PerfectMazeLarge"]
    assert "PerfectMazeXL" not in names["all"]
    symmetric = names["cenie8-sym"]
    assert set(symmetric) == set(names["cenie8"])
    assert symmetric.count("LargeCorridor") == 16
    assert symmetric.count("Maze") == symmetric.count("PerfectMazeMedium") == 8


@pytest.mark.parametrize("name", list(suites()))
def test_every_drawn_level_is_valid_solvable_and_survives_json(name):
    domain = maze_domain(MazeConfig())
    suite = domain.suites[name]()
    labels, levels = suite.draw(seed=4, episodes=2)
    assert len(set(labels)) == len(labels) == 2 * len(suite.entries)
    assert len({(entry.level, entry.variant) for entry in suite.entries}) == len(suite.entries)
    for level in {id(level): level for level in levels}.values():
        assert not level_problems(level)
        assert fewest_actions(level) <= int(level.time_limit)
        assert jax.tree.all(jax.tree.map(np.array_equal, domain.from_json(domain.to_json(level)), level))
    assert domain.stack(levels).wall_map.shape[0] == len(levels)


def test_draws_depend_on_the_seed_and_keep_the_first_episodes():
    suite = suites()["perfect-large"]()
    (_, few), (_, more), (_, other) = suite.draw(0, 1), suite.draw(0, 2), suite.draw(1, 1)
    assert np.array_equal(few[0].wall_map, more[0].wall_map)
    assert not np.array_equal(more[0].wall_map, more[1].wall_map)
    assert not np.array_equal(few[0].wall_map, other[0].wall_map)


# --- levels sampled in bands


def test_hard1000_has_a_hundred_levels_in_every_band_whose_paths_an_own_search_finds():
    suite = suites()["hard1000"]()
    assert len(suite.entries) == 1000
    found = {}
    for (name, *_), level in zip(*suite.draw(seed=0, episodes=1), strict=True):
        found.setdefault(name, []).append(path_length(level.wall_map, level.start, level.goal))
        assert (level.wall_map.shape, int(level.time_limit)) == ((SIDE, SIDE), TIME_LIMIT)
    assert list(found) == [band.name for band in BANDS]
    for band in BANDS:
        assert len(found[band.name]) == LEVELS_PER_BAND
        assert band.low <= min(found[band.name]) <= max(found[band.name]) <= band.high


def test_hard1000_is_always_the_same_and_no_level_is_there_twice():
    suite = suites()["hard1000"]()
    one, other = (suite.draw(seed, 1)[1] for seed in (0, 1))
    assert all(first is second for first, second in zip(one, other, strict=True))
    levels = [b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(level)) for level in one]
    assert len(set(levels)) == 1000
    # NumPy may change what its generators draw: then these are other levels, and need another name.
    assert hashlib.sha256(b"".join(levels)).hexdigest()[:16] == "fa00330e4c9b303d"


def test_the_level_space_of_hard1000_is_the_one_that_hard_trains_on():
    config = preset("maze", "dr", "hard").env
    assert (config.size, config.fill, config.max_steps) == (SIDE, FILL, TIME_LIMIT)


def test_shortest_paths_of_many_levels_are_those_of_a_search_in_each():
    rng = np.random.default_rng(0)
    values = [random_level_values(rng, 9, 7, density) for density in np.linspace(0.0, 0.7, 200)]
    walls, goals, starts = (np.array(part) for part in zip(*values, strict=True))
    found = shortest_paths(~walls, starts, goals)
    for length, (wall_map, goal, start) in zip(found, values, strict=True):
        assert length == (path_length(wall_map, start, goal) or 0)


@pytest.mark.parametrize("build", [room_maze, open_maze])
def test_mazes_that_are_built_are_connected_and_differ(build):
    mazes = [build(np.random.default_rng(seed), 21) for seed in range(50)]
    assert len({maze.tobytes() for maze in mazes}) == 50
    for walls in mazes:
        assert walls.shape == (21, 21)
        start, goal = np.argwhere(~walls)[[0, -1]][:, ::-1]
        level = make_level(walls, goal, start)
        assert reachable(level) == (~walls).sum()


def test_rooms_are_small_and_have_no_loops_through_doors():
    for seed in range(50):
        walls = room_maze(np.random.default_rng(seed), 21)
        # No free square is larger than a room.
        windows = np.lib.stride_tricks.sliding_window_view(walls, (6, 6))
        assert windows.any(axis=(2, 3)).all()


def test_open_mazes_have_from_no_loops_to_many():
    loops = []
    for seed in range(200):
        walls = open_maze(np.random.default_rng(seed), 21)
        free = ~walls
        edges = (free[1:] & free[:-1]).sum() + (free[:, 1:] & free[:, :-1]).sum()
        loops.append(edges - free.sum() + 1)
    assert min(loops) < 5
    # A quarter of the 100 walls that stand between neighbouring cells of a tree with 121 cells.
    assert 15 < max(loops) < 45
