"""Playing levels: one level per column, restarts, flags, final observations, masked numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from cenie.envs.base import Box, Discrete, Environment
from cenie.envs.reset import step_and_restart
from cenie.student.config import NetworkConfig
from cenie.student.networks import make_network
from cenie.student.rollout import collect
from cenie.types import Step

STEPS = 7


class Counter(Environment):
    """Shows (level, time). Ends after `level` steps, by time-out for even levels; pays the time."""

    broken: bool = eqx.field(static=True, default=False)
    max_steps = 9
    observation_space = Box((2,), 0.0, 9.0)
    action_space = Discrete(2)

    def reset(self, key, level):
        return self._show(level, jnp.zeros(())), jnp.zeros(())

    def step(self, key, level, state, action):
        time = state + 1.0
        done = time >= level
        even = level % 2 == 0
        reward = jnp.where(self.broken & (time == 2), jnp.nan, time)
        return Step(self._show(level, time), time, reward, done & ~even, done & even, done & ~even)

    def _show(self, level, time):
        return jnp.stack([jnp.asarray(level, jnp.float32), time])


def play(environment=None, **options):
    environment = environment or Counter()
    config = NetworkConfig(kind="mlp", hidden_sizes=(4,))
    network = make_network(config, environment.observation_space, environment.action_space, jax.random.key(0))
    levels = jnp.array([2.0, 3.0, 9.0])
    return collect(
        environment, network, levels, jax.random.key(1), STEPS, advance=step_and_restart, **options
    ), network


def test_every_step_of_a_column_belongs_to_its_level():
    """A peer went on with random levels after the first episode of a rollout."""
    rollout, _ = play()
    shown = np.asarray(rollout.observation[..., 0])
    np.testing.assert_array_equal(shown, np.repeat([[2.0], [3.0], [9.0]], STEPS, axis=1))


def test_flags_and_rewards_of_restarted_episodes():
    rollout, _ = play()
    np.testing.assert_array_equal(rollout.observation[0, :, 1], [0, 1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(rollout.start[0], [1, 0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(rollout.truncated[0], [0, 1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(rollout.terminated[1], [0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(rollout.solved[1], rollout.terminated[1])
    assert not np.asarray(rollout.truncated[1]).any()
    np.testing.assert_array_equal(rollout.reward[1], [1, 2, 3, 1, 2, 3, 1])
    assert not np.asarray(rollout.done[2]).any()


def test_final_observation_is_the_one_before_the_restart():
    rollout, _ = play(keep_final_observation=True)
    final = rollout.final_observation
    assert final is not None
    np.testing.assert_array_equal(final[0, :, 1], [1, 2, 1, 2, 1, 2, 1])


def test_values_of_final_and_last_observations():
    rollout, network = play(bootstrap_at_timeout=True, keep_final_observation=True)
    assert rollout.final_value is not None
    value = network.sequence((), rollout.final_observation, rollout.start).value
    np.testing.assert_allclose(rollout.final_value, value, rtol=1e-5, atol=1e-6)
    nxt = jnp.array([[[2.0, 1.0]], [[3.0, 1.0]], [[9.0, 7.0]]])
    np.testing.assert_allclose(
        rollout.last_value, network.sequence((), nxt, rollout.start[:, :1]).value[:, 0], rtol=1e-5, atol=1e-6
    )


def test_stored_values_and_log_probs_are_those_of_the_acting_network():
    rollout, network = play(keep_features=True)
    decision = network.sequence((), rollout.observation, rollout.start)
    np.testing.assert_allclose(rollout.value, decision.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        rollout.log_prob, decision.policy.log_prob(rollout.action), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(rollout.features, rollout.observation)


def test_non_finite_rewards_are_masked_and_counted():
    rollout, _ = play(Counter(broken=True))
    assert np.isfinite(np.asarray(rollout.reward)).all()
    np.testing.assert_array_equal(rollout.masked, [3, 2, 1])
