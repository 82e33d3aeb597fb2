"""What every domain must offer, whatever it is: run over the whole table of domains."""

import functools
import importlib
import json

import jax
import numpy as np
import pytest

from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS
from cenie.envs.reset import step_only

COUNT = 20


@pytest.fixture(scope="module", params=list(DOMAINS))
def domain(request: pytest.FixtureRequest) -> Domain:
    entry = DOMAINS[request.param]
    module, function = entry.factory.split(":")
    return getattr(importlib.import_module(module), function)(entry.settings())


def keys(seed: int):
    return jax.random.split(jax.random.key(seed), COUNT)


@functools.cache
def drawn(domain_name: str, factory, seed: int = 0):
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(factory))(keys(seed)))


def rows(levels):
    return [jax.tree.map(lambda leaf, n=n: leaf[n], levels) for n in range(COUNT)]


def assert_valid(domain: Domain, levels):
    """Every level survives JSON, whose reader refuses what is not valid."""
    for level in rows(levels):
        again = domain.from_json(json.loads(json.dumps(domain.to_json(level))))
        jax.tree.map(np.testing.assert_array_equal, again, level)


def test_the_table_says_what_the_domain_has(domain: Domain):
    entry = DOMAINS[domain.name]
    assert tuple(domain.generators) == entry.generators
    assert domain.roles == entry.roles
    assert {"random", "simple"} == domain.roles.keys()
    assert set(domain.suites) == set(entry.suites)
    assert jax.tree.leaves(domain.environment.observation_space) == list(entry.settings().observation_parts)
    assert domain.environment.action_space == entry.settings().action_space


def test_generated_and_edited_levels_are_valid_and_have_one_type(domain: Domain):
    shapes = None
    for name, generator in domain.generators.items():
        levels = drawn(domain.name, generator)
        assert_valid(domain, levels)
        described = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), levels)
        shapes = shapes or described
        assert described == shapes, name
    edited = jax.tree.map(np.asarray, jax.jit(jax.vmap(domain.edit))(keys(1), levels))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), edited) == shapes
    assert_valid(domain, edited)


def test_the_size_of_a_level_is_as_the_settings_say(domain: Domain):
    level = rows(drawn(domain.name, domain.generator("random")))[0]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(level))
    assert 0.9 * size <= DOMAINS[domain.name].settings().level_bytes <= size


def test_statistics_are_scalars(domain: Domain):
    levels = drawn(domain.name, domain.generator("random"))
    found = jax.jit(jax.vmap(domain.statistics))(levels)
    assert found
    assert all(value.shape == (COUNT,) and np.isfinite(value).all() for value in found.values())


def test_held_out_levels_are_valid_and_can_be_stacked(domain: Domain):
    for name in domain.suites:
        suite = domain.suites[name]()
        assert suite.name == name
        labels, levels = suite.draw(0, 1)
        assert len({label[:2] for label in labels}) == len(labels)
        for level in levels[:COUNT]:
            jax.tree.map(np.testing.assert_array_equal, domain.from_json(domain.to_json(level)), level)
        assert {leaf.shape[0] for leaf in jax.tree.leaves(domain.stack(levels[:COUNT]))} == {
            len(levels[:COUNT])
        }


def test_random_designs_are_valid_levels(domain: Domain):
    if domain.design is None:
        pytest.skip("nothing can be designed here")
    design = domain.design(domain.roles["random"])
    environment, key = design.environment, jax.random.key(2)
    tasks = jax.tree.map(lambda leaf: np.stack([leaf] * COUNT), design.task)
    space = environment.action_space

    def step(states, key):
        step_key, action_key = jax.random.split(key)
        if hasattr(space, "n"):
            actions = jax.random.randint(action_key, (COUNT,), 0, space.n)
        else:
            actions = jax.random.normal(action_key, (COUNT, *space.shape))
        made, _ = step_only(environment, jax.random.split(step_key, (COUNT, 2)), tasks, states, actions)
        return made.state, made.terminated

    @jax.jit
    def play(key):
        reset_key, key = jax.random.split(key)
        _, states = jax.vmap(environment.reset)(jax.random.split(reset_key, COUNT), tasks)
        states, ends = jax.lax.scan(step, states, jax.random.split(key, environment.max_steps))
        return jax.vmap(design.finished_level)(states), ends

    levels, ends = jax.tree.map(np.asarray, play(key))
    assert ends[-1].all()
    assert_valid(domain, levels)
    like = rows(drawn(domain.name, domain.generator("random")))[0]
    made = rows(levels)[0]
    assert jax.tree.map(lambda leaf: leaf.dtype, made) == jax.tree.map(lambda leaf: leaf.dtype, like)


def test_points_of_the_parameter_space_are_levels(domain: Domain):
    space = domain.parameters
    if space is None:
        pytest.skip("levels have no parameters here")
    points = jax.random.uniform(keys(3)[0], (COUNT, len(space.low)), minval=space.low, maxval=space.high)
    assert_valid(domain, jax.tree.map(np.asarray, jax.vmap(space.decode)(points)))
    levels = drawn(domain.name, domain.generator("random"))
    again = jax.vmap(lambda level: space.decode(space.encode(level)))(levels)
    jax.tree.map(np.testing.assert_array_equal, again, levels)


def test_a_level_can_be_drawn(domain: Domain):
    if domain.render is None:
        pytest.skip("there are no pictures of this domain")
    pictures = [
        domain.render.level(level) for level in rows(drawn(domain.name, domain.generator("random")))[:2]
    ]
    assert all(picture.dtype == np.uint8 and picture.shape[2] == 3 for picture in pictures)
    assert not np.array_equal(*pictures)
