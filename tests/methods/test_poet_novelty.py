"""POET's novelty: encodings of levels, and the archive of all that were admitted."""

import dataclasses

import jax
import numpy as np
import pytest

import cenie
from cenie.envs.domains import DOMAINS
from cenie.envs.maze.formats import from_text
from cenie.envs.maze.level import encoding as maze_encoding
from cenie.envs.walker.level import make_level
from cenie.experiment.build import build
from cenie.replay.columns import NOVELTY
from cenie.settings import SettingsError
from tests.teach.runs import run
from tests.tiny import tiny


def test_a_maze_is_encoded_by_walls_path_and_manhattan_distance():
    level = from_text(">.#\n..#\n#.G")
    np.testing.assert_allclose(maze_encoding(level), [3 / 9, 4 / 10, 4 / 4], rtol=1e-6)
    walled = from_text(">#.\n##.\n..G")
    np.testing.assert_allclose(maze_encoding(walled), [3 / 9, 1.0, 1.0], rtol=1e-6)


def test_a_walker_level_is_encoded_by_its_parameters_but_not_by_its_seed():
    domain, _ = build(tiny("dr", "walker"))
    sizes = {"pit_low": 8, "pit_high": 2, "stump_high": 5}
    first, second = (
        np.asarray(domain.encoding(make_level(seed, roughness=5, stair_steps=9, **sizes))) for seed in (1, 2)
    )
    np.testing.assert_array_equal(first, second)
    # Each pair in its order.
    np.testing.assert_allclose(first, [0.5, 0.2, 0.8, 0, 1, 0, 0, 1], rtol=1e-6)


@pytest.mark.parametrize("domain", DOMAINS)
def test_encodings_lie_in_the_unit_box_and_differ(domain):
    made, _ = build(tiny("dr", domain))
    keys = jax.random.split(jax.random.key(0), 50)
    encodings = np.asarray(jax.vmap(lambda key: made.encoding(made.generator("random")(key)))(keys))
    assert encodings.min() >= 0
    assert encodings.max() <= 1
    assert (encodings.std(axis=0) > 0).all()


def test_novelty_is_the_mean_distance_to_the_nearest_that_were_ever_admitted():
    setup, states, _ = run("accel-poet", cycles=12, teacher__novelty__archive=64)
    novelty = setup.curriculum.novelty
    admitted: dict[int, np.ndarray] = {}
    for state in states[1:]:
        buffer, size = state.teacher.buffer, int(state.teacher.buffer.size)
        encodings = np.asarray(jax.vmap(novelty.encode)(buffer.levels))
        for slot, number in enumerate(np.asarray(buffer.ids)[:size]):
            admitted.setdefault(int(number), encodings[slot])
        assert int(state.teacher.novelty.admitted) == len(admitted)
        for slot, number in enumerate(np.asarray(buffer.ids)[:size]):
            others = [other for key, other in admitted.items() if key != number]
            distances = np.sort(np.linalg.norm(np.array(others) - encodings[slot], axis=1))
            expected = distances[: novelty.neighbours].mean()
            assert buffer.column(NOVELTY)[slot] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    # Some have left the buffer, and still count.
    assert len(admitted) > size


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("poet", "poet compares encodings"), ("epoet", "epoet plays levels with past students")],
)
def test_a_domain_that_cannot_serve_a_novelty_is_refused(kind, reason):
    """Such as levels of somebody else's loop, of which nothing is known."""
    with pytest.raises(SettingsError, match=f"novelty: {reason}"):
        cenie.Teacher(generate=lambda rng: 0.0, features=2, settings={"novelty": {"kind": kind}})


def test_levels_of_a_parameter_space_are_encoded_by_it():
    domain, _ = build(tiny("dr", "walker"))
    assert domain.parameters is not None
    plain = dataclasses.replace(domain, encoding=None)
    level = plain.generator("random")(jax.random.key(0))
    low, high = domain.parameters.low, domain.parameters.high
    expected = (np.asarray(domain.parameters.encode(level)) - low) / (high - low)
    np.testing.assert_allclose(plain.encoding(level), expected, rtol=1e-6)
