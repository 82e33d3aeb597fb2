"""The examples run, and do what they say."""

import importlib.util
from pathlib import Path

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
