"""Our environments in gymnasium, against gymnasium's own vector environment and its checkers."""

import warnings
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import cenie
import cenie.gymnasium
from cenie.bridges.gymnasium.worlds import WORLDS

COUNT = 3


class Strip(NamedTuple):
    """A level: how far both edges are, and the time limit."""

    edge: jax.Array
    limit: jax.Array


class Walk(cenie.Environment):
    """A random walk that an action pushes. Its steps need keys, and it ends in both ways."""

    max_steps: int = eqx.field(static=True, default=12)
    observation_space: cenie.Box = eqx.field(static=True, default=cenie.Box((2,), -50.0, 50.0))
    action_space: cenie.Box = eqx.field(static=True, default=cenie.Box((1,), -1.0, 1.0))

    def reset(self, key, level):
        place = jax.random.uniform(key)
        return jnp.stack([place, level.edge]), (place, jnp.int32(0))

    def step(self, key, level, state, action):
        place, time = state[0] + action[0] + jax.random.normal(key), state[1] + 1
        out = jnp.abs(place) > level.edge
        late = ~out & (time >= level.limit)
        return cenie.Step(jnp.stack([place, level.edge]), (place, time), place, out, late, place > level.edge)


def draw(key):
    edge, limit = jax.random.split(key)
    return Strip(
        jax.random.uniform(edge, minval=1.0, maxval=9.0), jax.random.randint(limit, (), 3, 12, jnp.int32)
    )


DOMAIN = cenie.Domain(
    name="strip",
    environment=Walk(),
    generators={"random": draw},
    suites={},
    from_json=lambda value: Strip(np.float32(value["edge"]), np.int32(value["limit"])),
    render=cenie.Renderer(
        level=lambda level: np.zeros((4, 6, 3), np.uint8),
        episode=lambda level, states: np.full((len(states[0]), 4, 6, 3), int(states[1][0]), np.uint8),
    ),
)


def ours(mode=AutoresetMode.NEXT_STEP, **options):
    return cenie.gymnasium.make_vec(DOMAIN, COUNT, autoreset_mode=mode, **options)


def theirs(mode):
    return SyncVectorEnv([lambda: cenie.gymnasium.make(DOMAIN)] * COUNT, autoreset_mode=mode)


def actions(step):
    return np.random.default_rng(step).uniform(-1, 1, (COUNT, 1)).astype(np.float32)


def assert_same(a, b):
    """Two values of an environment: arrays, levels, or dicts of these; objects may be None."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, np.ndarray) and a.dtype == object:
        assert len(a) == len(b)
        for mine, other in zip(a, b):
            assert (mine is None) == (other is None)
            if mine is not None:
                assert_same(mine, other)
    elif isinstance(a, tuple):
        for mine, other in zip(a, b, strict=True):
            assert_same(mine, other)
    else:
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert np.asarray(a).shape == np.asarray(b).shape


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_environments_side_by_side_are_single_ones_in_gymnasiums_own_vector(mode) -> None:
    """Observations, rewards, flags and infos over many episodes, each on a fresh level."""
    mine, reference = ours(mode), theirs(mode)
    assert_same(mine.reset(seed=7), reference.reset(seed=7))
    ended = 0
    for step in range(40):
        found, wanted = mine.step(actions(step)), reference.step(actions(step))
        assert_same(found, wanted)
        ended += int((found[2] | found[3]).sum())
    assert ended > 3 * COUNT
    assert mine.metadata["autoreset_mode"] is mode


def test_without_autoreset_the_mask_says_who_begins_anew() -> None:
    mine, reference = ours(AutoresetMode.DISABLED), theirs(AutoresetMode.DISABLED)
    assert_same(mine.reset(seed=1), reference.reset(seed=1))
    resets = 0
    for step in range(40):
        found = mine.step(actions(step))
        assert_same(found, reference.step(actions(step)))
        ended = found[2] | found[3]
        if ended.any():
            resets += 1
            with pytest.raises(gymnasium.error.ResetNeeded, match=r"have ended.*reset_mask"):
                mine.step(actions(step))
            assert_same(
                mine.reset(options={"reset_mask": ended}), reference.reset(options={"reset_mask": ended})
            )
    assert resets > 3


def test_a_batch_of_many_environments_begins_them_all() -> None:
    """More than begin at once, and a number that does not divide."""
    many = cenie.gymnasium.make_vec(DOMAIN, 19)
    observation, info = many.reset(seed=3)
    alone, _ = cenie.gymnasium.make_vec(DOMAIN, 1).reset(seed=3 + 18)
    np.testing.assert_allclose(observation[18], alone[0])
    assert len({float(level.edge) for level in info["level"]}) == 19
    mask = np.arange(19) < 11
    again, info = many.reset(options={"reset_mask": mask})
    assert (info["_level"] == mask).all()
    np.testing.assert_array_equal(again[11:], observation[11:])
    assert (again[:11, 1] != observation[:11, 1]).all()


def test_seeds_decide_and_later_resets_go_on() -> None:
    first, second = ours(), ours()
    assert_same(first.reset(seed=5), second.reset(seed=[5, 6, 7]))
    a, _ = first.reset()
    b, _ = second.reset()
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, first.reset(seed=5)[0])
    assert not np.array_equal(ours().reset()[0], ours().reset()[0])


def test_levels_may_be_given_at_reset_and_assigned_for_later() -> None:
    envs = ours()
    short = {"edge": 30.0, "limit": 2}
    observation, info = envs.reset(seed=0, options={"level": short})
    np.testing.assert_array_equal(observation[:, 1], 30.0)
    assert [int(level.limit) for level in info["level"]] == [2] * COUNT
    observation, _ = envs.reset(options={"levels": [None, Strip(jnp.float32(40), jnp.int32(2)), short]})
    assert observation[0, 1] < 9.0
    np.testing.assert_array_equal(observation[1:, 1], [40.0, 30.0])
    _, info = envs.reset(seed=1)
    again, _ = envs.reset(options={"levels": info["level"]})
    np.testing.assert_array_equal(again[:, 1], [float(level.edge) for level in info["level"]])
    envs.reset(options={"levels": [None, Strip(jnp.float32(40), jnp.int32(2)), short]})
    envs.assign({1: {"edge": 45.0, "limit": 1}})
    assert float(envs.levels[1].edge) == 40.0, "the present episode goes on"
    seen = set()
    for step in range(8):
        seen |= {float(edge) for edge in envs.step(actions(step))[0][1:2, 1]}
    assert seen == {40.0, 45.0}
    envs.assign(None)
    envs.step(actions(0))
    assert float(envs.reset()[0][1, 1]) < 9.0


def test_a_time_limit_besides_that_of_the_level() -> None:
    envs = ours(max_episode_steps=2)
    envs.reset(seed=0, options={"level": {"edge": 1000.0, "limit": 11}})
    assert not envs.step(actions(0))[3].any()
    assert envs.step(actions(1))[3].all()


def test_pictures_are_of_the_present_states() -> None:
    envs = ours(render_mode="rgb_array")
    envs.reset(seed=0, options={"level": {"edge": 1000.0, "limit": 11}})
    envs.step(actions(0))
    pictures = envs.render()
    assert len(pictures) == COUNT
    assert all((picture == 1).all() and picture.shape == (4, 6, 3) for picture in pictures)
    single = cenie.gymnasium.make(DOMAIN, render_mode="rgb_array")
    single.reset()
    assert single.render().shape == (4, 6, 3)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda envs: envs.step(np.zeros((COUNT, 2))), ValueError, r"actions: must have the shape \(3, 1\)"),
        (lambda envs: envs.step(np.full((COUNT, 1), np.nan)), ValueError, "actions: must be finite"),
        (lambda envs: envs.reset(options={"level": 3}), ValueError, "level: 3 is no level of strip"),
        (lambda envs: envs.reset(options={"levels": [None]}), ValueError, "one for each of 3 environments"),
        (
            lambda envs: envs.reset(options={"lvl": 1}),
            ValueError,
            "options: takes level, levels and reset_mask",
        ),
        (lambda envs: envs.reset(options={"reset_mask": [1, 0, 0]}), ValueError, r"must be bool\[3\]"),
        (lambda envs: envs.reset(seed=[1, 2]), ValueError, "seed: must be one for each of 3"),
        (lambda envs: envs.assign({5: None}), ValueError, r"there are 3 environments, got numbers \[5\]"),
        (
            lambda envs: envs.reset(options={"level": Strip(np.zeros(2), np.zeros(()))}),
            ValueError,
            r"an array has the shape \(2,\)",
        ),
        (lambda envs: (envs.close(), envs.reset()), gymnasium.error.ClosedEnvironmentError, "closed"),
        (
            lambda envs: (envs.close(), envs.step(actions(0))),
            gymnasium.error.ClosedEnvironmentError,
            "closed",
        ),
    ],
)
def test_bad_input_has_a_named_error(act, error, message) -> None:
    envs = ours()
    envs.reset(seed=0)
    with pytest.raises(error, match=message):
        act(envs)


def test_the_first_call_must_be_reset() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before the first step"):
        ours().step(actions(0))
    with pytest.raises(ValueError, match="num_envs: must be at least 1"):
        cenie.gymnasium.make_vec(DOMAIN, 0)
    with pytest.raises(ValueError, match="render_mode"):
        ours(render_mode="human")
    with pytest.raises(ValueError, match="generator: strip has random"):
        cenie.gymnasium.make(DOMAIN, generator="other")


def check(environment: gymnasium.Env) -> None:
    with warnings.catch_warnings():
        # That the environment was not made by `gymnasium.make`, and that bounds of spaces are infinite.
        warnings.simplefilter("ignore")
        check_env(environment, skip_render_check=True)


def test_gymnasiums_checker_passes_for_a_domain_of_ones_own() -> None:
    check(cenie.gymnasium.make(DOMAIN))


def test_mazes_pass_gymnasiums_checker_and_play_in_batches() -> None:
    check(gymnasium.make("cenie/Maze-v0").unwrapped)
    envs = gymnasium.make_vec("cenie/Maze-v0", num_envs=COUNT, settings={"size": 9})
    observation, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(observation)
    assert envs.unwrapped.levels[0].wall_map.shape == (9, 9)
    with pytest.raises(ValueError, match="actions: must be whole numbers from 0 to 6"):
        envs.step(np.array([0, 1, 7]))
    with pytest.raises(cenie.SettingsError, match="siz"):
        gymnasium.make_vec("cenie/Maze-v0", num_envs=1, settings={"siz": 9})


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_gymnasiums_checker_passes(name) -> None:
    check(gymnasium.make(f"cenie/{name}").unwrapped)


@pytest.mark.parametrize("name", WORLDS)
def test_all_names_are_registered_for_both_kinds(name) -> None:
    spec = gymnasium.spec(f"cenie/{name}")
    assert spec.entry_point is not None
    assert spec.vector_entry_point is not None


def test_walkers_have_the_spaces_of_gymnasium() -> None:
    box2d = pytest.importorskip("gymnasium.envs.box2d.bipedal_walker")
    reference, world = box2d.BipedalWalker(), WORLDS["BipedalWalker-v0"]({})
    assert world.observation_space == reference.observation_space
    assert world.action_space == reference.action_space


def test_circuits_are_given_by_name() -> None:
    world = WORLDS["F1-v0"]({"circuit_tiles": 64, "frame_size": 16})
    with pytest.raises(ValueError, match=r"level: must be one of .*Monaco.*, got 'Monza'"):
        world.read("Monza")
    drawn, read = jax.eval_shape(world.draw, jax.random.key(0)), world.read("Monaco")
    assert jax.tree.map(np.shape, drawn) == jax.tree.map(np.shape, read)
