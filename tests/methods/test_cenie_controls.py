"""Controls in the place of novelty, and novelty of what students see, by settings alone."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cenie.bridges.teacher import Teacher
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.observe import MazeObservation
from cenie.methods.cenie_controls import ShuffledNovelty, ShuffledState
from cenie.replay.columns import NOVELTY
from cenie.replay.play import REPLAY
from cenie.settings import SettingsError
from cenie.student.features import observed_features
from tests.teach.runs import run


def novelties(state):
    """The novelties of the stored levels, and when these were played last."""
    buffer = state.teacher.buffer
    mask = np.asarray(buffer.mask)
    return np.asarray(buffer.column(NOVELTY))[mask], np.asarray(buffer.last_played)[mask]


def test_shuffled_novelty_is_dealt_out_among_the_stored_levels_only():
    setup, states, _ = run("plr-cenie")
    teacher, inner = states[-1].teacher, setup.curriculum.novelty
    buffer = teacher.buffer
    mask, stored = np.asarray(buffer.mask), np.asarray(inner.rescore(teacher.novelty, buffer))
    assert len(set(stored[mask].tolist())) > 3
    shuffled = [ShuffledState(teacher.novelty, jnp.int32(batches)) for batches in (0, 1)]
    dealt = [np.asarray(ShuffledNovelty(inner).rescore(state, buffer)) for state in shuffled]
    for values in dealt:
        np.testing.assert_array_equal(np.sort(values[mask]), np.sort(stored[mask]))
        np.testing.assert_array_equal(values[~mask], stored[~mask])
    assert not np.array_equal(dealt[0], dealt[1])


def test_age_ranks_levels_by_when_they_were_played():
    _, states, rows = run("plr-cenie", teacher__novelty__control="age")
    assert REPLAY in {int(row["teacher/kind"]) for row in rows}
    novelty, played = novelties(states[-1])
    # The number of the batch; a level of which no episode was completed is played, but not scored again.
    assert set(novelty.tolist()) <= set(range(len(rows)))
    assert len(set(novelty.tolist())) > 3
    assert stats.spearmanr(novelty, played).statistic > 0.9


@pytest.mark.parametrize(
    "change", [{"teacher__novelty__control": "shuffled"}, {"teacher__novelty__features": "observation"}]
)
def test_a_run_with_the_setting_fits_its_model_and_is_another_run(change):
    _, usual, _ = run("plr-cenie")
    _, states, rows = run("plr-cenie", **change)
    assert int(rows[-1]["teacher/fitted"])
    assert int(rows[-1]["teacher/failed_fits"]) == 0
    found, _ = novelties(states[-1])
    assert np.isfinite(found).all()
    assert not np.array_equal(found, novelties(usual[-1])[0])


def test_what_is_observed_is_described_by_a_bit_for_each_direction_and_scaled_codes():
    space = maze_domain(MazeConfig(num_actions=3)).environment.observation_space
    rng = np.random.default_rng(0)
    image, direction = rng.integers(0, 11, (2, 7, 5, 5, 3)), rng.integers(0, 4, (2, 7))
    seen = MazeObservation(jnp.asarray(image, jnp.uint8), jnp.asarray(direction, jnp.int32))
    expected = np.concatenate([image.reshape(2, 7, 75) / 10, np.eye(4)[direction]], axis=2)
    np.testing.assert_allclose(observed_features(seen, space), expected, rtol=1e-6)


def test_a_loop_of_ones_own_describes_steps_itself():
    with pytest.raises(SettingsError, match=r"novelty\.features"):
        Teacher(
            "plr-cenie",
            generate=lambda rng: rng.random(2),
            features=3,
            settings={"novelty.features": "observation"},
        )
