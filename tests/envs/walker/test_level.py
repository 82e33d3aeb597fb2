"""Levels: what is valid, what the logs say of one, JSON, and the held-out suites."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenie.envs.base import stack_same_shapes
from cenie.envs.walker.formats import from_json, to_json
from cenie.envs.walker.level import (
    CLASSES,
    HIGHEST,
    LOWEST,
    PARAMETERS,
    difficulty,
    make_level,
    statistics,
)
from cenie.envs.walker.suites import suites

GOOD = to_json(make_level(7, roughness=1.5))


@given(
    st.lists(st.floats(0, 1, width=32), min_size=8, max_size=8),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.integers(1, 10**7),
)
@settings(max_examples=100, deadline=None)
def test_json_gives_the_same_level_back(parts, seed, hardcore, limit):
    values = np.clip(LOWEST + np.float32(parts) * (HIGHEST - LOWEST), LOWEST, HIGHEST)
    parameters = dict(zip(PARAMETERS, map(float, values)))
    level = make_level(seed, hardcore=hardcore, time_limit=limit, **parameters)
    again = from_json(json.loads(json.dumps(to_json(level))))
    jax.tree.map(np.testing.assert_array_equal, again, level)
    assert [leaf.dtype for leaf in jax.tree.leaves(again)] == [leaf.dtype for leaf in jax.tree.leaves(level)]
    assert again.seed.dtype == np.uint32


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"roughness": 10.5}, r"roughness must lie in 0 \.\. 10, got 10\.5"),
        ({"stair_steps": 0}, r"stair_steps must lie in 1 \.\. 9, got 0"),
        ({"pit_low": -1, "stump_high": 6}, r"pit_low must .*; stump_high must lie in 0 \.\. 5"),
        ({"pit_low": float("nan")}, "'pit_low' must be a finite number"),
        ({"pit_low": float("inf")}, "'pit_low' must be a finite number"),
        ({"pit_low": 10**400}, "'pit_low' must be a finite number"),
        ({"pit_low": "1"}, "'pit_low' must be a finite number, got a text"),
        ({"pit_low": True}, "'pit_low' must be a finite number, got true or false"),
        ({"seed": 2**32}, r"'seed' must lie in 0 \.\. 4294967295"),
        ({"seed": -1}, "'seed' must lie in"),
        ({"seed": 1.0}, "'seed' must be a whole number"),
        ({"hardcore": 1}, "'hardcore' must be true or false, got a number"),
        ({"time_limit": 0}, "time limit must be at least 1"),
        ({"time_limit": None}, "'time_limit' must be a whole number, got null"),
        ({"colour": "red"}, "unknown colour"),
    ],
)
def test_malformed_json_is_refused_with_a_reason(change, reason):
    assert from_json(GOOD)
    with pytest.raises(ValueError, match=reason):
        from_json(GOOD | change)


@pytest.mark.parametrize("data", [[], "text", None, 3, {}, {"seed": 1}])
def test_what_is_no_level_is_refused(data):
    with pytest.raises(ValueError, match=r"a level (is|has)"):
        from_json(data)


def test_levels_of_plain_values_are_checked_too():
    with pytest.raises(ValueError, match=r"no parameters of a walker level: slope; roughness, pit_low.* are"):
        make_level(0, slope=1)
    with pytest.raises(ValueError, match=r"the seed must lie in 0 \.\. 4294967295, got -1"):
        make_level(-1)


@pytest.mark.parametrize(
    ("parameters", "reached"),
    [
        ({}, 0),
        ({"roughness": 4.49, "pit_high": 5.99, "stump_high": 2.39, "stair_high": 4.99}, 0),
        ({"roughness": 4.5}, 1),
        ({"pit_low": 6, "pit_high": 1}, 1),  # pairs are stored unsorted
        ({"stump_high": 2.4, "pit_high": 6}, 2),
        ({"stair_low": 5, "stump_low": 5, "roughness": 10}, 3),
        ({"roughness": 4.5, "pit_high": 6, "stump_high": 2.4, "stair_high": 5}, 4),
    ],
)
def test_difficulty_counts_the_thresholds_of_the_paper(parameters, reached):
    found = statistics(make_level(0, **parameters))
    assert int(found["difficulty"]) == reached
    assert [bool(found[f"is_{name}"]) for name in CLASSES] == [number == reached for number in range(5)]
    assert [float(found[name]) for name in PARAMETERS] == pytest.approx(
        [parameters.get(name, lowest) for name, lowest in zip(PARAMETERS, LOWEST)]
    )


@pytest.mark.parametrize(
    ("name", "first", "step", "count"),
    [("stump_high", 0.4, 0.2, 10), ("pit_high", 0.8, 0.4, 13), ("stair_high", 0.4, 0.2, 23)],
)
def test_thresholds_are_reached_by_steps_of_the_editor_in_single_precision(name, first, step, count):
    sizes = [np.float32(first)]
    for _ in range(count):
        sizes.append(sizes[-1] + np.float32(step))
    smallest = np.asarray(make_level(0).parameters)
    for size, reached in zip(sizes, [0] * count + [1], strict=True):
        parameters = np.where(np.array(PARAMETERS) == name, size, smallest)
        level = dataclasses.replace(make_level(0), parameters=parameters)
        assert int(difficulty(level)) == reached, size


def test_suites_are_the_ones_of_the_papers_and_more():
    assert tuple(suites()) == ("walker6", "poet-roses", "high", "extreme")


@pytest.mark.parametrize("name", list(suites()))
def test_suites_draw_a_new_terrain_of_the_same_kind_for_each_episode(name):
    suite = suites()[name]()
    assert suite.measure == "score"
    labels, levels = suite.draw(0, 3)
    again = suite.draw(0, 3)[1]
    jax.tree.map(np.testing.assert_array_equal, stack_same_shapes(levels), stack_same_shapes(again))
    assert len({int(level.seed) for level in levels}) == len(levels) == 3 * len(suite.entries)
    other = suite.draw(1, 3)[1]
    assert {int(level.seed) for level in levels}.isdisjoint(int(level.seed) for level in other)
    for first in range(0, len(levels), 3):
        same = np.ptp([level.parameters for level in levels[first : first + 3]], axis=0) == 0
        assert same.all() == (name != "extreme"), labels[first]


def test_the_six_environments_of_the_paper():
    suite = suites()["walker6"]()
    names = [entry.level for entry in suite.entries]
    assert names == ["BipedalWalker", "Hardcore", "Stair", "PitGap", "Stump", "Roughness"]
    levels = dict(zip(names, suite.draw(0, 1)[1]))
    assert {name: int(level.time_limit) for name, level in levels.items()} == {
        name: 1600 if name == "BipedalWalker" else 2000 for name in names
    }
    assert [name for name, level in levels.items() if level.hardcore] == ["Hardcore"]
    assert levels["Stair"].parameters.tolist() == [0, 0, 0, 0, 0, 2, 2, 5]
    assert levels["PitGap"].parameters.tolist() == [0, 5, 5, 0, 0, 0, 0, 1]
    assert levels["Stump"].parameters.tolist() == [0, 0, 0, 2, 2, 0, 0, 1]
    # A return of 300 counts as 1, and what lies outside the bounds is not cut off.
    assert [suite.entries[0].score(value, False) for value in (0.0, 150.0, 330.0)] == [0.0, 0.5, 1.1]


def test_extreme_levels_are_extreme_but_for_stairs():
    (entry,) = suites()["extreme"]().entries
    rng = np.random.default_rng(0)
    values = [statistics(entry.draw(rng)) for _ in range(20)]
    assert {int(found["difficulty"]) for found in values} == {3}
