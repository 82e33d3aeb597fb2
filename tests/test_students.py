"""`make students` trains, exports and packs students, and writes the table of their scores."""

import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import pytest

import cenie
from cenie.envs.domains import DOMAINS, find_domain
from cenie.methods.table import METHODS

SMALL = [
    *("--updates", "2", "--env.size", "5", "--student.num_levels", "4", "--student.num_steps", "32"),
    *("--student.ppo.minibatches", "1", "--teacher.replay.capacity", "8", "--run.episodes", "1"),
    *("--teacher.replay.schedule", "fixed", "--run.devices", "1"),
]


def load() -> Any:
    path = Path(__file__).parents[1] / ".ci" / "students.py"
    spec = importlib.util.spec_from_file_location("students", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_student_of_every_domain() -> None:
    students = load().STUDENTS
    assert students.keys() == DOMAINS.keys()
    for domain, (method, suite) in students.items():
        assert method in METHODS
        assert suite in find_domain(domain).suites


@pytest.mark.slow
def test_a_student_is_trained_packed_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load()
    monkeypatch.setitem(module.STUDENTS, "maze", ("plr-cenie", "plr7"))
    arguments = ["students", "--domains", "maze", "--episodes", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", [*arguments, "--runs", str(tmp_path / "runs"), *SMALL])
    module.main()
    table = (tmp_path / "out/STUDENTS.md").read_text()
    assert "| `maze-plr-cenie` | 0.00 | `plr7` |" in table
    with zipfile.ZipFile(tmp_path / "out/maze-plr-cenie.zip") as archive:
        archive.extractall(tmp_path / "elsewhere")
    student = cenie.load_student(tmp_path / "elsewhere/maze-plr-cenie")
    assert student.config.method == "plr-cenie"
    assert student.facts.updates == 2
    module.main()  # nothing is left to do, and the table is the same
    assert (tmp_path / "out/STUDENTS.md").read_text() == table
