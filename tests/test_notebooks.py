"""The notebooks run from the first cell to the last, store no outputs, and say what they should."""

import json
from pathlib import Path
from typing import Any

import pytest

from cenie.envs.domains import find_domain

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
INSTALL = "%pip install -q cenie"
EXPECTED = {
    "only-novelty": ("components:", "as in training", "the three newest steps:"),
    "train-and-look": ("of the episodes reach the goal", "mazes are stored"),
    "your-environment": ("all good", "wall:", "generations of the levels"),
}
"""Something that each prints."""
SMALL = {
    "student.num_levels": 8,
    "student.num_steps": 32,
    "student.network.memory_size": 16,
    "teacher.replay.capacity": 64,
    "teacher.novelty.coverage.window": 8,
    "run.final_episodes": 1,
}
"""What two cores compute in a minute takes longer here, where nothing is optimised."""


def cells(name: str, kind: str) -> list[str]:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def run(name: str) -> dict[str, Any]:
    """Its names, once every cell but the one that installs has been run."""
    installed, *code = cells(name, "code")
    assert installed == INSTALL
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate(code, 1):
        exec(compile(text, f"{name}, cell {number}", "exec"), names)
    return names


def test_every_notebook_is_run_here():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_notebook_stores_no_outputs(name):
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
        assert cell["metadata"] == {}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_notebook_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for path, value in SMALL.items():
        monkeypatch.setitem(find_domain("maze").presets["quick"], path, value)
    names = run(name)
    printed = capsys.readouterr().out
    assert [text for text in EXPECTED[name] if text not in printed] == []
    if name == "only-novelty":
        novelty = names["novelty"]
        assert novelty["as in training"] < novelty["pushed harder"] < novelty["pushed very hard"]
        assert novelty["twice as long"] < novelty["pushed harder"]
    if name == "your-environment":
        assert names["run"].buffer.generations.max() > 0
        assert names["run"].evaluations.last().level_means()["open"] > 0.5
