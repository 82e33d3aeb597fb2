"""Choosing parents, lineage, the memory of a level's best return, and rollouts made by hand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.experiment.build import place
from cenie.records import Advantages, Rollout
from cenie.replay.config import ReplayConfig
from cenie.replay.outcomes import episode_outcomes
from cenie.replay.play import EDIT, NEW, REPLAY, Play
from cenie.replay.scores import SCORES
from cenie.teach import teacher
from cenie.teach.curriculum import Assignment, Curriculum, Editing, Replay, ranked_by
from cenie.teach.cycle import init
from cenie.teach.source import RandomSource
from cenie.teach.teacher import select_parents
from tests.kept import programs
from tests.tiny import tiny

MANY_UPDATES = 1000


def _editing(parents) -> Editing:
    return Editing(edit=lambda key, level: level, probability=1.0, parents=parents)


def test_batch_edits_every_replayed_level_once():
    slots = jnp.array([7, 3, 3, 9])
    np.testing.assert_array_equal(select_parents(slots, jnp.zeros(4), _editing("batch")), slots)


def test_easy_takes_the_four_lowest_scores_and_not_only_level_0():
    """The bug of the original code: a two-dimensional score array made `easy` edit level 0 only."""
    slots = jnp.arange(10, 18)
    score = jnp.array([5.0, 1.0, 7.0, 2.0, 8.0, 3.0, 6.0, 4.0])
    chosen = np.asarray(select_parents(slots, score, _editing("easy")))
    np.testing.assert_array_equal(chosen, [11, 13, 15, 17] * 2)


def test_hard_takes_the_four_highest_scores():
    slots = jnp.arange(10, 18)
    score = jnp.array([5.0, 1.0, 7.0, 2.0, 8.0, 3.0, 6.0, 4.0])
    assert set(np.asarray(select_parents(slots, score, _editing("hard"))).tolist()) == {14, 12, 16, 10}


def test_a_level_drawn_several_times_is_one_parent_while_others_are_left():
    slots = jnp.array([5, 5, 5, 6, 7, 8])
    score = jnp.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    assert set(np.asarray(select_parents(slots, score, _editing("easy"))).tolist()) == {5, 6, 7, 8}


def test_fewer_than_four_levels_choose_the_same_end_of_the_order():
    """In the original code the branches for few and for many environments pick opposite ends."""
    slots, score = jnp.array([4, 2]), jnp.array([3.0, 1.0])
    np.testing.assert_array_equal(select_parents(slots, score, _editing("easy")), [2, 4])


def test_children_know_their_parents_and_generation():
    setup, advance = programs(tiny("accel"))
    state = place(setup, init(setup, 0))
    grown = 0
    for _ in range(20):
        before = state.teacher
        state, _, metrics, _ = advance(state, updates=MANY_UPDATES)
        after = state.teacher
        if int(metrics["teacher/kind"][0]) != EDIT:
            continue
        fresh = np.flatnonzero(np.asarray(after.buffer.ids) >= int(before.buffer.next_id))
        parents = dict(zip(np.asarray(before.buffer.ids).tolist(), np.asarray(before.buffer.generations)))
        replayed = set(np.asarray(before.buffer.ids)[np.asarray(before.replayed[0])].tolist())
        for slot in fresh:
            parent = int(after.buffer.parents[slot])
            assert parent in replayed
            assert int(after.buffer.generations[slot]) == parents[parent] + 1
            grown += 1
    assert grown > 0


def test_best_return_of_a_level_is_never_forgotten():
    """A peer stored only the latest rollout's maximum, so that it was lost after two visits."""
    setup, advance = programs(tiny("plr-robust", teacher__score="maxmc"))
    state = place(setup, init(setup, 1))
    replays = 0
    for _ in range(15):
        before = state.teacher
        state, _, metrics, _ = advance(state, updates=MANY_UPDATES)
        after = state.teacher
        if int(metrics["teacher/kind"][0]) == REPLAY:
            replays += 1
            old, new = (np.asarray(s.buffer.max_return) for s in (before, after))
            assert (new >= old).all()
    assert replays > 2


# -- rollouts made by hand: a level is a number, and an advantage is its reward -------------------------

LEVELS = 4


def curriculum(score, editing=None, **replay) -> Curriculum:
    config = ReplayConfig(**{"capacity": LEVELS, **replay})
    return Curriculum(
        RandomSource(lambda key: jnp.int32(0)), False, Replay(config, ranked_by(SCORES[score])), editing
    )


@functools.partial(jax.jit, static_argnums=0)
def tell(method, state, kind, levels, reward, done, slots):
    zeros = jnp.zeros_like(reward)
    rollout = Rollout(
        observation=(),
        action=zeros,
        log_prob=zeros,
        value=zeros,
        reward=reward,
        terminated=done,
        truncated=jnp.zeros_like(done),
        solved=jnp.zeros_like(done),
        start=zeros > 0,
        memory=(),
        last_value=zeros[:, 0],
    )
    nothing = jnp.zeros(LEVELS, jnp.int32)
    lineage = {"parents": nothing - 1, "generations": nothing}
    batch = Play(levels, kind=kind, learned=kind == REPLAY, slot=slots, **lineage)
    assignment = Assignment(kind, kind == REPLAY, (batch,), ())
    play = dataclasses.replace(
        batch,
        rollout=rollout,
        advantages=Advantages(reward, reward, reward, 1.0, 1.0),
        outcomes=episode_outcomes(rollout),
    )
    return teacher.tell(method, state, assignment, plays=(play,), key=jax.random.key(0))[:2]


def told(method, state, levels, rewards, ends, kind=NEW, slots=(0,) * LEVELS):
    """Tell of four levels; `ends` are the last steps of episodes, in the same order as the rewards."""
    state = teacher.init(method, LEVELS, jax.random.key(0)) if state is None else state
    return tell(
        method,
        state,
        jnp.asarray(kind, jnp.int32),
        jnp.asarray(levels, jnp.int32),
        jnp.asarray(rewards, jnp.float32),
        jnp.asarray(ends, bool),
        jnp.asarray(slots, jnp.int32),
    )


def scores_of(state):
    return dict(zip(np.asarray(state.buffer.levels).tolist(), state.buffer.scores[:, 0].tolist()))


@pytest.mark.parametrize("kind", [NEW, EDIT])
def test_bug_maxmc_forgets_the_best_return_of_a_stored_level_met_again(kind):
    """Return 1.0, then an identical child with 0.25: the score was 0.25."""
    method = curriculum("maxmc")
    state, _ = told(method, None, [7, 8, 9, 5], [[1.0], [0.5], [0.5], [0.5]], [[True]] * 4)
    state, _ = told(method, state, [7, 8, 9, 5], [[0.25]] * 4, [[True]] * 4, kind)
    assert scores_of(state) == {7: 1.0, 8: 0.5, 9: 0.5, 5: 0.5}


def test_bug_copies_in_one_new_batch_do_not_share_their_best_return():
    method = curriculum("maxmc")
    state, _ = told(method, None, [7, 7, 9, 5], [[1.0], [0.25], [0.5], [0.5]], [[True]] * 4)
    assert scores_of(state)[7] == 1.0


def test_bug_unfinished_column_of_an_easy_parent_counts_as_score_0():
    """And a level drawn several times was judged by its first column."""
    edit = Editing(lambda key, level: level, 1.0, "easy")
    method = curriculum("pvl", edit)
    state, _ = told(method, None, [1, 2, 3, 4], [[1.0], [2.0], [3.0], [4.0]], [[True]] * 4)
    slots = [3, 0, 1, 1]
    rewards, ends = [[9.0], [1.0], [0.0], [7.0]], [[False], [True], [True], [True]]
    state, _ = told(method, state, [4, 1, 2, 2], rewards, ends, REPLAY, slots)
    past = state
    np.testing.assert_array_equal(past.buffer.scores[:, 0], [1.0, 3.5, 3.0, 4.0])
    assignment, _ = jax.jit(lambda s: teacher.ask(method, s, jax.random.key(1), LEVELS))(state)
    assert int(assignment.kind) == EDIT
    # Level 1 first, then level 2 (average 3.5), then level 4 (unfinished: still 4.0).
    assert np.asarray(assignment.batches[0].levels).tolist()[:3] == [1, 2, 4]


def test_bug_dcd_preset_decides_by_the_last_episode_of_a_column():
    """Two episodes of one step each: the score of the first decides, that of the last is stored."""
    method = curriculum("pvl", insertion="raw", repeated="last")
    both = [[True, True]] * 4
    state, _ = told(method, None, [1, 2, 3, 4], [[5.0, 5.0]] * 4, both)
    rewards = [[6.0, 4.5], [1.0, 9.0], [1.0, 9.0], [1.0, 9.0]]
    state, metrics = told(method, state, [5, 6, 7, 8], rewards, both)
    # Level 4 was offered last and is the least stale of four equal ones.
    assert scores_of(state) == pytest.approx({1: 5.0, 2: 5.0, 3: 5.0, 5: 4.5})
    assert int(metrics["inserted"]) == int(metrics["stayed"]) == 1


def test_unfinished_columns_are_counted_and_can_be_scored():
    rewards, ends = [[1.0, 2.0], [3.0, 0.0], [0.0, 4.0], [5.0, 5.0]], [[False, False]] * 3 + [[True, False]]
    state, metrics = told(curriculum("pvl"), None, [1, 2, 3, 4], rewards, ends)
    assert (int(metrics["unscored"]), int(metrics["inserted"])) == (3, 1)
    scored = curriculum("pvl", unfinished="score")
    state, metrics = told(scored, None, [1, 2, 3, 4], rewards, ends)
    assert (int(metrics["unscored"]), int(metrics["inserted"])) == (0, 4)
    # The tail behind a completed episode is left out as ever.
    assert scores_of(state) == {1: 1.5, 2: 1.5, 3: 2.0, 4: 5.0}


def test_equal_scores_are_noticed():
    method, ends = curriculum("pvl"), [[True]] * 4
    assert bool(told(method, None, [1, 2, 3, 4], [[0.0]] * 4, ends)[1]["equal_scores"])
    assert not bool(told(method, None, [1, 2, 3, 4], [[0.0], [0.0], [1.0], [0.0]], ends)[1]["equal_scores"])
    only_one = [[True], [False], [False], [False]]
    assert not bool(told(method, None, [1, 2, 3, 4], [[0.0]] * 4, only_one)[1]["equal_scores"])
