"""The workflows for GitHub and the forms are well formed, and speak of what there is."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


def jobs(name: str) -> dict[str, Any]:
    return read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_reads_and_nothing_more_unless_it_publishes(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "uses" in job or "timeout-minutes" in job, name
        assert "permissions" not in job or name == "publish"
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_of_the_makefile(path):
    text = (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv")
    commands = "\n".join(step.get("run", "") for step in steps(path))
    for line in re.findall(r"^make (.*)$", commands, re.MULTILINE):
        for target in (word for word in line.split() if "=" not in word):
            if target == "site" and not (ROOT / "mkdocs.yml").exists():
                continue  # there is no site to make
            assert re.search(rf"^{re.escape(target)}:", text, re.MULTILINE), (path.name, target)


def test_every_supported_python_is_tested_and_classified():
    tested = jobs("tests")["tests"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "
    classified = [
        each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix + "3.")
    ]
    assert tested == classified
    assert PROJECT["requires-python"] == f">={tested[0]}"
    assert jobs("package")["install"]["strategy"]["matrix"]["python"] == [tested[0], tested[-1]]


def test_a_release_publishes_what_was_tried_out_without_a_password():
    publish = jobs("release")["publish"]
    assert publish["needs"] == "package"
    assert jobs("release")["package"]["uses"] == "./.github/workflows/package.yml"
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("password" in step.get("with", {}) for step in publish["steps"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_fields_with_names_of_their_own(path):
    form = read(path)
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    names = [field["id"] for field in form["body"]]
    assert len(names) == len(set(names))
    assert all(field["attributes"]["label"] for field in form["body"])


def test_the_report_of_a_bug_asks_for_the_summary_of_the_run():
    body = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml")["body"]
    assert "summary.json" in [field["attributes"]["label"] for field in body]
    assert "summary.json" in (ROOT / ".github" / "pull_request_template.md").read_text()


def test_hooks_before_a_commit_download_nothing():
    hooks = read(ROOT / ".pre-commit-config.yaml")
    assert [each["repo"] for each in hooks["repos"]] == ["local"]
    ours = [hook for each in hooks["repos"] for hook in each["hooks"]]
    assert [hook["id"] for hook in ours] == ["ruff", "ruff-format", "pyright"]
    assert all(hook["language"] == "system" for hook in ours)


def test_the_tests_that_contributors_are_told_to_run_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"\btests/[\w/.]+", text)
    assert len(named) > 3
    for name in named:
        assert (ROOT / name.rstrip(".")).exists(), name
    for page in ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / page).read_text()):
            assert (ROOT / target).exists(), (page, target)
