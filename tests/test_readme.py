"""The README tells the truth: its Python runs, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from cenie.command import cli
from cenie.command.configs import typed
from cenie.command.options import parse
from cenie.envs.domains import find_domain
from cenie.experiment.presets import preset
from cenie.methods.table import ROWS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()
]

EXPECTED = [
    ("state", "held-out levels solved"),
    ("state", ""),
    ("log", "StoredLevel"),
    ("domain", "problems: []"),
    ("coverage", "familiar"),
]
"""For each snippet a name that it defines and a text that it prints."""

SMALL = {"student.num_levels": 8, "student.num_steps": 32, "student.network.memory_size": 16}
"""What readers compute in seconds takes minutes here, where nothing is optimised."""


def test_there_are_snippets_and_commands():
    assert len(SNIPPETS) == len(EXPECTED)
    assert any(line.startswith("cenie train") for line in COMMANDS)


@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_python_snippet_runs(number, capsys, monkeypatch):
    for path, value in SMALL.items():
        monkeypatch.setitem(find_domain("maze").presets["quick"], path, value)
    names: dict[str, object] = {}
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), names)
    name, printed = EXPECTED[number]
    assert name in names
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("cenie train maze")])
def test_train_commands_are_valid(line):
    words, options = parse(shlex.split(line, comments=True)[2:])
    name = options.pop("preset", "quick")
    options.pop("help", None)
    assert preset(words[0], words[1], name, typed(words[0], words[1], options)).method == words[1]


def test_every_command_is_one_of_ours():
    named = [shlex.split(line, comments=True)[1] for line in COMMANDS if line.startswith("cenie ")]
    assert set(named) <= set(cli.COMMANDS)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("make ")])
def test_make_targets_exist(line):
    target = line.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_table_of_methods_is_what_the_command_prints():
    rows = re.findall(r"^\| \[`([^`]+)`\]\(docs/methods/\S+\) \| (.+) \|$", README, re.MULTILINE)
    assert rows == [(name, row.summary) for name, row in ROWS.items()]


def test_the_speed_of_racing_is_told_frame_for_frame_too():
    """It is 400 times gymnasium's where ours draws one frame for eight steps; like for like 75 to 105."""
    for text in (README, (ROOT / "docs" / "results.md").read_text()):
        parts = re.split(r"\n\n|\n\|", text)
        said = [part for part in parts if re.search(r"\d times gymnasium's speed", part)]
        assert said
        assert all("75" in part and "105" in part for part in said)


def test_nothing_is_said_to_run_on_accelerators():
    assert "Nothing has run on an accelerator yet" in README
    assert "or an accelerator" not in README


def test_linked_files_exist():
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!#|http)([^)]+)\)", prose):
        path, _, section = target.partition("#")
        assert (ROOT / path).exists(), target
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE) if section else [""]
        assert section in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
