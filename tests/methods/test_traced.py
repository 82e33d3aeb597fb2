"""TRACED: the error of the transition model and co-learnability, against loops over steps and levels."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.traced import Traced, TracedCorrection
from cenie.replay.play import NEW, REPLAY
from cenie.spaces import Box, Discrete
from tests.replay.test_scores import N, T, done_pattern, episodes_of, make_inputs
from tests.tiny import tiny

CAPACITY = 7
BOX, IMAGE, ACTIONS = Box((3,), -1.0, 1.0), Box((1, 1, 3), 0, 10, "uint8"), Discrete(2)


@functools.cache
def correction(space=BOX, **settings):
    return TracedCorrection(Traced(memory_size=6, learning_rate=1e-2, **settings), (space,), ACTIONS)


@functools.cache
def compiled(traced):
    return jax.jit(functools.partial(traced.score, mesh=None)), jax.jit(
        lambda state, play, scores, ids: traced.learn(state, play, scores=scores, ids=ids, mesh=None)
    )


def with_observations(done, observation, seed=0, episodes="average"):
    inputs = make_inputs(done, episodes=episodes)
    action = jax.random.randint(jax.random.key(seed), done.shape, 0, 2)
    return eqx.tree_at(
        lambda i: (i.rollout.observation, i.rollout.action), inputs, (jnp.asarray(observation), action)
    )


def random_observations(space, seed=0):
    rng = np.random.default_rng(seed)
    if space is IMAGE:
        return rng.integers(0, 10, (N, T, 1, 1, 3)).astype(np.uint8)
    return rng.uniform(-1, 1, (N, T, 3)).astype(np.float32)


def loop_over_episodes(model, inputs, space):
    """Step by step through the episodes of each level, each with a new memory."""
    observation = np.asarray(inputs.rollout.observation, np.float32).reshape(N, T, 3)
    observation = observation / 10 if space is IMAGE else observation
    action, scores = np.eye(2)[np.asarray(inputs.rollout.action)], np.zeros(N)
    for level in range(N):
        means = []
        for piece in episodes_of(np.asarray(inputs.rollout.done)[level]):
            memory, errors = model.memory.initial_state(1), [0.0]
            for step in range(piece.start, piece.stop - 1):
                read = np.concatenate([observation[level, step], action[level, step]])[:, None]
                memory = model.memory.step(memory, jnp.asarray(read, jnp.float32), jnp.zeros(1, bool))
                gap = np.asarray(model.readout(memory[0]))[:, 0] - observation[level, step + 1]
                errors.append(np.mean(np.abs(gap) if space is IMAGE else gap**2))
            means.append(np.sum(errors) / max(len(errors) - 1, 1))
        if means:
            scores[level] = np.mean(means[-1:] if inputs.episodes == "last" else means)
    return scores


@pytest.mark.parametrize(("space", "episodes"), [(BOX, "average"), (BOX, "last"), (IMAGE, "average")])
def test_the_transition_error_equals_a_loop_over_episodes(space, episodes):
    traced = correction(space, transition_weight=3.0)
    state = traced.init(CAPACITY, N, jax.random.key(0))
    inputs = with_observations(done_pattern("several"), random_observations(space), episodes=episodes)
    found = compiled(traced)[0](state, inputs)
    np.testing.assert_allclose(
        found, 3.0 * loop_over_episodes(state.model, inputs, space), rtol=1e-4, atol=1e-6
    )


def test_the_model_learns_and_levels_that_it_cannot_predict_keep_their_score():
    traced = correction()
    score, learn = compiled(traced)
    done = done_pattern("last step")
    state, before, errors = traced.init(CAPACITY, N, jax.random.key(0)), None, []
    for step in range(150):
        observation = random_observations(BOX, step)
        observation[: N // 2] = np.array([0.9, -0.8, 0.7])  # nothing ever changes there
        inputs = with_observations(done, observation, step)
        before = score(state, inputs) if before is None else before
        state, _, metrics = learn(state, *nothing_stored(inputs))
        errors.append(float(metrics["transition_error"]))
    after = np.asarray(score(state, inputs))
    assert errors[-1] < 0.5 * errors[0]
    assert after[: N // 2].max() < 0.02 < 0.2 < after[N // 2 :].min()
    assert np.asarray(before)[: N // 2].min() > 0.3


def nothing_stored(play):
    play = dataclasses.replace(play, kind=jnp.asarray(NEW), stored_in=jnp.full(N, -1))
    return play, jnp.zeros(CAPACITY), jnp.full(CAPACITY, -1)


def test_progress_of_a_replay_is_added_to_the_levels_of_the_replay_before():
    """A dict by level id does what the state does by slots; unfinished plays and evicted levels included."""
    traced, rng = correction(colearnability_weight=0.5), np.random.default_rng(5)
    learn = compiled(traced)[1]
    state, ids, scores = (
        traced.init(CAPACITY, N, jax.random.key(0)),
        np.full(CAPACITY, -1),
        np.zeros(CAPACITY),
    )
    last, replayed_before, next_id, changes = {}, set(), 0, 0
    for cycle in range(24):
        replayed = cycle > 2 and cycle % 2 == 1
        done = rng.random((N, T)) < 0.2
        done[0] = False
        completed = done.any(axis=1)
        slots = rng.choice(np.flatnonzero(ids >= 0) if replayed else CAPACITY, N)
        if not replayed:
            # Some of the new levels find no place, and those without a score never do.
            slots = np.where(completed & (rng.random(N) < 0.6), slots, -1)
            for slot in {int(slot) for slot in slots if slot >= 0}:
                ids[slot], next_id = next_id, next_id + 1
        scored = {int(slot) for slot, ends in zip(slots, completed, strict=True) if slot >= 0 and ends}
        for slot in scored:
            scores[slot] = rng.random()
        inputs = with_observations(done, random_observations(BOX, cycle))
        state, found, metrics = learn(
            state,
            dataclasses.replace(
                inputs, stored_in=jnp.asarray(slots), kind=jnp.asarray(REPLAY if replayed else NEW)
            ),
            jnp.asarray(scores, jnp.float32),
            jnp.asarray(ids),
        )
        falls = [last[ids[slot]] - scores[slot] for slot in scored if ids[slot] in last]
        last |= {ids[slot]: scores[slot] for slot in scored}
        if replayed:
            progress = np.mean(falls) if falls else 0.0
            assert float(metrics["colearnability"]) == pytest.approx(progress, abs=1e-6)
            gains = np.isin(ids, list(replayed_before)) * 0.5 * progress
            changes += int(np.any(gains != 0))
            scores = scores + gains
            replayed_before = {ids[slot] for slot in slots}
        np.testing.assert_allclose(found, scores, atol=1e-6)
    assert changes > 5


def test_weights_are_those_of_the_authors_files_and_parents_those_of_their_code_with_dcd():
    for domain in ("maze", "walker"):
        for name, parents in (("quick", "batch"), ("paper", "batch"), ("dcd", "easy")):
            teacher = preset(domain, "traced", name).teacher
            weights = teacher.correction.transition_weight, teacher.correction.colearnability_weight
            assert (*weights, teacher.edit.parents) == (1.0, 1.0, parents)


def test_it_needs_one_level_buffer():
    _, setup = build(tiny("traced"))
    with pytest.raises(ValueError, match="scores are corrected for one level buffer"):
        dataclasses.replace(setup.curriculum, students=2, own_levels=True)
