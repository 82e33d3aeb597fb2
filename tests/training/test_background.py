"""The parts of a cycle are compiled in the background, and only if there is a cycle to come."""

import csv
from pathlib import Path

import pytest
from jax.stages import Lowered
from rich.console import Console

from cenie.experiment.build import build, place
from cenie.experiment.evaluate import evaluate
from cenie.rundir.files import RunDirectory
from cenie.teach.cycle import init
from cenie.training import loop as training
from cenie.training.progress import Progress
from cenie.xla.parts import CompiledCycles
from tests.tiny import tiny


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """When a training compiles the cycle, evaluates and runs cycles."""
    found: list[str] = []
    for owner, name in ((CompiledCycles, "_compiled"), (training, "_evaluate"), (training, "_chunk")):
        function = getattr(owner, name)

        def noted(*arguments, name=name, function=function, **named):
            found.append(name)
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)
    return found


def train(path: Path, updates: int) -> None:
    config = tiny("dr", updates=updates)
    with Progress(Console(quiet=True), config.updates) as progress:
        training.train(config, RunDirectory(path), progress, resume=False)


def test_the_untrained_student_is_evaluated_once_the_first_cycles_were_run(events: list[str], tmp_path: Path):
    """So a run begins sooner. What is evaluated is still the first student, in the first rows."""
    train(tmp_path / "run", updates=1)
    assert events == ["_compiled", "_chunk", "_evaluate", "_evaluate"]
    rows = list(csv.DictReader((tmp_path / "run/evaluations.csv").read_text().splitlines()))
    assert rows[0]["updates"] == "0"
    assert rows[-1]["updates"] == "1"
    config = tiny("dr")
    domain, setup = build(config)
    suite, network = domain.suites[config.run.suite](), place(setup, init(setup, config.seed)).student.network
    wanted = evaluate(
        domain, network, suite, episodes=config.run.episodes, seed=config.run.evaluation_seed, mesh=setup.mesh
    )
    returns = [row.episode_return for row in wanted]
    assert [float(row["return"]) for row in rows if row["updates"] == "0"] == returns


def test_a_run_without_updates_compiles_no_cycle(events: list[str], tmp_path: Path):
    train(tmp_path / "run", updates=0)
    assert events == ["_evaluate"]


def test_what_goes_wrong_in_the_background_is_raised_and_tried_again_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    _, setup = build(tiny("dr"))
    state = place(setup, init(setup, 0))
    advance = CompiledCycles(setup, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Lowered, "compile", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            advance(state, 1)
    after, *_ = advance(state, 1)
    assert int(after.counters.updates) == 1
