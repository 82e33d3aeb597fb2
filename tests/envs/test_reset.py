"""Steps of a batch: restarts of the same level, the observation before them, and several devices."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree

from cenie.envs.base import Environment
from cenie.envs.reset import ObservingEnvironment, step_and_restart, step_only
from cenie.records import Step
from cenie.spaces import Box, Discrete, Space
from cenie.xla import devices
from tests.teach.exchanges import exchanges_in_loops

LEVELS = jnp.array([2, 3, 5], jnp.int32)
KEY = jax.random.key(0)


def count_down(key: PRNGKeyArray, level: Array, state: Array) -> Step:
    left = state - 1
    return Step(left[None], left, jnp.float32(1.0), left == 0, jnp.zeros((), bool), left == 0)


class CountDown(Environment):
    """Counts from the level down to 0; the observation comes with the step.

    If it `searches`, it looks for something in each step, which takes as long as the level says.
    """

    searches: bool = eqx.field(static=True, default=False)
    max_steps: int = eqx.field(static=True, default=9)
    observation_space: PyTree = eqx.field(static=True, default=Box((1,), 0, 9, "int32"))
    action_space: Space = eqx.field(static=True, default=Discrete(1))

    def reset(self, key: PRNGKeyArray, level: Array) -> tuple[Array, Array]:
        return level[None], level

    def step(self, key: PRNGKeyArray, level: Array, state: Array, action: Array) -> Step:
        if self.searches:
            found = jax.lax.while_loop(lambda n: n * n < 50 * level, lambda n: n + 1, state * 0)
            state = jnp.minimum(state, found)
        return count_down(key, level, state)


class ObservingCountDown(ObservingEnvironment):
    """The same, with an observation that follows from the state."""

    max_steps: int = eqx.field(static=True, default=9)
    observation_space: PyTree = eqx.field(static=True, default=Box((1,), 0, 9, "int32"))
    action_space: Space = eqx.field(static=True, default=Discrete(1))

    def reset(self, key: PRNGKeyArray, level: Array) -> tuple[Array, Array]:
        return self.observe(level, level), level

    def step(self, key: PRNGKeyArray, level: Array, state: Array, action: Array) -> Step:
        return count_down(key, level, state)

    def observe(self, level: Array, state: Array) -> Array:
        return state[None]


def played(environment, steps=10):
    _, state = jax.vmap(environment.reset)(jax.random.split(KEY, 3), LEVELS)

    def step(state, keys):
        made, final = step_and_restart(environment, keys, LEVELS, state, jnp.zeros(3, jnp.int32))
        return made.state, (made, final)

    return jax.lax.scan(step, state, jax.random.split(KEY, (steps, 3, 2)))[1]


def test_a_finished_episode_starts_the_same_level_again():
    made, final = played(CountDown())
    for number, length in enumerate(LEVELS):
        before = [length - 1 - t % length for t in range(10)]
        after = [length if left == 0 else left for left in before]
        np.testing.assert_array_equal(final[:, number, 0], before)
        np.testing.assert_array_equal(made.observation[:, number, 0], after)
        np.testing.assert_array_equal(made.state[:, number], after)
        np.testing.assert_array_equal(made.terminated[:, number], np.array(before) == 0)
    assert (made.reward == 1).all()


def test_an_environment_that_observes_by_itself_restarts_to_the_same_bits():
    for one, other in zip(
        jax.tree.leaves(played(CountDown())), jax.tree.leaves(played(ObservingCountDown()))
    ):
        np.testing.assert_array_equal(one, other)


def test_every_level_gets_its_own_key():
    class Noisy(Environment):
        max_steps: int = eqx.field(static=True, default=9)
        observation_space: PyTree = eqx.field(static=True, default=Box((), 0.0, 1.0))
        action_space: Space = eqx.field(static=True, default=Discrete(1))

        def reset(self, key: PRNGKeyArray, level: Array) -> tuple[Array, Array]:
            draw = jax.random.uniform(key)
            return draw, draw

        def step(self, key: PRNGKeyArray, level: Array, state: Array, action: Array) -> Step:
            draw, done = jax.random.uniform(key), level > 0
            return Step(draw, draw, jnp.float32(0.0), done, jnp.zeros((), bool), done)

    levels = jnp.array([0, 0, 1, 1])
    keys = jax.random.split(KEY, (4, 2))
    made, final = step_and_restart(Noisy(), keys, levels, jnp.zeros(4), jnp.zeros(4, jnp.int32))
    drawn = np.concatenate([final, made.observation[2:]])
    assert len(np.unique(drawn)) == 6, "steps and restarts of all levels draw independently"
    np.testing.assert_array_equal(made.observation[:2], final[:2])


@pytest.mark.parametrize("advance", [step_and_restart, step_only])
def test_devices_do_not_wait_for_the_loops_of_each_others_environments(advance):
    mesh = devices.level_mesh(2)
    levels = jnp.array([2, 5, 3, 4])
    rows = jax.random.split(KEY, (4, 2)), levels, levels, jnp.zeros(4, jnp.int32)
    step = functools.partial(advance, CountDown(searches=True))

    def compiled(mesh_of_step):
        split = devices.shard_rows(mesh, rows)
        program = (
            jax.jit(lambda *rows: devices.on_own_rows(mesh_of_step, step, *rows)).lower(*split).compile()
        )
        return program, program(*split)

    # What it is like if the compiler splits the loop.
    assert exchanges_in_loops(compiled(None)[0].as_text(), "condition")
    program, found = compiled(mesh)
    assert exchanges_in_loops(program.as_text(), "condition") == []
    jax.tree.map(np.testing.assert_array_equal, found, step(*rows))
