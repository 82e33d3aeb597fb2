"""Levels that differ in a few numbers."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from cenie.envs.base import Environment
from cenie.envs.parameters import SMALL, Parameters, parameter_domain
from cenie.records import Step
from cenie.spaces import Box, Discrete, Space
from tests.unchecked import unchecked

UNCHECKED = unchecked("cenie.envs.parameters")
KEYS = jax.random.split(jax.random.key(0), 400)


class Track(eqx.Module):
    slope: Array
    length: Array
    weight: Array
    moment: Array


DEFAULT = Track(jnp.float32(0.5), jnp.int32(4), jnp.float32(2.0), jnp.float32(1.0))
RANGES = {"slope": (-1.0, 1.0), "length": (2, 5)}


def with_moment(level: Track) -> Track:
    return dataclasses.replace(level, moment=level.slope * level.weight)


PARAMETERS = Parameters(DEFAULT, RANGES, with_moment)


def test_generated_levels_fill_the_ranges_evenly():
    levels = jax.vmap(PARAMETERS.generate)(KEYS)
    assert levels.length.dtype == jnp.int32
    _, counts = np.unique(levels.length, return_counts=True)
    assert len(counts) == 4
    assert counts.min() > 70  # 100 are expected
    assert np.abs(levels.slope).max() <= 1.0
    np.testing.assert_allclose(np.quantile(levels.slope, [0.25, 0.5, 0.75]), [-0.5, 0.0, 0.5], atol=0.12)
    np.testing.assert_array_equal(levels.weight, np.full(400, 2.0))
    np.testing.assert_array_equal(levels.moment, levels.slope * 2.0)


def test_simple_levels_are_close_to_the_default_and_not_all_equal():
    levels = jax.vmap(PARAMETERS.generate_simple)(KEYS)
    assert np.abs(levels.slope - 0.5).max() <= SMALL + 1e-6
    assert len(np.unique(levels.slope)) > 300
    assert set(levels.length.tolist()) == {4}


@pytest.mark.parametrize("length", [2, 4, 5])
def test_an_edit_moves_one_number_a_little_and_keeps_it_in_range(length):
    level = with_moment(dataclasses.replace(DEFAULT, slope=jnp.float32(0.99), length=jnp.int32(length)))
    edited = jax.vmap(PARAMETERS.edit, (0, None))(KEYS, level)
    slopes, lengths = np.asarray(edited.slope), np.asarray(edited.length)
    moved = np.stack([slopes != np.float32(0.99), lengths != length])
    np.testing.assert_array_equal(moved.sum(axis=0), 1)
    assert moved.sum(axis=1).min() > 150
    assert np.abs(slopes - 0.99).max() <= 2 * SMALL + 1e-6
    assert slopes.max() <= 1.0
    assert set(lengths.tolist()) == {max(length - 1, 2), length, min(length + 1, 5)}
    np.testing.assert_array_equal(edited.moment, slopes * 2.0)


def test_levels_survive_json_and_the_space_of_parameters():
    space = PARAMETERS.space()
    for key in KEYS[:5]:
        level = PARAMETERS.generate(key)
        again = PARAMETERS.from_json(json.loads(json.dumps(PARAMETERS.to_json(level))))
        jax.tree.map(np.testing.assert_array_equal, again, level)
        jax.tree.map(np.testing.assert_array_equal, space.decode(space.encode(level)), level)
    assert PARAMETERS.to_json(DEFAULT) == {"slope": 0.5, "length": 4.0}
    assert {name: float(value) for name, value in PARAMETERS.statistics(DEFAULT).items()} == {
        "slope": 0.5,
        "length": 4.0,
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1, 2], "must have the numbers slope, length"),
        ({"slope": 1.0}, "must have the numbers slope, length"),
        ({"slope": 1.0, "length": 2, "width": 3}, "must have the numbers slope, length"),
        ({"slope": "steep", "length": 2}, "slope: must be a finite number"),
        ({"slope": True, "length": 2}, "slope: must be a finite number"),
        ({"slope": 1e300, "length": 2}, "slope: must be a finite number"),
        ({"slope": float("nan"), "length": 2}, "slope: must be a finite number"),
        ({"slope": 1.0, "length": 2.5}, "length: must be a whole number"),
    ],
)
def test_bad_json_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        PARAMETERS.from_json(data)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({}, "at least one"),
        ({"width": (0, 1)}, "no field 'width', only slope, length, weight, moment"),
        ({"slope": (1.0, -1.0)}, "slope: the range must be two finite numbers"),
        ({"slope": (0.0, float("inf"))}, "slope: the range must be two finite numbers"),
        ({"slope": (0.0, 0.5, 1.0)}, "slope: the range must be two finite numbers"),
        ({"slope": ("a", "b")}, "slope: the range must be two finite numbers"),
        ({"slope": 3.0}, "slope: the range must be two finite numbers"),
        ({"length": (1.5, 3)}, "length: the ends of the range of a whole number"),
        ({"length": (1, 2**30)}, "length: the ends of the range of a whole number"),
    ],
)
def test_bad_ranges_are_refused(ranges, message):
    with pytest.raises(ValueError, match=message):
        UNCHECKED.Parameters(DEFAULT, ranges)


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ({"slope": jnp.zeros(2)}, "only a single number"),
        ({"slope": 0.5}, "cenie.as_level"),
        ({"slope": jnp.array(True)}, "only a single number"),
        (jnp.zeros(3), "must be a dataclass or a dict"),
    ],
)
def test_bad_defaults_are_refused(default, message):
    with pytest.raises(ValueError, match=message):
        Parameters(default, {"slope": (0.0, 1.0)})


class Slide(Environment):
    """Every step pays the slope, until the track ends."""

    max_steps: int = eqx.field(static=True, default=5)
    observation_space: Space = eqx.field(static=True, default=Box((), -1.0, 1.0))
    action_space: Space = eqx.field(static=True, default=Discrete(2))

    def reset(self, key, level):
        return level.slope, jnp.int32(0)

    def step(self, key, level, state, action):
        ended = state + 1 >= level.length
        return Step(level.slope, state + 1, level.slope, ended, ~ended & ended, ended)


def test_the_suites_of_a_domain():
    domain = parameter_domain("slide", Slide(), PARAMETERS, bounds=(-5.0, 5.0))
    assert domain.generator("simple") == PARAMETERS.generate_simple
    extremes = domain.suites["extremes"]()
    labels, levels = extremes.draw(0, 1)
    assert [label[:2] for label in labels] == [
        ("default", "default"),
        ("slope", "low"),
        ("slope", "high"),
        ("length", "low"),
        ("length", "high"),
    ]
    stacked = domain.stack(levels)
    np.testing.assert_array_equal(stacked.slope, np.float32([0.5, -1.0, 1.0, 0.5, 0.5]))
    np.testing.assert_array_equal(stacked.length, [4, 4, 4, 2, 5])
    assert extremes.measure == "score"
    assert extremes.entries[0].score(2.5, False) == 0.75
    drawn = domain.suites["random"]().draw(3, 4)[1]
    assert len({float(level.slope) for level in drawn}) == 4
    again = domain.suites["random"]().draw(3, 4)[1]
    assert [float(level.slope) for level in drawn] == [float(level.slope) for level in again]
