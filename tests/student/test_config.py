import pytest

from cenie.settings import SettingsError, read, to_data
from cenie.student.config import NetworkConfig, PPOConfig, StudentConfig


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
        ({"network": {"hidden_sizes": [64, 0]}}, "network.hidden_sizes"),
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


def test_only_the_lstm_has_memory() -> None:
    assert NetworkConfig(kind="maze-lstm").recurrent
    assert not NetworkConfig(kind="mlp").recurrent


def test_the_paper_settings_of_the_maze_student() -> None:
    ppo = PPOConfig()
    assert (ppo.gamma, ppo.gae_lambda, ppo.epochs, ppo.minibatches) == (0.995, 0.95, 5, 1)
    assert (ppo.learning_rate, ppo.adam_eps, ppo.max_grad_norm, ppo.entropy_coef) == (1e-4, 1e-5, 0.5, 0.0)
    assert (StudentConfig().num_levels, StudentConfig().num_steps) == (32, 256)
