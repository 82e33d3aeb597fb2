"""The examples run, and do what they say."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.dynamics import FORWARD, Maze
from cenie.envs.maze.level import make_level

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_numpy_student_learns_cart_poles_from_our_teacher():
    before, after = load("own_loop_gymnasium").main("plr-robust", tasks=60, seed=0)
    assert after > 1.5 * before


def test_cart_poles_unlike_those_of_training_are_novel():
    novelty = load("novelty_gymnasium").main(rollouts=3)
    assert novelty["as in training"] < min(novelty["gravity 60"], novelty["motor 1"])


class Walker:
    """A student that walks ahead."""

    def initial_memory(self, count):
        return ()

    def step(self, memory, observation, start):
        return (), SimpleNamespace(policy=SimpleNamespace(sample=lambda key: jnp.array([FORWARD])))


@pytest.mark.parametrize(("goal", "end"), [((2, 0), (2, 0, 0)), ((0, 1), (3, 0, 0))])
def test_a_drawn_path_ends_on_the_goal_if_it_was_reached(monkeypatch, goal, end):
    level = make_level(np.zeros((2, 4), bool), goal, (0, 0), time_limit=5)
    follow = load("draw_paths").follow
    monkeypatch.setattr(jax, "jit", lambda function: function)  # `Walker` decides without arrays
    path = follow(Maze(MazeConfig()), Walker(), level, jax.random.key(0), 9)
    assert path[0] == (0, 0, 0)
    assert path[-1] == end


@pytest.mark.parametrize(("goal", "length"), [((2, 0), 2), ((0, 1), 5)])
def test_a_film_ends_with_the_episode(goal, length):
    level = make_level(np.zeros((2, 4), bool), goal, (0, 0), time_limit=5)
    states = load("film_episode").episode_states(Maze(MazeConfig()), Walker(), level, jax.random.key(0), 9)
    assert states.position[:, 0].tolist() == [0, 1, 2, 3, 3][:length]
