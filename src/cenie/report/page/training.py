"""The training logs: a few columns of `metrics.jsonl`, thinned, for each group of runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cenie.report.measure.curves import MetricRange, metric_range
from cenie.report.page.numbers import short
from cenie.report.runs import Group
from cenie.rundir.metrics import column_names

PLACES = 60
"""Points of a curve."""
MOST_RUNS = 10
"""Runs of a group whose logs are read."""
_TITLES = {
    "solved": "training levels: solved rate",
    "return": "training levels: return",
    "length": "training levels: episode length",
    "teacher/regret": "level buffer: mean regret",
    "teacher/regret_total": "level buffer: total regret",
    "teacher/novelty": "level buffer: mean novelty",
    "teacher/buffer_fill": "level buffer: part that is filled",
    "teacher/generation": "level buffer: mean generation",
    "student/entropy": "student: entropy of its policy",
    "student/value_loss": "student: value loss",
}
_LEVEL = "level/"
_MOST_LEVEL_COLUMNS = 8


def training_data(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """For each metric the curve of each group: the mean over its runs, and the lowest and highest of them."""
    described = _described(groups)
    names = [*_TITLES, *described]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number, group in enumerate(groups):
        curves = [run.curves(names, PLACES) for run in group.runs[:MOST_RUNS]]
        curves = [curve for curve in curves if np.isfinite(curve["updates"]).any()]
        if not curves:
            continue
        places = np.linspace(0, max(float(np.nanmax(curve["updates"])) for curve in curves), PLACES)
        for name in names:
            made = metric_range(curves, name, places)
            if made is not None:
                found[name].append({"group": number, **_data(made)})
    titles = _TITLES | {name: f"training levels: {name.removeprefix(_LEVEL)}" for name in described}
    return [{"name": name, "title": titles[name], "groups": made} for name, made in found.items() if made]


def _described(groups: Sequence[Group]) -> list[str]:
    """The domains' statistics of levels, as far as the logs have them."""
    names: dict[str, None] = {}
    for group in groups:
        columns = [name for name in column_names(group.runs[0].files.metrics) if name.startswith(_LEVEL)]
        names |= dict.fromkeys(columns[:_MOST_LEVEL_COLUMNS])
    return list(names)


def _data(found: MetricRange) -> dict[str, Any]:
    made = {"updates": short(found.updates), "mean": short(found.mean)}
    if found.runs > 1:
        made |= {"low": short(found.low), "high": short(found.high)}
    return made
