"""A table of an evaluation counts as played only if it is what is asked for now."""

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import pytest

from cenie.experiment.config import evaluation_request
from cenie.experiment.presets import preset
from cenie.rundir import asked
from cenie.rundir.asked import Asked, asked_for, is_played, write_record
from cenie.system.digest import folder_digest

ASKED = Asked("cenie8", "cenie 1.0", episodes=20, seed=0, checkpoints=5)
TRACK = "x,y\n" + "".join(f"{x},{y}\n" for x, y in [(0, 0), (200, 0), (250, 120), (100, 200), (-60, 90)])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with its record."""
    path = tmp_path / "evaluation-cenie8-seed0-cycle80.csv"
    path.write_text("rows\n")
    write_record(path, ASKED, 80)
    return path


def test_the_same_evaluation_is_played_already(table: Path) -> None:
    assert is_played(table.parent, ASKED, 80)


@pytest.mark.parametrize(
    "other",
    [{"suite": "plr7"}, {"content": "cenie 1.1"}, {"episodes": 1}, {"seed": 3}, {"checkpoints": 1}],
)
def test_bug_a_table_of_another_evaluation_counted_as_played(table: Path, other: dict) -> None:
    """One of 1 episode was taken for one of 20."""
    assert not is_played(table.parent, dataclasses.replace(ASKED, **other), 80)


def test_a_table_of_an_earlier_checkpoint_is_another_one(table: Path) -> None:
    assert not is_played(table.parent, ASKED, 81)


def test_a_table_that_was_edited_torn_or_removed_is_played_again(table: Path) -> None:
    table.write_text("row\n")
    assert not is_played(table.parent, ASKED, 80)
    table.unlink()
    assert not is_played(table.parent, ASKED, 80)
    table.mkdir()
    assert not is_played(table.parent, ASKED, 80)


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", "\x00", '{"format": 1}'])
def test_an_odd_record_is_none(table: Path, content: str) -> None:
    table.with_suffix(".json").write_text(content)
    assert not is_played(table.parent, ASKED, 80)


def test_one_good_record_among_odd_ones_is_enough(table: Path) -> None:
    (table.parent / "evaluation-a-seed0-cycle1.json").mkdir()
    (table.parent / "evaluation-b-seed0-cycle1.json").write_text("{")
    (table.parent / "evaluation-c-seed0-cycle1.json").write_text(json.dumps({"format": 1}))
    assert is_played(table.parent, ASKED, 80)


def test_bug_a_suite_file_that_changed_counted_as_played(tmp_path: Path) -> None:
    config = preset("racing", "dr")
    file = tmp_path / "mine.csv"
    file.write_text(TRACK)
    request = evaluation_request(config, {"suite": str(file)})
    before = asked_for(config, request)
    assert asked_for(config, request) == before
    file.write_text(TRACK.replace("250", "251"))
    assert asked_for(config, request) != before


def test_bug_a_suite_of_ours_that_changed_within_a_version_counted_as_played(
    tmp_path: Path, monkeypatch
) -> None:
    folder = tmp_path / "maze" / "data"
    folder.mkdir(parents=True)
    file = folder / "mazes.txt"
    file.write_text("#.\n")
    monkeypatch.setattr(asked, "_DOMAINS", tmp_path)
    config = preset("maze", "dr")
    request = evaluation_request(config, {})
    contents = []
    for text in ("#.\n", ".#\n"):
        file.write_text(text)
        folder_digest.cache_clear()
        contents.append(asked_for(config, request).content)
    folder_digest.cache_clear()
    assert contents[0] != contents[1]


def test_a_suite_of_a_domain_of_ones_own_changes_with_its_module(tmp_path: Path, monkeypatch) -> None:
    module = tmp_path / "with_a_suite.py"
    module.write_text("# one\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "with_a_suite", importlib.import_module("with_a_suite"))
    config = dataclasses.replace(preset("maze", "dr"), domain="with_a_suite:domain")
    request = evaluation_request(config, {})
    before = asked_for(config, request)
    module.write_text("# two\n")
    assert asked_for(config, request).content != before.content


def test_the_options_ask_for_all_of_it() -> None:
    assert ASKED.options == ("--suite=cenie8", "--episodes=20", "--seed=0", "--checkpoints=5")
