"""`cenie export`, and the commands that take an exported student in the place of a run."""

import pytest

import cenie
from cenie.command.cli import run as command
from tests.tiny import tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    cenie.train(tiny("dr", updates=2, run__devices=1), path, quiet=True)
    return path


@pytest.fixture
def student(trained, tmp_path, capsys):
    assert command(["export", str(trained), "--out", str(tmp_path / "student")]) == 0
    capsys.readouterr()
    return tmp_path / "student"


def test_it_goes_beside_the_run_and_stays_there(trained, capsys):
    out = trained.parent / "run-student"
    assert command(["export", str(trained), "--licence", "2"]) == 0
    assert f"student: {out}" in capsys.readouterr().out
    assert "| licence | 2 |" in (out / "README.md").read_text()
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    assert command(["export", str(trained)]) == 3
    assert "stays as it is" in capsys.readouterr().err
    assert before == {file.name: file.read_bytes() for file in out.iterdir()}


def test_an_evaluation_of_it_is_the_same_table(trained, student, capsys):
    words = ["--suite", "cenie8", "--episodes", "2", "--seed", "5"]
    assert command(["evaluate", str(trained), *words]) == 0
    assert command(["evaluate", str(student), *words]) == 0
    (table,) = student.glob("evaluation-*.csv")
    assert table.read_bytes() == (trained / table.name).read_bytes()
    assert table.with_suffix(".json").read_bytes() == (trained / f"{table.stem}.json").read_bytes()
    assert command(["evaluate", str(student), *words, "--checkpoints", "2"]) == 0
    assert "only 1 of 2" in capsys.readouterr().out


def test_a_card_has_the_scores_of_later_evaluations(trained, tmp_path):
    assert command(["evaluate", str(trained), "--suite", "plr7", "--episodes", "2"]) == 0
    assert command(["export", str(trained), "--out", str(tmp_path / "again")]) == 0
    card = (tmp_path / "again" / "README.md").read_text()
    assert "| `plr7` | solved |" in card
    assert "| 7 | 14 |" in card


def test_it_is_filmed_as_the_run_is(trained, student, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = []
    for path in (trained, student):
        assert command(["play", str(path), "Labyrinth", "--out", "film.gif", "--longest", "30"]) == 0
        printed.append((capsys.readouterr().out, (tmp_path / "film.gif").read_bytes()))
    assert printed[0] == printed[1]
    assert command(["gallery", str(student), "--suite", "plr7", "--count", "2", "--longest", "9"]) == 0
    assert "2 of the 7 levels of plr7" in capsys.readouterr().out
    assert (tmp_path / "student-plr7.png").exists()


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["export"], 2, "expected RUN"),
        (["export", "STUDENT"], 3, "is an exported student, and this needs a run"),
        (["train", "--resume", "STUDENT"], 3, "is an exported student, and this needs a run"),
        (["export", "RUN", "--out", "OUT", "--checkpoint", "-1"], 2, "checkpoint: must be at least 0"),
        (["export", "RUN", "--out", "OUT", "--checkpoint", "77"], 3, "no checkpoint of cycle 77; there are"),
        (["export", "RUN", "--out", "OUT", "--format", "x"], 2, "format: unknown setting"),
        (["export", "nowhere", "--out", "OUT"], 2, "cannot read"),
        (["play", "STUDENT", "3"], 2, "which has no snapshots"),
        (["gallery", "STUDENT"], 3, "has no snapshot of a level buffer"),
        (["play", "STUDENT", "--domain", "walker"], 2, "is of 'maze', got 'walker'"),
    ],
)
def test_refusals(trained, student, tmp_path, monkeypatch, capsys, words: list[str], code, reason):
    monkeypatch.chdir(tmp_path)
    places = {"RUN": str(trained), "STUDENT": str(student)}
    assert command([places.get(word, word) for word in words]) == code
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "OUT").exists()


def test_a_student_that_is_damaged_is_refused_with_the_reason(student, capsys):
    (student / "params.safetensors").write_bytes(b"")
    assert command(["evaluate", str(student)]) == 3
    assert "params.safetensors is truncated" in capsys.readouterr().err
