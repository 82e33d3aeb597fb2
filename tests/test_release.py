"""`make release` sets a tag only on a clean main whose files name the version, and asks for green tests."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FILES = (
    "Makefile",
    "pyproject.toml",
    "CITATION.cff",
    "CHANGELOG.md",
    "src/cenie/__init__.py",
    ".ci/release.py",
)
VERSION = "3.1.4"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def commit(root: Path, message: str) -> None:
    identity = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, "commit", "--all", "--quiet", "-m", message], cwd=root, check=True)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that name a version, with one of their own, in a repository with one commit."""
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Nobody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "nobody@example.org")
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    release = load()
    ours = release.found(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text())
    replace(tmp_path / "pyproject.toml", f'version = "{ours}"', f'version = "{VERSION}"')
    replace(tmp_path / "src/cenie/__init__.py", f'"{ours}"', f'"{VERSION}"')
    replace(tmp_path / "CITATION.cff", f"version: {ours}", f"version: {VERSION}")
    replace(tmp_path / "CHANGELOG.md", "## Unreleased", f"## Unreleased\n\n## {VERSION} - 2027-01-02")
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    commit(tmp_path, "Begin")
    return tmp_path


def tags(root: Path) -> list[str]:
    return load().git(root, "tag").split()


def make(root: Path, version: str, answer: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "release", f"VERSION={version}"]
    return subprocess.run(command, cwd=root, input=answer, capture_output=True, text=True, timeout=60)


def test_a_release_sets_a_tag_on_this_commit(clone):
    done = make(clone, VERSION, "yes\n")
    assert done.returncode == 0, done.stderr
    assert f"git push origin main v{VERSION}" in done.stdout
    assert tags(clone) == [f"v{VERSION}"]
    git = load().git
    assert git(clone, "rev-parse", f"v{VERSION}^{{commit}}") == git(clone, "rev-parse", "HEAD")
    assert git(clone, "cat-file", "-t", f"v{VERSION}") == "tag"
    again = make(clone, VERSION, "yes\n")
    assert again.returncode != 0
    assert "exists already" in again.stderr


@pytest.mark.parametrize("answer", ["no\n", "\n", ""])
def test_nothing_is_released_unless_the_tests_are_said_to_be_green(clone, answer):
    done = make(clone, VERSION, answer)
    assert done.returncode != 0
    assert "tests" in done.stderr
    assert tags(clone) == []


@pytest.mark.parametrize("version", ["", "1", "1.0", "1.0.0rc1", "v3.1.4", "03.1.4", "3.1.4; ls"])
def test_what_is_no_version_is_refused(clone, version):
    (problem,) = load().release(clone, version, lambda _: "yes")
    assert "is no version" in problem
    assert tags(clone) == []


def test_every_file_that_names_another_version_is_told_at_once(clone):
    problems = load().release(clone, "3.1.5", lambda _: "yes")
    assert [problem.split()[0] for problem in problems] == [
        "pyproject.toml",
        "src/cenie/__init__.py",
        "CITATION.cff",
        "CHANGELOG.md",
    ]
    assert all(VERSION in problem for problem in problems)
    assert tags(clone) == []


@pytest.mark.parametrize("heading", [f"## {VERSION}", f"## {VERSION} - unreleased"])
def test_a_release_has_a_date(clone, heading):
    replace(clone / "CHANGELOG.md", f"## {VERSION} - 2027-01-02", heading)
    commit(clone, "No date")
    (problem,) = load().release(clone, VERSION, lambda _: "yes")
    assert "YYYY-MM-DD" in problem


@pytest.mark.parametrize("untracked", [False, True])
def test_what_is_not_committed_is_not_released(clone, untracked):
    (clone / ("NEW" if untracked else "CITATION.cff")).write_text("\n")
    problems = load().release(clone, VERSION, lambda _: "yes")
    assert "the working tree is not clean (git status)" in problems
    assert tags(clone) == []


def test_only_main_is_released(clone):
    subprocess.run(["git", "checkout", "--quiet", "-b", "other"], cwd=clone, check=True)
    (problem,) = load().release(clone, VERSION, lambda _: "yes")
    assert "branch other" in problem


def test_the_present_files_agree_on_their_version():
    release = load()
    version = release.found(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text())
    problems = release.problems_of_the_files(ROOT, version)
    assert [problem for problem in problems if "has no date" not in problem] == []
