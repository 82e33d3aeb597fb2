"""The README tells the truth: its Python runs, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from cenie.command import cli
from cenie.command.configs import typed
from cenie.command.options import parse
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS, ROWS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()
]

EXPECTED = [("log", "new 60"), ("coverage", "familiar")]
"""For each snippet a name that it defines and a text that it prints."""

LONGEST = 120
"""Lines: what is longer is not read to its end. More belongs to the pages."""


def test_it_is_short():
    assert len(README.splitlines()) <= LONGEST


def test_there_are_snippets_and_commands():
    assert len(SNIPPETS) == len(EXPECTED)
    assert any(line.startswith("cenie train") for line in COMMANDS)


@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_python_snippet_runs(number, capsys):
    names: dict[str, object] = {}
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), names)
    name, printed = EXPECTED[number]
    assert name in names
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("cenie train maze")])
def test_train_commands_are_valid(line):
    words, options = parse(shlex.split(line, comments=True)[2:])
    name = options.pop("preset", "quick")
    assert preset(words[0], words[1], name, typed(words[0], words[1], options)).method == words[1]


def test_every_command_is_one_of_ours():
    named = [shlex.split(line, comments=True)[1] for line in COMMANDS if line.startswith("cenie ")]
    assert named
    assert set(named) <= set(cli.COMMANDS)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("make ")])
def test_make_targets_exist(line):
    target = line.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_number_of_methods_is_right():
    index = (ROOT / "docs" / "index.md").read_text()
    assert f"[{len(METHODS)} methods]" in README
    assert f"| UED methods | {len(METHODS)} |" in README
    assert f"{len(METHODS)} methods" in index


def test_the_table_of_methods_is_what_the_command_prints():
    page = (ROOT / "docs" / "methods" / "README.md").read_text()
    rows = re.findall(r"^\| \[`([^`]+)`\]\((\S+)\) \| (.+) \|$", page, re.MULTILINE)
    assert [(name, summary) for name, _, summary in rows] == [
        (name, row.summary) for name, row in ROWS.items()
    ]
    assert all((ROOT / "docs" / "methods" / target).exists() for _, target, _ in rows)


def test_the_speed_of_racing_is_told_frame_for_frame_too():
    """It is 400 times gymnasium's where ours draws one frame for eight steps; like for like 75 to 105."""
    for page in ("domains/racing.md", "results.md"):
        parts = re.split(r"\n\n|\n\|", (ROOT / "docs" / page).read_text())
        said = [part for part in parts if re.search(r"\d times gymnasium's speed", part)]
        assert said
        assert all("75" in part and "105" in part for part in said)


def test_nothing_is_said_to_run_on_accelerators():
    for text in (README, (ROOT / "docs" / "guides" / "devices.md").read_text()):
        assert "othing has run on an accelerator yet" in " ".join(text.split())
        assert "or an accelerator" not in text


def test_linked_files_exist():
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!#|http)([^)]+)\)", prose):
        path, _, section = target.partition("#")
        assert (ROOT / path).exists(), target
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE) if section else [""]
        assert section in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
