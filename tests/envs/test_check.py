"""`check_environment`: each planted fault is named, and the maze raises no alarm."""

import itertools
import re
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree

from cenie.envs import check
from cenie.envs.base import Environment
from cenie.envs.check import check_environment
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.design import MazeDesign, design_task
from cenie.envs.maze.domain import maze_domain
from cenie.records import Step
from cenie.spaces import Box, Discrete, Space

KEY = jax.random.key(0)
LEVEL, OTHER = jnp.float32(0.3), jnp.float32(-0.4)
_COUNTER = itertools.count()


class Walk(Environment):
    """A random walk on a line that starts at the level and ends at the right or after nine steps.

    `fault` names what is wrong with it; the empty name is the sound environment.
    """

    fault: str = eqx.field(static=True)
    max_steps: int = eqx.field(static=True, default=9)
    observation_space: PyTree = eqx.field(static=True, default=Box((2,), -20.0, 20.0))
    action_space: Space = eqx.field(static=True, default=Discrete(2))

    def prepare(self, level: Array):
        if self.fault == "nothing prepared":
            return ()
        if self.fault == "unbatched prepare":
            return level if level > 0 else -level
        if self.fault == "print in prepare":
            print("preparing")
        return level

    def reset(self, key: PRNGKeyArray, level: Array):
        start = jnp.float32(0.0) if self.fault == "level ignored" else level
        state = {"place": start, "time": jnp.int32(0), "noise": jax.random.uniform(key)}
        return self._observe(state), state

    def _observe(self, state):
        observation = jnp.stack([state["place"], state["noise"]])
        if self.fault == "observation shape":
            observation = observation[:, None]
        if self.fault == "observation dtype":
            observation = observation.astype(jnp.float16)
        if self.fault == "observation parts":
            observation = {"place": observation}
        if self.fault == "observation outside":
            observation = observation + 100
        if self.fault == "observation NaN":
            observation = jnp.sqrt(observation - state["time"])
        return observation

    def step(self, key: PRNGKeyArray, level: Array, state, action: Array):
        noise = jax.random.uniform(key)
        if self.fault == "key reuse":
            noise = noise + jax.random.normal(key)
        if self.fault == "host randomness":
            noise = noise + jnp.float32(np.random.default_rng().random())
        if self.fault == "callback randomness":
            fresh = jax.pure_callback(
                lambda: np.float32(next(_COUNTER)),
                jax.ShapeDtypeStruct((), jnp.float32),
                vmap_method="sequential",
            )
            noise = noise + 1e-3 * fresh
        if self.fault == "print":
            print("stepping")
        if self.fault == "debug print":
            jax.debug.print("{}", noise)
        if self.fault == "python condition" and action > 0:
            noise = noise + 1
        place = state["place"] + jnp.where(action == 1, 1.0, -1.0)
        time = state["time"] + 1
        after = {"place": place, "time": time, "noise": noise}
        observation = self._observe(after)
        terminated = place > 3
        truncated = (time >= 9) & ~terminated
        solved, reward = terminated, terminated.astype(jnp.float32)
        if self.fault == "state drift":
            after["time"] = time.astype(jnp.float32)
        if self.fault == "state shape":
            after["place"] = place[None]
        if self.fault == "reward NaN":
            reward = jnp.where(time == 2, jnp.nan, reward)
        if self.fault == "both flags":
            terminated = truncated = time >= 2
        if self.fault == "done at reset":
            terminated, truncated = jnp.ones((), bool), jnp.zeros((), bool)
        if self.fault == "never ends":
            terminated = truncated = solved = jnp.zeros((), bool)
        if self.fault == "solved too early":
            solved = place > 1
        if self.fault == "not a step":
            return observation, after, reward, terminated
        step = Step(observation, after, reward, terminated, truncated, solved)
        # The type checks of the tests would stop these two in the constructor.
        if self.fault == "reward dtype":
            step = eqx.tree_at(lambda step: step.reward, step, terminated.astype(jnp.int32))
        if self.fault == "reward shape":
            step = eqx.tree_at(lambda step: step.reward, step, reward[None])
        return step


FAULTS = {
    "observation shape": "shape",
    "observation dtype": "dtype float16",
    "observation parts": "has the parts",
    "observation outside": "leaves its declared space",
    "observation NaN": "observation has values that are not finite",
    "key reuse": "uses a random key twice",
    "host randomness": "hidden Python state",
    "callback randomness": "two runs with the same key differ",
    "print": "side effects",
    "debug print": "side effects",
    "python condition": "cannot be compiled",
    "state drift": r"state after step\['time'\] has the dtype float32",
    "state shape": r"state after step\['place'\] has the shape",
    "reward dtype": "reward has the dtype int32",
    "reward shape": "reward has the shape",
    "reward NaN": "reward is not finite",
    "both flags": "both set",
    "done at reset": "ends at its first step",
    "never ends": "goes on after max_steps",
    "solved too early": "solved is set in the middle",
    "not a step": "must return a cenie.records.Step",
    "level ignored": "level is ignored",
    "nothing prepared": "prepare returns no arrays",
    "unbatched prepare": "cannot be compiled",
    "print in prepare": "prepare has side effects",
}


def alarms(environment, level=LEVEL, other=OTHER):
    return check_environment(environment, level, KEY, other_level=other)


def test_a_sound_environment_raises_no_alarm():
    assert alarms(Walk("")) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", list(FAULTS))
def test_every_planted_fault_is_named(fault, capsys):
    found = alarms(Walk(fault))
    assert len(found) >= 1
    for problem in found:
        assert ";" in problem or ":" in problem, "a problem comes with advice"
    assert any(re.search(FAULTS[fault], problem) for problem in found), found


class Altered(Walk):
    """The sound walk, of which `reset` and `step` return something else."""

    begin: Callable = eqx.field(static=True, default=lambda observation, state: (observation, state))
    end: Callable = eqx.field(static=True, default=lambda step: step)

    def reset(self, key: PRNGKeyArray, level: Array):
        return self.begin(*super().reset(key, level))

    def step(self, key: PRNGKeyArray, level: Array, state, action: Array):
        return self.end(super().step(key, level, state, action))


def with_state(**changes):
    return lambda observation, state: (observation, state | changes)


def with_part(name, value):
    """Behind the back of the type checks of the tests, which would stop it in the constructor."""
    return lambda step: eqx.tree_at(lambda step: getattr(step, name), step, value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"begin": with_state(time=0)},
            "after reset['time'] is the Python number 0; make it an array, e.g. jnp.asarray(0, 'int32')",
        ),
        ({"begin": with_state(noise=0.5)}, "the state after reset['noise'] is the Python number 0.5"),
        ({"begin": with_state(noise=False)}, "the state after reset['noise'] is the Python number False"),
        ({"begin": with_state(time=None)}, "the state after reset['time'] is None"),
        (
            {"end": lambda step: with_part("state", step.state | {"time": 3})(step)},
            "the state after step['time'] is the Python number 3",
        ),
        ({"end": with_part("reward", 0.0)}, "reward is the Python number 0.0"),
        ({"end": with_part("reward", 1)}, "jnp.asarray(1, 'float32')"),
        ({"end": with_part("reward", None)}, "reward has the parts (none)"),
        ({"end": with_part("truncated", False)}, "truncated is the Python number False"),
        ({"end": with_part("solved", False)}, "solved is the Python number False"),
        (
            {"begin": lambda observation, state: (None, state)},
            "the observation after reset has the parts (none)",
        ),
        (
            {"begin": lambda observation, state: (1.0, state), "observation_space": Box((), 0.0, 1.0)},
            "the observation after reset is the Python number 1.0",
        ),
        ({"begin": lambda observation, state: observation}, "reset must return an observation and a state"),
    ],
)
def test_bug_python_numbers_and_nothing_were_not_named(changes, reason):
    """A state leaf that was a Python number at reset once ended the check with an AttributeError."""
    found = alarms(Altered("", **changes))
    assert any(reason in problem for problem in found), found


@pytest.mark.parametrize("zero", [np.int32(0), np.int64(0), jnp.asarray(0), np.array(0)])
def test_numbers_of_numpy_and_weak_types_are_no_alarm(zero):
    assert alarms(Altered("", begin=with_state(time=zero))) == []


@pytest.mark.parametrize(
    ("level", "other", "reason"),
    [
        (0.3, None, "the level is the Python number 0.3"),
        (LEVEL, -0.4, "the second level is the Python number -0.4"),
        ("easy", None, "the level is a str"),
        (LEVEL, jnp.zeros(3), "the second level has the shape (3,)"),
        (LEVEL, {"start": OTHER}, "the second level has the parts ['start']"),
    ],
)
def test_levels_that_are_no_arrays_or_unlike_each_other_are_named(level, other, reason):
    (problem,) = alarms(Walk(""), level, other)
    assert reason in problem


def test_the_prepared_level_is_played():
    class Shifted(Walk):
        """A level that only means something once it is prepared."""

        def prepare(self, level):
            return level["place"]

    assert alarms(Shifted(""), {"place": LEVEL}, {"place": OTHER}) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"action_space": Discrete(0)}, "action_space has no values"),
        ({"observation_space": Box((2,), 1.0, -1.0)}, "observation_space has no values"),
        ({"observation_space": {"place": 3}}, "must be made of Discrete and Box"),
        ({"max_steps": 0}, "max_steps must be"),
    ],
)
def test_wrong_declarations_are_named(changes, reason):
    (problem,) = alarms(Walk("", **changes))
    assert reason in problem


def test_bug_a_dict_of_spaces_in_a_field_crashed_the_check():
    walk = Walk("", observation_space={"a": Discrete(2)})
    (problem,) = check_environment(walk, LEVEL, KEY)
    assert "unhashable type: 'dict'): use tuples" in problem


def test_a_level_without_arrays_is_named():
    (problem,) = alarms(Walk(""), level=())
    assert "the level has no arrays" in problem


def test_the_maze_and_its_design_environment_raise_no_alarm():
    domain = maze_domain(MazeConfig(max_steps=60, redraw_direction=True))
    one, other = (domain.generators["uniform60"](jax.random.key(seed)) for seed in (1, 2))
    assert check_environment(domain.environment, one, KEY, other_level=other) == []
    config = MazeConfig(size=5)
    design = MazeDesign(config, "blocks25")
    assert check_environment(design, design_task(config, "blocks25"), KEY) == []


def test_the_maze_plays_many_random_levels_without_alarm():
    domain = maze_domain(MazeConfig(max_steps=60))
    environment = domain.environment
    for name, draw in domain.generators.items():
        levels = jax.jit(jax.vmap(draw))(jax.random.split(KEY, 300))
        before = None
        for number, key in enumerate(jax.random.split(KEY, 300)):
            level = jax.tree.map(lambda leaf, number=number: np.asarray(leaf[number]), levels)
            play = jax.tree.map(np.asarray, check._play(environment, level, key))
            assert list(check._episodes(environment, play)) == [], (name, number)
            if before is not None:
                assert not check._same(play, jax.tree.map(np.asarray, check._play(environment, before, key)))
            before = level
