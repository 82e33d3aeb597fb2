"""Every public name is used by code that the tests run: of a page, of the README, or of a notebook."""

import ast
import importlib

import pytest

from tests.pages import blocks
from tests.test_notebooks import EXPECTED as NOTEBOOKS
from tests.test_notebooks import cells
from tests.test_pages import EXPECTED as PAGES
from tests.test_readme import SNIPPETS

PACKAGES = ("cenie", "cenie.novelty", "cenie.report", "cenie.gymnasium")


def programs() -> dict[str, str]:
    """The Python that the tests run, by where it stands. The blocks of a page share their names."""
    found = {f"README.md, {number}": text for number, text in enumerate(SNIPPETS, 1)}
    for name in NOTEBOOKS:
        _, *code = cells(name, "code")
        found[f"notebooks/{name}.ipynb"] = "\n".join(code)
    for page in PAGES:
        found[page] = "\n".join(text for language, text in blocks(page) if language == "python")
    return found


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as written, if an expression is nothing else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return None


def imports(tree: ast.AST) -> dict[str, str]:
    """What names stand for after the imports of a program, by their full names."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def used(program: str) -> set[str]:
    """The full names of what a program reads. An import, a comment or a text is no use."""
    tree = ast.parse(program)
    known = imports(tree)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            first, *rest = (dotted(node) or "").split(".")
            found.add(".".join([known.get(first, first), *rest]))
    return found


def test_what_counts_as_a_use():
    program = """
import cenie
import cenie.gymnasium
from cenie import Box, Discrete, novelty as coverage

# cenie.train
"cenie.preset"
print(Box(()), cenie.gymnasium.make(cenie.init), coverage.fit)
"""
    public = {name for name in used(program) if name.startswith("cenie.")}
    assert public - {"cenie.gymnasium", "cenie.novelty"} == {
        "cenie.Box",
        "cenie.init",
        "cenie.gymnasium.make",
        "cenie.novelty.fit",
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_example_that_runs(package):
    read = set().union(*map(used, programs().values()))
    names = importlib.import_module(package).__all__
    assert [name for name in names if f"{package}.{name}" not in read] == []
