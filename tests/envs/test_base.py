"""Records of a domain: what they refuse, and what a space of parameters promises."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.base import Domain, Environment, ParameterSpace, TaskSpace


def encode(level):
    return jnp.stack([level["slope"], level["steps"].astype(jnp.float32)])


def decode(point):
    return {"slope": point[0], "steps": jnp.round(point[1]).astype(jnp.int32)}


def test_a_level_comes_back_from_its_point_and_every_point_is_a_level():
    space = ParameterSpace(np.array([-1.0, 0.0]), np.array([1.0, 9.0]), encode, decode)
    points = jax.random.uniform(jax.random.key(0), (50, 2), minval=space.low, maxval=space.high)
    levels = jax.vmap(space.decode)(points)
    assert set(levels["steps"].tolist()) <= set(range(10))
    again = jax.vmap(space.decode)(jax.vmap(space.encode)(levels))
    jax.tree.map(np.testing.assert_array_equal, again, levels)


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [
        ([0.0, 1.0], [1.0, 1.0], r"low must be below high, both finite; not so at \[1\]"),
        ([0.0, -np.inf], [1.0, 1.0], r"not so at \[1\]"),
        ([np.nan, 0.0], [1.0, 1.0], r"not so at \[0\]"),
        ([0.0], [1.0, 1.0], r"vectors of one length, got the shapes \(1,\) and \(2,\)"),
        (0.0, 1.0, "vectors of one length"),
    ],
)
def test_impossible_bounds_of_parameters_are_refused(low, high, reason):
    for make in (lambda *box: ParameterSpace(*box, encode, decode), lambda *box: TaskSpace(*box, draw)):
        with pytest.raises(ValueError, match=reason):
            make(np.array(low), np.array(high))


def draw(key, point):
    return decode(point)


def test_tasks_are_all_parameters_unless_others_are_given():
    space = ParameterSpace(np.array([-1.0, 0.0]), np.array([1.0, 9.0]), encode, decode)
    own = TaskSpace(np.zeros(1), np.ones(1), draw)
    parts = ("two", Blank(), {"none": lambda key: decode(jnp.zeros(2))}, {})
    assert Domain(*parts).tasks is None
    assert Domain(*parts, parameters=space, tasks=own).tasks is own
    tasks = Domain(*parts, parameters=space).tasks
    assert tasks is not None
    assert tasks.high.tolist() == [1.0, 9.0]
    assert int(tasks.draw(jax.random.key(0), jnp.array([0.5, 3.4]))["steps"]) == 3


class Blank(Environment):
    """Never played."""

    max_steps: int = 1
    observation_space: Any = None
    action_space: Any = None

    def reset(self, key, level):
        raise NotImplementedError

    def step(self, key, level, state, action):
        raise NotImplementedError
