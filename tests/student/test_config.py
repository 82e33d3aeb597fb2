import pytest

from cenie.settings import SettingsError, read, to_data
from cenie.spaces import Box, Discrete, Space
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.encoders import Bits, Conv
from cenie.student.networks.board import Board
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.pixels import Pixels
from cenie.student.networks.recurrent import Gru, Lstm
from cenie.student.networks.table import NetworkConfig


def test_defaults_are_valid_and_survive_a_round_trip() -> None:
    assert read(StudentConfig, to_data(StudentConfig())) == StudentConfig()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"ppo": {"minibatches": 3}}, "ppo.minibatches"),
        (
            {"network": {"kind": "mlp"}, "num_levels": 3, "num_steps": 5, "ppo": {"minibatches": 4}},
            "ppo.minibatches",
        ),
        ({"network": {"kind": "mlp", "hidden_sizes": []}}, "network.hidden_sizes"),
        ({"network": {"kind": "mlp", "hidden_sizes": [64, 0]}}, "network.hidden_sizes"),
        ({"network": {"kind": "mlp", "memory_size": 8}}, "network.memory_size"),
        ({"network": {"kind": "gru", "forget_bias": 1.0}}, "network.forget_bias"),
        ({"network": {"memory_size": 8}}, "network.kind"),
        ({"network": {"kind": "lstm", "encoder": {"kind": "flat", "codes": [1]}}}, "network.encoder.codes"),
        ({"network": {"kind": "pixels", "strides": [2, 2]}}, "network.strides"),
        ({"network": {"kind": "pixels", "channels": [], "kernels": [], "strides": []}}, "network.channels"),
        ({"network": {"kind": "pixels", "frames": 0}}, "network.frames"),
        ({"ppo": {"gamma": 1.5}}, "ppo.gamma"),
        ({"ppo": {"learning_rate": 0.0}}, "ppo.learning_rate"),
        ({"ppo": {"decay_updates": 0}}, "ppo.decay_updates"),
        ({"num_steps": 1}, "num_steps"),
    ],
)
def test_a_wrong_setting_is_named(data: dict, path: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(StudentConfig, data)
    assert [problem.path for problem in error.value.problems] == [path]


def test_steps_of_a_student_without_memory_may_be_cut_where_its_levels_could_not() -> None:
    config = {"network": {"kind": "mlp"}, "num_levels": 3, "num_steps": 8, "ppo": {"minibatches": 4}}
    assert read(StudentConfig, config).ppo.minibatches == 4


ACTION = Discrete(9)
IMAGE, DIRECTION = Box((5, 5, 3), 0, 10, "uint8"), Discrete(4)
FITS: dict[str, tuple[NetworkConfig, tuple[Space, ...], str | None]] = {
    "mlp, anything": (Mlp(), (IMAGE, DIRECTION, Box((2, 2), -1, 1)), None),
    "flat, anything": (Gru(), (IMAGE, DIRECTION, Box((2, 2), -1, 1)), None),
    "conv, image": (Lstm(encoder=Conv()), (DIRECTION, IMAGE), None),
    "bits, image": (Gru(encoder=Bits()), (IMAGE,), None),
    "conv, no image": (Lstm(encoder=Conv()), (Box((4,), -1, 1),), "encoder.kind"),
    "conv, two images": (Lstm(encoder=Conv()), (IMAGE, IMAGE), "encoder.kind"),
    "conv, a small image": (Lstm(encoder=Conv()), (Box((2, 5, 3), 0, 10, "uint8"),), "encoder.kind"),
    "bits, no image": (Gru(encoder=Bits()), (DIRECTION,), "encoder.kind"),
    "bits, all of too many codes": (Gru(encoder=Bits()), (Box((5, 5, 1), 0, 1),), "encoder.codes"),
    "pixels, an image": (Pixels(), (Box((96, 96, 3), 0, 255, "uint8"),), None),
    "pixels, a small image": (Pixels(), (Box((48, 48, 3), 0, 255, "uint8"),), "kernels"),
    "pixels, not only an image": (Pixels(), (IMAGE, DIRECTION), "kind"),
    "pixels, no image": (Pixels(), (Box((4,), -1, 1),), "kind"),
    "board, the tiles inside a border": (Board(), (IMAGE, DIRECTION), None),
    "board, all tiles": (Board(), (Box((1, 9, 1), 0, 1, "uint8"),), None),
    "board, other tiles than actions": (Board(), (Box((6, 5, 3), 0, 10, "uint8"),), "kind"),
    "board, no image": (Board(), (DIRECTION,), "kind"),
    "board, all of too many codes": (Board(), (Box((5, 5, 1), 0, 1),), "codes"),
    "bits, some of too many codes": (Gru(encoder=Bits(codes=(1,))), (Box((5, 5, 1), 0, 1),), None),
}


@pytest.mark.parametrize("case", FITS)
def test_the_observation_decides_which_networks_can_read_it(case: str) -> None:
    network, parts, path = FITS[case]
    assert [problem.path for problem in network.misfits(parts, ACTION)] == ([path] if path else [])


def test_the_paper_settings_of_the_maze_student() -> None:
    assert StudentConfig().network == Lstm(
        encoder=Conv(channels=16, rest_size=5), memory_size=256, head_size=32, forget_bias=0.0
    )
    ppo = PPOConfig()
    assert (ppo.gamma, ppo.gae_lambda, ppo.epochs, ppo.minibatches) == (0.995, 0.95, 5, 1)
    assert (ppo.learning_rate, ppo.adam_eps, ppo.max_grad_norm, ppo.entropy_coef) == (1e-4, 1e-5, 0.5, 0.0)
    assert (StudentConfig().num_levels, StudentConfig().num_steps) == (32, 256)
