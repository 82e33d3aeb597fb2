"""Names in run directories come from anyone: they are texts, never paths, formulas, markup or mathematics."""

import csv
import io
import json
import os
import re
import shutil

import numpy as np
import pytest

from cenie.command.cli import run as command
from cenie.report.build import write_report
from cenie.report.writer import Options, ReportWriter
from cenie.rundir.files import file_name, write_json
from cenie.system.durable import WriteError
from tests.report.synthetic import evaluate_later, write_run

QUICK = Options(pdf=False, points=60, pictures=False, coverage=False)
NAUGHTY = (
    "../../../owned",
    "/etc/owned",
    "a/../../../owned",
    "..",
    ".",
    "",
    "a\\..\\owned",
    "nul\x00byte",
    "new\nline",
    "x" * 5000,
    "ü" * 300,
    "half \udc80",
    "tmp-owned",
    r"$\frac$",
    "=1+1",
    "[bold]x[/nope]",
    "<img src=x>",
)


def everything(path, without):
    return {
        str(each.relative_to(path)): each.stat().st_mtime_ns
        for each in path.rglob("*")
        if without not in (each, *each.parents) and each.is_file()
    }


@pytest.mark.parametrize("name", NAUGHTY)
def test_a_name_is_a_file_in_its_own_directory(tmp_path, name):
    made = file_name(name)
    assert os.path.basename(made) == made
    assert made not in ("", ".", "..")
    assert len(made.encode()) < 200
    (tmp_path / f"evaluation-{made}-seed0.csv").write_text("")
    assert [file.name for file in tmp_path.iterdir()] == [f"evaluation-{made}-seed0.csv"]


def test_plain_names_stay_and_different_names_stay_different():
    assert file_name("maze-cenie8-levels") == "maze-cenie8-levels"
    assert file_name("my_module:domain") == "my_module-domain"
    assert file_name("file:Oval 1.csv@1f") != file_name("file:Oval/1.csv@1f")
    assert len({file_name(name) for name in ("a/b", "a\\b", "a//b", "a-b")}) == 4


def test_files_of_one_report_never_replace_each_other(tmp_path):
    writer = ReportWriter(tmp_path / "out", Options(), lambda line: None)
    names = [writer.table(name, [{"a": number}]) for number, name in enumerate(("x", "x", "X", "a:b", "a-b"))]
    assert names == ["tables/x.csv", "tables/x-2.csv", "tables/X-3.csv", "tables/a-b.csv", "tables/a-b-2.csv"]


@pytest.mark.parametrize("domain", ["../../../owned", "/tmp/owned/x", "a/b", "[/b]:x"])
def test_a_report_writes_nothing_outside_of_its_directory(tmp_path, domain):
    """A `config.json` with "../../../owned" for a domain put 19 files elsewhere."""
    home = tmp_path / "a" / "b" / "c"
    path = write_run(home / "run", "plr-cenie")
    config = json.loads((path / "config.json").read_text())
    write_json(path / "config.json", {**config, "domain": domain, "method": "../../method"})
    table = path / "evaluations.csv"
    table.write_text(table.read_text().replace("cenie8", "../../../suite").replace("Labyrinth", "../level"))
    levels = path / "levels.csv"
    levels.write_text(levels.read_text().replace("level/walls", "level/../../../column"))
    before = everything(tmp_path, home / "report")
    made = write_report([path], home / "report", QUICK)
    assert everything(tmp_path, home / "report") == before
    for file in made.files:
        assert file.resolve().is_relative_to((home / "report").resolve())
    assert len(made.files) > 10


@pytest.mark.parametrize("name", ["index.html", "report.md", "tables/runs.csv", "figures/mine.png"])
def test_bug_a_report_replaced_the_files_of_somebody_else(tmp_path, capsys, name):
    """`--out .` in a directory with a page of its own."""
    path, out = write_run(tmp_path / "run", "dr"), tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("precious")
    words = ["report", str(path), "--out", str(out), "--no-pictures", "--no-coverage", "--no-pdf"]
    assert command(words) == 3
    assert "out holds " + name.split("/")[0] in capsys.readouterr().err
    assert [each.read_text() for each in out.rglob("*") if each.is_file()] == ["precious"]
    (out / name).unlink()
    (out / "mine.html").write_text("precious")
    for _ in range(2):  # a report replaces an earlier one, also one that was not finished
        assert command(words) == 0
        (out / "report.md").unlink()
    assert (out / "mine.html").read_text() == "precious"


@pytest.mark.parametrize("folder", ["figures", "tables"])
def test_a_report_is_not_written_through_a_link(tmp_path, folder):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / folder).symlink_to(elsewhere)
    with pytest.raises(WriteError, match="cannot create"):
        write_report([write_run(tmp_path / "run", "dr")], tmp_path / "out", QUICK)
    assert list(elsewhere.iterdir()) == []


def test_the_directory_in_a_run_that_is_a_link_is_not_written_into(tmp_path, capsys):
    path = write_run(tmp_path / "run", "dr")
    (path / "report").symlink_to(tmp_path / "elsewhere")
    assert command(["report", str(path), "--no-pictures", "--no-pdf"]) == 3
    assert "is a link" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def cells(file):
    return list(csv.reader(io.StringIO(file.read_text(), newline="")))


def test_names_are_texts_in_every_output(tmp_path, capsys):
    """Mathematics, formulas of spreadsheets, tables and links of Markdown, and the markup of terminals."""
    names = {"SixteenRooms": r"$\frac$", "Labyrinth": "=HYPERLINK(1)", "Maze": "+a|b", "cenie8": "[/b]"}
    path = write_run(tmp_path / "run", "plr-cenie", skill=0.9)
    evaluate_later(path, "perfect-large", 0.5)
    for file in path.glob("evaluation*.csv"):
        rows = [[names.get(cell, cell) for cell in row] for row in cells(file)]
        with file.open("w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)
    other = write_run(tmp_path / "other", "plr-cenie", seed=1, skill=0.2)
    config = json.loads((other / "config.json").read_text())
    odd = {"preset": r"$\frac{1}$", "domain": "[/red][x](javascript:1)"}
    write_json(other / "config.json", {**config, **odd})
    out = tmp_path / "out"
    words = ["report", str(path), str(other), "--out", str(out), "--no-pictures", "--no-coverage", "--no-pdf"]
    assert command(words) == 0
    assert "Traceback" not in capsys.readouterr().err
    for file in (out / "tables").glob("*.csv"):
        assert not any(cell.startswith(("=", "+", "@", "\uff1d")) for row in cells(file) for cell in row)
    latex = "".join(file.read_text() for file in (out / "tables").glob("*.tex"))
    assert r"\$\textbackslash{}frac\$" in latex
    assert r"\frac" not in latex
    report = (out / "report.md").read_text()
    assert r"| \$\\frac\$ |" in report
    assert not re.search(r"(?<!\\)\[x", report)
    assert (out / "index.html").stat().st_size > 1e6


@pytest.mark.parametrize("damage", ["empty metrics", "1e999", "surrogate", "huge counter", "infinite score"])
def test_odd_numbers_and_texts_are_no_tracebacks(tmp_path, capsys, damage):
    path = write_run(tmp_path / "run", "plr-cenie")
    config = (path / "config.json").read_text()
    if damage == "empty metrics":
        (path / "metrics.jsonl").write_text("")
    elif damage == "1e999":
        (path / "metrics.jsonl").write_text(
            '{"cycle": 1, "updates": 1e999, "env_steps": 1, "return": 1e999}\n'
        )
        (path / "config.json").write_text(re.sub(r'"learning_rate": [^,]+', '"learning_rate": 1e999', config))
        shutil.copytree(write_run(tmp_path / "good", "dr"), tmp_path / "other")
    elif damage == "surrogate":
        assert '"quick"' in config
        (path / "config.json").write_text(config.replace('"quick"', '"qu\\udc80ick"'))
        path = path.rename(tmp_path / os.fsdecode(b"run\x80"))
    elif damage == "huge counter":
        table = path / "evaluations.csv"
        table.write_text(table.read_text().replace("\n80,40,", "\n80,9" + 30 * "9" + ","))
    else:
        table = path / "evaluations.csv"
        table.write_text(re.sub(r",[^,]+,50\n", ",1e999,50\n", table.read_text()))
    out = tmp_path / "out"
    words = ["report", str(tmp_path), "--out", str(out), "--no-coverage", "--no-pdf", "--no-pictures"]
    assert command(words) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert np.all([file.stat().st_size for file in (out / "figures").iterdir()])
    if damage == "1e999":
        assert "1e999 is too large a number" in (out / "report.md").read_text()
