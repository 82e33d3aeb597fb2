"""What a user is told of a curriculum that starves."""

import dataclasses

from cenie.experiment.build import build
from cenie.replay.config import ReplayConfig
from cenie.replay.scores import SCORES
from cenie.teach.curriculum import Curriculum, Replay, ranked_by
from cenie.teach.source import RandomSource
from cenie.training.warnings import PATIENCE, Watch, too_short
from tests.tiny import tiny

REPLAY = Replay(ReplayConfig(), ranked_by(SCORES["pvl"]))


def said(watch, batches, **facts):
    return [line for _ in range(batches) for line in watch.look(**{"levels": 4, **facts})]


def test_bug_levels_that_are_never_scored_pass_in_silence():
    """573 of 600 columns of a run were unfinished, and no word."""
    watch = Watch(REPLAY, "Do this.")
    assert said(watch, PATIENCE - 1, unscored=4, equal_scores=False) == []
    (line,) = said(watch, 100, unscored=4, equal_scores=False)
    assert f"{4 * PATIENCE} of the {4 * PATIENCE} levels" in line
    assert line.endswith("Do this.")


def test_some_unfinished_levels_are_no_reason_to_speak():
    assert said(Watch(REPLAY, ""), 100, unscored=2, equal_scores=False) == []


def test_bug_equal_scores_pass_in_silence():
    """With a critic of zeros and no reward every positive value loss is 0."""
    watch = Watch(REPLAY, "")
    (line,) = said(watch, 100, unscored=0, equal_scores=True)
    assert "same score" in line
    assert "choose another score" in line


def test_equal_scores_now_and_then_are_no_reason_to_speak():
    watch = Watch(REPLAY, "")
    for _ in range(10):
        assert said(watch, PATIENCE - 1, unscored=0, equal_scores=True) == []
        assert said(watch, 1, unscored=0, equal_scores=False) == []


def test_a_uniform_score_and_a_method_without_replay_are_left_alone():
    uniform = Replay(ReplayConfig(), ranked_by(SCORES["uniform"]))
    assert said(Watch(uniform, ""), 20, unscored=0, equal_scores=True) == []
    assert said(Watch(None, ""), 20, unscored=4, equal_scores=True) == []


def curriculum(**parts):
    return Curriculum(**{"source": RandomSource(lambda key: key), "learn_on_new": True} | parts)


def test_rollouts_shorter_than_episodes_are_foreseen():
    (line,) = too_short(curriculum(replay=REPLAY), 16, 250)
    assert "16 steps" in line
    assert "student.num_steps to 250" in line
    assert "teacher.replay.unfinished" in line
    assert list(too_short(curriculum(replay=REPLAY), 250, 250)) == []
    assert list(too_short(curriculum(), 16, 250)) == []
    scored = dataclasses.replace(REPLAY, config=ReplayConfig(unfinished="score"))
    assert list(too_short(curriculum(replay=scored), 16, 250)) == []


def test_rollouts_that_are_too_short_for_a_source_that_learns_are_foreseen():
    source = build(tiny("paired"))[1].curriculum.source
    (line,) = too_short(curriculum(source=source), 16, 250)
    assert "tells the teacher nothing" in line
    assert "teacher.unfinished" in line
    assert list(too_short(curriculum(source=source, unfinished="score"), 16, 250)) == []
