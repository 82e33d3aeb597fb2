"""A line of code knows its room: import direction, modules free of JAX, and nothing that runs foreign code.

records, settings, spaces, system, xla  <-  envs, student, novelty, replay  <-  teach  <-  methods
    <-  experiment  <-  rundir  <-  train, report, bridges  <-  command
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pytest

import cenie

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted((SOURCE / "cenie").rglob("*.py"))

SHARED = {"cenie.records", "cenie.settings", "cenie.spaces"}


def rooms(*names: str) -> set[str]:
    return SHARED | {f"cenie.{name}" for name in names}


ALLOWED: dict[str, set[str]] = {
    # The front door loads nothing (see test_front_doors_are_light) but the list of what is public, if asked.
    "cenie": {"cenie.lazy", "cenie.public"},
    "cenie.lazy": set(),
    "cenie.public": rooms(
        "envs", "student", "novelty", "replay", "teach", "methods", "experiment", "rundir", "training"
    )
    | {"cenie.bridges", "cenie.report", "cenie.xla.parts"},
    "cenie.records": set(),
    "cenie.settings": set(),
    "cenie.spaces": set(),
    "cenie.system": set(),
    "cenie.xla": {"cenie.system"},
    # The one room where it is known that a cycle is compiled in parts.
    "cenie.xla.parts": rooms("xla", "teach"),
    "cenie.novelty": {
        "cenie.xla.cache",
        "cenie.xla.devices",
        "cenie.xla.flags",
        "cenie.lazy",
        "cenie.settings",
    },
    "cenie.envs": rooms("xla"),
    "cenie.student": rooms("xla"),
    "cenie.replay": rooms("xla"),
    "cenie.teach": rooms("xla", "envs", "student", "replay"),
    "cenie.methods": rooms("xla", "envs", "student", "novelty", "replay", "teach"),
    "cenie.experiment": rooms("xla", "system", "envs", "student", "novelty", "replay", "teach", "methods"),
    "cenie.rundir": rooms("xla", "system", "envs", "student", "replay", "teach", "methods", "experiment"),
    "cenie.training": rooms(
        "xla", "system", "envs", "student", "replay", "teach", "methods", "experiment", "rundir"
    ),
    "cenie.bridges": rooms(
        "xla",
        "envs",
        "student",
        "novelty",
        "replay",
        "teach",
        "methods",
        "rundir.checkpoint",
        "rundir.manifest",
        "training.warnings",
    ),
    # The door through which gymnasium finds our environments.
    "cenie.gymnasium": rooms("envs", "bridges"),
    # Everything that a run has written, and the domain with which its levels are drawn and played.
    "cenie.report": rooms(
        "lazy", "xla", "system", "envs", "student", "replay", "teach", "methods", "experiment", "rundir"
    ),
    "cenie.command": rooms("xla", "system", "envs", "methods", "experiment", "rundir", "training", "report"),
}
"""What each room, or a module with rules of its own, may import of the library, besides its own room."""

EDGES = {
    "cenie.xla.cache",
    "cenie.xla.flags",
    "cenie.xla.traces",
    "cenie.xla.parts",
    "cenie.xla.platform_facts",
    "cenie.system",
    "cenie.experiment",
    "cenie.rundir",
    "cenie.training",
    "cenie.report",
    "cenie.bridges",
    "cenie.command",
}
"""What touches files, clocks and terminals."""

NOVELTY_NEEDS = {"jax", "jaxlib", "numpy"}
"""The only packages that novelty may import, so that it can be used alone. jaxlib is part of JAX."""

FRONT_DOORS = {"cenie", "cenie.novelty", "cenie.report"}
"""Packages that name what is public, and load it when it is first used."""

TOUCHES_FILES = {"cenie.novelty.estimator_file"}
"""Besides run and report: what users of the estimator save and load."""

WITHOUT_JAX = (
    "cenie.command.cli",
    "cenie.command.entry",
    "cenie.command.lists",
    "cenie.report.level_files",
    "cenie.report.measure.stats",
)
"""Modules that must load without JAX: what `cenie`, `--help`, `methods` and `domains` need, and what has no
use for it."""

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
    allowed = ALLOWED.get(module, ALLOWED.get(room))
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
    assert {"cenie", "cenie.records", "cenie.settings", "cenie.rundir.checkpoint"} <= MODULES.keys()


def offenders(modules: Iterable[str], found: Callable[[str, str], Collection[str]]) -> dict[str, list[str]]:
    """What a rule finds in each of the modules, for those in which it finds something."""
    every = {module: sorted(found(module, MODULES[module])) for module in modules}
    return {module: names for module, names in every.items() if names}


def test_imports_point_one_way() -> None:
    assert offenders(MODULES, wrong_imports) == {}


def test_novelty_stands_alone() -> None:
    alone = {"cenie.novelty", "cenie.xla.cache", "cenie.xla.devices", "cenie.xla.flags", "cenie.settings"}
    rooms = [name for name in MODULES if is_within(name, alone)]
    assert offenders(rooms, lambda module, text: foreign_imports(module, text) - NOVELTY_NEEDS) == {}


def test_novelty_loads_nothing_else_of_the_library() -> None:
    rooms = sorted(name for name in MODULES if is_within(name, {"cenie.novelty"}))
    code = f"import sys, {', '.join(rooms)}; print(*(m for m in sys.modules if m.startswith('cenie.')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    xla = {"cenie.xla", "cenie.xla.cache", "cenie.xla.devices", "cenie.xla.flags"}
    shared = {*xla, "cenie.lazy", "cenie.settings"}
    assert set(result.stdout.split()) == {*rooms, *shared}


def test_nothing_can_run_foreign_code() -> None:
    def found(_: str, text: str) -> list[str]:
        return [match.group() for match in FORBIDDEN.finditer(without_prose(text))]

    assert offenders(MODULES, found) == {}


def edge_work(module: str, text: str) -> set[str]:
    """What a module prints, reads or asks of the system."""
    code = without_prose(text)
    calls = set(re.findall(r"(?<![\w.])(print|open|input)\(", code))
    used = {name.split(".")[0] for name in imports(ast.parse(code), module)}
    unwanted = {"time", "datetime", "logging", "os", "pathlib", "shutil", "socket", "subprocess"}
    return (calls | used & unwanted) - ({"open", "os"} if module in TOUCHES_FILES else set())


def test_only_the_edges_print_read_clocks_or_touch_files() -> None:
    assert offenders([name for name in MODULES if not is_within(name, EDGES)], edge_work) == {}


def test_lists_and_readers_load_without_jax() -> None:
    assert offenders(WITHOUT_JAX, lambda module, _: heavy_chain(module, set()) or []) == {}


PACKAGES = [module_name(path) for path in FILES if path.name == "__init__.py"]


def test_packages_hold_no_code() -> None:
    """An empty `__init__` keeps the import of one module from loading the rest of its room."""

    def code(_: str, text: str) -> list[str]:
        return [ast.unparse(node) for node in ast.parse(text).body if not isinstance(node, ast.Expr)]

    assert offenders([name for name in PACKAGES if name not in FRONT_DOORS], code) == {}


def test_front_doors_are_light() -> None:
    def loaded(module: str, text: str) -> set[str]:
        return set(imports(ast.parse(text), module, top_level=True)) - {"typing", "cenie.lazy"}

    assert offenders(FRONT_DOORS, loaded) == {}


def test_every_public_name_is_where_the_front_door_says() -> None:
    for name in cenie.__all__:
        assert getattr(cenie, name).__module__.startswith("cenie.")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cenie.nonsense  # noqa: B018


def test_a_room_is_loaded_without_what_is_public() -> None:
    code = (
        "import sys, cenie; from cenie import settings; import cenie.novelty; cenie.__version__; "
        "print(*sys.modules); print(*dir(cenie)); "
        "import jax; cenie.experiment.config; from cenie import *; Domain"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, names = result.stdout.splitlines()
    assert not {"jax", "cenie.public", "cenie.novelty.public"} & set(loaded.split())
    assert {"Domain", "train", "load_run", "Parts"} <= set(names.split())


def test_every_public_name_is_written_once() -> None:
    for module in ("cenie.public", "cenie.novelty.public", "cenie.report.public"):
        nodes = [node for node in ast.parse(MODULES[module]).body if isinstance(node, ast.ImportFrom)]
        names = [alias.name for node in nodes for alias in node.names]
        assert sorted(names) == sorted(set(names))
        assert not any(alias.asname for node in nodes for alias in node.names)
        door = module.removesuffix(".public")
        assert not set(names) & {
            node.id for node in ast.walk(ast.parse(MODULES[door])) if isinstance(node, ast.Name)
        }


def drawn_imports(document: str) -> dict[str, set[str]]:
    """The rooms that each room may reach by the arrows of the diagram."""
    arrows = set(re.findall(r"^ +(\w+) --> (\w+)$", document, re.MULTILINE))
    reached = {start: {start} for arrow in arrows for start in arrow}
    for _ in reached:
        for start, end in arrows:
            reached[start] |= reached[end]
    return reached


def test_the_diagram_of_the_rooms_shows_all_imports() -> None:
    reached = drawn_imports((SOURCE.parent / "docs" / "design.md").read_text(encoding="utf-8"))
    shared = {"records", "spaces", "settings"}

    def node(module: str) -> str:
        room = module.split(".")[1]
        return "shared" if room in shared else room

    missing = {
        f"{node(module)} --> {node(name)}"
        for module, text in MODULES.items()
        for name in imports(ast.parse(text), module)
        if module not in {*FRONT_DOORS, "cenie.public"} and name.startswith("cenie.")
        if node(name) not in reached.get(node(module), set())
    }
    assert missing == set()


MOST_ARGUMENTS, MOST_IN_ORDER = 5, 3
"""A public function with more arguments takes all but the first few of them by name only."""


def public_functions(
    tree: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods without an underscore, constructors included."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            yield prefix + node.name, node


def long_signatures(text: str) -> list[str]:
    """Public functions that are called with more arguments in a row than a reader can tell apart."""
    found = []
    for name, node in public_functions(ast.parse(text)):
        in_order = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        in_order = in_order[1:] if in_order[:1] in (["self"], ["cls"]) else in_order
        if len(in_order) + len(node.args.kwonlyargs) > MOST_ARGUMENTS and len(in_order) > MOST_IN_ORDER:
            found.append(name)
    return found


def test_many_arguments_have_names() -> None:
    assert offenders(MODULES, lambda _, text: long_signatures(text)) == {}


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", text))


OUTSIDE = {
    path: words_of(path.read_text(encoding="utf-8"))
    for folder in ("examples", "docs", "benchmarks", "src")
    for path in (SOURCE.parent / folder).rglob("*")
    if path.suffix in (".py", ".md")
} | {path: words_of(path.read_text(encoding="utf-8")) for path in [SOURCE.parent / "README.md"]}
"""The words of all files but tests: what only a test uses is not used."""


def test_every_public_function_is_used_or_documented() -> None:
    files = Counter(word for words in OUTSIDE.values() for word in words)

    def unused(module: str, text: str) -> set[str]:
        own = OUTSIDE.get(SOURCE / Path(*module.split(".")).with_suffix(".py"), set())
        here = Counter(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", text))
        names = {name.split(".")[0] for name, _ in public_functions(ast.parse(text))}
        return {name for name in names if files[name] - (name in own) < 1 and here[name] < 2}

    assert offenders(MODULES, unused) == {}


SHARED_LINES = 6
"""So many equal lines of code in two places are one piece of code written twice."""


def lines_of_code(text: str) -> list[tuple[int, str]]:
    """The lines that count, with their numbers: no prose, no imports, no lines of mere brackets."""
    tree = ast.parse(text)
    skipped = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    stripped = ((number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if number not in skipped and re.search(r"\w", line)]


def written_twice(modules: dict[str, str]) -> list[str]:
    """Where a run of equal lines begins a second time, and where it began first."""
    first: dict[tuple[str, ...], str] = {}
    found = []
    for module, text in modules.items():
        lines = lines_of_code(text)
        for start in range(len(lines) - SHARED_LINES + 1):
            window = tuple(line for _, line in lines[start : start + SHARED_LINES])
            place = f"{module}:{lines[start][0]}"
            if first.setdefault(window, place) != place:
                found.append(f"{place} is {first[window]}")
    return found


def test_no_code_is_written_twice() -> None:
    assert written_twice(MODULES) == []


# The checks themselves must be able to fail.


def test_code_that_is_written_twice_is_found() -> None:
    lines = [f"x{number} = {number}" for number in range(SHARED_LINES)]
    again = ["import os", *lines[:3], "", "# why", *lines[3:]]
    modules = {"a": "\n".join(lines), "b": "\n".join(again)}
    assert written_twice(modules) == ["b:2 is a:1"]
    assert written_twice({"a": "\n".join(lines), "b": "\n".join(again[:-1])}) == []


@pytest.mark.parametrize(
    "line",
    [
        "def f(a, b, c, d, e, f): ...",
        "def f(a, b, c, d, *, e, f): ...",
        "class A:\n    def __init__(self, a, b, c, d, e, f): ...",
    ],
)
def test_a_long_signature_is_found(line: str) -> None:
    assert len(long_signatures(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "def f(a, b, c, d, e): ...",
        "def f(a, b, c, *, d, e, f): ...",
        "def _f(a, b, c, d, e, f): ...",
        "class A:\n    def f(self, a, b, c, d, e): ...",
    ],
)
def test_a_short_signature_is_accepted(line: str) -> None:
    assert long_signatures(line) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("cenie.envs.maze.level", "from cenie.student import ppo"),
        ("cenie.envs.maze.level", "from cenie.rundir.checkpoint import save"),
        ("cenie.student.ppo", "import cenie.envs.base"),
        ("cenie.student.ppo", "def f():\n    from cenie.teach import cycle"),
        ("cenie.novelty.em", "from cenie.records import Level"),
        ("cenie.novelty.em", "from cenie import records"),
        ("cenie.novelty.em", "from ..records import Level"),
        ("cenie.teach.cycle", "from cenie.experiment import config"),
        ("cenie.report.page", "from cenie.training.loop import train"),
        ("cenie.report.page", "from cenie.command.options import parse"),
        ("cenie.training.loop", "from cenie.report import page"),
        ("cenie.training.loop", "from cenie.command import cli"),
        ("cenie.records", "from cenie.envs import base"),
        ("cenie.utils", ""),
    ],
)
def test_a_wrong_import_is_found(module: str, line: str) -> None:
    assert len(wrong_imports(module, line)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("cenie.envs.maze.level", "from cenie.records import Level\nfrom cenie.envs.base import Domain"),
        ("cenie.teach.cycle", "from cenie.envs import base\nimport cenie.student.ppo"),
        ("cenie.training.loop", "from cenie.teach import cycle\nfrom cenie import __version__"),
        ("cenie.novelty.em", "import jax\nimport numpy as np\nfrom cenie.novelty import kmeans"),
    ],
)
def test_a_right_import_is_accepted(module: str, line: str) -> None:
    assert wrong_imports(module, line) == []


@pytest.mark.parametrize("line", ["import equinox", "from jaxtyping import Array", "import scipy.linalg"])
def test_a_foreign_import_is_found(line: str) -> None:
    assert not foreign_imports("cenie.novelty.em", f"import math, jax\n{line}") <= NOVELTY_NEEDS


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
