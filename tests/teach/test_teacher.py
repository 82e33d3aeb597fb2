"""Choosing parents, lineage, and the memory of a level's best return."""

import jax.numpy as jnp
import numpy as np

from cenie.run.build import build, compiled_cycles, place
from cenie.teach.curriculum import EDIT, REPLAY, Editing
from cenie.teach.cycle import init
from cenie.teach.teacher import select_parents
from tests.tiny import tiny

MANY_UPDATES = jnp.asarray(1000)


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
    _, setup = build(tiny("accel"))
    advance = compiled_cycles(setup, 1)
    state = place(setup, init(setup, 0))
    grown = 0
    for _ in range(20):
        before = state.teacher.replay
        state, _, metrics = advance(state, updates=MANY_UPDATES)
        after = state.teacher.replay
        assert before is not None
        assert after is not None
        if int(metrics["teacher/kind"][0]) != EDIT:
            continue
        fresh = np.flatnonzero(np.asarray(after.buffer.ids) >= int(before.buffer.next_id))
        parents = dict(zip(np.asarray(before.buffer.ids).tolist(), np.asarray(before.buffer.generations)))
        replayed = set(np.asarray(before.buffer.ids)[np.asarray(before.replayed)].tolist())
        for slot in fresh:
            parent = int(after.buffer.parents[slot])
            assert parent in replayed
            assert int(after.buffer.generations[slot]) == parents[parent] + 1
            grown += 1
    assert grown > 0


def test_best_return_of_a_level_is_never_forgotten():
    """A peer stored only the latest rollout's maximum, so that it was lost after two visits."""
    _, setup = build(tiny("plr-robust", teacher__score="maxmc"))
    advance = compiled_cycles(setup, 1)
    state = place(setup, init(setup, 1))
    replays = 0
    for _ in range(15):
        before = state.teacher.replay
        state, _, metrics = advance(state, updates=MANY_UPDATES)
        after = state.teacher.replay
        assert before is not None
        assert after is not None
        if int(metrics["teacher/kind"][0]) == REPLAY:
            replays += 1
            old, new = (np.asarray(s.buffer.extras["max_return"]) for s in (before, after))
            assert (new >= old).all()
    assert replays > 2
