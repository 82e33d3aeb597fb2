"""An exported student: it acts as the run's does, is whole or not there, and is refused with a reason."""

import dataclasses
import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cenie
from cenie.command import cli
from cenie.rundir import export
from cenie.rundir.card import score_with_interval
from cenie.rundir.checkpoint import digest
from cenie.rundir.evaluations import Episodes
from cenie.rundir.export import CARD, CONFIG, PARAMS, export_student, load_student
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run
from cenie.settings import SettingsError
from cenie.system.durable import WriteError
from tests.pages import DOCS, blocks
from tests.tiny import tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run with checkpoints after two and four cycles."""
    path = tmp_path_factory.mktemp("trained") / "run"
    cenie.train(tiny("dr", updates=4, run__devices=1), path, quiet=True)
    return path


@pytest.fixture(scope="module")
def exported(trained) -> Path:
    return export_student(cenie.load_run(trained), trained.parent / "student", licence="CC0-1.0")


@pytest.fixture
def student(exported, tmp_path) -> Path:
    """A copy that may be damaged."""
    copy = tmp_path / "student"
    copy.mkdir()
    for file in exported.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def settings_of(path: Path) -> dict[str, Any]:
    return json.loads((path / CONFIG).read_text())["settings"]


def described(path: Path, **changes: Any) -> None:
    data = json.loads((path / CONFIG).read_text())
    (path / CONFIG).write_text(json.dumps({**data, **changes}))


def test_it_takes_the_same_actions(trained, exported) -> None:
    run, student = cenie.load_run(trained), load_student(exported)
    assert digest(run.network) == digest(student.network)
    played = [
        cenie.evaluate(each.domain, each.network, each.domain.suites["cenie8"](), episodes=2, seed=3)
        for each in (run, student)
    ]
    assert played[0] == played[1]
    assert student.config == run.config
    assert (student.facts.cycle, student.facts.updates) == (4, 4)


def test_it_is_three_files_with_nothing_of_the_machine(trained, exported) -> None:
    assert sorted(file.name for file in exported.iterdir()) == [CARD, CONFIG, PARAMS]
    card, config = ((exported / name).read_text() for name in (CARD, CONFIG))
    for text in ("`dr`: domain randomisation", "`maze`", "4 updates", "256 environment steps", "CC0-1.0"):
        assert text in card
    assert "| `cenie8` | solved |" in card
    assert "cenie train maze dr --preset" in card
    assert cenie.__version__ in card
    assert str(trained.parent) not in card + config
    arrays = load_file(exported / PARAMS)
    assert sum(array.size for array in arrays.values()) == sum(
        leaf.size for leaf in map(np.asarray, arrays.values())
    )
    assert f"{sum(array.size for array in arrays.values()):,} parameters" in card


def test_the_command_of_the_card_is_the_run(trained, exported) -> None:
    from cenie.command.configs import typed
    from cenie.command.options import parse

    (domain, method), options = parse(shlex.split(load_student(exported).facts.command or "")[2:])
    config = cenie.preset(domain, method, options.pop("preset"), typed(domain, method, options))
    assert config == cenie.load_run(trained).config


def test_an_earlier_checkpoint(trained, tmp_path) -> None:
    run = cenie.load_run(trained)
    early = load_student(export_student(run, tmp_path / "early", cycle=2))
    assert early.facts.cycle == 2
    assert digest(early.network) == digest(run.load(2).tree.students[0].network)
    assert digest(early.network) != digest(run.network)
    # The run was evaluated before the first cycle and after the last: nobody knows how this one plays.
    assert "has not been evaluated" in (tmp_path / "early" / CARD).read_text()
    with pytest.raises(RunDirectoryError, match="no checkpoint of cycle 3; there are 4, 2"):
        export_student(run, tmp_path / "none", cycle=3)
    assert not (tmp_path / "none").exists()


def test_a_run_that_goes_on_is_exported(trained, tmp_path) -> None:
    unfinished = trained / "checkpoints" / "tmp-step-00000006"
    with cenie.load_run(trained).files.lock():
        unfinished.mkdir()
        path = export_student(cenie.load_run(trained), tmp_path / "student")
    assert load_student(path).facts.cycle == 4
    assert unfinished.is_dir()
    unfinished.rmdir()


def test_a_network_of_ones_own_is_refused_with_a_reason(trained, tmp_path) -> None:
    run = Run(trained)
    run.__dict__["config"] = dataclasses.replace(run.config, from_python=("score mine", "network Tiny"))
    with pytest.raises(RunDirectoryError, match=r"a network of your own \(Tiny\), and no file says how"):
        export_student(run, tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_what_is_there_already_stays(trained, tmp_path) -> None:
    run = cenie.load_run(trained)
    used, file, link, empty = (tmp_path / name for name in ("used", "file", "link", "empty"))
    used.mkdir()
    (used / "mine.txt").write_text("mine")
    file.write_text("mine")
    empty.mkdir()
    link.symlink_to(empty)
    for path in (used, file, link):
        with pytest.raises(RunDirectoryError, match=r"stays as it is|cannot write"):
            export_student(run, path)
    assert (used / "mine.txt").read_text() == file.read_text() == "mine"
    assert sorted(os.listdir(used)) == ["mine.txt"]
    assert list(empty.iterdir()) == []
    assert export_student(run, empty) == empty
    with pytest.raises(RunDirectoryError, match="stays as it is"):
        export_student(run, empty)
    assert load_student(empty).facts.cycle == 4
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "link", "used"]


def test_a_full_disk_leaves_nothing(trained, tmp_path, monkeypatch) -> None:
    written = []

    def write(path: Path, content: bytes) -> None:
        written.append(path)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "no space")
        path.write_bytes(content)

    monkeypatch.setattr(export, "write_new", write)
    with pytest.raises(WriteError, match="ENOSPC"):
        export_student(cenie.load_run(trained), tmp_path / "student")
    assert os.listdir(tmp_path) == []


# Wrong, partial and hostile directories


def swapped(path: Path) -> None:
    """Other arrays of the same names, shapes and types, and the size and hash of the first ones."""
    arrays = load_file(path / PARAMS)
    save_file({name: array + 1 for name, array in arrays.items()}, path / PARAMS)


def renamed(path: Path) -> None:
    """Arrays under other names, with the right size and hash."""
    arrays = {f"x{number}": array for number, array in enumerate(load_file(path / PARAMS).values())}
    save_file(arrays, path / PARAMS)
    described(path, params=export.manifests.describe((path / PARAMS).read_bytes()))


def linked(path: Path, name: str) -> None:
    (path / name).rename(path / "elsewhere")
    (path / name).symlink_to(path / "elsewhere")


def piped(path: Path, name: str) -> None:
    (path / name).unlink()
    os.mkfifo(path / name)


def nested(path: Path) -> None:
    (path / CONFIG).write_text('{"settings": ' + "[" * 100_000)


DAMAGE = {
    "no parameters": (lambda path: (path / PARAMS).unlink(), "no exported student"),
    "no config": (lambda path: (path / CONFIG).unlink(), "cannot read .*config.json: No such file"),
    "not JSON": (lambda path: (path / CONFIG).write_text("{"), "not valid JSON"),
    "nested": (nested, "not valid JSON"),
    "a list": (lambda path: (path / CONFIG).write_text("[]"), "does not describe an exported student"),
    "a run's config": (
        lambda path: (path / CONFIG).write_text(json.dumps(settings_of(path))),
        "does not describe an exported student",
    ),
    "another format": (lambda path: described(path, format=2), "has format 2, .* reads format 1"),
    "wrong kinds": (lambda path: described(path, leaves=[], cycle="4"), "lacks cycle, leaves"),
    "other leaves": (lambda path: described(path, leaves={"x": 1}), "unexpected array x"),
    "hostile leaves": (
        lambda path: described(path, leaves=dict.fromkeys(load_file(path / PARAMS))),
        "is missing",
    ),
    "a huge size": (lambda path: described(path, params={"bytes": 2**60, "sha256": ""}), "at most"),
    "no size": (lambda path: described(path, params={}), "at most"),
    "truncated": (lambda path: os.truncate(path / PARAMS, 100), "truncated: 100 of"),
    "empty": (lambda path: os.truncate(path / PARAMS, 0), "truncated: 0 of"),
    "swapped": (swapped, "does not match its SHA-256"),
    "renamed": (renamed, f"{PARAMS} does not hold what is said"),
    "linked parameters": (lambda path: linked(path, PARAMS), "ELOOP"),
    "linked config": (lambda path: linked(path, CONFIG), "ELOOP"),
    "piped parameters": (lambda path: piped(path, PARAMS), "not a regular file"),
    "piped config": (lambda path: piped(path, CONFIG), "not a regular file"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_what_is_wrong_is_named(student, how) -> None:
    damage, reason = DAMAGE[how]
    damage(student)
    with pytest.raises(RunDirectoryError, match=reason):
        load_student(student)


def test_settings_are_read_strictly_and_no_module_is_imported(student) -> None:
    settings = settings_of(student)
    described(student, settings={**settings, "domain": "os:abort"})
    with pytest.raises(SettingsError, match="is not run unless you name it"):
        load_student(student)
    described(student, settings={**settings, "surplus": 1})
    with pytest.raises(SettingsError, match="unknown setting"):
        load_student(student)
    described(student, settings=settings)
    with pytest.raises(SettingsError, match="is of 'maze', got 'walker'"):
        load_student(student, domain="walker")
    assert load_student(student, domain="maze").facts.cycle == 4


def test_a_network_of_other_settings_is_refused(student) -> None:
    settings = settings_of(student)
    settings["student"]["network"]["memory_size"] = 9
    described(student, settings=settings)
    with pytest.raises(RunDirectoryError, match="does not fit"):
        load_student(student)


def test_a_path_that_is_no_directory(tmp_path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot read"):
        load_student(tmp_path / "none")
    with pytest.raises(RunDirectoryError, match="no exported student"):
        load_student(tmp_path)


# Scores


def episodes(level: list[str], score: list[float], solved: list[float]) -> Episodes:
    count = len(level)
    numbers = {name: np.zeros(count, int) for name in ("cycle", "updates", "env_steps", "episode", "length")}
    texts = {name: np.array(["x"] * count, object) for name in ("suite", "variant")}
    columns = {"level": level, "score": score, "solved": solved, "returns": score}
    return Episodes(**numbers, **texts, **{name: np.array(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("solved", "low", "high"), [(8, 0.4901625, 0.9433178), (10, 0.7224672, 1.0), (0, 0.0, 0.2775328)]
)
def test_the_interval_of_a_solved_rate_is_wilsons(solved, low, high) -> None:
    """Limits for ten episodes, as in tables."""
    results = [1.0] * solved + [0.0] * (10 - solved)
    found = score_with_interval("s", episodes(["a"] * 10, results, results))
    assert (found.measure, found.levels, found.episodes) == ("solved", 1, 10)
    np.testing.assert_allclose((found.mean, found.low, found.high), (solved / 10, low, high), atol=1e-6)


def test_levels_count_alike_and_levels_played_less_make_the_interval_wider() -> None:
    even = score_with_interval("s", episodes([*"aabb"], [1, 0, 1, 1], [1, 0, 1, 1]))
    uneven = score_with_interval("s", episodes([*"aaaab"], [1, 0, 1, 0, 1], [1, 0, 1, 0, 1]))
    assert even.mean == uneven.mean == 0.75
    assert uneven.high - uneven.low > even.high - even.low


def test_the_interval_of_returns_is_about_episodes_and_not_about_levels() -> None:
    """Two levels with variances 2 and 8: the variance of the mean is (2 / 2 + 8 / 2) / 4."""
    found = score_with_interval("s", episodes([*"aabb"], [0.0, 2.0, 96.0, 100.0], [0.0] * 4))
    assert found.measure == "score"
    np.testing.assert_allclose(found.high - found.mean, 1.959964 * np.sqrt(1.25))
    np.testing.assert_allclose((found.low + found.high) / 2, found.mean)
    assert found.mean == 49.5


# The page


def test_the_page_about_it_runs(trained, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(trained)
    for language, text in blocks("guides/export.md"):
        if language == "python":
            exec(compile(text, "guides/export.md", "exec"), {})
        else:
            for line in text.splitlines():
                assert cli.run(shlex.split(line)[1:]) == cli.OK, line
    assert "'Labyrinth'" in capsys.readouterr().out
    assert (DOCS / "guides/export.md").read_text().count("```") == 6
