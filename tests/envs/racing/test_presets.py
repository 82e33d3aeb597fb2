"""Presets of the racing domain: the figures of the paper and of the original code, for every method."""

import math

import pytest

from cenie.envs.racing.presets import PRESETS
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.spaces import Box
from cenie.student.networks.pixels import Pixels


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_every_preset(method, name):
    config = preset("racing", method, name)
    network = config.student.network
    assert isinstance(network, Pixels)
    assert network.continuous == "beta"
    domain = config.built_domain
    assert list(network.misfits(domain.observation_parts, domain.environment.action_space)) == []


@pytest.mark.parametrize("name", ["paper", "dcd"])
def test_long_runs_are_those_of_the_table(name):
    config = preset("racing", "plr-cenie", name)
    ppo, replay, novelty = config.student.ppo, config.teacher.replay, config.teacher.novelty
    assert (config.updates, config.student.num_levels, config.student.num_steps) == (2750, 16, 125)
    assert (ppo.gamma, ppo.gae_lambda, ppo.epochs, ppo.minibatches, ppo.learning_rate) == (
        0.99,
        0.9,
        8,
        4,
        3e-4,
    )
    assert (ppo.value_clip, ppo.normalise_returns, ppo.entropy_coef) == (False, True, 0.0)
    assert (replay.capacity, replay.replay_prob, replay.priority.temperature) == (8000, 0.5, 1.0)
    assert (novelty.coverage.reg, novelty.coverage.window, novelty.coverage.components) == (0.1, 32, (6, 15))
    assert config.run.suite == "f1-monitor"
    # The student of the original code: 256 features of 96 x 96 pixels.
    (image,) = config.built_domain.observation_parts
    assert image == Box((96, 96, 3), 0, 255, "uint8")
    assert math.prod(list(config.student.network.shapes(image))[-1]) == 256


def test_levels_are_drawn_and_ranked_as_in_the_original_code():
    assert preset("racing", "dr", "paper").teacher.generator == "continuous"
    assert preset("racing", "plr-robust", "paper").teacher.generator == "random"
    assert preset("racing", "plr-robust", "paper").teacher.replay.priority.transform == "rank"
    assert preset("racing", "plr-robust", "dcd").teacher.replay.priority.transform == "power"
    assert preset("racing", "plr-cenie", "dcd").teacher.replay.priority.transform == "rank"
    assert preset("racing", "dr", "dcd").env.limits == "dcd"
    assert preset("racing", "dr", "paper").env.green == "exact"
