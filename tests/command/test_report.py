"""`cenie report`, `cenie cite` and `cenie train --report`: what they print, write and refuse."""

import importlib.util
import json
import re

import pytest

from cenie.command import report, train
from cenie.command.cli import run
from cenie.command.exit_codes import BAD_INPUT, CANNOT_WRITE, OK, REFUSED
from cenie.methods.table import METHODS
from cenie.replay.scores import SCORES
from cenie.report.citations import entries, reasons
from cenie.rundir.run import open_run
from cenie.system.durable import WriteError
from tests.report.synthetic import write_run

QUICK = ["--no-coverage", "--no-pictures", "--no-pdf"]


def test_a_report_says_what_it_has_left_out_and_where_it_is(tmp_path, capsys):
    good = write_run(tmp_path / "good", "dr", points=0)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/config.json").write_text("{")
    assert run(["report", str(good), str(tmp_path / "bad"), "--out", str(tmp_path / "out"), *QUICK]) == OK
    printed = capsys.readouterr().out
    assert "bad is left out: " in printed
    assert "maze: dr (1)" in printed
    assert printed.splitlines()[-1] == f"report: {tmp_path / 'out/index.html'}"
    assert "<!doctype html>" in (tmp_path / "out/index.html").read_text()[:200].lower()


def test_where_a_report_goes(tmp_path):
    write_run(tmp_path / "run")
    assert report.default_directory([tmp_path / "run"]) == tmp_path / "run/report"
    assert str(report.default_directory([tmp_path])) == "report"
    assert str(report.default_directory([tmp_path / "run", tmp_path])) == "report"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], BAD_INPUT, "expected RUN"),
        (["RUN", "--points", "3"], BAD_INPUT, "points: must be at least"),
        (["RUN", "--nonsense", "3"], BAD_INPUT, "nonsense: unknown setting"),
        (["RUN", "--out"], BAD_INPUT, "out: needs a directory"),
        (["nowhere"], REFUSED, "there is no run to report on"),
        (["RUN", "--out", "RUN/config.json/report"], CANNOT_WRITE, "cannot create"),
    ],
)
def test_mistakes_are_refused(tmp_path, capsys, arguments, code, message):
    path = write_run(tmp_path / "run")
    assert run(["report", *(word.replace("RUN", str(path)) for word in arguments)]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["matplotlib", "plotly"])
def test_a_missing_package_is_named_before_any_work(tmp_path, monkeypatch, capsys, missing):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == missing else find(name, *rest)
    )
    path = write_run(tmp_path / "run")
    for command in (["report", str(path)], ["train", "maze", "dr", "--report"], ["compare", "maze", "dr"]):
        assert run(command) == BAD_INPUT
        assert missing in capsys.readouterr().err


def test_training_ends_with_a_report_if_asked_for(tmp_path, monkeypatch, capsys):
    path, made = tmp_path / "run", []

    def finish(config, directory, resume):
        write_run(directory, "dr")
        return OK

    monkeypatch.setattr(train, "_start", finish)
    monkeypatch.setattr(report, "make_report", lambda paths, out, request: made.append((paths, out)))
    assert run(["train", "--report", "maze", "dr", "--out", str(path)]) == OK
    assert made == [([path], path / "report")]

    def fail(paths, out, request):
        raise WriteError("the disk is full")

    monkeypatch.setattr(report, "make_report", fail)
    assert run(["train", "maze", "dr", "--out", str(tmp_path / "other"), "--report"]) == OK
    assert "the run is finished, and there is no report on it: the disk is full" in capsys.readouterr().err


def test_a_run_that_was_stopped_has_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "_start", lambda config, path, resume: OK)
    monkeypatch.setattr(report, "make_report", lambda *_: pytest.fail("there is nothing to report"))
    assert run(["train", "maze", "dr", "--out", str(tmp_path / "run"), "--report"]) == OK


def test_cite_names_method_novelty_and_domain_once(tmp_path, capsys):
    first = write_run(tmp_path / "a", "accel-cenie-dagger")
    second = write_run(tmp_path / "b", "plr-robust", "walker")
    assert run(["cite", str(first), str(second)]) == OK
    printed = capsys.readouterr().out
    keys = re.findall(r"^@\w+\{(\w+),$", printed, re.MULTILINE)
    assert len(keys) == len(set(keys))
    assert {"teoh2024cenie", "parkerholder2022evolving", "jiang2021replay", "brockman2016openai"} <= set(keys)
    assert "% ACCEL: replay of edited levels\n" in printed
    assert printed.count("{") == printed.count("}")


def test_cite_names_the_papers_of_the_scores_that_rank(tmp_path):
    run_directory = write_run(tmp_path / "run", "plr-robust")
    file = run_directory / "config.json"
    config = json.loads(file.read_text())
    for scores, keys in (
        ([], {"mead2025improving"}),
        (["learnability:0.5", "generalised-learnability"], {"rutherford2024no", "monette2025optimisation"}),
    ):
        config["teacher"] |= {"score": "mna", "scores": scores}
        file.write_text(json.dumps(config))
        found = set(reasons(open_run(run_directory)))
        of_scores = {key for score in SCORES.values() for key in score.papers}
        assert found & of_scores == keys


def test_cite_refuses_what_is_no_run(tmp_path, capsys):
    assert run(["cite", str(tmp_path / "none")]) == REFUSED
    assert "there is no such directory" in capsys.readouterr().err
    assert run(["cite"]) == BAD_INPUT


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_something_to_cite(tmp_path, method):
    found = reasons(open_run(write_run(tmp_path / "run", method, points=0)))
    assert set(found) <= set(entries())
    domain_and_library = set(reasons(open_run(write_run(tmp_path / "own", "dr", points=0)))) - {
        "tobin2017domain"
    }
    assert set(found) - domain_and_library or "cenie" in method or method in ("minimax", "paired")


def test_every_entry_is_complete():
    for key, text in entries().items():
        assert text.startswith("@"), key
        for field in ("title", "author", "year"):
            assert re.search(rf"^  {field} +=", text, re.MULTILINE), (key, field)
        assert text.count("{") == text.count("}")
