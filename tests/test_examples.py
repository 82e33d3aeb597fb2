"""The examples run, and do what they say."""

import dataclasses
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


def test_cenie_trains_on_cart_poles_of_gymnax():
    example = load("train_gymnax")
    student = dataclasses.replace(example.STUDENT, num_levels=16, num_steps=64)
    coverage = {"novelty.coverage.components": (2, 3), "novelty.coverage.window": 8}
    teacher = {**example.TEACHER, **coverage, "replay.capacity": 32}
    before, after = example.main("plr-cenie", updates=20, seed=0, student=student, teacher=teacher)
    assert after > 1.5 * before


class Walker:
    """A student that walks ahead."""

    def initial_memory(self, count):
        return ()

    def step(self, memory, observation, start):
        return (), SimpleNamespace(policy=SimpleNamespace(sample=lambda key: jnp.array([FORWARD])))


@pytest.mark.parametrize(("goal", "end"), [((2, 0), (2, 0, 0)), ((0, 1), (3, 0, 0))])
def test_a_drawn_path_ends_on_the_goal_if_it_was_reached(monkeypatch, goal, end):
    level = make_level(np.zeros((2, 4), bool), goal, (0, 0), time_limit=5)
    monkeypatch.setattr(jax, "jit", lambda function: function)  # `Walker` decides without arrays
    path = load("draw_paths").follow(Maze(MazeConfig()), Walker(), level, jax.random.key(0), 9)
    assert path[0] == (0, 0, 0)
    assert path[-1] == end
