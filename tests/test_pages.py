"""The pages about parts of one's own tell the truth: their Python and their commands run as they stand."""

import re
import shlex
import sys

import pytest

from cenie.command import cli
from cenie.command.configs import typed
from cenie.command.options import parse
from cenie.envs.maze.formats import from_text
from cenie.experiment.presets import preset
from tests.pages import DOCS, blocks, file_name, write_files

EXPECTED = {
    "own-environment.md": ("nothing to complain about", "generators: random", "after 6 updates"),
    "own-score-and-novelty.md": ("after 4 updates", "['pvl', 'surprise']", "after 6 updates"),
    "own-method.md": ("after 4 updates",),
}
"""What is printed, among other things."""


@pytest.mark.parametrize("page", EXPECTED)
def test_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for path in write_files(page, tmp_path):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    names: dict[str, object] = {}
    for language, text in blocks(page):
        if language == "python" and not file_name(text):
            exec(compile(text, page, "exec"), names)
        for line in text.splitlines() if language == "bash" else ():
            assert cli.run(shlex.split(line)[1:]) == cli.OK, line
    printed = capsys.readouterr().out
    assert [text for text in EXPECTED[page] if text not in printed] == []


@pytest.mark.parametrize("page", EXPECTED)
def test_linked_files_exist(page):
    for target in re.findall(r"\]\((?!#|http)([^)]+)\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists(), target


METHOD_PAGES = sorted(f"methods/{path.name}" for path in (DOCS / "methods").glob("*.md"))


OVERVIEWS = {"methods/README.md", "methods/scores.md"}
"""Pages about several methods at once, which need no command."""


@pytest.mark.parametrize("page", METHOD_PAGES)
def test_the_commands_of_a_page_about_a_method_are_accepted(page):
    """They are not run: their settings are read, as before a run."""
    commands = [line for language, text in blocks(page) if language == "bash" for line in text.splitlines()]
    assert commands or page in OVERVIEWS
    for line in commands:
        program, command, *rest = shlex.split(line, comments=True)
        assert (program, command) == ("cenie", "train")
        (domain, method), options = parse(rest)
        name = options.pop("preset", None)
        assert preset(domain, method, name, typed(domain, method, options)).method == method


@pytest.mark.parametrize("page", METHOD_PAGES)
def test_links_of_a_page_about_a_method_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", (DOCS / page).read_text()):
        assert ((DOCS / page).parent / target).exists(), target


def test_the_page_about_looking_at_runs_names_commands_that_there_are():
    text = (DOCS / "page.md").read_text()
    lines = [
        line for language, block in blocks("page.md") if language == "bash" for line in block.splitlines()
    ]
    named = {shlex.split(line)[1] for line in lines} | set(re.findall(r"`cenie (\w+)", text))
    assert {"report", "watch", "play", "gallery"} <= named <= set(cli.COMMANDS)
    for target in re.findall(r"\]\((?!#|http)([^)#]+)", text):
        assert (DOCS / target).exists(), target


def test_the_maze_of_the_page_about_looking_at_runs_is_one():
    (drawing,) = [block for language, block in blocks("page.md") if language == "text"]
    assert from_text(drawing).wall_map.shape == (4, 5)
