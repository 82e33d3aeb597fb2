"""Playing held-out levels: limits, rewards, keys, padding and the score of a suite."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.base import Suite, SuiteEntry
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.dynamics import FORWARD
from cenie.envs.maze.level import make_level
from cenie.experiment import evaluate as module
from cenie.experiment.evaluate import evaluate, play_once
from cenie.experiment.rows import EvaluationRow, level_scores, solved_rates, suite_mean
from cenie.student.actions import Categorical
from cenie.student.networks.base import Decision, Network
from cenie.student.networks.table import make_network
from cenie.xla.devices import level_mesh, place
from tests.tiny import tiny

DOMAIN = maze_domain(MazeConfig(num_actions=3))


class AlwaysForward(Network):
    """A student that only walks ahead."""

    def initial_memory(self, count):
        return ()

    def step(self, memory, observation, start):
        count = start.shape[0]
        logits = jnp.where(jnp.arange(3) == FORWARD, 100.0, -100.0)
        policy = Categorical(jnp.broadcast_to(logits, (count, 3)))
        return (), Decision(policy, jnp.zeros(count), jnp.zeros((count, 1)))

    def sequence(self, memory, observation, start):
        raise NotImplementedError


def corridor(length: int, time_limit: int):
    """Start facing the goal, `length` steps away."""
    return make_level(np.zeros((13, 13), bool), (length, 0), (0, 0), time_limit=time_limit)


def play(levels, network=None, **named):
    keys = jax.vmap(jax.random.key)(jnp.arange(len(levels)))
    return play_once(DOMAIN.environment, network or AlwaysForward(), DOMAIN.stack(levels), keys=keys, **named)


def test_return_solved_and_length_of_scripted_episodes():
    total, solved, length = play([corridor(5, 250), corridor(12, 250), corridor(12, 11), corridor(12, 12)])
    np.testing.assert_array_equal(solved, [True, True, False, True])
    np.testing.assert_array_equal(length, [5, 12, 11, 12])
    np.testing.assert_allclose(total, [1 - 0.9 * 5 / 250, 1 - 0.9 * 12 / 250, 0.0, 0.1], rtol=1e-6)


def test_nothing_is_counted_after_the_end_of_an_episode():
    """Levels of very different limits share a batch: the short ones wait for the long one."""
    blocked = make_level(np.eye(1, 13, 1, dtype=bool).repeat(13, 0), (12, 0), (0, 0), time_limit=300)
    total, solved, length = play([corridor(3, 250), blocked])
    np.testing.assert_array_equal(length, [3, 300])
    np.testing.assert_array_equal(solved, [True, False])
    assert total[0] == pytest.approx(1 - 0.9 * 3 / 250)


def test_result_does_not_depend_on_devices_or_on_the_rest_of_the_batch():
    config = tiny("dr")
    environment = DOMAIN.environment
    network = make_network(
        config.student.network, environment.observation_space, environment.action_space, jax.random.key(1)
    )
    levels = [corridor(4, 60), corridor(7, 60), corridor(9, 60)]
    whole = play(levels, network)
    split = play(levels, network, mesh=level_mesh(2))
    for ours, theirs in zip(whole, split):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_result_does_not_depend_on_how_many_are_played_at_once(batch_size):
    config, environment = tiny("dr"), DOMAIN.environment
    network = make_network(
        config.student.network, environment.observation_space, environment.action_space, jax.random.key(1)
    )
    levels = [corridor(length, 30) for length in (4, 7, 9, 2, 5)]
    told = []
    whole = play(levels, network)
    parts = play(levels, network, batch_size=batch_size, progress=lambda *counts: told.append(counts))
    for ours, theirs in zip(whole, parts):
        np.testing.assert_array_equal(ours, theirs)
    assert len(set(whole[2])) > 1, "students that act the same everywhere would hide a mix-up"
    assert told[-1] == (5, 5)
    assert told == sorted(told)


def test_no_more_episodes_than_allowed_are_played_at_once(monkeypatch):
    sizes = []
    begin = module._begin

    def watched(environment, network, levels, keys, mesh):
        sizes.append(keys.shape[0])
        return begin(environment, network, levels, keys, mesh)

    monkeypatch.setattr(module, "_begin", watched)
    levels = [corridor(2, 20)] * 7
    suite = Suite("short", [SuiteEntry("corridor", "original", lambda rng: levels[0])])
    rows = evaluate(DOMAIN, AlwaysForward(), suite, episodes=7, seed=0, batch_size=3)
    assert len(rows) == 7
    assert sizes == [3, 3, 3], "the last chunk is filled up, so that nothing is compiled again"


def test_a_suite_of_other_spaces_is_refused():
    seven = maze_domain(MazeConfig(num_actions=7)).environment
    suite = Suite("seven", DOMAIN.suites["plr7"]().entries, seven)
    with pytest.raises(ValueError, match="environment of suite 'seven' has other spaces"):
        evaluate(DOMAIN, AlwaysForward(), suite, episodes=1, seed=0)


def test_large_and_small_mazes_share_one_compiled_program():
    large = DOMAIN.suites["perfect-large"]().draw(0, 2)[1]
    small = [corridor(2, 20), corridor(3, 20)]
    shortened = [make_level(level.wall_map, level.goal, level.start, time_limit=40) for level in large]
    before = module._segment._cached._cache_size()
    play([shortened[0], small[0]])
    play([shortened[1], small[1]])
    assert module._segment._cached._cache_size() == before + 1


@pytest.mark.parametrize(("placed_on", "played_on"), [(1, 1), (2, 2), (2, 1), (None, 1)])
def test_the_second_segment_is_played_by_the_program_of_the_first(placed_on, played_on):
    """It was compiled anew: the first one had got arrays that were placed otherwise."""
    network = make_network(
        tiny("dr").student.network,
        DOMAIN.environment.observation_space,
        DOMAIN.environment.action_space,
        jax.random.key(0),
    )
    levels = [make_level(np.eye(1, 13, 1, dtype=bool).repeat(13, 0), (12, 0), (0, 0), time_limit=300)] * 2
    if placed_on is not None:
        network = place(level_mesh(placed_on), network)
    before = module._segment._cached._cache_size()
    _, _, lengths = play(levels, network, mesh=level_mesh(played_on))
    assert lengths.max() > 2 * module.SEGMENT
    # An earlier case may have left the very same program.
    assert module._segment._cached._cache_size() <= before + 1


def test_the_prepared_level_is_played():
    class Prepared(type(DOMAIN.environment)):
        """A maze whose time limit is halved in what it plays."""

        def prepare(self, level):
            return eqx.tree_at(lambda level: level.time_limit, level, level.time_limit // 2)

    levels = DOMAIN.stack([corridor(5, 10), corridor(5, 9)])
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    _, solved, length = play_once(Prepared(MazeConfig(num_actions=3)), AlwaysForward(), levels, keys=keys)
    np.testing.assert_array_equal(solved, [True, False])
    np.testing.assert_array_equal(length, [5, 4])


def test_more_episodes_keep_the_first_ones():
    suite = Suite("short", DOMAIN.suites["plr7"]().entries[:2])
    few, many = (
        evaluate(DOMAIN, AlwaysForward(), suite, episodes=count, seed=3, progress=lambda done, total: None)
        for count in (1, 2)
    )
    assert [row for row in many if row.episode == 0] == few


def test_a_suite_with_bounds_scores_normalised_returns_in_its_own_environment():
    class Paid(type(DOMAIN.environment)):
        """A maze that pays 10 for each step."""

        def step(self, key, level, state, action):
            made = super().step(key, level, state, action)
            return eqx.tree_at(lambda step: step.reward, made, jnp.float32(10))

    def entry(level, length, bounds=None):
        return SuiteEntry(level, "original", lambda rng: corridor(length, 250), bounds)

    entries = [entry("short", 2, (0.0, 40.0)), entry("long", 8, (-20.0, 20.0)), entry("plain", 3)]
    suite = Suite("mixed", entries, Paid(MazeConfig(num_actions=3)))
    rows = evaluate(DOMAIN, AlwaysForward(), suite, episodes=2, seed=0)
    assert [row.episode_return for row in rows] == [20.0, 20.0, 80.0, 80.0, 30.0, 30.0]
    assert level_scores(rows) == {"short": 0.5, "long": 2.5, "plain": 1.0}
    assert solved_rates(rows) == {"short": 1.0, "long": 1.0, "plain": 1.0}
    assert suite.measure == "score"
    assert Suite("plain", entries[2:]).measure == "solved"


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="bounds of 'track' must be two finite numbers"):
        SuiteEntry("track", "original", lambda rng: None, bounds)


def test_every_level_counts_the_same_however_many_variants_it_has():
    def row(level, variant, solved):
        return EvaluationRow("s", level, variant, 0, 0.0, solved, float(solved), 1)

    rates = solved_rates(
        [row("a", "1", True), row("a", "2", False), row("a", "3", False), row("b", "1", True)]
    )
    assert rates == {"a": pytest.approx(1 / 3), "b": 1.0}
    assert suite_mean(rates) == pytest.approx(2 / 3)
