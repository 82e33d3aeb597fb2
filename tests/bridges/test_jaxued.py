"""The bridges to jaxued, with its own weights and its own environments as the oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxued.environments import Maze as JaxuedMaze
from jaxued.environments.gymnax import acrobot, cartpole
from jaxued.environments.maze import make_level_generator
from jaxued.environments.maze.env import EnvParams as MazeParams
from jaxued.level_sampler import LevelSampler
from jaxued.wrappers import AutoReplayWrapper

from cenie.bridges.environment import as_level
from cenie.bridges.jaxued import from_jaxued, level_weights, sample_replay_levels
from cenie.envs.check import check_environment
from cenie.replay.config import PriorityConfig
from cenie.spaces import Box, Discrete

CAPACITY = 8


def sampler_with(scores, novelty, timestamps, count):
    size = len(scores)

    def filled(values, empty):
        return jnp.asarray([*values, *[empty] * (CAPACITY - size)])

    return {
        "levels": {"wall": jnp.arange(CAPACITY) * 10},
        "scores": filled(scores, -jnp.inf).astype(jnp.float32),
        "timestamps": filled(timestamps, 0).astype(jnp.int32),
        "size": size,
        "episode_count": count,
        "levels_extra": {"novelty": filled(novelty, -jnp.inf).astype(jnp.float32)},
    }


LEVELS = st.lists(
    st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.integers(0, 20)),
    min_size=1,
    max_size=CAPACITY,
    unique_by=(lambda row: row[0], lambda row: row[1]),
)


@settings(max_examples=60, deadline=None)
@given(LEVELS, st.sampled_from([0.3, 1.0]), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.5, 1.0]))
def test_weights_mix_jaxueds_own_weights_of_both_columns(levels, temperature, staleness, alpha):
    scores, novelty, timestamps = zip(*levels)
    sampler = sampler_with(scores, novelty, timestamps, 25)
    theirs = LevelSampler(
        CAPACITY, staleness_coeff=staleness, prioritization_params={"temperature": temperature}
    )
    by_score = theirs.score_weights(sampler)
    by_novelty = theirs.score_weights({**sampler, "scores": sampler["levels_extra"]["novelty"]})
    stale = theirs.staleness_weights(sampler)
    expected = (1 - staleness) * (alpha * by_novelty + (1 - alpha) * by_score) + staleness * stale
    config = PriorityConfig(temperature=temperature, staleness_coef=staleness)
    np.testing.assert_allclose(level_weights(sampler, alpha, config), expected, rtol=1e-4, atol=1e-6)


def test_draws_follow_the_weights_and_move_the_clock():
    sampler = sampler_with([1.0, 5.0, 2.0], [9.0, 1.0, 3.0], [0, 0, 0], 7)
    config = PriorityConfig(temperature=0.05, staleness_coef=0.0)
    drawn = {}
    for alpha in (0.0, 1.0):
        after, (indices, levels) = sample_replay_levels(sampler, jax.random.key(0), 4, alpha, config)
        drawn[alpha] = set(indices.tolist())
        np.testing.assert_array_equal(levels["wall"], indices * 10)
        assert int(after["episode_count"]) == 11
        assert int(after["timestamps"][int(indices[-1])]) == 11
        assert after["scores"] is sampler["scores"]
    assert drawn == {0.0: {1}, 1.0: {0}}


def test_staleness_is_seen_by_the_next_draw():
    sampler = sampler_with([1.0, 1.0], [0.0, 0.0], [0, 5], 5)
    config = PriorityConfig(transform="uniform", staleness_coef=1.0)
    _, (indices, _) = sample_replay_levels(sampler, jax.random.key(0), 2, 0.5, config)
    assert indices.tolist() == [0, 1]


def test_missing_novelty_is_named():
    sampler = sampler_with([1.0], [0.0], [0], 1)
    del sampler["levels_extra"]
    with pytest.raises(ValueError, match="novelty"):
        level_weights(sampler, 0.5, PriorityConfig())


# Its environments.

KEY = jax.random.key(0)
LIMIT, STEPS, LEVELS = 20, 200, 6


def mazes():
    environment, params = JaxuedMaze(), MazeParams(max_steps_in_episode=LIMIT)
    generate = make_level_generator(5, 5, 6)
    return environment, params, jax.vmap(generate)(jax.random.split(KEY, LEVELS))


def cart_poles():
    level = as_level(cartpole.Level())
    batch = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (LEVELS,)), level)
    levels = batch.replace(length=jnp.linspace(0.2, 2.0, LEVELS), force_mag=jnp.linspace(5.0, 20.0, LEVELS))
    return cartpole.CartPole(), cartpole.EnvParams(max_steps_in_episode=LIMIT), levels


@pytest.mark.parametrize("make", [mazes, cart_poles])
def test_a_bridged_environment_does_what_jaxueds_does_over_many_episodes(make):
    theirs, params, levels = make()
    first = jax.tree.map(lambda leaf: leaf[0], levels)
    bridged = from_jaxued(theirs, first, params)
    assert bridged.max_steps == LIMIT
    actions = jax.random.randint(KEY, (STEPS, LEVELS), 0, min(bridged.action_space.n, 3))

    def play(begin, step):
        """Episodes with restarts of a function that steps and one that begins."""

        def one(key, level, state, action):
            step_key, reset_key = jax.random.split(key)
            observation, after, *made = step(step_key, level, state, action)
            shown, begun = begin(reset_key, level)
            done = made[1]
            chosen = jax.tree.map(lambda a, b: jnp.where(done, a, b), (shown, begun), (observation, after))
            return chosen[1], (chosen[0], observation, *made)

        def body(state, given):
            key, action = given
            return jax.vmap(one)(jax.random.split(key, LEVELS), levels, state, action)

        keys = jax.random.split(KEY, STEPS)
        _, state = jax.vmap(begin)(jax.random.split(KEY, LEVELS), levels)
        return jax.jit(lambda state: jax.lax.scan(body, state, (keys, actions)))(state)[1]

    def our_step(key, level, state, action):
        made = bridged.step(key, level, state, action)
        done = made.terminated | made.truncated
        return made.observation, made.state, made.reward, done, made.terminated

    def their_step(key, level, state, action):
        return theirs.step(key, state, action, params)[:4]

    *mine, terminated = play(bridged.reset, our_step)
    expected = play(lambda key, level: theirs.reset_to_level(key, level, params), their_step)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), tuple(mine), expected)
    _, before_restart, reward, done = expected
    if make is mazes:
        natural = reward > 0
    else:
        x, angle = before_restart[..., 0], before_restart[..., 2]
        natural = (jnp.abs(x) > params.x_threshold) | (jnp.abs(angle) > params.theta_threshold_radians)
    np.testing.assert_array_equal(terminated, natural)
    assert terminated.any()
    assert (done & ~terminated).any()


def test_a_bridged_environment_passes_the_check():
    theirs, params, levels = mazes()
    first, other = (jax.tree.map(lambda leaf, index=index: leaf[index], levels) for index in (0, 1))
    bridged = from_jaxued(theirs, first, params, solved=lambda level, step: step.reward > 0)
    assert bridged.action_space == Discrete(7)
    assert bridged.observation_space.image == Box((5, 5, 3), 0, 255, "uint8")
    assert check_environment(bridged, first, KEY, other_level=other) == []


def test_spaces_may_be_given_or_declared():
    level = as_level(acrobot.Level())
    declared = from_jaxued(acrobot.Acrobot(), level)
    assert declared.max_steps == 500
    largest = float(np.float32(9 * np.pi))
    assert declared.observation_space == Box((6,), -largest, largest)
    given = Box((6,), -99.0, 99.0)
    assert from_jaxued(acrobot.Acrobot(), level, observation_space=given).observation_space == given


def test_wrappers_that_restart_are_refused():
    with pytest.raises(ValueError, match="AutoReplayWrapper restarts episodes"):
        from_jaxued(AutoReplayWrapper(JaxuedMaze()), mazes()[2])
