"""A line of code knows its room: import direction, modules free of JAX, and nothing that runs foreign code.

types, settings, spaces, devices  <-  envs, student, novelty (of these: settings, devices)
                                 <-  teach  <-  run  <-  bridges
result files on disk  <-  report
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cenie

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted((SOURCE / "cenie").rglob("*.py"))

SHARED = {"cenie.types", "cenie.settings", "cenie.spaces", "cenie.devices"}
ALLOWED: dict[str, set[str]] = {
    # The front door: it names what is public and loads nothing (see test_front_doors_are_light).
    "cenie": {
        f"cenie.{room}"
        for room in ("types", "spaces", "envs", "student", "novelty", "teach", "run", "report", "bridges")
    },
    "cenie.types": set(),
    "cenie.settings": set(),
    "cenie.devices": set(),
    "cenie.spaces": set(),
    "cenie.novelty": {"cenie.devices", "cenie.settings"},
    "cenie.envs": SHARED,
    "cenie.student": SHARED,
    "cenie.teach": SHARED | {"cenie.envs", "cenie.student", "cenie.novelty"},
    "cenie.bridges": SHARED | {f"cenie.{room}" for room in ("envs", "student", "novelty", "teach", "run")},
    # The names and columns of the result files; neither loads JAX.
    "cenie.report": {"cenie.run.directory", "cenie.run.metrics"},
    "cenie.run": SHARED | {f"cenie.{room}" for room in ("envs", "student", "novelty", "teach", "report")},
}
"""What each room may import of the library, besides itself and the version in `cenie`."""

NOVELTY_NEEDS = {"jax", "numpy"}
"""All that novelty uses of other projects, so that it can be used without the rest of the library."""

FRONT_DOORS = {"cenie", "cenie.novelty"}
"""Packages that name what is public, and load it when it is first used."""

TOUCHES_FILES = {"cenie.novelty.estimator"}
"""Besides run and report: what users of the estimator save and load."""

WITHOUT_JAX = (
    "cenie.settings",
    "cenie.run.compilation",
    "cenie.spaces",
    "cenie.run.config",
    "cenie.run.continuation",
    "cenie.run.devices",
    "cenie.run.presets",
    "cenie.run.cli",
    "cenie.run.directory",
    "cenie.run.durable",
    "cenie.run.entry",
    "cenie.run.memory",
    "cenie.run.manifest",
    "cenie.run.metrics",
    "cenie.run.output",
    "cenie.run.signals",
    "cenie.run.sinks",
)
"""Modules that must load without JAX, so that help and mistakes in settings appear at once."""

HEAVY = {"jax", "jaxlib", "equinox", "optax"}

FORBIDDEN = re.compile(
    r"\b(c?pickle|cloudpickle|dill|marshal|shelve|joblib|yaml|allow_pickle)\b"
    r"|(?<![\w.])(eval|exec|compile|__import__)\("
    r"|\btorch\.load\b|\bnp\.load\b|\bnumpy\.load\b"
)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}


def imports(tree: ast.AST, module: str, *, top_level: bool = False) -> Iterator[str]:
    """Absolute names of imported modules (`from a import b` gives `a.b` if that is a module, else `a`)."""
    for node in tree.body if top_level and isinstance(tree, ast.Module) else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = ".".join(module.split(".")[: -node.level]) if node.level else ""
            base = ".".join(filter(None, (parent, node.module)))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in MODULES else base


def is_within(module: str, rooms: set[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def wrong_imports(module: str, text: str) -> list[str]:
    room = room_of(module)
    allowed = ALLOWED.get(room)
    if allowed is None:
        return [f"{module} is in no known room: add the room to ALLOWED"]
    ours = {name for name in imports(ast.parse(text), module) if name.startswith("cenie.")}
    return [
        f"{module} imports {name}"
        for name in sorted(ours)
        if not is_within(name, allowed) and (room == "cenie" or not is_within(name, {room}))
    ]


def foreign_imports(module: str, text: str) -> set[str]:
    """What a module imports besides the library and the standard library."""
    names = {name.split(".")[0] for name in imports(ast.parse(text), module)}
    return names - {"cenie", *sys.stdlib_module_names}


def without_prose(text: str) -> str:
    """The code without comments and docstrings, which may speak of what the code must not do."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                child.value.value = ""
    return ast.unparse(tree)


def heavy_chain(module: str, seen: set[str]) -> list[str] | None:
    """How `module` comes to import JAX when it is loaded, or None if it does not."""
    seen.add(module)
    for name in imports(ast.parse(MODULES[module]), module, top_level=True):
        if name.split(".")[0] in HEAVY:
            return [module, name]
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            loaded = ".".join(parts[:length])
            chain = heavy_chain(loaded, seen) if loaded in MODULES and loaded not in seen else None
            if chain:
                return [module, *chain]
    return None


def test_the_package_is_found() -> None:
    assert {"cenie", "cenie.types", "cenie.settings", "cenie.run.checkpoint"} <= MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    assert wrong_imports(module, MODULES[module]) == []


@pytest.mark.parametrize(
    "module",
    [name for name in MODULES if is_within(name, {"cenie.novelty", "cenie.devices", "cenie.settings"})],
)
def test_novelty_stands_alone(module: str) -> None:
    assert foreign_imports(module, MODULES[module]) <= NOVELTY_NEEDS


def test_novelty_loads_nothing_else_of_the_library() -> None:
    rooms = sorted(name for name in MODULES if is_within(name, {"cenie.novelty"}))
    code = f"import sys, {', '.join(rooms)}; print(*(m for m in sys.modules if m.startswith('cenie.')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) == {*rooms, "cenie.devices", "cenie.settings"}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_can_run_foreign_code(module: str) -> None:
    assert [match.group() for match in FORBIDDEN.finditer(without_prose(MODULES[module]))] == []


@pytest.mark.parametrize(
    "module",
    [name for name in MODULES if not is_within(name, {"cenie.run", "cenie.report", "cenie.bridges"})],
)
def test_only_the_edges_print_read_clocks_or_touch_files(module: str) -> None:
    code = without_prose(MODULES[module])
    allowed = {"open", "os"} if module in TOUCHES_FILES else set()
    calls = set(re.findall(r"(?<![\w.])(print|open|input)\(", code))
    used = {name.split(".")[0] for name in imports(ast.parse(code), module)}
    unwanted = {"time", "datetime", "logging", "os", "pathlib", "shutil", "socket", "subprocess"}
    assert (calls | used & unwanted) <= allowed


@pytest.mark.parametrize("module", [*WITHOUT_JAX, *(name for name in MODULES if name.endswith(".config"))])
def test_settings_and_files_load_without_jax(module: str) -> None:
    assert heavy_chain(module, set()) is None


PACKAGES = [module_name(path) for path in FILES if path.name == "__init__.py"]


@pytest.mark.parametrize("module", [name for name in PACKAGES if name not in FRONT_DOORS])
def test_packages_hold_no_code(module: str) -> None:
    """An empty `__init__` keeps the import of one module from loading the rest of its room."""
    assert all(isinstance(node, ast.Expr) for node in ast.parse(MODULES[module]).body)


@pytest.mark.parametrize("module", sorted(FRONT_DOORS))
def test_front_doors_are_light(module: str) -> None:
    loaded = set(imports(ast.parse(MODULES[module]), module, top_level=True))
    assert loaded <= {"importlib", "typing"}


def test_every_public_name_is_where_the_front_door_says() -> None:
    for name in cenie.__all__:
        assert getattr(cenie, name).__module__.startswith("cenie.")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cenie.nonsense  # noqa: B018


# The checks themselves must be able to fail.


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("cenie.envs.maze.level", "from cenie.student import ppo"),
        ("cenie.envs.maze.level", "from cenie.run.checkpoint import save"),
        ("cenie.student.ppo", "import cenie.envs.base"),
        ("cenie.student.ppo", "def f():\n    from cenie.teach import cycle"),
        ("cenie.novelty.mixture", "from cenie.types import Level"),
        ("cenie.novelty.mixture", "from cenie import types"),
        ("cenie.novelty.mixture", "from ..types import Level"),
        ("cenie.teach.cycle", "from cenie.run import config"),
        ("cenie.report.page", "from cenie.run.train import train"),
        ("cenie.types", "from cenie.envs import base"),
        ("cenie.utils", ""),
    ],
)
def test_a_wrong_import_is_found(module: str, line: str) -> None:
    assert len(wrong_imports(module, line)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("cenie.envs.maze.level", "from cenie.types import Level\nfrom cenie.envs.base import Domain"),
        ("cenie.teach.cycle", "from cenie.envs import base\nimport cenie.student.ppo"),
        ("cenie.run.train", "from cenie.teach import cycle\nfrom cenie import __version__"),
        ("cenie.novelty.mixture", "import jax\nimport numpy as np\nfrom cenie.novelty import kmeans"),
    ],
)
def test_a_right_import_is_accepted(module: str, line: str) -> None:
    assert wrong_imports(module, line) == []


@pytest.mark.parametrize("line", ["import equinox", "from jaxtyping import Array", "import scipy.linalg"])
def test_a_foreign_import_is_found(line: str) -> None:
    assert not foreign_imports("cenie.novelty.mixture", f"import math, jax\n{line}") <= NOVELTY_NEEDS


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
        "eval(text)",
        "exec (text)",
        "importlib.import_module('pickle')",
    ],
)
def test_code_that_could_run_foreign_code_is_found(line: str) -> None:
    assert FORBIDDEN.search(without_prose(line))


@pytest.mark.parametrize(
    "line", ['"""No pickle, no eval(x)."""', "x = 1  # exec(x)", "jax.eval_shape(f, x)", "re.compile('a')"]
)
def test_prose_and_similar_names_are_accepted(line: str) -> None:
    assert not FORBIDDEN.search(without_prose(line))
