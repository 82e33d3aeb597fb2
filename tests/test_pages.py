"""The pages about parts of one's own tell the truth: their Python and their commands run as they stand."""

import re
import shlex
import sys

import pytest

from cenie.run import cli
from tests.pages import DOCS, blocks, file_name, write_files

EXPECTED = {
    "own-environment.md": ("nothing to complain about", "generators: random", "after 6 updates"),
    "own-score-and-novelty.md": ("after 4 updates", "after 6 updates"),
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
