"""One way to run a cycle: a loop of one's own has the bits of `cenie train`."""

from pathlib import Path

import jax
import numpy as np
import pytest

import cenie
from cenie.rundir.checkpoint import digest
from cenie.xla import parts
from tests.teach.compilation import AS_USERS_COMPILE_IT
from tests.tiny import tiny

CYCLES = 6


@pytest.fixture
def as_users_learn(monkeypatch: pytest.MonkeyPatch):
    """Learning is compiled with options of its own, as outside of the tests."""
    monkeypatch.setitem(parts.PARTS, "learn_all", AS_USERS_COMPILE_IT)


@pytest.mark.usefixtures("as_users_learn")
def test_cycles_have_the_bits_of_a_training(tmp_path: Path):
    """State and rows, in one call and in several, and cycle by cycle."""
    config = tiny("plr-robust", updates=4, run__devices=1)
    run = cenie.train(config, tmp_path / "run", quiet=True)
    _, setup = cenie.build(config)
    begun = cenie.init(setup, config.seed)
    state, counters, metrics, record = cenie.cycles(setup, begun, 100, config.updates)
    assert digest(state) == digest(run.state)
    assert len(run.metrics["cycle"]) == len(counters.cycles) > config.updates
    for name in ("teacher/kind", "student/loss", "return"):
        np.testing.assert_array_equal(metrics[name], run.metrics[name])
    assert record.levels["id"].shape == (len(run.metrics["cycle"]), 1, config.student.num_levels)

    alone, *_ = cenie.cycles(setup, begun, 2, config.updates)
    for _ in range(len(run.metrics["cycle"]) - 2):
        alone, *_ = cenie.cycle(setup, alone)
    assert digest(alone) == digest(run.state)


def test_a_cycle_may_be_a_part_of_another_program():
    """And is then the same but for the last digits; on two devices, from a state that is on one."""
    _, setup = cenie.build(tiny("dr"))
    state = cenie.init(setup, 0)
    inside, _, _ = jax.jit(lambda state: cenie.cycle(setup, state))(state)
    alone, _, _ = cenie.cycle(setup, state)
    for ours, theirs in zip(jax.tree.leaves(inside.student), jax.tree.leaves(alone.student), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_without_an_update_to_come_no_cycle_is_run():
    _, setup = cenie.build(tiny("dr"))
    state = cenie.init(setup, 0)
    after, counters, metrics, record = cenie.cycles(setup, state, count=4, updates=0)
    assert digest(after) == digest(state)
    assert counters.cycles.shape == (0,)
    assert (metrics, record.levels, record.points) == ({}, {}, None)
