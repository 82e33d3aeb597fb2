"""SFL: phases of scouting and training, and what is kept of the levels that were scouted."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.experiment.presets import preset
from cenie.methods.sfl import SflProposal, SflSource, SflTeacher
from cenie.replay.outcomes import Outcomes
from cenie.settings import SettingsError
from cenie.teach.source import RandomSource
from tests.replay.test_scores import generalised

GENERALISED = "generalised-learnability"
BATCH, PLAYS, SCOUTED, KEPT, UPDATES = 12, 4, 16, 5, 3
SOURCE = SflSource(
    RandomSource(lambda key: {"place": jax.random.uniform(key, (2,))}),
    SflTeacher(scouted=SCOUTED, plays=PLAYS, kept=KEPT, kept_share=0.25, updates=UPDATES),
)


def played(places):
    """A level at x is solved in the first of its plays, so that p rises with x in steps of 1 / PLAYS.

    Where x is small no episode ends; elsewhere one does, or two that end alike.
    """
    episodes = np.where(places < 0.1, 0, 1 + (places > 0.5)).astype(np.int32)
    solved = (np.arange(len(places)) % PLAYS < np.floor(places * (PLAYS + 1))) * episodes
    nothing = jnp.zeros(len(places))
    return (Outcomes(jnp.asarray(episodes), jnp.asarray(solved), nothing, nothing, nothing, nothing),)


@functools.cache
def history():
    """Two phases, cycle by cycle: whether students learn, the places, the kept ones after it."""
    propose, learn = jax.jit(SOURCE.propose, static_argnums=2), jax.jit(SOURCE.learn)
    state, rows = SOURCE.init(jax.random.key(0)), []
    for step in range(19):
        key = jax.random.fold_in(jax.random.key(1), step)
        training = bool(SOURCE.is_training(state))
        levels, proposal = propose(state, key, BATCH)
        places = np.asarray(levels["place"])
        state, metrics = learn(state, proposal, played(places[:, 0]), key)
        kept = np.asarray(state.levels["place"])[: int(state.size)]
        rows.append((training, places, kept, np.asarray(state.learnability)[: len(kept)], metrics))
    return rows


def test_phases_follow_each_other():
    # Three levels in a batch of twelve columns: six batches for sixteen levels, and then three updates.
    phase = [False] * 6 + [True] * UPDATES
    assert [row[0] for row in history()] == [*phase, *phase, False]
    assert [bool(row[4]["scouting"]) for row in history()] == [not row[0] for row in history()]


@pytest.mark.parametrize("phase", [0, 9])
def test_the_most_learnable_of_all_scouted_levels_are_kept(phase):
    scouted = np.concatenate([row[1] for row in history()[phase : phase + 6]])
    assert (scouted.reshape(-1, PLAYS, 2) == scouted[::PLAYS, None]).all()
    (outcomes,) = played(scouted[:, 0])
    solved, finished = (
        np.asarray(part).reshape(-1, PLAYS).sum(axis=1) for part in (outcomes.solved, outcomes.finished)
    )
    rates = solved / np.maximum(finished, 1)
    learnability = rates * (1 - rates)
    best = np.argsort(-learnability, kind="stable")[:KEPT]
    _, _, kept, values, metrics = history()[phase + 5]
    np.testing.assert_array_equal(kept, scouted[::PLAYS][best])
    np.testing.assert_allclose(values, learnability[best], rtol=1e-6)
    assert float(metrics["learnability"]) == pytest.approx(learnability[best].mean())
    assert int(metrics["kept"]) == KEPT


def test_a_share_of_each_training_batch_is_kept_levels_and_the_rest_is_new():
    chosen = []
    for cycle in (6, 7, 8):
        kept, batch = history()[5][2], history()[cycle][1]
        is_kept = (batch[:, None] == kept).all(axis=2)
        assert is_kept.any(axis=1).tolist() == [True] * 3 + [False] * 9
        assert len(np.unique(batch[3:], axis=0)) == 9
        chosen += np.argmax(is_kept[:3], axis=1).tolist()
    assert len(set(chosen)) > 1


def test_nothing_is_left_of_a_phase_that_is_over():
    assert [len(row[2]) for row in history()[5:11]] == [KEPT, KEPT, KEPT, 0, 3, KEPT]
    earlier = {tuple(place) for place in history()[5][2].tolist()}
    assert not earlier & {tuple(place) for place in history()[14][2].tolist()}


def test_generalised_learnability_is_that_of_all_returns_on_all_scouted_levels():
    """Batch by batch, against all returns of the phase at once."""
    settings = dataclasses.replace(SOURCE.settings, score="generalised-learnability", scouted=30, kept=30)
    rng, plays, levels = np.random.default_rng(0), settings.plays, BATCH // PLAYS
    returns = [
        [rng.normal(level % 7, 1 + level % 3, rng.integers(0, 3)) for _ in range(plays)]
        for level in range(30)
    ]
    returns[4] = [np.zeros(0)] * plays  # no episode was completed
    for kept in (30, 6):
        source = SflSource(SOURCE.random, dataclasses.replace(settings, kept=kept))
        learn, state = jax.jit(source.learn), source.init(jax.random.key(0))
        for _ in range(2):
            for step in range(10):
                columns = [*itertools.chain(*returns[step * levels : (step + 1) * levels])]
                found = [
                    jnp.asarray([value(column) if len(column) else 0.0 for column in columns], jnp.float32)
                    for value in (np.mean, np.var)
                ]
                finished = jnp.asarray([len(column) for column in columns], jnp.int32)
                outcomes = Outcomes(finished, 0 * finished, found[0], found[0], found[0], found[1])
                place = np.arange(step * levels, (step + 1) * levels, dtype=np.float32)
                proposal = SflProposal(jnp.ones((), bool), {"place": jnp.stack([place, place], axis=1)})
                state, _ = learn(state, proposal, (outcomes,), jax.random.key(step))
            together = [np.concatenate(each) for each in returns]
            expected = np.array([generalised(each, together) if len(each) else 0.0 for each in together])
            order = np.argsort(-expected, kind="stable")[:kept]
            size = int(state.size)
            assert size == kept
            np.testing.assert_allclose(state.learnability, expected[order], rtol=2e-4, atol=1e-6)
            assert np.asarray(state.levels["place"])[:, 0].astype(int).tolist() == order.tolist()
            for step in range(UPDATES):
                training = SflProposal(jnp.zeros((), bool), proposal.levels)
                state, _ = learn(state, training, (outcomes,), jax.random.key(step))
            assert int(state.size) == int(state.returns.known) == 0


def test_where_success_is_not_the_score_learnability_is_that_of_returns():
    for domain, score in (("maze", "learnability"), ("walker", GENERALISED), ("racing", GENERALISED)):
        for name in ("quick", "paper", "dcd"):
            for method in ("sfl", "plr-learnability"):
                assert preset(domain, method, name).teacher.score == score
            assert preset(domain, "plr-robust", name).teacher.score not in ("learnability", GENERALISED)
    # Of a domain of one's own nobody knows whether anything is ever solved.
    own = dataclasses.replace(maze_domain(MazeConfig(size=5)), presets={})
    assert {preset("mine", method, entry=own).teacher.score for method in ("sfl", "plr-learnability")} == {
        GENERALISED
    }
    assert preset("mine", "plr-robust", entry=own).teacher.score == "pvl"
    # A walker that still walks at the end of a rollout has a return, too.
    assert preset("walker", "sfl", "quick").teacher.unfinished == "score"


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(SettingsError, match=r"teacher.kept: must not exceed scouted"):
        preset("maze", "sfl", "quick", {"teacher.kept": 300})
    with pytest.raises(SettingsError, match=r"teacher.plays: must divide student.num_levels \(64\), got 5"):
        preset("maze", "sfl", "quick", {"teacher.plays": 5})
    with pytest.raises(SettingsError, match=r"teacher.generator: must be one of"):
        preset("maze", "sfl", "quick", {"teacher.generator": "nowhere"})
