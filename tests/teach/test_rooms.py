"""What a method may bring along without touching the cycle: a source that learns, a second student, level
buffers of their own, another novelty."""

import dataclasses
import functools
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cenie
from cenie.experiment.build import build, place
from cenie.replay.config import Constant
from cenie.replay.play import NEW, REPLAY
from cenie.rundir.checkpoint import digest
from cenie.teach.curriculum import Curriculum
from cenie.teach.cycle import init
from cenie.teach.source import RandomSource
from cenie.xla.parts import CompiledCycles
from cenie.xla.tricks import write_rows
from tests.tiny import tiny

MANY_UPDATES = 1000


def cycles(setup, count, seed=3):
    """The states before and after single cycles, and their metrics."""
    advance = CompiledCycles(setup, 1)
    states, rows = [place(setup, init(setup, seed))], []
    for _ in range(count):
        state, _, metrics, _ = advance(states[-1], updates=MANY_UPDATES)
        states.append(state)
        rows.append({name: np.asarray(values)[0] for name, values in metrics.items()})
    return states, rows


def changed(method, students=1, **parts):
    """The tiny run of a method with other parts in its curriculum."""
    _, setup = build(tiny(method, run__devices=1))
    curriculum = dataclasses.replace(setup.curriculum, students=students, **parts)
    return dataclasses.replace(setup, curriculum=curriculum, students=(setup.student,) * students)


@dataclass(frozen=True)
class CountingSource:
    """Proposes levels with as many walls as it has learned to, and counts what it is told."""

    size: int = 5

    def init(self, key):
        return {"walls": jnp.zeros((), jnp.int32), "told": jnp.zeros((), jnp.int32)}

    def propose(self, state, key, count):
        domain, _ = build(tiny("dr"))
        levels = jax.vmap(domain.generator("simple"))(jax.random.split(key, count))
        places = jnp.arange(self.size**2).reshape(self.size, self.size)
        walls = jnp.broadcast_to(places < state["walls"], levels.wall_map.shape)
        for x, y in (levels.goal.T, levels.start.T):
            walls = walls.at[jnp.arange(count), y, x].set(False)
        return dataclasses.replace(levels, wall_map=walls), {"walls": jnp.full(count, state["walls"])}

    def learn(self, state, proposal, feedback, key):
        after = {"walls": proposal["walls"][0] + 1, "told": state["told"] + len(feedback)}
        return after, {"walls": after["walls"], "finished": feedback[0].finished.sum()}


@functools.cache
def replayed():
    """A run with a source and a novelty of one's own, which share a program because programs take long."""
    parts = {"source": CountingSource(), "novelty": LengthNovelty(12), "alpha": Constant(value=1.0)}
    return cycles(changed("plr-robust", **parts), 12)


def test_a_source_learns_from_new_levels_only():
    states, rows = replayed()
    assert {int(row["teacher/kind"]) for row in rows} == {NEW, REPLAY}
    for before, after, row in zip(states, states[1:], rows):
        was_new = int(row["teacher/kind"]) == NEW
        learned = int(after.teacher.source["walls"]) - int(before.teacher.source["walls"])
        assert learned == int(was_new)
        # An integer that was not measured is 0.
        assert (int(row["teacher/source/walls"]) > 0) == was_new
        if was_new:
            assert float(row["level/walls"]) <= int(before.teacher.source["walls"])
    assert int(states[-1].teacher.source["told"]) == sum(int(row["teacher/kind"]) == NEW for row in rows)


def test_a_second_student_plays_the_same_levels_and_learns_by_itself():
    alone, alone_rows = cycles(changed("plr"), 6)
    both, rows = cycles(changed("plr", students=2), 6)
    for one, two, row, alone_row in zip(alone[1:], both[1:], rows, alone_rows):
        # The first student's run is the one it would have had alone, up to how the compiler orders sums.
        for mine, theirs in zip(jax.tree.leaves(one.student.network), jax.tree.leaves(two.student.network)):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
        np.testing.assert_array_equal(one.teacher.buffer.ids, two.teacher.buffer.ids)
        assert int(two.counters.rollouts) == 2 * int(one.counters.rollouts)
        assert row["solved"] == pytest.approx(alone_row["solved"])
        assert np.isfinite(row["student1/loss"]) == np.isfinite(row["student/loss"])
    first, second = both[-1].students
    assert digest(first.network) != digest(second.network)
    assert digest(both[0].students[1].network) != digest(second.network)


def test_each_student_can_have_its_own_levels():
    states, rows = cycles(changed("plr-robust", students=2, own_levels=True), 12)
    kinds = [int(row["teacher/kind"]) for row in rows]
    assert {NEW, REPLAY} == set(kinds)
    first, second = states[-1].teacher.buffers
    assert int(first.size) > 0
    assert int(second.size) == int(rows[-1]["teacher/buffer1/buffer_size"]) > 0
    assert digest(first.scores) != digest(second.scores)
    replay = next(index for index, kind in enumerate(kinds) if kind == REPLAY)
    drawn = states[replay + 1].teacher.replayed
    assert digest(drawn[0]) != digest(drawn[1])


@dataclass(frozen=True)
class LengthNovelty:
    """The largest number met on a level, and one more for each batch: it remembers, learns and rescores."""

    capacity: int

    def init(self, points_shape):
        return jnp.zeros((), jnp.float32), jnp.zeros((self.capacity, points_shape[1]))

    def score(self, state, play, buffer):
        return jnp.abs(play.points.values).max(axis=(1, 2)) + state[0]

    def learn(self, state, play, enters, key, mesh=None):
        farthest = jnp.abs(play.points.values).max(axis=1)
        kept = write_rows(state[1], play.stored_in, farthest)
        return state[0] + jnp.where(enters, 1.0, 0.0), kept

    def rescore(self, state, buffer, *, mesh=None):
        return state[1].max(axis=1) + state[0]

    def metrics(self, state, buffer):
        return {"batches": state[0]}


def test_another_novelty_remembers_and_rescores():
    states, rows = replayed()
    assert int(rows[-1]["teacher/batches"]) > 1
    buffer = states[-1].teacher.buffer
    size = int(buffer.size)
    assert buffer.columns == ("regret", "novelty")
    batches, farthest = states[-1].teacher.novelty
    expected = np.asarray(farthest).max(axis=1) + float(batches)
    np.testing.assert_allclose(buffer.column("novelty")[:size], expected[:size], rtol=1e-6)
    assert (np.asarray(buffer.column("novelty"))[size:] == 0).all()


class OwnNetwork(cenie.Network):
    """A network from outside: one matrix on the bytes of the view."""

    recurrent = False

    weight: jax.Array

    def __init__(self, observation_space, action_space, key):
        size = observation_space.image.shape
        self.weight = 0.01 * jax.random.normal(key, (np.prod(size), action_space.n + 1))

    def initial_memory(self, count):
        return ()

    def step(self, memory, observation, start):
        return (), self.sequence(memory, observation, start)

    def sequence(self, memory, observation, start):
        seen = observation.image.reshape(*start.shape, -1).astype(jnp.float32)
        *logits, value = jnp.moveaxis(seen @ self.weight, -1, 0)
        return cenie.Decision(cenie.Categorical(jnp.stack(logits, axis=-1)), value, seen)


@functools.cache
def randomised():
    """Two students with a network of one's own, and a source of one's own without replay."""
    return cycles(dataclasses.replace(changed("dr", 2, source=CountingSource()), network=OwnNetwork), 3)


def test_a_source_without_replay_learns_in_every_cycle():
    states, rows = randomised()
    assert [int(state.teacher.source["walls"]) for state in states] == [0, 1, 2, 3]
    assert [int(row["teacher/source/walls"]) for row in rows] == [1, 2, 3]


def test_a_network_of_ones_own_is_trained():
    states, _ = randomised()
    first, second = (student.network for student in states[0].students)
    assert isinstance(first, OwnNetwork)
    assert digest(first) != digest(second)  # each has its own key
    assert digest(states[-1].student.network) != digest(first)


def test_a_network_of_ones_own_gives_the_points_of_novelty_their_size():
    setup = dataclasses.replace(changed("plr-cenie"), network=OwnNetwork)
    state = eqx.filter_eval_shape(init, setup, 0)
    assert state.teacher.novelty.coverage.points.shape[-1] == 5 * 5 * 3 + 3


class OwnMemory(OwnNetwork):
    recurrent = True


def test_networks_of_ones_own_that_cannot_be_trained_are_refused():
    setup = changed("dr")
    with pytest.raises(ValueError, match="network: must make a cenie Network, got Linear"):
        init(dataclasses.replace(setup, network=lambda *_: eqx.nn.Linear(1, 1, key=_[2])), 0)
    ppo = dataclasses.replace(setup.student.ppo, minibatches=8)
    student = dataclasses.replace(setup.student, ppo=ppo)
    without = dataclasses.replace(setup, students=(student,), network=OwnNetwork, mesh=None)
    assert isinstance(init(without, 0).student.network, OwnNetwork)
    with pytest.raises(ValueError, match=r"minibatches: 8 on 1 device.* the 4 levels .* with memory"):
        init(dataclasses.replace(without, network=OwnMemory), 0)


def test_impossible_curricula_are_refused():
    source = RandomSource(lambda key: jnp.zeros(()))
    with pytest.raises(ValueError, match="novelty needs replay"):
        Curriculum(source, True, novelty=LengthNovelty(12))
    with pytest.raises(ValueError, match="own_levels needs replay"):
        Curriculum(source, True, students=2, own_levels=True)
    with pytest.raises(ValueError, match="at least one student"):
        Curriculum(source, True, students=0)
    _, setup = build(tiny("plr-robust"))
    with pytest.raises(ValueError, match="own_levels must be False"):
        dataclasses.replace(setup.curriculum, own_levels=True, students=2, novelty=LengthNovelty(12))
    with pytest.raises(ValueError, match="has 2 students, got settings of 1"):
        dataclasses.replace(setup, curriculum=dataclasses.replace(setup.curriculum, students=2))
