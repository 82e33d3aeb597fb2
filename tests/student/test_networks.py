import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.settings import SettingsError
from cenie.spaces import Box, Discrete, Space
from cenie.student.actions import Beta, Categorical, DiagonalGaussian
from cenie.student.config import StudentConfig
from cenie.student.encoders import Bits, BitsEncoder, Conv, ConvEncoder, Flat, FlatEncoder, parts_of, width_of
from cenie.student.networks.base import Network, frames_seen
from cenie.student.networks.board import Board, OnBoard, board_waves
from cenie.student.networks.memoryless import Memoryless
from cenie.student.networks.mlp import MLP, Mlp
from cenie.student.networks.pixels import FrameStack, Pixels
from cenie.student.networks.recurrent import Gru, Lstm, Recurrent
from cenie.student.networks.table import NetworkConfig, make_network
from tests.student.probes import View

N, T = 3, 6
MAZE = View(Box((5, 5, 3), 0, 10, "uint8"), Discrete(4))
MIXED = {"where": Box((2, 2), -1, 1), "what": Discrete(3), "seen": Box((4, 3, 2), 0, 255, "uint8")}
GRID = {"image": Box((9, 11, 3), 0, 10, "uint8"), "noise": Box((4,), 0, 1), "time": Discrete(5)}
WALL_AND_GOAL = Bits(size=6, codes=(2, 8))
KINDS: dict[str, tuple[NetworkConfig, Any, Space]] = {
    "conv": (Lstm(encoder=Conv(), memory_size=8, head_size=4), MAZE, Discrete(7)),
    "bits": (Lstm(encoder=WALL_AND_GOAL, memory_size=8, head_size=4), MAZE, Discrete(3)),
    "lstm gaussian": (Lstm(memory_size=8, head_size=4), Box((4,), -1, 1), Box((2,), -1, 1)),
    "lstm mixed": (Lstm(memory_size=8, head_size=4, continuous="beta"), MIXED, Box((3,), 0, 1)),
    "gru mixed": (Gru(memory_size=8, head_size=4), MIXED, Discrete(3)),
    "gru gaussian": (Gru(memory_size=8, head_size=4), Box((4,), -1, 1), Box((2,), -1, 1)),
    "gru conv": (Gru(encoder=Conv(), memory_size=8, head_size=4), MAZE, Discrete(3)),
    "gaussian": (Mlp(), Box((4,), -1, 1), Box((2,), -1, 1)),
    "beta": (Mlp(continuous="beta", activation="relu"), Box((2, 2), -1, 1), Box((3,), 0, 1)),
    "categorical": (Mlp(hidden_sizes=(5,)), Box((4,), -1, 1), Discrete(2)),
    "mlp mixed": (Mlp(hidden_sizes=(5,)), MIXED, Discrete(2)),
    "memoryless": (Memoryless(head_size=4), MIXED, Discrete(2)),
    "pixels": (
        Pixels(frames=3, channels=(4, 6, 5), kernels=(4, 3, 2), strides=(2, 2, 1), head_size=7),
        Box((16, 20, 3), 0, 255, "uint8"),
        Box((3,), 0, 1),
    ),
    "pixels, one float": (
        Pixels(frames=1, channels=(4,), kernels=(3,), strides=(3,), continuous="gaussian"),
        {"seen": Box((9, 9, 1), -1.0, 3.0)},
        Box((2,), -1, 1),
    ),
    "board": (Board(waves=3, codes=(2, 8), head_size=4), GRID, Discrete(7 * 9)),
    "board without border": (Board(waves=2, head_size=4), GRID, Discrete(9 * 11)),
    "memoryless conv": (Memoryless(encoder=Conv(mapped="discrete"), head_size=4), GRID, Discrete(2)),
}


def views(*batch: int) -> View:
    rng = np.random.default_rng(0)
    image = rng.choice(np.array([1, 2, 8], np.uint8), (*batch, 5, 5, 3))
    return View(jnp.asarray(image), jnp.asarray(rng.integers(0, 4, batch), jnp.int32))


def observe(kind: str, *batch: int) -> Any:
    rng = np.random.default_rng(1)

    def draw(space: Space) -> jax.Array:
        shape = (*batch, *space.shape)
        if isinstance(space, Discrete):
            return jnp.asarray(rng.integers(0, space.n, shape), jnp.int32)
        return jnp.asarray(rng.uniform(space.low, space.high, shape).astype(space.dtype))

    return views(*batch) if KINDS[kind][1] is MAZE else jax.tree.map(draw, KINDS[kind][1])


def network(kind: str) -> Network:
    return make_network(*KINDS[kind], jax.random.key(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_equals_its_steps(kind: str) -> None:
    net = network(kind)
    observation = observe(kind, N, T)
    start = jax.random.bernoulli(jax.random.key(2), 0.3, (N, T))
    memory = jax.tree.map(
        lambda zeros: zeros + (100 if zeros.dtype == jnp.uint8 else 0.3), net.initial_memory(N)
    )
    whole = net.sequence(memory, observation, start)
    for now in range(T):
        memory, decision = net.step(
            memory, jax.tree.map(lambda x, now=now: x[:, now], observation), start[:, now]
        )
        for part, expected in zip(jax.tree.leaves(decision), jax.tree.leaves(whole)):
            np.testing.assert_allclose(part, expected[:, now], atol=1e-5)


@pytest.mark.parametrize("space", [MAZE, GRID], ids=["dense", "patches"])
def test_the_products_are_a_convolution(space: Any) -> None:
    encoder = ConvEncoder(Conv(), parts_of(space), jax.random.key(0))
    observation = views(N, T) if space is MAZE else observe("memoryless conv", N, T)
    image = observation.image if space is MAZE else observation["image"]
    pixels = image.reshape(N * T, *image.shape[2:]).astype(jnp.float32) / 10.0
    kernel = encoder.kernel.T.reshape(3, 3, 3, 16)
    expected = jax.lax.conv_general_dilated(
        pixels, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    places = expected.shape[1] * expected.shape[2]
    expected = jax.nn.relu(jnp.moveaxis(expected, -1, 0)).reshape(16, N * T, places)
    codes = encoder(observation)[: 16 * places].reshape(16, places, N * T)
    np.testing.assert_allclose(jnp.swapaxes(codes, 1, 2), expected, atol=1e-5)


def test_only_discrete_parts_are_mapped_if_told_so() -> None:
    encoder = ConvEncoder(Conv(mapped="discrete", rest_size=2), parts_of(GRID), jax.random.key(0))
    observation = observe("memoryless conv", N)
    assert encoder.rest is not None
    time = encoder.rest.weight[:, observation["time"]] + encoder.rest.bias[:, None]
    read = encoder(observation)
    assert len(read) == width_of(encoder, parts_of(GRID)) == 7 * 9 * 16 + 2 + 4
    np.testing.assert_allclose(read[-6:-4], time, atol=1e-6)
    np.testing.assert_allclose(read[-4:], observation["noise"].T, atol=1e-6)


def test_the_direction_reaches_the_last_five_inputs_without_activation() -> None:
    encoder = ConvEncoder(Conv(), parts_of(MAZE), jax.random.key(0))
    observation = views(N)
    assert encoder.rest is not None
    expected = encoder.rest.weight[:, observation.direction] + encoder.rest.bias[:, None]
    np.testing.assert_allclose(encoder(observation)[144:], expected, atol=1e-6)


def test_bits_see_walls_goals_and_direction_only() -> None:
    encoder = BitsEncoder(WALL_AND_GOAL, parts_of(MAZE), jax.random.key(0))
    observation = views(N)
    objects = np.asarray(observation.image[..., 0]).reshape(N, 25)
    bits = np.concatenate([objects == 2, objects == 8, np.eye(4)[np.asarray(observation.direction)]], axis=1)
    expected = np.maximum(bits @ np.asarray(encoder.layer.weight).T + np.asarray(encoder.layer.bias), 0.0)
    np.testing.assert_allclose(encoder(observation).T, expected, atol=1e-5)


def test_bits_without_codes_see_every_code_of_the_space() -> None:
    named, unnamed = (
        BitsEncoder(Bits(size=6, codes=codes), parts_of(MAZE), jax.random.key(0))
        for codes in (tuple(range(11)), ())
    )
    np.testing.assert_array_equal(named(views(N)), unnamed(views(N)))


def test_waves_of_a_board_are_orthogonal_and_of_mean_square_one() -> None:
    waves = board_waves(columns=5, rows=7, count=4)
    np.testing.assert_allclose(waves @ waves.T / 35, np.eye(16), atol=1e-12)
    np.testing.assert_array_equal(waves[0], 1.0)
    by_row = waves.reshape(16, 7, 5)
    np.testing.assert_allclose(by_row[4], np.broadcast_to(by_row[4, 0], (7, 5)))  # along the first axis only
    assert (np.diff(by_row[4, 0]) < 0).all()


def test_a_board_reads_and_chooses_tiles_by_the_same_number() -> None:
    """Wanted the waves that one thing was read as, its own tile is liked best."""
    net = network("board")
    assert isinstance(net, OnBoard)
    only_seen = jnp.zeros_like(net.actor.weight).at[:, 4 + 9 :].set(jnp.eye(9, 9 + 5))  # of the second code
    net = eqx.tree_at(lambda net: net.actor.weight, net, only_seen)
    columns, rows = 7, 9
    for x, y in ((0, 0), (6, 0), (0, 8), (3, 4)):
        observation = jax.tree.map(lambda leaf: leaf[0], observe("board", 1))
        blank = jnp.zeros_like(observation["image"]).at[x + 1, y + 1, 0].set(8)
        observation = jax.tree.map(lambda leaf: leaf[None], {**observation, "image": blank})
        observation["time"] = jnp.zeros_like(observation["time"])
        _, decision = net.step((), observation, jnp.ones(1, bool))
        waves = board_waves(columns, rows, 3)
        tile = columns * y + x
        np.testing.assert_allclose(decision.features[0, 9:18], waves[:, tile], atol=1e-5)
        assert int(jnp.argmax(decision.policy.logits[0])) == int(np.argmax(waves.T @ waves[:, tile]))


def test_a_board_reads_no_noise_and_nothing_on_the_border() -> None:
    net, observation, start = network("board"), observe("board", N), jnp.ones(N, bool)
    border = observation["image"].at[:, 0].set(8).at[:, :, -1].set(2)
    _, expected = net.step((), observation, start)
    _, found = net.step((), {**observation, "image": border, "noise": 1.0 - observation["noise"]}, start)
    np.testing.assert_array_equal(found.policy.logits, expected.policy.logits)


def test_an_image_may_come_alone() -> None:
    space = Box((5, 5, 3), 0, 10, "uint8")
    for settings, width in ((Conv(), 3 * 3 * 16), (WALL_AND_GOAL, 6)):
        encoder = settings.make((space,), jax.random.key(0))
        assert encoder(views(N).image).shape == (width, N)
        assert width_of(encoder, (space,)) == width


def test_a_flat_encoder_reads_numbers_bits_and_scaled_pixels() -> None:
    encoder = FlatEncoder(Flat(size=6), parts_of(MIXED), jax.random.key(0))
    observation = observe("gru mixed", N)
    parts = [
        np.asarray(observation["seen"]).reshape(N, 24) / 255,
        np.eye(3)[np.asarray(observation["what"])],
        np.asarray(observation["where"]).reshape(N, 4),
    ]
    read = np.concatenate(parts, axis=1)
    expected = np.maximum(read @ np.asarray(encoder.layer.weight).T + np.asarray(encoder.layer.bias), 0.0)
    np.testing.assert_allclose(encoder(observation).T, expected, atol=1e-5)


def test_a_network_that_cannot_read_the_observation_says_why() -> None:
    with pytest.raises(SettingsError, match=r"encoder\.kind: conv needs one part .* flat reads any"):
        make_network(Lstm(encoder=Conv()), Box((4,), -1, 1), Discrete(2), jax.random.key(0))


@pytest.mark.parametrize("space", [Box((2, 3), -1, 1), Discrete(3, shape=(2,))])
def test_actions_of_other_shapes_are_refused(space: Space) -> None:
    with pytest.raises(ValueError, match="one discrete choice or a row of numbers"):
        make_network(Mlp(), Box((4,), -1, 1), space, jax.random.key(0))


def test_number_of_parameters_of_the_paper_student() -> None:
    net = make_network(StudentConfig().network, MAZE, Discrete(7), jax.random.key(0))
    conv, direction, lstm = 448, 25, 4 * 256 * (149 + 256) + 1024
    heads = 2 * (256 * 32 + 32) + 32 * 7 + 7 + 33
    assert sum(leaf.size for leaf in jax.tree.leaves(net)) == conv + direction + lstm + heads


def test_initial_scales_of_the_maze_student() -> None:
    net = make_network(StudentConfig().network, MAZE, Discrete(7), jax.random.key(0))
    assert isinstance(net, Recurrent)
    assert isinstance(net.encoder, ConvEncoder)
    for layer, gain in ((net.actor, 0.01), (net.critic, 1.0)):
        singular = np.linalg.svd(np.asarray(layer.weight), compute_uv=False)
        np.testing.assert_allclose(singular, gain, rtol=1e-4)
    for half in np.split(np.asarray(net.hidden.weight), 2):
        np.testing.assert_allclose(np.linalg.svd(half, compute_uv=False), math.sqrt(2), rtol=1e-4)
    bound = math.sqrt(6 / (9 * (3 + 16)))
    assert 0.9 * bound < float(jnp.abs(net.encoder.kernel).max()) <= bound
    assert net.encoder.rest is not None
    assert 0.0 < float(jnp.abs(net.encoder.rest.bias).max()) <= 0.5
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
    [
        ("conv", Categorical),
        ("gru mixed", Categorical),
        ("gru gaussian", DiagonalGaussian),
        ("lstm mixed", Beta),
        ("gaussian", DiagonalGaussian),
        ("beta", Beta),
        ("pixels", Beta),
        ("pixels, one float", DiagonalGaussian),
        ("categorical", Categorical),
    ],
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


CAR = Box((96, 96, 3), 0, 255, "uint8")


def test_the_student_of_the_car_has_the_layers_of_the_original() -> None:
    net = make_network(Pixels(), CAR, Box((3,), 0, 1), jax.random.key(0))
    assert isinstance(net, FrameStack)
    kernels = [layer.kernel.shape for layer in net.convolutions]
    sizes = [(12, 8, 4), (8, 16, 3), (16, 32, 3), (32, 64, 3), (64, 128, 3), (128, 256, 3)]
    assert kernels == [(size, size, inputs, outputs) for inputs, outputs, size in sizes]
    assert [shape[:2] for shape in Pixels().shapes(CAR)] == [(n, n) for n in (96, 47, 23, 11, 5, 3, 1)]
    assert (net.hidden.weight.shape, net.actor.weight.shape) == ((200, 256), (6, 100))
    for layer, (inputs, outputs, size) in zip(net.convolutions, sizes):
        # Xavier: variance 2 / (fan in + fan out), times the squared gain of 2.
        deviation = math.sqrt(4.0 / (size * size * (inputs + outputs)))
        np.testing.assert_allclose(float(jnp.std(layer.kernel)), deviation, rtol=0.05)
        np.testing.assert_allclose(layer.bias, 0.1)
    rows = net.actor.weight @ net.actor.weight.T
    np.testing.assert_allclose(rows, 2.0 * np.eye(6), atol=1e-5)


def numbered(*numbers: int) -> jax.Array:
    """Images, each of one number."""
    images = np.broadcast_to(np.array(numbers, np.uint8)[:, None, None, None], (len(numbers), 16, 20, 3))
    return jnp.asarray(images)


def test_the_first_image_of_an_episode_stands_for_those_before_it() -> None:
    net = network("pixels")
    begins, goes_on = jnp.array([True]), jnp.array([False])
    memory, first = net.step(net.initial_memory(1), numbered(5), begins)
    memory, _ = net.step(memory, numbered(6), goes_on)
    memory, third = net.step(memory, numbered(7), goes_on)
    np.testing.assert_array_equal(memory[0], numbered(6, 7))
    memory, again = net.step(memory, numbered(5), begins)
    np.testing.assert_array_equal(memory[0], numbered(5, 5))
    np.testing.assert_array_equal(first.features, again.features)
    assert not np.allclose(first.features, third.features)


def test_what_is_seen_goes_back_to_the_start_of_the_episode() -> None:
    start = jnp.array([[False, False, True, False, False], [True, False, False, False, True]])
    seen = frames_seen(start, 2)
    first = [[0, 1, 2], [1, 2, 3], [4, 4, 4], [4, 4, 5], [4, 5, 6]]
    second = [[2, 2, 2], [2, 2, 3], [2, 3, 4], [3, 4, 5], [6, 6, 6]]
    np.testing.assert_array_equal(seen, [first, second])


def test_bytes_are_scaled_as_in_the_original() -> None:
    """x / 128 - 1, seen through a kernel that adds nothing."""
    config = Pixels(frames=2, channels=(3,), kernels=(1,), strides=(1,))
    net = make_network(config, Box((1, 1, 1), 0, 255, "uint8"), Box((3,), 0, 1), jax.random.key(0))
    assert isinstance(net, FrameStack)
    layer = net.convolutions[0]
    for value in (0, 128, 255):
        image = jnp.full((1, 1, 1, 1), value, jnp.uint8)
        _, decision = net.step(net.initial_memory(1), image, jnp.array([True]))
        expected = jax.nn.relu((value / 128 - 1) * layer.kernel.sum((0, 1, 2)) + layer.bias)
        np.testing.assert_allclose(decision.features[0], expected, atol=1e-6)


def test_beta_actions_fill_the_bounds_of_their_space() -> None:
    config = Mlp(continuous="beta")
    for low, high in ((0.0, 1.0), (-2.0, 3.0)):
        net = make_network(config, Box((4,), -1, 1), Box((3,), low, high), jax.random.key(0))
        policy = net.step((), jnp.zeros((500, 4)), jnp.ones(500, bool))[1].policy
        action = policy.sample(jax.random.key(1))
        assert low < float(action.min()) < low + 0.1 * (high - low)
        assert high > float(action.max()) > high - 0.1 * (high - low)
    with pytest.raises(ValueError, match="need a space with bounds"):
        make_network(config, Box((4,), -1, 1), Box((3,), 0, math.inf), jax.random.key(0))
