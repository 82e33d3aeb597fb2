"""The bridges to gymnax, with gymnax itself (both step APIs) as the oracle."""

import dataclasses
from types import ModuleType
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import environment as gymnax_environment
from gymnax.environments import spaces as gymnax_spaces
from gymnax.wrappers.purerl import LogWrapper

from cenie.bridges.environment import as_level, hull, observation_spaces
from cenie.bridges.gymnax import _adapter, from_gymnax, gymnax_domain, to_gymnax
from cenie.envs.check import check_environment
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.experiment.evaluate import play_once
from cenie.spaces import Box, Discrete
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.table import make_network
from tests.bridges.old_gymnax import DIRECTORY, old_gymnax

KEY = jax.random.key(0)
LIMIT, STEPS, LEVELS = 15, 200, 6
VERSIONS = ("1.0", "0.x")


@pytest.fixture(scope="module")
def versions() -> dict[str, ModuleType]:
    if not DIRECTORY.exists():
        pytest.skip(f"`make test` installs gymnax 0.x in {DIRECTORY}")
    return {"1.0": gymnax, "0.x": old_gymnax()}


def make(module: ModuleType, name: str, changes: dict[str, tuple[float, float]]) -> tuple[Any, Any]:
    """An environment with a short time limit, and a batch of parameters that differ in some fields."""
    environment, params = module.make(name)
    params = as_level(dataclasses.replace(params, max_steps_in_episode=LIMIT))
    batch = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (LEVELS, *leaf.shape)), params)
    varied = {
        field: jnp.linspace(*ends, LEVELS).astype(getattr(params, field).dtype)
        for field, ends in changes.items()
    }
    return environment, dataclasses.replace(batch, **varied)


def first(batch: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], batch)


def theirs(environment: Any, params: Any, actions: jax.Array) -> dict[str, np.ndarray]:
    """What gymnax itself does, episode after episode."""
    begin, *keys = jax.random.split(KEY, STEPS + 1)
    observation, state = jax.vmap(environment.reset)(jax.random.split(begin, LEVELS), params)

    def step(state: Any, given: Any) -> Any:
        key, action = given
        out = jax.vmap(environment.step)(jax.random.split(key, LEVELS), state, action, params)
        done = out[3] | out[4] if len(out) == 6 else out[3]
        return out[1], {"observation": out[0], "reward": out[2], "done": done}

    _, seen = jax.jit(lambda state: jax.lax.scan(step, state, (jnp.stack(keys), actions)))(state)
    return {"first": observation, **seen}


def ours(environment: Any, params: Any, actions: jax.Array) -> dict[str, np.ndarray]:
    """The same with the bridge: gymnax makes two keys of one, to step and to restart."""
    begin, *keys = jax.random.split(KEY, STEPS + 1)
    observation, state = jax.vmap(environment.reset)(jax.random.split(begin, LEVELS), params)

    def one(key: Any, params: Any, state: Any, action: Any) -> Any:
        step_key, reset_key = jax.random.split(key)
        made = environment.step(step_key, params, state, action)
        begun = environment.reset(reset_key, params)
        done = made.terminated | made.truncated
        chosen = jax.tree.map(lambda a, b: jnp.where(done, a, b), begun, (made.observation, made.state))
        return chosen, made

    def step(state: Any, given: Any) -> Any:
        key, action = given
        (shown, state), made = jax.vmap(one)(jax.random.split(key, LEVELS), params, state, action)
        done = made.terminated | made.truncated
        seen = {"observation": shown, "reward": made.reward, "done": done, "made": made}
        return state, seen

    _, seen = jax.jit(lambda state: jax.lax.scan(step, state, (jnp.stack(keys), actions)))(state)
    return {"first": observation, **seen}


def random_actions(environment: Any) -> jax.Array:
    space, shape = environment.action_space, (STEPS, LEVELS)
    if isinstance(space, Discrete):
        return jax.random.randint(KEY, shape, 0, space.n)
    return jax.random.uniform(KEY, (*shape, *space.shape), minval=space.low, maxval=space.high)


CASES = {
    "CartPole-v1": {"length": (0.2, 2.0), "force_mag": (5.0, 20.0)},
    # Nothing but the limit ends it.
    "Pendulum-v1": {"g": (5.0, 15.0)},
    # Random steps. Chains end before, after and exactly at the limit.
    "UmbrellaChain-bsuite": {"chain_length": (5, 30)},
    "MountainCarContinuous-v0": {"power": (0.1, 0.5), "goal_position": (-0.4, 0.45)},
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_the_bridge_does_what_gymnax_does_over_many_episodes(versions, version, name):
    environment, params = make(versions[version], name, CASES[name])
    bridged = from_gymnax(environment, first(params))
    assert bridged.max_steps == LIMIT
    actions = random_actions(bridged)
    mine, expected = ours(bridged, params, actions), theirs(environment, params, actions)
    assert expected["done"].sum() >= LEVELS * (STEPS // LIMIT)
    np.testing.assert_array_equal(mine["done"], expected["done"])
    for part in ("first", "observation", "reward"):
        np.testing.assert_allclose(mine[part], expected[part], rtol=1e-6, atol=1e-6, err_msg=part)
    made = mine["made"]
    lengths = lengths_at_ends(np.asarray(mine["done"]))
    truncated, terminated = np.asarray(made.truncated), np.asarray(made.terminated)
    assert not (truncated & terminated).any()
    assert (lengths[truncated] == LIMIT).all()
    natural = reached_an_end(name, params, np.asarray(made.observation))
    np.testing.assert_array_equal(terminated, natural)
    assert truncated.any()
    assert terminated.any() == (name != "Pendulum-v1")


def lengths_at_ends(done: np.ndarray) -> np.ndarray:
    """The number of steps since the last end, at each step."""
    lengths, running = np.zeros(done.shape, int), np.zeros(done.shape[1], int)
    for time, ends in enumerate(done):
        running += 1
        lengths[time] = running
        running[ends] = 0
    return lengths


def reached_an_end(name: str, params: Any, observation: np.ndarray) -> np.ndarray:
    """Ends for other reasons than time, read from what is seen before any restart."""
    if name == "CartPole-v1":
        outside = np.abs(observation[..., 0]) > np.asarray(params.x_threshold)
        return outside | (np.abs(observation[..., 2]) > np.asarray(params.theta_threshold_radians))
    if name == "MountainCarContinuous-v0":
        fast_enough = observation[..., 1] >= np.asarray(params.goal_velocity)
        return (observation[..., 0] >= np.asarray(params.goal_position)) & fast_enough
    if name == "UmbrellaChain-bsuite":
        return observation[..., 2] == 0  # what is left of the chain
    return np.zeros(observation.shape[:2], bool)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bridged_environment_passes_the_check(versions, version):
    environment, params = make(versions[version], "Acrobot-v1", {"link_mass_1": (0.5, 2.0)})
    other = jax.tree.map(lambda leaf: leaf[-1], params)
    assert (
        check_environment(from_gymnax(environment, first(params)), first(params), KEY, other_level=other)
        == []
    )


def test_actions_beyond_the_space_are_clipped():
    environment, params = gymnax.make("PointRobot-misc")
    bridged, level = from_gymnax(environment), as_level(params)
    _, state = bridged.reset(KEY, level)
    high = jnp.full(2, bridged.action_space.high)
    far = bridged.step(KEY, level, state, 100 * high).observation
    np.testing.assert_array_equal(far, bridged.step(KEY, level, state, high).observation)


def test_solved_is_what_the_user_says_and_only_at_the_end():
    environment, params = make(gymnax, "CartPole-v1", {})
    bridged = from_gymnax(environment, first(params), solved=lambda level, step: step.observation[0] < 9)
    made = ours(bridged, params, random_actions(bridged))["made"]
    np.testing.assert_array_equal(made.solved, made.terminated | made.truncated)


def test_wrappers_are_refused_because_they_would_be_skipped():
    environment, _ = gymnax.make("CartPole-v1")
    with pytest.raises(ValueError, match="LogWrapper has no step_env"):
        from_gymnax(LogWrapper(environment))


def test_parameters_without_a_time_limit_need_one():
    maze = maze_domain(MazeConfig(size=5, max_steps=LIMIT))
    theirs = to_gymnax(maze.environment, maze.generator("random")(KEY))
    with pytest.raises(ValueError, match="max_steps: must be given"):
        from_gymnax(theirs)


def test_spaces_that_depend_on_the_level_are_joined():
    environment, params = gymnax.make("Pendulum-v1")
    fast = dataclasses.replace(params, max_speed=20.0, max_torque=5.0)
    bridged = from_gymnax(environment, also=[fast])
    assert bridged.observation_space == Box((3,), -20.0, 20.0)
    assert bridged.action_space == Box((1,), -5.0, 5.0)
    with pytest.raises(ValueError, match="must not depend on the level"):
        hull([Discrete(2), Discrete(3)])


def test_observations_of_several_parts_keep_their_structure():
    declared = gymnax_spaces.Dict({"code": gymnax_spaces.Discrete(4), "view": gymnax_spaces.Box(0, 9, (2,))})
    seen = {"code": jnp.int32(0), "view": jnp.zeros(2)}
    found = observation_spaces(seen, declared)
    assert found == {"code": Discrete(4), "view": Box((2,), 0.0, 9.0)}
    with pytest.raises(ValueError, match="does not describe"):
        observation_spaces({**seen, "more": jnp.zeros(2)}, declared)


# The domain.

RANGES = {"length": (0.2, 2.0), "masspole": (0.05, 0.5), "max_steps_in_episode": (5, LIMIT)}


def with_derived(params: Any) -> Any:
    """gymnax keeps two numbers that follow from others."""
    total, moment = params.masscart + params.masspole, params.masspole * params.length
    return dataclasses.replace(params, total_mass=total, polemass_length=moment)


def test_any_gymnax_environment_makes_a_domain():
    environment, _ = gymnax.make("CartPole-v1")
    domain = gymnax_domain(environment, RANGES, derive=with_derived, bounds=(0.0, 15.0))
    assert domain.name == "CartPole-v1"
    assert domain.environment.max_steps == 500  # as in the default level
    levels = jax.vmap(domain.generator("random"))(jax.random.split(KEY, 200))
    edited = jax.vmap(domain.edit)(jax.random.split(KEY, 200), levels)
    for batch in (levels, edited):
        np.testing.assert_allclose(batch.total_mass, batch.masscart + batch.masspole, rtol=1e-6)
        np.testing.assert_allclose(batch.polemass_length, batch.masspole * batch.length, rtol=1e-6)
    suite = domain.suites["extremes"]()
    assert [(entry.level, entry.variant) for entry in suite.entries[:3]] == [
        ("default", "default"),
        ("length", "low"),
        ("length", "high"),
    ]
    environment = domain.environment
    network = make_network(Mlp(), environment.observation_space, environment.action_space, KEY)
    _, drawn = suite.draw(0, 1)
    returns, _, lengths = play_once(
        environment, network, domain.stack(drawn), keys=jax.random.split(KEY, len(drawn))
    )
    np.testing.assert_array_equal(returns, lengths)
    assert lengths[-2] == 5  # the shortest time limit


def test_a_domain_needs_a_measure_of_success():
    with pytest.raises(ValueError, match="bounds or solved"):
        gymnax_domain(gymnax.make("CartPole-v1")[0], RANGES)


# The other way.


@pytest.fixture(scope="module")
def maze() -> Any:
    return maze_domain(MazeConfig(size=5, max_steps=LIMIT))


def test_our_environment_is_one_of_gymnax_and_comes_back_the_same(maze):
    levels = jax.vmap(maze.generator("random"))(jax.random.split(KEY, LEVELS))
    there = to_gymnax(maze.environment, first(levels))
    back = from_gymnax(there, max_steps=LIMIT)
    actions = jax.random.randint(KEY, (STEPS, LEVELS), 0, 3)
    params = jax.vmap(there.params_of)(levels)
    expected, returned = (ours(each, params, actions) for each in (maze.environment, back))
    assert expected["made"].terminated.any()
    assert expected["made"].truncated.any()
    for found in (theirs(there, params, actions), returned):
        for part in ("first", "observation", "reward", "done"):
            jax.tree.map(np.testing.assert_array_equal, found[part], expected[part])
    np.testing.assert_array_equal(returned["made"].truncated, expected["made"].truncated)
    assert back.action_space == maze.environment.action_space
    assert jax.tree.structure(back.observation_space) == jax.tree.structure(
        maze.environment.observation_space
    )
    assert check_environment(back, first(params), KEY) == []


def test_an_old_gymnax_cannot_take_our_environments(monkeypatch):
    monkeypatch.delattr(gymnax_environment.Environment, "is_truncated")
    with pytest.raises(ImportError, match=r"needs gymnax 1\.0"):
        _adapter.__wrapped__()


def test_gymnaxs_own_tools_take_our_environment(maze):
    there = to_gymnax(maze.environment, maze.generator("empty")(KEY))
    assert there.num_actions == there.action_space().n == maze.environment.action_space.n
    logged = LogWrapper(there)
    _, state = logged.reset(KEY)
    for number in range(LIMIT):
        observation, state, _, terminated, truncated, info = logged.step(jax.random.key(number), state, 0)
        assert not info["solved"]
    assert bool(truncated)
    assert not bool(terminated)
    assert int(state.returned_episode_lengths) == LIMIT
    assert set(there.observation_space().spaces) == {"image", "direction"}
    assert observation.image.shape == there.observation_space().spaces["image"].shape
