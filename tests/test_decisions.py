"""docs/decisions.md is true of the code: its tables of presets, of the F1 circuits and of racing."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenie import settings
from cenie.envs.domains import DOMAINS, find_domain
from cenie.envs.racing.circuits import CIRCUITS, LIMITS, f1_circuit
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.track import HALF_WIDTH
from cenie.experiment.config import config_type, find_domain_and_method
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.spaces import Box
from tests.envs.racing.test_circuits import BENCHMARK, OUTER

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "decisions.md").read_text()

NO_DECISIONS = re.compile(
    r"preset$"
    r"|run\."  # how often a run is looked at
    r"|student\.ppo\.decay_updates$"  # as many as updates
    r"|.*\bnetwork\.(?!kind$)"  # the parts of a network
)
"""Settings that the tables of presets leave out, as the page says."""

ABSENT = "-"
"""What a table has where a record of another kind has no such setting."""

MOST_NAMES = 3
"""More methods than this are not named one by one."""


def section(title: str) -> str:
    """What stands below a heading, up to the next of the same rank or a higher one."""
    rank = len(title.split()[0])
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^#{{1,{rank}}} |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of the one table in a text, without its heading."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return cells[2:]


def flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def values(domain: str) -> dict[str, list[dict[str, Any]]]:
    """Of each setting that presets differ in: by method, the default of its field and each preset's value."""
    found: dict[str, list[dict[str, Any]]] = {}
    for method in METHODS:
        entry, _ = find_domain_and_method(domain, method, None)
        fields = config_type(entry, method)(domain=domain, method=method, preset="none")
        configs = [fields, *(preset(domain, method, name) for name in entry.presets)]
        columns = [dict(flat(settings.to_data(config))) for config in configs]
        for path in {path: None for column in columns for path in column}:
            cells = [column.get(path, ABSENT) for column in columns]
            if NO_DECISIONS.match(path) is None and any(cell != cells[0] for cell in cells):
                known = found.setdefault(path, [{} for _ in columns])
                for column, cell in zip(known, cells, strict=True):
                    column[method] = cell
    return found


def shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def cell(by_method: Mapping[str, Any]) -> str:
    """The value of most methods, and others with the methods that have them."""
    count = Counter(map(shown, by_method.values()))
    first, *others = (value for value, _ in count.most_common())
    for value in others:
        names = [f"`{method}`" for method, its in by_method.items() if shown(its) == value]
        first += f"; {', '.join(names) if len(names) <= MOST_NAMES else 'some methods'}: {value}"
    return first


def table(domain: str) -> list[list[str]]:
    return [[f"`{path}`", *map(cell, columns)] for path, columns in sorted(values(domain).items())]


def lines(domain: str) -> str:
    """The table as it has to stand in the page."""
    head = ["setting", "default of the field", *(f"`{name}`" for name in find_domain(domain).presets)]
    body = [f"| {' | '.join(row)} |" for row in (head, *table(domain))]
    return "\n".join([body[0], "|" + "---|" * len(head), *body[1:]])


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_table_of_presets_has_every_setting_that_they_differ_in(domain):
    """If it fails, `python -m tests.test_decisions` prints what the page has to say."""
    assert rows(section(f"### Presets: {domain}")) == table(domain)


def test_a_preset_has_what_the_table_says_of_methods_that_differ():
    found = {row[0]: row[1:] for row in table("maze")}
    assert list(find_domain("maze").presets) == ["quick", "hard", "paper", "dcd"]
    assert found["`teacher.replay.priority.staleness_coef`"] == ["0.3", "0.3", "0.3", "0.5", "0.3"]
    assert found["`teacher.score`"] == ["pvl", "maxmc", "maxmc", "pvl", "pvl; `repaired`: maxmc"]


def test_open_points_of_the_papers_table_are_decided_as_the_page_says():
    said = {row[0]: row[3] for row in rows(section("## Open points of the paper's table"))}
    expected = {"maze": (0.3, 0.5, 0.8), "walker": (0.1, 0.5, 0.9), "racing": (1.0, 0.7, 0.5)}
    for domain, (temperature, staleness, accel) in expected.items():
        for method in ("plr-robust", "plr-cenie", "diplr", "accel", "accel-cenie"):
            teacher: Any = preset(domain, method, "paper").teacher
            replay, edits = teacher.replay, method.startswith("accel")
            assert (replay.priority.temperature, replay.priority.staleness_coef) == (temperature, staleness)
            assert replay.replay_prob == (accel if edits else 0.5)
            assert teacher.generator == ("simple" if edits else "random")
    originals: list[Any] = [preset(domain, "accel", "dcd").teacher for domain in expected]
    assert [each.replay.priority.staleness_coef for each in originals] == [0.3, 0.5, 0.7]
    assert said["staleness rho, mazes"] == "`paper`: 0.5 for all methods; `dcd`: 0.3"
    assert said["staleness rho, walker"] == "`paper` and `dcd`: 0.5"
    assert said["staleness rho, racing"] == "`paper` and `dcd`: 0.7"
    assert said["replay rate of ACCEL-CENIE"] == "`paper`: 0.8, 0.9, in racing 0.5 as PLR"
    assert "teacher.generator=simple" in said["what ACCEL generates"]
    quick: Any = preset("maze", "accel", "quick").teacher
    assert quick.generator == "random"
    racing = {row[0]: row[3] for row in rows(section("## Racing").partition("###")[0])}
    assert "`paper` and `dcd` play `f1-monitor`" in racing["circuits in evaluation"]
    assert {preset("racing", "plr-cenie", name).run.suite for name in ("paper", "dcd")} == {"f1-monitor"}


def test_every_anchor_of_the_page_is_a_heading():
    headings = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings


def test_the_table_of_circuits_is_that_of_our_lines():
    """Lengths and directions are of our lines; gaps to the original's were measured with these very lines."""
    table = {row[0]: row[1:] for row in rows(section("### Shapes of the F1 circuits"))}
    assert list(table) == list(LIMITS)
    for name, (length, original, _, largest, _, direction, turned, *_) in table.items():
        circuit = f1_circuit(name, 4096, LIMITS[name])
        steps = np.hypot(*(np.roll(circuit.nodes, -1, axis=1) - circuit.nodes))
        assert float(steps.sum()) == pytest.approx(float(length), abs=1), name
        assert float(original) == pytest.approx(BENCHMARK[name][0], abs=1.5), name
        facing = math.degrees(float(f1_circuit(name, 1024, LIMITS[name]).normal[0])) - 90
        assert abs((facing - float(direction) + 180) % 360 - 180) < 0.1, name
        wide = float(largest.strip("*")) > 2 * HALF_WIDTH
        assert largest.startswith("**") == wide, name
        theirs = float(direction) - float(turned)
        assert abs((theirs - OUTER[name][2] + 180) % 360 - 180) < 0.15, name
    text = " ".join(section("### Shapes of the F1 circuits").split())
    wide = [name for name, row in table.items() if row[3].startswith("**")]
    assert f"{', '.join(wide[:-1])} and {wide[-1]}" in text


def test_no_circuit_that_has_changed_is_farther_from_the_original_than_before():
    """The largest gaps were 39 in Singapore, 22 in Spain; only Monaco's is wider than the road, as before."""
    table = {row[0]: row[1:] for row in rows(section("### Shapes of the F1 circuits"))}
    changed = {
        name: [float(cell.strip("*")) for cell in row] for name, row in table.items() if row[-1] != "-"
    }
    for name, (_, _, mean, largest, start, _, turned, _, *before) in changed.items():
        assert mean <= before[0], name
        assert largest <= before[1] - (0 if name == "Monaco" else 1), name
        assert largest < 2 * HALF_WIDTH or name == "Monaco", name
        assert start < before[2], name
        assert abs(turned) < max(abs(before[3]), 5), name
    versions = {name for name, found in CIRCUITS.items() if ", version " in found["circuit"]}
    assert set(changed) - {"Monaco"} == versions


def test_racing_differs_from_car_racing_v3_as_the_table_says():
    car_racing = pytest.importorskip("gymnasium.envs.box2d.car_racing")
    said = {row[0]: row[1:] for row in rows(section("### Differences from CarRacing-v3"))}
    theirs, ours = car_racing.CarRacing(), Racing(RacingConfig())
    assert theirs.lap_complete_percent == 0.95
    assert said["a lap"][0].startswith("95 %")
    assert theirs.action_space.low.tolist() == [-1, 0, 0]
    assert ours.action_space == Box((3,), 0.0, 1.0)
    assert said["steering"][0].startswith("-1")
    assert said["steering"][1].startswith("0 (left) to 1")
    assert said["an action lasts"][1] == str(ours.config.action_repeat)
    for _, _, switch in said.values():
        for path, value in re.findall(r"`(\S+)=(\S+)`", switch):
            overrides = {path: {"false": False, "1": 1}.get(value, value)}
            assert preset("racing", "dr", "paper", overrides)


if __name__ == "__main__":
    for domain in DOMAINS:
        print(f"### Presets: {domain}\n\n{lines(domain)}\n")
