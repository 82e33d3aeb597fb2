"""The page from the paper to the code tells the truth: names, docstrings, calls, and hyper-parameters."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import reduce
from types import FrameType
from typing import Any, NamedTuple

import jax
import pytest

from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.teach import cycle
from tests.pages import DOCS
from tests.tiny import tiny

ROOT = DOCS.parent
PAGE = (DOCS / "paper-to-code.md").read_text(encoding="utf-8")
MOST_CALLS = 6
TRACED = ("plr-cenie", "accel-cenie", "paired", "diplr", "plr-robust")
SETTINGS = {"plr-robust": {"teacher__score": "maxmc"}}
LINES = {"PLR-CENIE": 26, "ACCEL-CENIE": 26, "PAIRED": 9, "DIPLR": 18}
"""The numbered lines of each listing."""


class Row(NamedTuple):
    """A row of a table: its section, the method whose cycle is meant, its first cell, and what it names."""

    section: str
    method: str
    first: str
    functions: list[str]
    calls: list[str]


def sections() -> Iterator[tuple[str, str]]:
    """The headings and texts of the page."""
    for part in PAGE.split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        yield heading, text


def method_in(text: str) -> str | None:
    return next((name for name in re.findall(r"`([\w-]+)`", text) if name in TRACED), None)


def tables(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables in a text, by the heads of their columns."""
    head: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif not line.startswith("|---"):
            yield dict(zip(head, cells, strict=True))


def functions_in(cell: str) -> list[str]:
    """The full names of functions, from links to their files."""
    found = re.findall(r"\[`([\w/]+)\.py`\]\(\.\./src/cenie/([\w/]+)\.py\) `([\w.]+)`", cell)
    assert all(shown == target for shown, target, _ in found), cell
    return [f"cenie.{path.replace('/', '.')}:{name}" for path, _, name in found]


ROWS = [
    Row(
        heading,
        method_in(next(iter(row.values()))) or method_in(heading) or TRACED[0],
        next(iter(row.values())),
        functions_in(row["file and function"]),
        row.get("calls", "").split(", "),
    )
    for heading, text in sections()
    for row in tables(text)
    if "file and function" in row
]


def named(name: str) -> Any:
    module, path = name.split(":")
    return reduce(getattr, path.split("."), importlib.import_module(module))


def test_every_file_and_function_on_the_page_exists():
    names = {name for _, text in sections() for name in functions_in(text)}
    assert {name for row in ROWS for name in row.functions} <= names
    assert len(names) > 50
    for name in sorted(names):
        assert callable(named(name)), name
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", PAGE):
        assert (DOCS / target).exists(), target


def test_every_test_on_the_page_exists():
    found = re.findall(r"\[`([\w/.]+)`\]\(\.\./tests/([\w/.]+)\) `(\w+)`", PAGE)
    assert len(found) > 50
    for shown, path, name in set(found):
        defined = {
            node.name
            for node in ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
        }
        assert shown == path
        assert name in defined, (path, name)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_decision_on_the_page_exists():
    """Both the section and the row of its table."""
    heading, rows = "", dict[str, set[str]]()
    for line in (DOCS / "decisions.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = anchor(line.lstrip("# "))
            rows[heading] = set()
        elif line.startswith("| "):
            rows[heading].add(line.split(" | ")[0].removeprefix("| "))
    decided = [row["decided in"] for _, text in sections() for row in tables(text) if "decided in" in row]
    links = [link for cell in decided for link in cell.split("; ") if link != "-"]
    assert len(links) > 50
    for link in links:
        (target,) = re.findall(r"\(decisions\.md#([\w-]+)\)", link)
        quoted = link.partition("): ")[2]
        for row in quoted.removeprefix('"').removesuffix('"').split('", "') if quoted else ():
            assert row in rows[target], (target, row)


def test_the_docstring_of_a_function_names_its_equation():
    by_name = [row for row in ROWS if row.section.startswith(("Equations", "Formulas", "Deeper"))]
    assert {f"Eq. {number}" for number in range(1, 6)} <= {row.first for row in by_name}
    for row in by_name:
        word = re.sub(r" \(`.*", "", row.first)
        number = re.fullmatch(r"Eq\. (\d)", word)
        pattern = rf"Eq\. (\d and )?{number[1]}" if number else re.escape(word)
        for function in row.functions:
            assert re.search(pattern, named(function).__doc__ or "", re.IGNORECASE), (function, word)


def test_every_line_of_every_listing_is_on_the_page():
    for name, count in LINES.items():
        (section,) = {row.section for row in ROWS if row.section.split(": ")[-1].startswith(f"{name} (")}
        numbers = [int(row.first) for row in ROWS if row.section == section]
        assert numbers == list(range(1, count + 1)), name


def test_every_table_and_figure_of_the_paper_is_on_the_page():
    shown = {row.first for row in ROWS} | {heading.partition(":")[0] for heading, _ in sections()}
    assert {f"Figure {number}" for number in range(1, 18)} | {
        f"Table {number}" for number in range(1, 8)
    } <= shown


def is_type_check(frame: FrameType) -> bool:
    """Whether this is a wrapper that checks the types of a call: tests have these around every function."""
    return frame.f_code.co_filename.startswith("<@beartype")


def chain_of(frame: FrameType | None) -> list[str]:
    """The functions of the package on the stack from `cycle` to a frame; closures count as their function."""
    chain: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("cenie.") and not is_type_check(frame):
            chain.append(f"{module}:{frame.f_code.co_qualname.partition('.<locals>')[0]}")
            if chain[-1] == "cenie.teach.cycle:cycle":
                return list(dict.fromkeys(reversed(chain)))
        frame = frame.f_back
    return []


def calls_of(method: str, steps: int) -> dict[str, list[str]]:
    """The shortest way from `cycle` to each function, in one cycle that is traced and not run."""
    # A number of steps that no other run has: what JAX has traced already would not be called again.
    _, setup = build(tiny(method, student__num_steps=steps, **SETTINGS.get(method, {})))
    state = cycle.state_shapes(setup)
    shortest: dict[str, list[str]] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        is_ours = frame.f_globals.get("__name__", "").startswith("cenie.")
        if event == "call" and is_ours and not is_type_check(frame):
            chain = chain_of(frame)
            if chain and len(chain) < len(shortest.get(chain[-1], [*chain, ""])):
                shortest[chain[-1]] = chain

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        jax.eval_shape(lambda state: cycle.cycle(setup, state), state)
    finally:
        sys.setprofile(before)
    return shortest


@pytest.mark.parametrize("method", TRACED)
def test_the_numbers_of_calls_on_the_page_are_true_and_small(method: str):
    ways = calls_of(method, steps=33 + TRACED.index(method))
    counted = [
        (row, function, calls)
        for row in ROWS
        if row.method == method and row.calls != [""]
        for function, calls in zip(row.functions, row.calls)
        if calls != "-"
    ]
    assert counted
    for row, function, calls in counted:
        assert function in ways, f"{function} is not called"
        way = ways[function]
        assert len(way) - 1 == int(calls), " > ".join(way)
        assert row.section.startswith("Deeper") or int(calls) <= MOST_CALLS, function


def test_functions_without_a_number_of_calls_are_not_called_in_a_cycle():
    for row in ROWS:
        assert row.calls == [""] or len(row.calls) == max(1, len(row.functions)), row
        if row.calls == ["-"]:
            assert set(row.functions) <= {"cenie.training.loop:train"}, row


def setting_of(config: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), config)


@pytest.mark.parametrize("domain", ["maze", "walker", "racing"])
def test_the_preset_paper_has_the_hyper_parameters_of_the_page(domain: str):
    (text,) = [text for heading, text in sections() if heading.startswith("Table 7")]
    plr, accel = (preset(domain, method, "paper") for method in ("plr-cenie", "accel-cenie"))
    rows = list(tables(text))
    assert len(rows) == 30
    for row in rows:
        if row[f"`{domain}`"] != "-":
            is_accel = row["the paper's row"].startswith("ACCEL")
            found = setting_of(accel if is_accel else plr, row["setting"].strip("`"))
            value = ast.literal_eval(row[f"`{domain}`"]) if not isinstance(found, str) else row[f"`{domain}`"]
            assert found == value, row


def test_everything_that_must_be_there_is_linked():
    for path in ("README.md", "docs/design.md", "docs/methods/cenie.md"):
        assert "paper-to-code.md" in (ROOT / path).read_text(encoding="utf-8"), path
    assert set(TRACED) <= METHODS.keys()


def test_the_flat_example_needs_no_teacher_and_stays_short():
    text = (ROOT / "examples" / "plr_cenie_flat.py").read_text(encoding="utf-8")
    modules = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("teach" in ast.unparse(node) for node in modules)
    assert len([line for line in text.splitlines() if line.strip()]) < 260
