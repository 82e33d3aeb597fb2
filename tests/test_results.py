"""The tables of the results and of the notebook follow from the seeds in docs/data, as in reports."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cenie.report.measure import stats

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = "results.md"
NOTEBOOK = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "notebook").glob("*.md"))
TABLES = [
    ("does-novelty-help", "arm", "cenie8-sym", r"\| `{arm}` \| 8 \| {value} \|", 0.0006),
    ("does-novelty-help", "arm", "accel12", r"\| `{arm}` \| 8 \|[^|]+\| {value} \|", 0.0006),
    ("does-novelty-help", "arm", "perfect-large", r"\| `{arm}` \| 8 \|[^|]+\|[^|]+\| {value} \|", 0.0006),
    ("all-methods", "arm", "score", r"\| `{arm}` \| \d+ \| {value} \|", 0.0006),
    ("racing-bezier", "method", "mean return", r"\| `{arm}` \| [^|]*\| {value} \|", 0.6),
    ("racing-f1", "method", "mean return", r"\| `{arm}` \| [^|]*\| [^|]*\| [^|]*\| {value} \|", 0.6),
    (
        "racing-f1",
        "method",
        "mean score",
        r"\| `{arm}` \|[^|]*\|[^|]*\|[^|]*\|[^|]*\|[^|]*\| {value} \|",
        0.0006,
    ),
    ("walker-comparison", "method", "mean", r"\| `{arm}` \| [\d, ]+\| \d+ \| {value} \|", 0.6),
]
PAGES = {
    "does-novelty-help": "notebook/novelty.md",
    "all-methods": "notebook/methods.md",
    "racing-bezier": "notebook/racing.md",
    "racing-f1": "notebook/racing.md",
    "walker-comparison": "notebook/walker.md",
}
"""The page of the notebook that has the same table as docs/results.md."""
NUMBER = r"\**([-+]?[\d.]+)\**"
VALUE = rf"{NUMBER} \({NUMBER} to {NUMBER}\)"


def words(page: str) -> str:
    """A page of docs/, with each run of blanks and breaks as one blank."""
    return " ".join((DOCS / page).read_text().split())


def rows_of(data: str) -> list[dict[str, str]]:
    with (DOCS / "data" / f"{data}.csv").open() as file:
        return list(csv.DictReader(file))


def interval(values: Sequence[float]) -> list[float]:
    """The mean of runs and the ends of its interval."""
    found = stats.estimate(np.array(values)[:, None], stats.mean)
    return [found.value, found.low, found.high]


def differences(data: str, column: str, one: str, other: str) -> list[float]:
    """The differences of two methods, seed by seed."""
    key = "method" if "method" in rows_of(data)[0] else "arm"
    scores = {(row[key], row["seed"]): float(row[column]) for row in rows_of(data)}
    return [value - scores[other, seed] for (name, seed), value in scores.items() if name == one]


@pytest.mark.parametrize("place", ["results", "notebook"])
@pytest.mark.parametrize(("data", "key", "column", "row", "error"), TABLES)
def test_a_table_has_the_means_and_intervals_of_its_seeds(place, data, key, column, row, error):
    page = RESULTS if place == "results" else PAGES[data]
    text = (DOCS / page).read_text().replace("`plr-cenie`, `stored=relative`", "`plr-cenie-relative`")
    rows = rows_of(data)
    compared = 0
    for arm in dict.fromkeys(each[key] for each in rows):
        scores = [float(each[column]) for each in rows if each[key] == arm]
        if data == "does-novelty-help" and len(scores) < 8:
            continue  # every seed is shown in the place of an interval
        value, *ends = interval(scores)
        if data == "all-methods":  # as the text says
            ends = np.clip(ends, 0.0, 1.0).tolist()
        matches = re.findall(row.format(arm=re.escape(arm), value=VALUE), text)
        assert matches, arm
        assert any(
            np.allclose([float(number) for number in match], [value, *ends], rtol=0, atol=error)
            for match in matches
        ), (arm, value, ends, matches)
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("page", [RESULTS, "notebook/novelty.md"])
@pytest.mark.parametrize(
    ("arm", "cell"), [("plr-cenie", "`plr-cenie`"), ("plr-cenie-relative", "`plr-cenie`, `stored=relative`")]
)
def test_what_novelty_adds_is_paired_by_seeds(page, arm, cell):
    _, table = (DOCS / page).read_text().split("| minus `plr-robust`, seed by seed |")
    match = re.search(rf"\| {re.escape(cell)} \| 8 \| {VALUE} \| {VALUE} \| {VALUE} \|", table)
    assert match
    printed = [float(number) for number in match.groups()]
    suites = ("cenie8-sym", "accel12", "perfect-large")
    found = [interval(differences("does-novelty-help", suite, arm, "plr-robust")) for suite in suites]
    np.testing.assert_allclose(printed, np.ravel(found), rtol=0, atol=0.0006)


@pytest.mark.parametrize("page", [RESULTS, "notebook/walker.md"])
def test_what_novelty_adds_to_walkers_is_paired_by_seeds(page):
    found = differences("walker-comparison", "mean", "accel-cenie", "accel")
    number = r"(-?\d+\.\d)"
    pattern = rf"{number}, {number} and {number}\D+mean {number} \({number} to {number}\)"
    text = words(page).replace(
        "in return (mean 13.4, 95 % interval -8.4 to 35.2)", "mean 13.4 (-8.4 to 35.2)"
    )
    matches = [[float(each) for each in match] for match in re.findall(pattern, text)]
    np.testing.assert_allclose(matches, [[*found, *interval(found)]], rtol=0, atol=0.06)
    for method in ("plr-cenie", "plr-robust"):
        assert f"`{method}`" in text
    lost = differences("walker-comparison", "mean", "plr-cenie", "plr-robust")
    assert " and ".join(f"{each:.1f}" for each in lost) in text


def test_differences_of_drivers_are_paired_by_seeds():
    text = words(RESULTS)
    number = r"(-?\d+)"
    value = rf"{number} \({number} to {number}\)"
    for one, pattern in {
        "dr": rf"by {value} on `bezier` and by {value}",
        "plr-cenie": rf"{value} and {value}\.",
    }.items():
        (match,) = re.findall(pattern, text)
        suites = ("racing-bezier", "racing-f1")
        found = [interval(differences(suite, "mean return", one, "plr-robust")) for suite in suites]
        np.testing.assert_allclose([float(each) for each in match], np.ravel(found), rtol=0, atol=0.6)


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next of the same rank."""
    rest = (DOCS / page).read_text().partition(f"\n{heading}\n")[2]
    return rest.partition(f"\n{heading.split()[0]} ")[0]


def listed(cell: str) -> list[float]:
    return [float(number) for number in cell.split(",")]


def test_intervals_of_the_quick_preset_are_those_of_its_seeds():
    text = section(RESULTS, "## The `quick` preset")
    found = re.findall(rf"\| ([\d., ]+) \| {VALUE}", text)
    assert len(found) == 4
    for seeds, *value in found:
        assert len(listed(seeds)) == 5
        np.testing.assert_allclose([float(each) for each in value], interval(listed(seeds)), atol=0.0006)


def test_intervals_of_the_quick_preset_in_the_notebook_are_those_of_its_seeds():
    text = section("notebook/preset.md", "## `make train`")
    tables = re.findall(r"(\| 0 \|.*?\| mean \|[^\n]*)", text, re.DOTALL)
    assert len(tables) == 2
    for table in tables:
        seeds = [float(each) for each in re.findall(r"^\| \d .*\| ([\d.]+) \|$", table, re.MULTILINE)]
        assert len(seeds) == 5
        (value,) = re.findall(r"([\d.]+) \(95 % interval over seeds ([\d.]+) to ([\d.]+)", table)
        np.testing.assert_allclose([float(each) for each in value], interval(seeds), atol=0.0011)


@pytest.mark.parametrize(
    ("data", "heading", "key", "column", "error"),
    [
        ("all-methods", "## All methods at equal environment steps", "arm", "score", 0.0006),
        ("walker-comparison", "## The walker", "method", "mean", 0.06),
    ],
)
def test_scores_by_seed_are_those_of_the_runs(data, heading, key, column, error):
    printed = dict(re.findall(r"^\| `([^`]+)` .*\| ([-\d., ]+) \|$", section(RESULTS, heading), re.MULTILINE))
    rows = rows_of(data)
    assert set(printed) == {row[key] for row in rows}
    for arm, cell in printed.items():
        scores = [float(row[column]) for row in rows if row[key] == arm]
        np.testing.assert_allclose(listed(cell), scores, rtol=0, atol=error)


def test_files_and_benchmarks_that_results_name_exist():
    for page in (RESULTS, "novelty.md", *NOTEBOOK):
        text = (DOCS / page).read_text()
        for target, section in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text):
            path = (DOCS / page).parent / target if target else DOCS / page
            assert path.exists(), (page, target)
            if section:
                headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
                assert section in anchors, (page, target, section)
        for name in re.findall(r"python\s+-m\s+benchmarks\.(\w+)", text):
            assert (ROOT / "benchmarks" / f"{name}.py").exists(), (page, name)
        for name in re.findall(r"(?:examples|benchmarks|tests)/[\w/]+\.py", text):
            assert (ROOT / name).exists(), (page, name)


def test_every_page_of_the_notebook_is_named_on_its_first_one():
    first = (DOCS / "notebook" / "README.md").read_text()
    for page in NOTEBOOK:
        assert page == "notebook/README.md" or f"]({Path(page).name})" in first, page


def test_results_are_written_in_the_words_of_the_field():
    """Private words of the notebook's authors stay out of the page for users."""
    found = re.findall(
        r"\b(exchange\w*|marks?|of today|today's|so many|of which|lest|whoever)\b", words(RESULTS)
    )
    assert found == []
