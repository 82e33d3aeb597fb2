"""The docstring of every public function, class and method says what goes in, what comes out, what is raised.

Modules are read as text: wrappers that check types would hide signatures.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from tests.test_public_examples import PACKAGES

SETTINGS = {"Config", "MixtureConfig", "NeighboursConfig"}
"""Records whose fields are settings, each with its help."""

Function = ast.FunctionDef


def sections(docstring: str) -> dict[str, str]:
    """The sections of a docstring in Google style by their titles."""
    parts = re.split(r"^(Args|Attributes|Returns|Raises):\n", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def named(docstring: str, *titles: str) -> set[str]:
    """The names that sections describe."""
    text = "".join(sections(docstring).get(title, "") for title in titles)
    return set(re.findall(r"^ {4}(\w+): ", text, re.MULTILINE))


def raised(function: Function) -> set[str]:
    """The errors that the body of a function raises by their names, but for those that it catches itself."""
    attempts = [node for node in ast.walk(function) if isinstance(node, ast.Try) and node.handlers]
    caught = {id(inner) for attempt in attempts for each in attempt.body for inner in ast.walk(each)}
    found = [node for node in ast.walk(function) if isinstance(node, ast.Raise) and id(node) not in caught]
    names = [ast.unparse(node.exc.func) for node in found if isinstance(node.exc, ast.Call)]
    return {name.rpartition(".")[2] for name in names}


def lacks(function: Function) -> Iterator[str]:
    """What the docstring of a function does not say."""
    docstring = ast.get_docstring(function)
    decorators = {ast.unparse(each).rpartition(".")[2] for each in function.decorator_list}
    if docstring is None:
        yield "a docstring"
        return
    if decorators & {"property", "cached_property"}:
        return
    every = function.args
    arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    names = {each.arg for each in arguments if each is not None} - {"self", "cls"}
    yield from sorted(names - named(docstring, "Args"))
    if ast.unparse(function.returns or ast.Constant(None)) != "None" and "Returns" not in sections(docstring):
        yield "the result"
    yield from sorted(raised(function) - named(docstring, "Raises"))


def class_lacks(node: ast.ClassDef) -> Iterator[str]:
    """What the docstrings of a class, its fields and its public methods do not say."""
    docstring = ast.get_docstring(node) or ""
    described = named(docstring, "Args", "Attributes")
    for field, after in zip(node.body, [*node.body[1:], ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            has_own = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if field.target.id not in described and not has_own and node.name not in SETTINGS:
                yield field.target.id
    for method in node.body:
        if not isinstance(method, Function):
            continue
        if method.name in ("__init__", "__post_init__"):
            arguments = {each.arg for each in [*method.args.args, *method.args.kwonlyargs]} - {"self"}
            yield from sorted(arguments - described)
            yield from sorted(raised(method) - named(docstring, "Raises"))
        elif not method.name.startswith("_"):
            yield from (f"{method.name}: {what}" for what in lacks(method))


@pytest.mark.parametrize("package", PACKAGES)
def test_public_docstrings_are_complete(package):
    missing = []
    for name in importlib.import_module(package).__all__:
        home = importlib.import_module(getattr(importlib.import_module(package), name).__module__)
        (node,) = (
            each
            for each in ast.parse(inspect.getsource(home)).body
            if isinstance(each, Function | ast.ClassDef) and each.name == name
        )
        if ast.get_docstring(node) is None:
            missing.append(f"{name}: a docstring")
        found = class_lacks(node) if isinstance(node, ast.ClassDef) else lacks(node)
        missing += [f"{name}: {what}" for what in found]
    assert missing == []


def test_what_is_missing_is_found():
    source = '''
def half(values, how):
    """The first half.

    Args:
        values: Numbers [n].
    """
    raise ValueError("no")

def whole(values) -> int:
    """All of it.

    Args:
        values: Numbers [n].

    Returns:
        How many there are.
    """
'''
    half, whole = (node for node in ast.parse(source).body if isinstance(node, Function))
    assert list(lacks(half)) == ["how", "ValueError"]
    assert list(lacks(whole)) == []
