"""Check that a release can be made of this commit, and set its tag: `make release VERSION=x.y.z`.

Nothing is pushed and nothing is published: pushing the tag does that (.github/workflows/release.yml).
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

BRANCH = "main"


def git(root: Path, *words: str) -> str:
    """The output of a git command."""
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def found(pattern: str, text: str) -> str | None:
    """The first group of the first match."""
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None


def problems_of_the_files(root: Path, version: str) -> list[str]:
    """Each file that does not name this version, with what it names."""
    named = {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        "src/cenie/__init__.py": found(
            r'^__version__ = "(.*)"$', (root / "src" / "cenie" / "__init__.py").read_text()
        ),
        "CITATION.cff": found(r"^version: (.*)$", (root / "CITATION.cff").read_text()),
        "CHANGELOG.md": found(r"^## (\d\S*)", (root / "CHANGELOG.md").read_text()),
    }
    problems = [f"{file} names version {theirs}" for file, theirs in named.items() if theirs != version]
    entry = rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$"
    if named["CHANGELOG.md"] == version and not re.search(
        entry, (root / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        problems.append(f"CHANGELOG.md has no date: the heading should be '## {version} - YYYY-MM-DD'")
    return problems


def problems_of_the_repository(root: Path, version: str) -> list[str]:
    """What keeps this commit from being tagged."""
    problems = []
    if git(root, "status", "--porcelain"):
        problems.append("the working tree is not clean (git status)")
    branch = git(root, "branch", "--show-current")
    if branch != BRANCH:
        problems.append(f"this is branch {branch or '(none)'}, not {BRANCH}")
    if git(root, "tag", "--list", f"v{version}"):
        problems.append(f"the tag v{version} exists already")
    return problems


def release(root: Path, version: str, answer: Callable[[str], str]) -> list[str]:
    """Set the tag of a version, or return every problem.

    Args:
        root: The repository.
        version: The version, such as 0.1.0.
        answer: Answers a question; only "yes" lets the release go on.

    Returns:
        What is wrong; empty if the tag was set.
    """
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        return [f"{version!r} is no version: make release VERSION=x.y.z"]
    problems = problems_of_the_files(root, version) + problems_of_the_repository(root, version)
    if problems:
        return problems
    commit = git(root, "rev-parse", "--short", "HEAD")
    if answer(f"Are all tests of {commit} green (make test-all, and the workflows)? [yes/no] ") != "yes":
        return ["nothing is released before its tests are green"]
    git(root, "tag", "--annotate", f"v{version}", "--message", f"cenie {version}")
    return []


def ask(question: str) -> str:
    """The answer of the person at the terminal; nobody there is a no."""
    try:
        return input(question).strip().lower()
    except EOFError:
        return "no"


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    found_problems = release(Path.cwd(), wanted, ask)
    for problem in found_problems:
        print(f"error: {problem}", file=sys.stderr)
    if found_problems:
        sys.exit(1)
    print(f"v{wanted} is set on this commit. To publish it: git push origin {BRANCH} v{wanted}")
