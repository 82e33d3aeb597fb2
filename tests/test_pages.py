"""The pages in docs/ tell the truth: their Python and their commands run, their links lead somewhere."""

import importlib
import re
import shlex
import subprocess
import sys

import jax
import pytest

from cenie.command import cli, compare
from cenie.command.configs import typed
from cenie.command.options import parse
from cenie.envs.domains import DOMAINS, find_domain, is_reference
from cenie.envs.maze.formats import from_text
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.teach.cycle import cycle, state_shapes
from cenie.teach.measure import Several
from tests.pages import DOCS, blocks, file_name, write_files
from tests.tiny import tiny

EXPECTED = {
    "guides/own-environment.md": ("nothing to complain about", "generators: random", "after 6 updates"),
    "guides/own-score-and-novelty.md": ("after 4 updates", "['pvl', 'surprise']", "after 6 updates"),
    "guides/own-method.md": ("after 4 updates",),
    "guides/own-network.md": ("value loss with attention", "value loss with a state-space layer"),
    "guides/own-loop.md": ("likeliest level", "the same task after loading: True"),
    "guides/novelty-only.md": ("familiar", "new to neighbours"),
    "guides/gymnax-and-jaxued.md": ("problems: []",),
    "guides/gymnasium.md": ("rewards: (4,)", "same start: True"),
    "guides/report.md": (),
    "start/python.md": ("held-out levels solved",),
    "start/tutorial.md": ("held-out.png", "after 4 updates"),
    "reference/api-train.md": ("solved:", "refused:", "nothing is overwritten", "exported student"),
    "reference/api-domains.md": ("problems: []", "corridor: []", "scaled:", "to gymnax:"),
    "reference/api-parts.md": ("['surprise']", "a source: True", "a novelty: True", "a discrete action: 2"),
    "reference/api-teacher.md": ("new True (5, 5)",),
    "reference/api-novelty.md": ("novelty of both levels", "not yet:", "no fit:", "known: [ True False]"),
    "reference/api-report.md": ("runs: 2", "index.html", "cells covered"),
    "reference/api-gymnasium.md": ("levels: 2", "registered: True"),
}
"""What the code of a page prints, among other things."""

ONLY_READ = {
    "domains/maze.md",
    "domains/racing.md",
    "domains/walker.md",
    "guides/command-line.md",
    "guides/from-dcd.md",
    "guides/page.md",
    "guides/report.md",
    "guides/sweeps.md",
    "hard-mazes.md",
    *(f"methods/{path.name}" for path in (DOCS / "methods").glob("*.md")),
}
"""Pages whose commands are checked and not run: they take minutes, or need a run."""

ELSEWHERE = {"adding.md", "evidence-plan.md", "guides/export.md", "novelty.md", "results.md", "testing.md"}
"""Pages whose code has tests of its own, and records of measurements with the commands of that time."""

OVERVIEWS = {"methods/README.md", "methods/scores.md"}
"""Pages about several methods at once, which need no command."""

SMALL = {
    "updates": 4,
    "student.num_levels": 8,
    "student.num_steps": 32,
    "student.network.memory_size": 16,
    "student.ppo.epochs": 1,
    "teacher.replay.capacity": 32,
    "run.final_episodes": 1,
    "run.episodes": 1,
}
"""What readers compute in minutes takes much longer here, where nothing is optimised."""

PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
USERS = [page for page in PAGES if page not in ELSEWHERE and not page.startswith("notebook")]


def lines_of(page: str) -> list[str]:
    """The commands that a page shows."""
    found = [text for language, text in blocks(page) if language == "bash"]
    return [line for text in found for line in text.replace("\\\n", " ").splitlines()]


def prose(page: str) -> str:
    return re.sub(r"```.*?```|`[^`]*`", "", (DOCS / page).read_text(), flags=re.DOTALL)


def test_the_code_of_every_page_is_tested():
    with_code = {page for page in USERS if {"python", "bash"} & {language for language, _ in blocks(page)}}
    assert with_code - OVERVIEWS == {*EXPECTED, *ONLY_READ} - OVERVIEWS


SLOW = {"start/tutorial.md"}
"""It trains two students and writes two reports."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in EXPECTED]
)
def test_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "runs").mkdir()
    for path, value in SMALL.items():
        monkeypatch.setitem(find_domain("maze").presets["quick"], path, value)
    for path in write_files(page, tmp_path):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    names: dict[str, object] = {}
    for language, text in blocks(page):
        if language == "python" and not file_name(text):
            exec(compile(text, page, "exec"), names)
        for line in text.splitlines() if language == "bash" and page not in ONLY_READ else ():
            assert cli.run(shlex.split(line, comments=True)[1:]) == cli.OK, line
    printed = capsys.readouterr().out
    assert [text for text in EXPECTED[page] if text not in printed] == []


def accepted(line: str) -> bool:
    """Whether a command is one of ours, with methods, presets and settings that there are."""
    program, command, *rest = shlex.split(line, comments=True)
    assert program == "cenie"
    assert command in cli.COMMANDS
    if command != "train" or "--resume" in rest:
        return True
    (domain, method), options = parse(rest)
    name = options.pop("preset", None)
    for option in ("help", "out", "report"):
        options.pop(option, None)
    return preset(domain, method, name, typed(domain, method, options)).method == method


@pytest.mark.parametrize("page", sorted(ONLY_READ | SLOW))
def test_the_commands_of_a_page_are_accepted(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "check_installed", lambda: None)
    monkeypatch.setattr(compare, "_compare", lambda *_: cli.OK)
    lines = lines_of(page)
    assert lines or page in OVERVIEWS
    for line in lines:
        assert accepted(line), line
        if line.startswith("cenie compare") and "--cluster" not in line:
            assert cli.run(shlex.split(line, comments=True)[1:]) == cli.OK


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """Anchors are checked when the site is built, with the generated headings."""
    for target in re.findall(r"\]\((?!#|https?:)([^)#\s]+)(?:#[^)]*)?\)", prose(page)):
        assert ((DOCS / page).parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"[\w/-]+\.md", (DOCS.parent / "mkdocs.yml").read_text()))
    assert {page for page in PAGES if not page.startswith("notebook")} <= named
    assert {page for page in named if not (DOCS / page).exists()} == set()


@pytest.mark.parametrize("package", ["cenie", "cenie.novelty", "cenie.report", "cenie.gymnasium"])
def test_every_public_name_is_in_the_reference(package):
    pages = "".join(path.read_text() for path in (DOCS / "reference").glob("api-*.md"))
    documented = re.findall(rf"^::: {re.escape(package)}\.(\w+)$", pages, re.MULTILINE)
    assert sorted(documented) == sorted(importlib.import_module(package).__all__)


@pytest.mark.parametrize("page", [page for page in USERS if page.startswith("methods/")])
def test_pages_about_methods_have_one_form(page):
    headings = re.findall(r"^## (.*)$", (DOCS / page).read_text(), re.MULTILINE)
    form = ["Idea", "Equation", "Decisions", "Cost"]
    found = [heading for heading in headings if heading in form]
    assert page in OVERVIEWS or found in (form, [name for name in form if name != "Equation"])


def test_the_page_about_looking_at_runs_names_commands_that_there_are():
    text = (DOCS / "guides/page.md").read_text()
    named = {shlex.split(line)[1] for line in lines_of("guides/page.md")} | set(
        re.findall(r"`cenie (\w+)", text)
    )
    assert {"report", "watch", "play", "gallery"} <= named <= set(cli.COMMANDS)


@pytest.mark.parametrize("page", ["guides/page.md", "domains/maze.md"])
def test_the_maze_of_a_page_is_one(page):
    (drawing,) = [block for language, block in blocks(page) if language == "text"]
    assert from_text(drawing).wall_map.shape == (4, 5)


def test_the_methods_that_a_loop_of_ones_own_can_use_are_listed():
    from cenie.bridges.teacher import OFFERED
    from cenie.methods.table import METHODS

    (row,) = re.findall(r"^\| `dr`.*\|$", (DOCS / "guides/own-loop.md").read_text(), re.MULTILINE)
    offered, others = row.strip("| ").split(" | ")
    assert tuple(re.findall(r"`([\w-]+)`", offered)) != ()
    assert set(re.findall(r"`([\w-]+)`", offered)) == set(OFFERED)
    assert set(re.findall(r"`([\w-]+)`", others)) == set(METHODS) - set(OFFERED)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_page_about_a_domain_names_its_suites(domain):
    assert not is_reference(domain)
    page = (DOCS / "domains" / f"{domain}.md").read_text()
    named = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| `.*?\|", page, re.MULTILINE))))
    assert set(find_domain(domain).suites) <= named


METRICS = {"cycle", "updates", "rollouts", "env_steps"}
"""Columns that are not the cycle's."""


def logged(method: str, domain: str = "maze") -> set[str]:
    """The names that a run of a method logs in each cycle. Nothing is compiled."""
    _, setup = build(tiny(method, domain))
    metrics = jax.eval_shape(lambda state: cycle(setup, state)[1], state_shapes(setup))
    return {
        f"{name}{own}"
        for name, values in metrics.items()
        for own in (values.names if isinstance(values, Several) else ("",))
    }


@pytest.mark.parametrize(
    "method", ["accel-cenie", "paired", "traced", "sfl", "alp-gmm", "diplr", "plr-poet", "plr-epoet", "poet"]
)
def test_every_metric_is_described(method):
    text = (DOCS / "reference/metrics.md").read_text()
    described = set(re.findall(r"`([\w/]+)`", text))
    for name in logged(method):
        general = re.sub(r"/\d+$", "/K", name).replace("student1/", "student/")
        general = re.sub(r"^student/(episodes|solved|return|length|non_finite)$", r"\1", general)
        if general not in described:
            own = general.removeprefix("teacher/source/")
            assert own != general, name
            assert f"student/{own}" in described, name


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = "".join(path.read_text() for path in (tmp_path / "site").rglob("*.html"))
    fetched = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\s>\"]+", pages)
    assert [tag for tag in fetched if "canonical" not in tag] == []
    assert "generated:" not in pages
