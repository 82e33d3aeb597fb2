import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.spaces import Box, Discrete
from cenie.student.actions import Beta, Categorical, DiagonalGaussian
from cenie.student.config import NetworkConfig
from cenie.student.networks import MLP, BitsEncoder, ConvEncoder, MazeLSTM, Network, make_network
from tests.student.probes import View

N, T = 3, 6
MAZE = View(Box((5, 5, 3), 0, 10, "uint8"), Discrete(4))
SMALL = NetworkConfig(memory_size=8, head_size=4, encoder_size=6)
KINDS: dict[str, tuple[NetworkConfig, Any, Any]] = {
    "conv": (SMALL, MAZE, Discrete(7)),
    "bits": (dataclasses.replace(SMALL, encoder="bits"), MAZE, Discrete(3)),
    "gaussian": (NetworkConfig(kind="mlp"), Box((4,), -1, 1), Box((2,), -1, 1)),
    "beta": (
        NetworkConfig(kind="mlp", continuous="beta", activation="relu"),
        Box((2, 2), -1, 1),
        Box((3,), 0, 1),
    ),
    "categorical": (NetworkConfig(kind="mlp", hidden_sizes=(5,)), Box((4,), -1, 1), Discrete(2)),
}


def views(*batch: int) -> View:
    rng = np.random.default_rng(0)
    image = rng.choice(np.array([1, 2, 8], np.uint8), (*batch, 5, 5, 3))
    return View(jnp.asarray(image), jnp.asarray(rng.integers(0, 4, batch), jnp.int32))


def observe(kind: str, *batch: int) -> Any:
    if kind in ("conv", "bits"):
        return views(*batch)
    return jax.random.normal(jax.random.key(1), (*batch, *KINDS[kind][1].shape))


def network(kind: str) -> Network:
    return make_network(*KINDS[kind], jax.random.key(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_equals_its_steps(kind: str) -> None:
    net = network(kind)
    observation = observe(kind, N, T)
    start = jax.random.bernoulli(jax.random.key(2), 0.3, (N, T))
    memory = jax.tree.map(lambda zeros: zeros + 0.3, net.initial_memory(N))
    whole = net.sequence(memory, observation, start)
    for now in range(T):
        memory, decision = net.step(
            memory, jax.tree.map(lambda x, now=now: x[:, now], observation), start[:, now]
        )
        for part, expected in zip(jax.tree.leaves(decision), jax.tree.leaves(whole)):
            np.testing.assert_allclose(part, expected[:, now], atol=1e-5)


def test_the_dense_product_is_a_convolution() -> None:
    encoder = ConvEncoder((5, 5, 3), 16, jax.random.key(0))
    observation = views(N, T)
    pixels = observation.image.reshape(-1, 5, 5, 3).astype(jnp.float32) / 10.0
    kernel = encoder.kernel.T.reshape(3, 3, 3, 16)
    expected = jax.lax.conv_general_dilated(
        pixels, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    expected = jax.nn.relu(jnp.moveaxis(expected, -1, 0)).reshape(16, N * T, 9)
    codes = encoder(observation)[:144].reshape(16, 9, N * T)
    np.testing.assert_allclose(jnp.swapaxes(codes, 1, 2), expected, atol=1e-5)


def test_the_direction_reaches_the_last_five_inputs_without_activation() -> None:
    encoder = ConvEncoder((5, 5, 3), 16, jax.random.key(0))
    observation = views(N)
    expected = encoder.direction.weight[:, observation.direction] + encoder.direction.bias[:, None]
    np.testing.assert_allclose(encoder(observation)[144:], expected, atol=1e-6)


def test_bits_see_walls_goals_and_direction_only() -> None:
    encoder = BitsEncoder((5, 5, 3), 6, jax.random.key(0))
    observation = views(N)
    objects = np.asarray(observation.image[..., 0]).reshape(N, 25)
    bits = np.concatenate([objects == 2, objects == 8, np.eye(4)[np.asarray(observation.direction)]], axis=1)
    expected = np.maximum(bits @ np.asarray(encoder.layer.weight).T + np.asarray(encoder.layer.bias), 0.0)
    np.testing.assert_allclose(encoder(observation).T, expected, atol=1e-5)


def test_number_of_parameters_of_the_paper_student() -> None:
    net = make_network(NetworkConfig(), MAZE, Discrete(7), jax.random.key(0))
    conv, direction, lstm = 448, 25, 4 * 256 * (149 + 256) + 1024
    heads = 2 * (256 * 32 + 32) + 32 * 7 + 7 + 33
    assert sum(leaf.size for leaf in jax.tree.leaves(net)) == conv + direction + lstm + heads


def test_initial_scales_of_the_maze_student() -> None:
    net = make_network(NetworkConfig(), MAZE, Discrete(7), jax.random.key(0))
    assert isinstance(net, MazeLSTM)
    assert isinstance(net.encoder, ConvEncoder)
    for layer, gain in ((net.actor, 0.01), (net.critic, 1.0)):
        singular = np.linalg.svd(np.asarray(layer.weight), compute_uv=False)
        np.testing.assert_allclose(singular, gain, rtol=1e-4)
    for half in np.split(np.asarray(net.hidden.weight), 2):
        np.testing.assert_allclose(np.linalg.svd(half, compute_uv=False), math.sqrt(2), rtol=1e-4)
    bound = math.sqrt(6 / (9 * (3 + 16)))
    assert 0.9 * bound < float(jnp.abs(net.encoder.kernel).max()) <= bound
    assert 0.0 < float(jnp.abs(net.encoder.direction.bias).max()) <= 0.5
    for bias in (net.encoder.bias, net.hidden.bias, net.actor.bias, net.critic.bias):
        np.testing.assert_array_equal(bias, 0.0)


def test_features_are_the_hidden_state_after_the_observation() -> None:
    net = network("conv")
    memory, decision = net.step(net.initial_memory(N), views(N), jnp.ones(N, bool))
    np.testing.assert_array_equal(decision.features, memory[0])


def test_features_without_memory_are_the_observation() -> None:
    observation = observe("beta", N, T)
    decision = network("beta").sequence((), observation, jnp.zeros((N, T), bool))
    np.testing.assert_array_equal(decision.features, observation.reshape(N, T, 4))


@pytest.mark.parametrize(
    ("kind", "distribution"),
    [("conv", Categorical), ("gaussian", DiagonalGaussian), ("beta", Beta), ("categorical", Categorical)],
)
def test_the_action_space_decides_the_distribution(kind: str, distribution: type) -> None:
    net, space = network(kind), KINDS[kind][2]
    _, decision = net.step(net.initial_memory(N), observe(kind, N), jnp.ones(N, bool))
    assert isinstance(decision.policy, distribution)
    action = decision.policy.sample(jax.random.key(0))
    assert action.shape == (N, *space.shape)


def test_a_gaussian_starts_with_unit_deviation_and_a_beta_has_a_mode() -> None:
    start = jnp.ones(N, bool)
    gaussian = network("gaussian").step((), observe("gaussian", N), start)[1].policy
    assert isinstance(gaussian, DiagonalGaussian)
    np.testing.assert_array_equal(gaussian.log_std, 0.0)
    beta = network("beta").step((), observe("beta", N), start)[1].policy
    assert isinstance(beta, Beta)
    assert float(jnp.minimum(beta.alpha, beta.beta).min()) > 1.0


def test_actor_and_critic_share_nothing() -> None:
    net = network("gaussian")
    assert isinstance(net, MLP)
    observation, start = observe("gaussian", N), jnp.ones(N, bool)
    gradient = jax.grad(lambda net: net.step((), observation, start)[1].value.sum())(net)
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in jax.tree.leaves(gradient.actor))
    assert any(float(jnp.abs(leaf).max()) > 0.0 for leaf in jax.tree.leaves(gradient.critic))
