"""The update: losses against NumPy, the guard, the schedule, minibatches and devices."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from cenie.envs.base import Box, Discrete
from cenie.run.checkpoint import digest
from cenie.student.config import NetworkConfig, PPOConfig, StudentConfig
from cenie.student.networks import make_network
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from tests.student.probes import View
from tests.student.rollouts import random_rollout

N, T = 4, 6
MLP = NetworkConfig(kind="mlp", hidden_sizes=(8,))
ONE_STEP = PPOConfig(epochs=1, minibatches=1)


def student(ppo: PPOConfig) -> tuple[StudentConfig, StudentState]:
    config = StudentConfig(network=MLP, ppo=ppo, num_levels=N, num_steps=T)
    network = make_network(MLP, Box((2,), -1.0, 1.0), Discrete(3), jax.random.key(0))
    return config, init_student(config, network)


def losses_by_hand(ppo: PPOConfig, state: StudentState, rollout) -> dict[str, float]:
    """Spec 1.2 in NumPy, from the network's outputs."""
    advantages = advantages_for(StudentConfig(network=MLP, ppo=ppo), state, rollout)
    a, g = np.asarray(advantages.advantage, np.float64), np.asarray(advantages.target, np.float64)
    a = (a - a.mean()) / (a.std(ddof=1) + 1e-5)
    decision = state.network.sequence((), rollout.observation, rollout.start)
    logits = np.asarray(decision.policy.logits, np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, np.asarray(rollout.action)[..., None], -1)[..., 0]
    ratio = np.exp(chosen - np.asarray(rollout.log_prob))
    policy = -np.minimum(ratio * a, np.clip(ratio, 1 - ppo.clip, 1 + ppo.clip) * a).mean()
    v, old = np.asarray(decision.value, np.float64), np.asarray(rollout.value, np.float64)
    if ppo.value_clip:
        near = old + np.clip(v - old, -ppo.clip, ppo.clip)
        value = 0.5 * np.maximum((v - g) ** 2, (near - g) ** 2).mean()
    else:
        error = np.abs(v - g)
        value = np.where(error <= 1, 0.5 * error**2, error - 0.5).mean()
    entropy = -(np.exp(log_probs) * log_probs).sum(-1).mean()
    total = policy + ppo.value_coef * value - ppo.entropy_coef * entropy
    return {"policy_loss": policy, "value_loss": value, "entropy": entropy, "loss": total}


@pytest.mark.parametrize("value_clip", [True, False])
def test_losses_equal_numpy(value_clip):
    ppo = dataclasses.replace(ONE_STEP, value_clip=value_clip, entropy_coef=0.01)
    config, state = student(ppo)
    rollout = random_rollout(1, N, T)
    _, metrics = learn(config, state, rollout, jax.random.key(0))
    for name, expected in losses_by_hand(ppo, state, rollout).items():
        assert float(metrics[name]) == pytest.approx(expected, rel=2e-4), name


def test_first_adam_step_moves_every_parameter_by_the_learning_rate_at_most():
    config, state = student(dataclasses.replace(ONE_STEP, learning_rate=1e-3))
    after, _ = learn(config, state, random_rollout(2, N, T), jax.random.key(0))
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), after.network, state.network)
    assert 0 < max(jax.tree.leaves(moved)) <= 1.001e-3


def test_a_non_finite_gradient_changes_nothing_and_is_counted():
    config, state = student(ONE_STEP)
    rollout = random_rollout(3, N, T)
    broken = eqx.tree_at(lambda r: r.log_prob, rollout, rollout.log_prob.at[0, 0].set(jnp.nan))
    after, metrics = learn(config, state, broken, jax.random.key(0))
    assert digest((after.network, after.optimiser)) == digest((state.network, state.optimiser))
    assert int(metrics["skipped"]) == int(after.bad_in_a_row) == int(after.skipped) == 1
    healed, _ = learn(config, after, rollout, jax.random.key(0))
    assert int(healed.bad_in_a_row) == 0
    assert int(healed.skipped) == 1


def test_learning_rate_falls_to_its_final_value_and_stays():
    ppo = dataclasses.replace(ONE_STEP, learning_rate=1e-2, final_learning_rate_fraction=0.1, decay_updates=2)
    config, state = student(ppo)
    rates = []
    for _ in range(4):
        state, metrics = learn(config, state, random_rollout(4, N, T), jax.random.key(0))
        rates.append(float(metrics["learning_rate"]))
    assert rates == pytest.approx([1e-2, 5.5e-3, 1e-3, 1e-3])


def test_minibatches_of_columns_use_every_column_once_per_epoch():
    """With a learning rate of almost 0 the mean over minibatch losses is the loss of the whole batch."""
    space = View(Box((3, 3, 3), 0, 10, "uint8"), Discrete(4))
    network_config = NetworkConfig(memory_size=4, encoder="bits", encoder_size=4, head_size=4)
    network = make_network(network_config, space, Discrete(3), jax.random.key(0))
    rng = np.random.default_rng(0)
    view = View(
        jnp.asarray(rng.integers(0, 9, (N, T, 3, 3, 3)), jnp.uint8),
        jnp.asarray(rng.integers(0, 4, (N, T)), jnp.int32),
    )
    rollout = random_rollout(5, N, T, observation=view, memory=network.initial_memory(N))
    losses = []
    for minibatches in (1, 2, 4):
        ppo = PPOConfig(learning_rate=1e-12, epochs=1, minibatches=minibatches)
        config = StudentConfig(network=network_config, ppo=ppo, num_levels=N, num_steps=T)
        _, metrics = learn(config, init_student(config, network), rollout, jax.random.key(1))
        losses.append(float(metrics["loss"]))
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_two_devices_give_the_gradient_of_one():
    """`pmean` of a gradient inside `shard_map` is off by the number of devices with default settings."""
    config, state = student(dataclasses.replace(ONE_STEP, max_grad_norm=1e9))
    rollout = random_rollout(6, N, T)
    one, on_one = learn(config, state, rollout, jax.random.key(0))
    mesh = Mesh(np.array(jax.devices()[:2]), ("levels",))
    two, on_two = learn(config, state, rollout, jax.random.key(0), mesh)
    assert float(on_two["gradient_norm"]) == pytest.approx(float(on_one["gradient_norm"]), rel=1e-5)
    for a, b in zip(jax.tree.leaves(one.optimiser), jax.tree.leaves(two.optimiser)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
