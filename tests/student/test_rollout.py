from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from cenie.envs.base import Environment
from cenie.envs.reset import step_and_restart
from cenie.records import EnvState, Level, Observation, Rollout, Step
from cenie.spaces import Box, Discrete
from cenie.student.encoders import Bits
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.recurrent import Lstm
from cenie.student.networks.table import make_network
from cenie.student.rollout import collect
from tests.student.probes import FAULTS, Faulty, View

N, T = 4, 12
NETWORK = Lstm(encoder=Bits(size=4, codes=(2, 8)), memory_size=4, head_size=4)


class Counting(Environment):
    """Shows the level and the time in the direction; pays the time; ends after `level` steps.

    Odd levels end by time-out, even ones for real.
    """

    max_steps = 5
    observation_space = View(Box((3, 3, 3), 0, 10, "uint8"), Discrete(4))  # pyright: ignore
    action_space = Discrete(3)  # pyright: ignore

    def reset(self, key: PRNGKeyArray, level: Level) -> tuple[Observation, EnvState]:
        return self.observe(level, jnp.zeros((), jnp.int32)), jnp.zeros((), jnp.int32)

    def step(self, key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> Step:
        state = state + 1
        done, odd = state == level, level % 2 == 1
        reward = state.astype(jnp.float32)
        return Step(self.observe(level, state), state, reward, done & ~odd, done & odd, done & ~odd)

    def observe(self, level: Level, time: Array) -> Observation:
        image = jnp.full((3, 3, 3), jnp.where(time % 2 == 0, 2, 8)).astype(jnp.uint8)
        return View(image.at[0, 0, 2].set(level.astype(jnp.uint8)), time % 4)


LEVELS = jnp.array([1, 2, 3, 5], jnp.int32)
STUDENT = make_network(NETWORK, Counting().observation_space, Counting().action_space, jax.random.key(0))


@eqx.filter_jit
def play(key: PRNGKeyArray, levels: Array, **options: bool) -> Rollout:
    return collect(Counting(), STUDENT, levels, key=key, num_steps=T, advance=step_and_restart, **options)


ROLLOUT = play(jax.random.key(0), LEVELS, bootstrap_at_timeout=True, keep_features=True)


def test_a_finished_episode_starts_the_same_level_again() -> None:
    time = np.arange(T)[None] % np.asarray(LEVELS)[:, None]
    np.testing.assert_array_equal(ROLLOUT.start, time == 0)
    np.testing.assert_array_equal(ROLLOUT.reward, time + 1)
    np.testing.assert_array_equal(ROLLOUT.observation.direction, time % 4)
    shown = ROLLOUT.observation.image[:, :, 0, 0, 2]
    np.testing.assert_array_equal(shown, np.broadcast_to(LEVELS[:, None], (N, T)))


def test_ends_are_told_apart() -> None:
    last = np.arange(T)[None] % np.asarray(LEVELS)[:, None] == np.asarray(LEVELS)[:, None] - 1
    odd = np.asarray(LEVELS)[:, None] % 2 == 1
    np.testing.assert_array_equal(ROLLOUT.terminated, last & ~odd)
    np.testing.assert_array_equal(ROLLOUT.truncated, last & odd)
    np.testing.assert_array_equal(ROLLOUT.solved, last & ~odd)


def test_the_record_is_what_the_network_says_of_the_sequence() -> None:
    decision = STUDENT.sequence(ROLLOUT.memory, ROLLOUT.observation, ROLLOUT.start)
    np.testing.assert_allclose(ROLLOUT.value, decision.value, atol=1e-5)
    np.testing.assert_allclose(ROLLOUT.log_prob, decision.policy.log_prob(ROLLOUT.action), atol=1e-5)
    np.testing.assert_allclose(ROLLOUT.features, decision.features, atol=1e-5)


def test_values_beyond_the_record() -> None:
    """The last value follows the last step; a final value is that of the observation before a restart."""

    def extended(final: bool, row: int, now: int) -> float:
        """The value of one more observation after step `now` of a row."""
        observation, start = jax.tree.map(
            lambda x: x[row : row + 1, : now + 1], (ROLLOUT.observation, ROLLOUT.start)
        )
        more = Counting().observe(LEVELS[row], jnp.array(LEVELS[row] if final else 0))
        observation = jax.tree.map(
            lambda a, b: jnp.concatenate([a, b[None, None]], axis=1), observation, more
        )
        start = jnp.concatenate([start, jnp.array([[not final]])], axis=1)
        memory = STUDENT.initial_memory(1)
        return float(STUDENT.sequence(memory, observation, start).value[0, -1])

    assert ROLLOUT.final_value is not None
    np.testing.assert_allclose(ROLLOUT.final_value[2, 5], extended(True, 2, 5), atol=1e-5)
    assert abs(extended(True, 2, 5) - extended(False, 2, 5)) > 1e-4
    np.testing.assert_allclose(ROLLOUT.last_value[1], extended(False, 1, T - 1), atol=1e-5)


def test_nothing_optional_is_kept_unasked() -> None:
    plain = play(jax.random.key(0), LEVELS)
    assert plain.final_value is None
    assert plain.features is None
    assert plain.final_state is None
    np.testing.assert_array_equal(plain.action, ROLLOUT.action)


def test_actions_depend_on_the_key_and_differ_between_columns() -> None:
    same = jnp.full(N, 3, jnp.int32)
    first, second = play(jax.random.key(0), same), play(jax.random.key(1), same)
    assert not np.array_equal(first.action, second.action)
    assert not np.array_equal(first.action[0], first.action[1])
    assert set(np.asarray(first.action).ravel()) == {0, 1, 2}


def test_the_level_axis_may_be_split_over_devices() -> None:
    mesh = Mesh(np.array(jax.devices()), ("levels",))
    split = jax.device_put(LEVELS, NamedSharding(mesh, PartitionSpec("levels")))
    together, apart = play(jax.random.key(0), LEVELS), play(jax.random.key(0), split)
    for one, two in zip(jax.tree.leaves(together), jax.tree.leaves(apart)):
        np.testing.assert_allclose(one, two, atol=1e-5)
    assert apart.reward.sharding.shard_shape(apart.reward.shape) == (N // len(jax.devices()), T)


def test_non_finite_numbers_are_set_to_zero_and_counted() -> None:
    levels = jnp.array([FAULTS.index(name) for name in ("nan reward", "nan observation", "never done")])
    config = Mlp(hidden_sizes=(4,))
    network = make_network(config, Faulty.observation_space, Faulty.action_space, jax.random.key(0))

    @eqx.filter_jit
    def faulty(key: PRNGKeyArray) -> Any:
        return collect(
            Faulty(),
            network,
            levels,
            key=key,
            num_steps=T,
            advance=step_and_restart,
            bootstrap_at_timeout=True,
        )

    rollout = faulty(jax.random.key(0))
    assert all(
        np.isfinite(leaf).all()
        for leaf in jax.tree.leaves(rollout)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    )
    bad_rewards = int((rollout.action[0] == 1).sum())
    assert bad_rewards > 0
    assert int(rollout.masked[0]) == bad_rewards
    # The observation after the last step is masked too, but not part of the record.
    zeros = int((rollout.observation[1] == 0.0).sum())
    assert zeros <= int(rollout.masked[1]) <= zeros + 2
    assert int(rollout.masked[2]) == 0


class Tabled(Environment):
    """Pays by a table that is made of the level; a level that was not prepared has none."""

    max_steps = 3
    observation_space = Box((2,), -1.0, 9.0)  # pyright: ignore
    action_space = Discrete(2)  # pyright: ignore

    def prepare(self, level: Level) -> dict[str, Array]:
        return {"table": level * jnp.arange(1.0, 4.0)}

    def reset(self, key: PRNGKeyArray, level: dict[str, Array]) -> tuple[Observation, EnvState]:
        return jnp.zeros(2), jnp.zeros((), jnp.int32)

    def step(self, key: PRNGKeyArray, level: dict[str, Array], state: EnvState, action: Array) -> Step:
        no = jnp.zeros((), bool)
        return Step(jnp.zeros(2), state + 1, level["table"][state], state == 2, no, no)


def test_what_is_prepared_of_a_level_is_played_and_made_outside_the_loop_over_steps() -> None:
    config = Mlp(hidden_sizes=(4,))
    network = make_network(config, Tabled.observation_space, Tabled.action_space, jax.random.key(0))
    traced = []

    class Watched(Tabled):
        def prepare(self, level: Level) -> dict[str, Array]:
            traced.append(level)
            return super().prepare(level)

    def play(levels: Array) -> Rollout:
        return collect(
            Watched(), network, levels, key=jax.random.key(0), num_steps=6, advance=step_and_restart
        )

    rollout = jax.jit(play)(jnp.array([1.0, 10.0]))
    np.testing.assert_array_equal(rollout.reward, [[1, 2, 3] * 2, [10, 20, 30] * 2])
    assert len(traced) == 1, "neither the steps nor the restarts prepare the level again"
