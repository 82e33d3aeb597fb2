"""Recorded episodes are the ones that evaluations count, state by state."""

import jax
import numpy as np
import pytest

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.level import make_level
from cenie.experiment.evaluate import episode_keys, evaluate, record_episodes
from cenie.student.networks.table import make_network
from tests.experiment.test_evaluate import AlwaysForward, corridor
from tests.tiny import tiny

DOMAIN = maze_domain(MazeConfig(num_actions=3))


@pytest.mark.parametrize(("goal", "length"), [((2, 0), 2), ((0, 1), 5)])
def test_an_episode_has_all_its_states_and_ends(goal, length):
    level = make_level(np.zeros((2, 4), bool), goal, (0, 0), time_limit=5)
    (episode,) = record_episodes(
        DOMAIN.environment,
        AlwaysForward(),
        DOMAIN.stack([level]),
        keys=jax.random.split(jax.random.key(0), 1),
    )
    # The step into the goal does not move the agent there.
    assert episode.states.position[:, 0].tolist() == [0, 1, 1] if length == 2 else [0, 1, 2, 3, 3, 3]
    assert (episode.length, episode.solved) == (length, length == 2)
    assert len(episode.states.time) == length + 1


def test_episodes_of_different_lengths_are_told_apart():
    levels = DOMAIN.stack([corridor(3, 200), corridor(12, 200), corridor(12, 7)])
    keys = jax.random.split(jax.random.key(0), 3)
    episodes = record_episodes(DOMAIN.environment, AlwaysForward(), levels, keys=keys)
    assert [each.length for each in episodes] == [3, 12, 7]
    assert [len(each.states.direction) for each in episodes] == [4, 13, 8]


def test_a_film_shows_the_episode_that_an_evaluation_counts():
    config = tiny("dr")
    network = make_network(
        config.student.network,
        DOMAIN.environment.observation_space,
        DOMAIN.environment.action_space,
        jax.random.key(1),
    )
    suite = DOMAIN.suites["plr7"]()
    rows = evaluate(DOMAIN, network, suite, episodes=2, seed=3)
    labels, levels = suite.draw(3, 2)
    keys = episode_keys(3, len(labels), 2)
    episodes = record_episodes(DOMAIN.environment, network, DOMAIN.stack(levels), keys=keys)
    assert [each.length for each in episodes] == [row.length for row in rows]
    assert [each.episode_return for each in episodes] == pytest.approx([row.episode_return for row in rows])


def test_an_episode_without_end_is_cut():
    level = make_level(np.zeros((2, 4), bool), (0, 1), (0, 0), time_limit=100_000)
    (episode,) = record_episodes(
        DOMAIN.environment,
        AlwaysForward(),
        DOMAIN.stack([level]),
        keys=jax.random.split(jax.random.key(0), 1),
        longest=100,
    )
    assert episode.length == 128
    assert not episode.solved
    assert len(episode.states.time) == 129
