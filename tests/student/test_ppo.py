import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.records import Memory, Observation, Rollout
from cenie.spaces import Box, Discrete
from cenie.student.actions import Categorical
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.convolutions import Convolution
from cenie.student.encoders import Conv
from cenie.student.networks.base import Decision, Network
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.pixels import FrameStack, Pixels
from cenie.student.networks.recurrent import Lstm
from cenie.student.networks.table import make_network
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from tests.student.probes import View
from tests.student.rollouts import random_rollout

N, T, ACTIONS = 4, 6, 3
MESH = Mesh(np.array(jax.devices()), ("levels",))


class Table(Network):
    """Looks its decisions up: logits and a value for every level and step, whatever is observed."""

    recurrent: ClassVar[bool] = True

    logits: Float[Array, "n t a"]
    value: Float[Array, "n t"]

    def initial_memory(self, count: int) -> Memory:
        return ()

    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        raise NotImplementedError

    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return Decision(Categorical(self.logits), self.value, self.logits)


def table(seed: int) -> Table:
    keys = jax.random.split(jax.random.key(seed))
    return Table(jax.random.normal(keys[0], (N, T, ACTIONS)), jax.random.normal(keys[1], (N, T)))


def config(**ppo: Any) -> StudentConfig:
    settings = PPOConfig(**{"epochs": 1, "gamma": 0.9, "entropy_coef": 0.1, **ppo})
    return StudentConfig(ppo=settings, num_levels=N, num_steps=T)


def oracle_loss(
    config: StudentConfig, network: Table, rollout: Rollout, advantage: np.ndarray
) -> dict[str, float]:
    """Section 1.2 of the specification in NumPy."""
    ppo = config.ppo
    old_value, value = (np.asarray(x, np.float64) for x in (rollout.value, network.value))
    target = advantage + old_value
    scaled = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-5)
    logits = np.asarray(network.logits, np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    log_ratio = np.take_along_axis(log_p, np.asarray(rollout.action)[..., None], -1)[..., 0] - np.asarray(
        rollout.log_prob, np.float64
    )
    ratio = np.exp(log_ratio)
    clipped = np.clip(ratio, 1 - ppo.clip, 1 + ppo.clip)
    policy_loss = -np.minimum(ratio * scaled, clipped * scaled).mean()
    near = old_value + np.clip(value - old_value, -ppo.clip, ppo.clip)
    error = np.abs(value - target)
    if ppo.value_clip:
        value_loss = 0.5 * np.maximum(error**2, (near - target) ** 2).mean()
    else:
        value_loss = np.where(error < 1, 0.5 * error**2, error - 0.5).mean()
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
    return {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "loss": policy_loss + ppo.value_coef * value_loss - ppo.entropy_coef * entropy,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(ratio - 1) > ppo.clip).mean(),
        "explained_variance": 1 - (target - old_value).var() / target.var(),
    }


@pytest.mark.parametrize("value_clip", [True, False])
def test_the_loss_is_the_specified_one(value_clip: bool) -> None:
    setting = config(value_clip=value_clip)
    network, rollout = table(0), random_rollout(0, N, T, ACTIONS)
    state = init_student(setting, network)
    advantage = np.asarray(advantages_for(setting, state, rollout).advantage, np.float64)
    _, metrics = learn(setting, state, rollout, jax.random.key(0))
    for name, expected in oracle_loss(setting, network, rollout, advantage).items():
        np.testing.assert_allclose(metrics[name], expected, rtol=1e-4, err_msg=name)


def test_one_step_is_clipped_adam() -> None:
    """The parameters move as optax would move them by the gradient of the total loss."""
    setting = config(max_grad_norm=1e-3, learning_rate=0.01)
    network, rollout = table(0), random_rollout(0, N, T, ACTIONS)
    state = init_student(setting, network)
    advantages = advantages_for(setting, state, rollout)
    scaled = (advantages.advantage - advantages.advantage.mean()) / (
        jnp.std(advantages.advantage, ddof=1) + 1e-5
    )

    def loss(network: Table) -> Array:
        policy = Categorical(network.logits)
        ratio = jnp.exp(policy.log_prob(rollout.action) - rollout.log_prob)
        near = rollout.value + jnp.clip(network.value - rollout.value, -0.2, 0.2)
        worse = jnp.maximum((network.value - advantages.target) ** 2, (near - advantages.target) ** 2)
        gain = jnp.minimum(ratio * scaled, jnp.clip(ratio, 0.8, 1.2) * scaled)
        return -gain.mean() + 0.25 * worse.mean() - 0.1 * policy.entropy().mean()

    gradient = jax.grad(loss)(network)
    optimiser = optax.chain(optax.clip_by_global_norm(1e-3), optax.adam(0.01, eps=1e-5))
    updates, _ = optimiser.update(gradient, optimiser.init(network))  # pyright: ignore
    expected = eqx.apply_updates(network, updates)
    after, metrics = learn(setting, state, rollout, jax.random.key(0))
    for mine, theirs in zip(jax.tree.leaves(after.network), jax.tree.leaves(expected)):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    np.testing.assert_allclose(metrics["gradient_norm"], optax.tree.norm(gradient), rtol=1e-5)


def test_advantages_are_normalised_over_the_whole_rollout_before_minibatches() -> None:
    """Trap 22: a minibatch of one step has no deviation of its own, and the lucky step must stay lucky."""
    setting, state, rollout = mlp_case(minibatches=N * T, learning_rate=1e-9)
    whole = dataclasses.replace(setting, ppo=dataclasses.replace(setting.ppo, minibatches=1))
    _, parts = update(setting, state, rollout, jax.random.key(0))
    _, all_at_once = update(whole, state, rollout, jax.random.key(0))
    assert int(parts["skipped"]) == 0
    np.testing.assert_allclose(parts["policy_loss"], all_at_once["policy_loss"], rtol=1e-3)


def mlp_config(**ppo: Any) -> StudentConfig:
    network = Mlp(hidden_sizes=(8,))
    return dataclasses.replace(config(**ppo), network=network)


def lstm_config(**ppo: Any) -> StudentConfig:
    network = Lstm(encoder=Conv(), memory_size=4, head_size=4)
    return dataclasses.replace(config(**ppo), network=network)


def student(setting: StudentConfig, observation_space: Any, action_space: Any) -> StudentState:
    network = make_network(setting.network, observation_space, action_space, jax.random.key(5))
    return init_student(setting, network)


def maze_case(**ppo: Any) -> tuple[StudentConfig, StudentState, Rollout]:
    setting = lstm_config(**ppo)
    state = student(setting, View(Box((5, 5, 3), 0, 10), Discrete(4)), Discrete(ACTIONS))
    rng = np.random.default_rng(3)
    image = jnp.asarray(rng.choice(np.array([1, 2, 8], np.uint8), (N, T, 5, 5, 3)))
    direction = jnp.asarray(rng.integers(0, 4, (N, T)), jnp.int32)
    memory = state.network.initial_memory(N)
    return setting, state, random_rollout(1, N, T, ACTIONS, observation=View(image, direction), memory=memory)


def mlp_case(**ppo: Any) -> tuple[StudentConfig, StudentState, Rollout]:
    setting = mlp_config(**ppo)
    return setting, student(setting, Box((2,), -1, 1), Discrete(ACTIONS)), random_rollout(1, N, T, ACTIONS)


PIXELS = Pixels(frames=3, channels=(4, 5), kernels=(4, 3), strides=(2, 1), head_size=6)
BLOCKS = dataclasses.replace(PIXELS, kernels=(3, 2), strides=(3, 1))
"""Its first kernel moves on by its own size, and meets nothing twice; some pixels are left over."""
SEEN = Box((8, 10, 3), 0, 255, "uint8")


def pixels_case(network: Pixels = PIXELS, **ppo: Any) -> tuple[StudentConfig, StudentState, Rollout]:
    setting = dataclasses.replace(config(**ppo), network=network)
    state = student(setting, SEEN, Box((2,), 0, 1))
    rng = np.random.default_rng(4)
    film = jnp.asarray(rng.integers(0, 256, (N, T, *SEEN.shape), np.uint8))
    # A rollout that begins in the middle of an episode, for one level.
    memory = jnp.asarray(rng.integers(0, 256, (N, 2, *SEEN.shape), np.uint8))
    rollout = random_rollout(1, N, T, observation=film, memory=memory)
    action = jnp.asarray(rng.uniform(0.1, 0.9, (N, T, 2)), jnp.float32)
    start = rollout.start.at[0, 0].set(False)
    return setting, state, dataclasses.replace(rollout, action=action, start=start)


CASES = {"lstm": maze_case, "mlp": mlp_case, "pixels": pixels_case}


@eqx.filter_jit
def update(
    setting: StudentConfig, state: StudentState, rollout: Rollout, key: PRNGKeyArray, mesh: Mesh | None = None
) -> tuple[StudentState, dict[str, Array]]:
    return learn(setting, state, rollout, key, mesh)


@pytest.mark.parametrize("case", CASES)
def test_devices_share_the_work_and_agree_on_the_result(case: str) -> None:
    """A mean of gradients that JAX has already added up is off by the number of devices."""
    assert MESH.size == 2
    setting, state, rollout = CASES[case](epochs=2, minibatches=2, learning_rate=0.01)
    alone, its_metrics = update(setting, state, rollout, jax.random.key(0))
    shared, metrics = update(setting, state, rollout, jax.random.key(0), MESH)
    for one, two, before in zip(*(jax.tree.leaves(s.network) for s in (alone, shared, state))):
        np.testing.assert_allclose(one - before, two - before, rtol=1e-3, atol=1e-6)
    for name, value in its_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_every_step_of_the_rollout_is_learned_from_once_per_epoch(case: str) -> None:
    """The order of minibatches does not matter to the first order, and nothing is left out or repeated."""
    setting, state, rollout = CASES[case](epochs=1, minibatches=2, learning_rate=1e-9)
    whole = dataclasses.replace(setting, ppo=dataclasses.replace(setting.ppo, minibatches=1))
    for key in jax.random.split(jax.random.key(0), 3):
        _, parts = update(setting, state, rollout, key)
        _, all_at_once = update(whole, state, rollout, key)
        for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
            np.testing.assert_allclose(parts[name], all_at_once[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value_clip", [True, False])
@pytest.mark.parametrize("case", ["lstm", "mlp"])
def test_steps_that_do_not_count_are_as_good_as_cut_off(case: str, value_clip: bool) -> None:
    setting, state, rollout = CASES[case](
        epochs=2, minibatches=1, learning_rate=0.01, gae_lambda=0.8, value_clip=value_clip
    )
    ends = T - 2
    rollout = eqx.tree_at(lambda r: r.terminated, rollout, rollout.terminated.at[:, ends - 1].set(True))
    shorter = {
        name: jax.tree.map(lambda leaf: leaf[:, :ends], value)
        for name, value in vars(rollout).items()
        if name not in ("memory", "last_value") and value is not None
    }
    short = dataclasses.replace(rollout, **shorter)
    whole = dataclasses.replace(rollout, counts=jnp.broadcast_to(jnp.arange(T) < ends, (N, T)))
    expected, its_metrics = update(setting, state, short, jax.random.key(0))
    masked, metrics = update(setting, state, whole, jax.random.key(0))
    for one, two in zip(jax.tree.leaves(masked.network), jax.tree.leaves(expected.network), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=2e-6)
    for name, value in its_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("network", [PIXELS, BLOCKS], ids=["pixels", "in blocks"])
def test_single_steps_see_the_images_before_them(network: Pixels) -> None:
    """The loss of steps taken out of their rows is that of whole rows, played again."""
    setting, state, rollout = pixels_case(network, minibatches=3, learning_rate=1e-9)
    _, metrics = update(setting, state, rollout, jax.random.key(0))
    decision = state.network.sequence(rollout.memory, rollout.observation, rollout.start)
    log_ratio = decision.policy.log_prob(rollout.action) - rollout.log_prob
    np.testing.assert_allclose(
        metrics["approx_kl"], jnp.mean(jnp.exp(log_ratio) - 1.0 - log_ratio), rtol=1e-4
    )
    alone = state.network.sequence(rollout.memory, rollout.observation, jnp.ones((N, T), bool))
    assert not np.allclose(alone.value, decision.value, rtol=1e-3)


def assert_learned_alike(before: StudentState, *updates: tuple[StudentState, dict[str, Array]]) -> None:
    (first, metrics), (second, its_metrics) = updates
    for one, two, old in zip(*(jax.tree.leaves(s.network) for s in (first, second, before))):
        np.testing.assert_allclose(one - old, two - old, rtol=1e-3, atol=1e-5)
    for name, value in metrics.items():
        np.testing.assert_allclose(its_metrics[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_film_in_blocks_teaches_what_the_images_do(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, state, rollout = pixels_case(BLOCKS, minibatches=2, learning_rate=0.01)
    fast, metrics = learn(setting, state, rollout, jax.random.key(0))
    monkeypatch.setattr(Convolution, "likes_blocks", False)
    plain, its_metrics = learn(setting, state, rollout, jax.random.key(0))
    assert_learned_alike(state, (fast, metrics), (plain, its_metrics))


@pytest.mark.parametrize("rows", [1, 4, 5, 12, 100])
def test_a_gradient_may_be_added_up_over_few_rows_at_a_time(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, state, rollout = pixels_case(minibatches=2, learning_rate=0.01)
    monkeypatch.setattr(FrameStack, "rows_at_once", None)
    whole, metrics = learn(setting, state, rollout, jax.random.key(0))
    monkeypatch.setattr(FrameStack, "rows_at_once", rows)
    parts, its_metrics = learn(setting, state, rollout, jax.random.key(0))
    assert_learned_alike(state, (whole, metrics), (parts, its_metrics))


def test_minibatches_are_drawn_anew_from_the_key() -> None:
    setting, state, rollout = maze_case(minibatches=2, learning_rate=0.01)
    results = [update(setting, state, rollout, jax.random.key(seed))[0].network for seed in range(6)]
    weights = {float(jnp.sum(jnp.abs(leaf))) for leaf in (r.core.weight for r in results)}  # pyright: ignore
    assert len(weights) > 1
    again = update(setting, state, rollout, jax.random.key(0))[0].network
    assert eqx.tree_equal(results[0], again)


@pytest.mark.parametrize("poison", ["reward", "value", "log_prob"])
def test_a_non_finite_step_changes_nothing_and_is_counted(poison: str) -> None:
    setting, state, rollout = mlp_case(epochs=2, minibatches=3)
    state, _ = update(setting, state, rollout, jax.random.key(0))
    bad = eqx.tree_at(lambda r: getattr(r, poison), rollout, replace_fn=lambda x: x.at[0, 0].set(jnp.nan))
    after, metrics = update(setting, state, bad, jax.random.key(1))
    skipped = int(metrics["skipped"])
    assert skipped == int(after.skipped)
    assert int(after.bad_in_a_row) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.network, after.optimiser)))
    if poison == "log_prob":
        # One minibatch of three holds the poisoned step, in each of two epochs.
        assert skipped == 2
    else:
        # A bad reward or value spoils the normalisation of all advantages.
        assert skipped == 6
        assert eqx.tree_equal(after.network, state.network)
        assert eqx.tree_equal(after.optimiser, state.optimiser)


def test_bad_updates_in_a_row_are_counted_until_a_good_one() -> None:
    setting, state, rollout = mlp_case()
    bad = eqx.tree_at(lambda r: r.reward, rollout, rollout.reward * jnp.inf)
    seen = []
    for batch in (bad, bad, bad, rollout, bad):
        state, _ = update(setting, state, batch, jax.random.key(0))
        seen.append((int(state.bad_in_a_row), int(state.skipped), int(state.updates)))
    assert seen == [(1, 1, 1), (2, 2, 2), (3, 3, 3), (0, 3, 4), (1, 4, 5)]


def test_the_learning_rate_falls_linearly_and_then_stays() -> None:
    ppo = {"learning_rate": 0.1, "final_learning_rate_fraction": 0.2, "decay_updates": 4}
    setting, state, rollout = mlp_case(**ppo)
    rates = []
    for _ in range(7):
        state, metrics = update(setting, state, rollout, jax.random.key(0))
        rates.append(float(metrics["learning_rate"]))
    np.testing.assert_allclose(rates, [0.1, 0.08, 0.06, 0.04, 0.02, 0.02, 0.02], rtol=1e-5)


def test_the_learning_rate_is_full_until_the_decay_begins() -> None:
    ppo = {"learning_rate": 0.1, "final_learning_rate_fraction": 0.2, "decay_from": 2, "decay_updates": 2}
    setting, state, rollout = mlp_case(**ppo)
    rates = []
    for _ in range(6):
        state, metrics = update(setting, state, rollout, jax.random.key(0))
        rates.append(float(metrics["learning_rate"]))
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.1, 0.06, 0.02, 0.02], rtol=1e-5)


def test_a_decay_of_unknown_length_is_refused() -> None:
    setting, state, rollout = mlp_case(final_learning_rate_fraction=0.5)
    with pytest.raises(ValueError, match="decay_updates"):
        learn(setting, state, rollout, jax.random.key(0))


def test_normalised_returns_leave_the_rollout_alone_and_move_the_statistics_only_when_learning() -> None:
    setting, state, rollout = mlp_case(normalise_returns=True, value_clip=False)
    raw = np.asarray(rollout.reward)
    plain = dataclasses.replace(setting, ppo=dataclasses.replace(setting.ppo, normalise_returns=False))
    scored = advantages_for(setting, state, rollout).advantage
    assert not np.allclose(scored, advantages_for(plain, state, rollout).advantage)
    after, _ = update(setting, state, rollout, jax.random.key(0))
    np.testing.assert_array_equal(rollout.reward, raw)
    assert float(state.return_scale.count) < 1.0
    np.testing.assert_allclose(after.return_scale.count, N * T, rtol=1e-4)
    # The same rollout is judged by what has been seen since.
    assert not np.allclose(scored, advantages_for(setting, after, rollout).advantage)
