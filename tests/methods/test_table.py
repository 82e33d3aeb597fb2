"""The table of methods: what is written of a method once, and what is derived from it."""

import dataclasses
import importlib
import re
import typing
from pathlib import Path

import pytest

import cenie.methods
from cenie.envs.domains import DOMAINS, find_domain
from cenie.methods.family import Family
from cenie.methods.plr import NoveltyConfig, ReplayTeacher
from cenie.methods.table import METHODS, OWN, ROWS, find_method
from cenie.replay.scores import SCORES
from cenie.report.citations import entries
from cenie.settings import SettingsError, read
from tests.pages import DOCS

FILES = sorted(path.stem for path in Path(*cenie.methods.__path__).glob("*.py"))


def test_every_method_is_in_the_file_that_its_row_names_and_in_no_other():
    found = {
        method.name: file
        for file in FILES
        if file not in ("__init__", "table", "own")
        for method in getattr(importlib.import_module(f"cenie.methods.{file}"), "METHODS", ())
    }
    assert found == {name: row.file for name, row in ROWS.items()}


def test_looking_up_what_is_no_method_finds_nothing():
    assert "nonsense" not in METHODS
    assert find_method("nonsense") is None
    with pytest.raises(KeyError):
        METHODS["nonsense"]


def test_a_curriculum_of_ones_own_has_a_name_and_is_not_in_the_table():
    assert OWN not in METHODS
    own = find_method(OWN)
    assert own is not None
    assert own.title == "own method"


def test_a_method_that_changes_another_has_its_settings_and_its_papers():
    base, dagger = METHODS["accel"], METHODS["accel-cenie-dagger"]
    changed = dataclasses.replace(base.settings, novelty=dagger.settings.novelty, alpha=dagger.settings.alpha)
    assert dagger.settings == changed
    assert dagger.settings.alpha.value == 1.0
    assert list(dagger.citations) == [*base.citations, "teoh2024cenie"]


def test_every_method_has_settings_of_a_family_and_looks_of_its_own():
    assert all(isinstance(method.settings, Family) for method in METHODS.values())
    for looks in ([m.title for m in METHODS.values()], [m.colour for m in METHODS.values()]):
        assert len(set(looks)) == len(METHODS)
    assert all(re.fullmatch(r"#[0-9a-f]{6}", method.colour) for method in METHODS.values())


def test_every_paper_that_is_cited_has_an_entry():
    for method in METHODS.values():
        assert method.citations.keys() <= entries().keys(), method.name
    for score in SCORES.values():
        assert score.papers.keys() <= entries().keys(), score.name
    for name in DOMAINS:
        assert find_domain(name).papers.keys() <= entries().keys(), name


def test_every_novelty_has_a_kind_and_a_method():
    used = {
        type(method.settings.novelty) for method in METHODS.values() if hasattr(method.settings, "novelty")
    }
    assert used - {type(None)} == set(typing.get_args(NoveltyConfig))


def test_a_setting_names_any_score_there_is_and_no_other():
    for name in SCORES:
        assert read(ReplayTeacher, {"score": name}).score == name
    with pytest.raises(SettingsError, match=f"must be one of {', '.join(SCORES)}, got 'nonsense'"):
        read(ReplayTeacher, {"score": "nonsense"})


def rows_of(page: str) -> list[str]:
    return re.findall(r"^\| (`.*?) \|", (DOCS / page).read_text(), re.MULTILINE)


def test_every_score_is_on_the_page_about_scores():
    assert {name for row in rows_of("methods/scores.md") for name in re.findall(r"`(.+?)`", row)} == set(
        SCORES
    )


def test_every_method_is_on_the_page_about_methods():
    text = (DOCS / "methods/README.md").read_text()
    listed = re.findall(r"^\| \[`([\w-]+)`\]\([\w-]+\.md\) \| (.+) \|$", text, re.MULTILINE)
    assert listed == [(name, row.summary) for name, row in ROWS.items()]
