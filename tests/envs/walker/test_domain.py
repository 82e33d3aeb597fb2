"""The walker as a whole: it keeps the contract of environments, and its episodes can be seen."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.check import check_environment
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.domain import walker_domain
from cenie.envs.walker.level import make_level

DOMAIN = walker_domain(WalkerConfig(max_steps=40))


@pytest.mark.slow
def test_the_walker_keeps_the_contract_of_environments():
    levels = [make_level(seed, roughness=3, time_limit=40) for seed in (1, 2)]
    assert check_environment(DOMAIN.environment, levels[0], jax.random.key(0), other_level=levels[1]) == []


@pytest.fixture(scope="module")
def episode():
    """A level, and states in which the walker is carried over it."""
    level = make_level(5, stump_low=1, stump_high=1)
    start = DOMAIN.environment.prepare(level).start
    pose = start.pose + 0.1 * jnp.arange(12.0)[:, None, None] * jnp.array([1.0, 0.5, 0.2])[:, None]
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (12, *x.shape)), start)
    return level, eqx.tree_at(lambda state: state.pose, states, pose)


def test_an_episode_is_drawn_state_by_state(episode):
    level, states = episode
    frames = DOMAIN.render.episode(level, states)
    assert frames.shape == (12, 267, 400, 3)
    # The hull begins where the level has it, five units from the left side, and moves.
    row, column = 267 - round((5.68 - (10 / 3 - 4.2)) * 20), 100
    assert abs(frames[0, row, column].astype(int) - [122, 72, 198]).sum() < 40
    assert all(not np.array_equal(one, other) for one, other in itertools.pairwise(frames))
