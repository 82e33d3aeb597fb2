"""Domains and parts of one's own: how they are found, what is refused, how their runs are opened again."""

import dataclasses
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import cenie
from cenie import settings
from cenie.command import cli
from cenie.envs import loading
from cenie.rundir.checkpoint import digest
from cenie.rundir.documents import load_config
from cenie.rundir.files import write_json
from tests.pages import write_files
from tests.unchecked import unchecked

PLAIN = unchecked("cenie.experiment.build")

SETTINGS = """
from dataclasses import dataclass
import cenie
from corridor import Corridor, generate, ends

@dataclass(frozen=True)
class Length:
    max_steps: int = 12

def sized(length: Length) -> cenie.Domain:
    if length.max_steps == 13:
        raise RuntimeError("unlucky")
    if length.max_steps == 14:
        raise SystemExit("gone")
    return cenie.Domain("sized", Corridor(length.max_steps), {"all": generate}, {"ends": ends})

def untold(length: Length):
    return sized(length)

def two(one: Length, other: Length) -> cenie.Domain:
    return sized(one)

def wrong() -> cenie.Domain:
    return 3

empty = cenie.Domain("empty", Corridor(), {}, {"ends": ends})
number = 3
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A directory with modules of a user, in which commands are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files("guides/own-environment.md", tmp_path)
    (tmp_path / "mine.py").write_text(SETTINGS)
    (tmp_path / "broken.py").write_text("import mine\n1 / 0\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "skipping.py").write_text("class Skipped(BaseException): pass\nraise Skipped('not here')\n")
    (tmp_path / "lacking.py").write_text("import no_such_package\n")
    loading.load.cache_clear()
    for name in ("corridor", "mine", "broken", "leaving", "skipping", "lacking", "late"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def refusal(capsys, *arguments: str) -> str:
    """What a command that is refused says."""
    assert cli.run(list(arguments)) in (cli.BAD_INPUT, cli.REFUSED)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("nowhere:domain", "there is no module 'nowhere' in the present directory"),
        ("nowhere.at.all:domain", "there is no module 'nowhere'"),
        ("mine:nothing", "module 'mine' has no 'nothing'; it has sized, two, wrong, empty"),
        ("json:nothing", "module 'json' has no 'nothing', nor any other domain"),
        ("broken:domain", "'broken' cannot be imported: ZeroDivisionError: division by zero ("),
        ("leaving:domain", "'leaving' cannot be imported: SystemExit: 3 ("),
        ("skipping:domain", "'skipping' cannot be imported: Skipped: not here ("),
        ("lacking:domain", "'lacking' cannot be imported: ModuleNotFoundError: No module named"),
        ("mine:number", "mine:number is 3; it must be a cenie.Domain, or a function"),
        ("mine:untold", "a function that is annotated to return one (-> Domain)"),
        ("os:abort", "a function that is annotated to return one (-> Domain)"),
        ("mine:two", "must take nothing, or its settings"),
        ("mine:wrong", "mine:wrong returned 3 instead of a cenie.Domain"),
        ("mine:empty", "empty has no generators"),
        (":domain", "is not of the form package.module:attribute"),
        ("..:x", "is not of the form package.module:attribute"),
        ("corridor:domain:more", "is not of the form package.module:attribute"),
    ],
)
def test_a_domain_that_cannot_be_had_is_refused_with_the_reason(reference, says, home, capsys):
    assert says in refusal(capsys, "train", reference, "dr")


def test_settings_of_a_domain_are_settings_of_its_runs(home, capsys):
    config = cenie.preset("mine:sized", "plr", overrides={"env.max_steps": 7})
    domain, setup = cenie.build(config)
    assert domain.environment.max_steps == setup.environment.max_steps == 7
    assert domain.roles == {"random": "all", "simple": "all"}
    assert config.run.suite == "ends"
    assert "env.max_steps: expected a whole number" in refusal(
        capsys, "train", "mine:sized", "dr", "--env.max_steps", "x"
    )
    assert "mine:sized raised RuntimeError: unlucky (" in refusal(
        capsys, "train", "mine:sized", "dr", "--env.max_steps", "13"
    )
    assert "mine:sized raised SystemExit: gone (" in refusal(
        capsys, "train", "mine:sized", "dr", "--env.max_steps", "14"
    )
    assert "teacher.edit: must be null: this domain has no edit" in refusal(
        capsys, "train", "mine:sized", "accel"
    )


def test_the_spaces_are_those_of_the_domain(home):
    domain = cenie.preset("corridor:domain", "dr").built_domain
    assert domain.observation_parts == (cenie.Box((2,), 0.0, 9.0),)
    assert domain.environment.action_space == cenie.Discrete(2)


def test_code_that_a_run_directory_names_is_not_run(home, capsys):
    data = settings.to_data(cenie.preset("corridor:domain", "dr"))
    (home / "evil.py").write_text("from pathlib import Path\nPath('run').touch()\n")
    write_json(home / "config.json", data | {"domain": "evil:domain"})
    for command in (["train", "--resume", "."], ["evaluate", "."]):
        assert "add --domain evil:domain" in refusal(capsys, *command)
        assert "the run is of 'evil:domain', got 'corridor:domain'" in refusal(
            capsys, *command, "--domain", "corridor:domain"
        )
    with pytest.raises(cenie.SettingsError, match="evil:domain"):
        cenie.load_run(home)
    assert not (home / "run").exists()


def test_a_domain_that_was_passed_is_needed_again(home, capsys):
    from corridor import domain

    config = cenie.preset(domain, "dr")
    write_json(home / "config.json", settings.to_data(config))
    assert "'corridor' was passed from Python" in refusal(capsys, "train", "--resume", ".")
    assert "'corridor' was passed from Python" in refusal(capsys, "evaluate", ".")
    with pytest.raises(cenie.SettingsError, match=r"cenie.load_run\(DIR, domain=...\)"):
        cenie.load_run(home)
    run = cenie.load_run(home, domain=domain)
    assert run.config == config
    assert run.domain is domain
    with pytest.raises(cenie.RunDirectoryError, match="has no checkpoint yet"):
        run.state  # noqa: B018
    assert (run.metrics, len(run.evaluations), run.summary) == ({}, 0, None)


def spread(play: cenie.Play):
    return cenie.episode_mean(play, jnp.abs(play.rollout.value))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"score": spread}, "score: must be a cenie.Score, got <function spread"),
        (
            {"novelty": 3, "source": "maze"},
            "source: must be a cenie.Source, got 'maze'\nnovelty: must be",
        ),
        ({"network": 3}, "network: must be a function"),
    ],
)
def test_parts_of_other_kinds_are_refused(parts, says):
    with pytest.raises(cenie.SettingsError) as refused:
        PLAIN.Parts(**parts)
    assert says in str(refused.value)


def test_parts_that_are_of_no_use_are_refused(home):
    score = cenie.Parts(score=cenie.Score("spread", spread))
    with pytest.raises(cenie.SettingsError, match="score: is of no use to dr, which replays no levels"):
        cenie.build(cenie.preset("corridor:domain", "dr"), score)
    with pytest.raises(cenie.SettingsError, match="curriculum: is needed for the method 'own'"):
        cenie.build(cenie.preset("corridor:domain", "own"))


def test_an_own_curriculum_has_an_own_name(home, capsys):
    _, setup = cenie.build(cenie.preset("corridor:domain", "plr"))
    parts = cenie.Parts(curriculum=setup.curriculum)
    with pytest.raises(
        cenie.SettingsError, match="method: must be 'own' with a curriculum of your own, got 'plr'"
    ):
        cenie.build(cenie.preset("corridor:domain", "plr"), parts)
    with pytest.raises(cenie.SettingsError, match="curriculum: has its own score: pass either"):
        dataclasses.replace(parts, score=cenie.Score("spread", spread))
    many = cenie.preset("corridor:domain", "own", overrides={"student.num_levels": 32})
    with pytest.raises(cenie.SettingsError, match=r"needs room for student.num_levels \(32\) levels"):
        cenie.build(many, parts)
    assert "'own' is for a curriculum that is passed from Python" in refusal(capsys, "train", "maze", "own")


def test_a_run_with_own_parts_goes_on_to_the_bit_and_is_opened_again(home, capsys):
    parts = cenie.Parts(score=cenie.Score("spread", spread))
    config = cenie.preset("corridor:domain", "plr-robust", overrides={"run.devices": 1})
    whole = cenie.train(config, home / "whole", parts, quiet=True)
    cenie.train(settings.replace(config, {"updates": 2}), home / "halved", parts, quiet=True)
    with pytest.raises(cenie.RunDirectoryError, match="already holds a run; resume=True"):
        cenie.train(config, home / "halved", parts, quiet=True)
    with pytest.raises(
        cenie.RunDirectoryError, match=r'from_python: \["score spread"\] in the saved run, \[\] now'
    ):
        cenie.train(config, home / "halved", resume=True, quiet=True)
    halved = cenie.train(config, home / "halved", parts, resume=True, quiet=True)
    assert digest(halved.state) == digest(whole.state)
    assert halved.summary == whole.summary
    # Once more there is nothing to do.
    before = (home / "halved" / "config.json").stat().st_mtime_ns
    cenie.train(config, home / "halved", parts, resume=True, quiet=True)
    assert (home / "halved" / "config.json").stat().st_mtime_ns == before
    assert "begun in Python, with parts that no file holds (score spread)" in refusal(
        capsys, "evaluate", "whole", "--domain", "corridor:domain"
    )

    with pytest.raises(cenie.SettingsError, match="parts: the run was begun with score spread, got none"):
        cenie.load_run("whole", domain="corridor:domain")
    run = cenie.load_run("whole", parts, domain="corridor:domain")
    assert list(run.buffer.scores) == ["spread"]
    assert run.config == whole.config == load_config(home / "whole/config.json", config.entry)
    assert digest(run.network) == digest(whole.state.student.network)
    cycles = run.metrics["cycle"]
    np.testing.assert_array_equal(cycles, np.arange(1, len(cycles) + 1))
    assert np.isnan(run.metrics["student/loss"][0])  # no loss where nothing was learned
    assert run.evaluations.updates.tolist() == [0] * 4 + [4] * 20
    stored, buffer = run.buffer, run.state.teacher.buffer
    assert len(stored) == int(buffer.size)
    assert sorted(stored.ids) == sorted(np.asarray(buffer.ids)[: len(stored)])
    assert list(stored.probabilities) == sorted(stored.probabilities, reverse=True)
    np.testing.assert_allclose(stored.probabilities.sum(), 1.0, rtol=1e-5)
    _damage(home / "whole", parts)


def _damage(path: Path, parts: cenie.Parts) -> None:
    """A damaged part says so, and the others can still be read."""
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"cycle": 9999, "torn')
    newest = max((path / "checkpoints").iterdir())
    (newest / "arrays.safetensors").write_bytes(b"nonsense")
    run = cenie.load_run(path, parts, domain="corridor:domain")
    assert run.metrics["cycle"][-1] < 9999
    assert int(run.state.counters.updates) == 2
    assert newest.name in run.passed_over[0]
    for checkpoint in (path / "checkpoints").iterdir():
        (checkpoint / "manifest.json").write_text("{}")
    with pytest.raises(cenie.RunDirectoryError, match="no checkpoint can be loaded"):
        cenie.load_run(path, parts, domain="corridor:domain").state  # noqa: B018
    (path / "summary.json").write_text("[")
    with pytest.raises(cenie.RunDirectoryError, match=r"summary\.json is not valid JSON"):
        cenie.load_run(path, parts, domain="corridor:domain").summary  # noqa: B018
    data = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(data | {"seed": -1, "nonsense": 0}))
    with pytest.raises(
        cenie.SettingsError, match=r"nonsense: unknown setting[^\n]*\nseed: must be at least 0"
    ):
        cenie.load_run(path, parts, domain="corridor:domain")
