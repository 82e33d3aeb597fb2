"""Generators, the editor, the design environment and the space of parameters: laws and validity."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.base import stack_same_shapes
from cenie.envs.check import check_environment
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.design import WalkerDesign, design_task, walker_design
from cenie.envs.walker.domain import walker_domain
from cenie.envs.walker.edit import STEPS, edit
from cenie.envs.walker.generate import RANGES, generate
from cenie.envs.walker.level import HIGHEST, LOWEST, PARAMETERS, make_level
from cenie.envs.walker.parameters import parameter_space

COUNT = 6000
FIVE = WalkerConfig(stairs=False)
MIDDLE = (LOWEST + HIGHEST) / 2


@functools.cache
def draw(config, name):
    keys = jax.random.split(jax.random.key(0), COUNT)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(functools.partial(generate, config, name)))(keys))


def assert_valid(levels, config):
    assert ((levels.parameters >= LOWEST) & (levels.parameters <= HIGHEST)).all()
    assert not levels.hardcore.any()
    assert (levels.time_limit == config.max_steps).all()
    assert levels.seed.dtype == np.uint32
    assert len(np.unique(levels.seed)) > 0.99 * len(levels.seed)
    if not config.stairs:
        assert (levels.parameters[:, 5:] == LOWEST[5:]).all()


@pytest.mark.parametrize("config", [WalkerConfig(max_steps=77), FIVE], ids=["eight", "five"])
@pytest.mark.parametrize("name", list(RANGES))
def test_parameters_are_uniform_in_their_ranges(config, name):
    levels = draw(config, name)
    assert_valid(levels, config)
    # All 32 bits of a seed are used.
    assert abs(levels.seed.astype(float).mean() / 2**32 - 0.5) < 0.02
    low, high = RANGES[name]
    used = slice(None) if config.stairs else slice(5)
    values, low, high = levels.parameters[:, used], low[used], high[used]
    middle, spread = (low + high) / 2, (high - low) / np.sqrt(12)
    np.testing.assert_allclose(values.mean(axis=0), middle, atol=0.1)
    np.testing.assert_allclose(values.std(axis=0), spread, atol=0.1)
    independent = np.abs(np.corrcoef(values[:, high > low].T) - np.eye(np.sum(high > low)))
    assert np.max(independent) < 0.06


@functools.cache
def edited(num_edits, stairs):
    """Children of levels in the middle of all ranges."""
    parent = make_level(1, time_limit=99, **dict(zip(PARAMETERS, map(float, MIDDLE))))
    parents = stack_same_shapes([parent] * COUNT)
    change = functools.partial(edit, num_edits=num_edits, stairs=stairs)
    keys = jax.random.split(jax.random.key(1), COUNT)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(change))(keys, parents))


@pytest.mark.parametrize("stairs", [True, False])
def test_one_edit_moves_one_parameter_by_its_step_or_none(stairs):
    children = edited(1, stairs)
    moves = children.parameters - MIDDLE
    assert (np.sum(moves != 0, axis=1) <= 1).all()
    np.testing.assert_allclose(np.mean((moves == 0).all(axis=1)), 1 / 3, atol=0.03)
    targets = 8 if stairs else 5
    np.testing.assert_allclose((moves != 0).mean(axis=0)[:targets], 2 / 3 / targets, atol=0.02)
    assert (moves[:, targets:] == 0).all()
    np.testing.assert_allclose((moves > 0).sum(), (moves < 0).sum(), rtol=0.1)
    for index in range(1, targets):
        np.testing.assert_allclose(np.unique(np.round(np.abs(moves[:, index]), 5)), [0, STEPS[index]])
    rough = np.abs(moves[:, 0][moves[:, 0] != 0])
    assert rough.max() <= 0.6
    np.testing.assert_allclose(rough.mean(), 0.3, atol=0.03)


def test_a_child_has_a_new_seed_even_if_nothing_else_changed_and_keeps_the_rest():
    children = edited(1, True)
    assert (children.seed != 1).all()
    assert len(np.unique(children.seed)) > 0.99 * COUNT
    assert (children.time_limit == 99).all()
    assert not children.hardcore.any()


def test_three_edits_may_meet_and_stay_within_the_bounds():
    assert np.sum(edited(3, True).parameters != MIDDLE, axis=1).max() == 3
    corners = np.random.default_rng(0).integers(0, 2, (COUNT, 8)).astype(bool)
    parents = stack_same_shapes([make_level(0)] * COUNT)
    parents = type(parents)(
        np.where(corners, HIGHEST, LOWEST), parents.seed, parents.hardcore, parents.time_limit
    )
    keys = jax.random.split(jax.random.key(2), COUNT)
    change = functools.partial(edit, num_edits=3, stairs=True)
    children = jax.tree.map(np.asarray, jax.jit(jax.vmap(change))(keys, parents))
    assert ((children.parameters >= LOWEST) & (children.parameters <= HIGHEST)).all()
    moves = np.abs(children.parameters - parents.parameters)
    assert (moves <= 3 * STEPS + 1e-5).all()
    # From a corner half of the moves lead outside and are clipped one by one.
    np.testing.assert_allclose((moves == 0).all(axis=1).mean(), (2 / 3) ** 3, atol=0.04)


@pytest.mark.parametrize(("config", "steps"), [(WalkerConfig(), 8), (FIVE, 5)])
def test_a_designer_sets_one_parameter_per_step(config, steps):
    design = walker_design(config, "full")
    environment = design.environment
    assert environment.max_steps == steps
    key = jax.random.key(3)
    seen, state = environment.reset(key, design.task)
    blank = [0, 0, 10, 0, 5, 0, 5, 9] if config.stairs else [0, 0, 10, 0, 5, 0, 0, 1]
    assert np.asarray(seen[:8]).tolist() == blank
    assert float(seen[-1]) == 0
    step = jax.jit(environment.step)
    actions = [-20.0, 20.0, 0.0, 0.5, -0.5, 1.0, -1.0, 20.0]
    noises = [np.asarray(seen[8:18])]
    for time in range(steps):
        result = step(jax.random.fold_in(key, 5 + time), design.task, state, jnp.array([actions[time]]))
        seen, state = result.observation, result.state
        assert bool(result.terminated) == (time == steps - 1)
        assert float(seen[-1]) == time + 1
        np.testing.assert_array_equal(seen[:8], state.parameters)
        noises.append(np.asarray(seen[8:18]))
    assert len({noise.tobytes() for noise in noises}) == steps + 1
    level = design.finished_level(state)
    expected = LOWEST + (np.tanh(actions) + 1) / 2 * (HIGHEST - LOWEST)
    expected[steps:] = LOWEST[steps:]
    np.testing.assert_allclose(level.parameters, expected, rtol=1e-5)
    assert int(level.time_limit) == 2000


def test_paireds_draw_seeds_and_stay_in_the_ranges_of_easy_levels():
    design = walker_design(WalkerConfig(), "easy")
    keys = jax.random.split(jax.random.key(0), 20)
    seeds = jax.vmap(lambda key: design.environment.reset(key, design.task)[1].seed)(keys)
    assert len(set(np.asarray(seeds).tolist())) == 20
    low, high = RANGES["easy"]
    assert np.array_equal(design.task.low, low)
    assert np.array_equal(design.task.high, high)


def test_the_design_environment_passes_the_check():
    key = jax.random.key(0)
    assert check_environment(WalkerDesign(WalkerConfig(), "full"), design_task("full"), key) == []


@pytest.mark.parametrize("config", [WalkerConfig(max_steps=500), FIVE], ids=["eight", "five"])
def test_a_level_comes_back_from_its_point_and_every_point_is_a_level(config):
    space = parameter_space(config)
    assert len(space.low) == (10 if config.stairs else 7)
    levels = draw(config, "full")
    again = jax.tree.map(np.asarray, jax.vmap(lambda level: space.decode(space.encode(level)))(levels))
    jax.tree.map(np.testing.assert_array_equal, again, levels)
    points = jax.random.uniform(jax.random.key(1), (500, len(space.low)), minval=space.low, maxval=space.high)
    assert_valid(jax.tree.map(np.asarray, jax.vmap(space.decode)(points)), config)
    ends = [space.decode(jnp.asarray(end)) for end in (space.low, space.high)]
    assert [int(level.seed) for level in ends] == [0, 2**32 - 1]


@pytest.mark.parametrize("config", [WalkerConfig(max_steps=500), FIVE], ids=["eight", "five"])
def test_tasks_are_the_parameters_and_seeds_are_drawn(config):
    space = walker_domain(config).tasks
    assert space is not None
    assert len(space.low) == (8 if config.stairs else 5)
    points = jax.random.uniform(jax.random.key(1), (50, len(space.low)), minval=space.low, maxval=space.high)
    levels = jax.vmap(space.draw)(jax.random.split(jax.random.key(2), 50), points)
    levels = jax.tree.map(np.asarray, levels)
    assert_valid(levels, config)
    np.testing.assert_array_equal(levels.parameters[:, : len(space.low)], points)
    assert len(set(levels.seed.tolist())) == 50
