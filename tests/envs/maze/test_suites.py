"""Held-out levels against the published check values, by an independent search."""

import jax
import numpy as np
import pytest

from cenie.envs.maze.bitmaps import BITMAPS
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.level import level_problems
from cenie.envs.maze.procedural import (
    PERFECT_SIDES,
    corridor,
    corridor_goals,
    four_rooms,
    perfect_maze,
    simple_crossing,
)
from cenie.envs.maze.suites import ORIENTATIONS, bitmap_level, labyrinth_flipped, oriented, suites
from tests.envs.maze.oracle import fewest_actions, path_length

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


@pytest.mark.parametrize("name", list(BITMAPS))
def test_bitmaps_have_the_published_check_values(name):
    level = bitmap_level(name)
    assert measures(level) == CHECKS[name]
    assert (int(level.time_limit), int(level.direction), bool(level.occluded)) == (450, 0, False)


def test_labyrinth_flipped_starts_bottom_right_and_faces_west():
    level = labyrinth_flipped()
    assert (level.start.tolist(), level.goal.tolist(), int(level.direction)) == ([12, 12], [6, 6], 2)
    assert measures(level) == CHECKS["Labyrinth"]


@pytest.mark.parametrize("name", ["SixteenRooms", "Labyrinth2", "Maze3"])
def test_all_orientations_differ_and_are_equally_hard(name):
    levels = [oriented(bitmap_level(name), kind) for kind in ORIENTATIONS]
    assert len({level.wall_map.tobytes() + level.start.tobytes() for level in levels}) == 8
    assert {int(level.direction) for level in levels} == {0, 1, 2, 3}
    for level in levels:
        assert measures(level) == CHECKS[name]
    assert jax.tree.all(jax.tree.map(np.array_equal, levels[0], bitmap_level(name)))


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
    for level in levels:
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
