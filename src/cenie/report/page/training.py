"""What was logged while training: a few columns of `metrics.jsonl`, thinned, for each group of runs."""

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from cenie.report.page.numbers import short
from cenie.report.runs import Group
from cenie.rundir.run import Run
from cenie.system.durable import open_regular

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


def training_data(groups: Sequence[Group], problems: list[str]) -> list[dict[str, Any]]:
    """For each metric the curve of each group: the mean over its runs, and the lowest and highest of them."""
    described = _described(groups)
    names = [*_TITLES, *described]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number, group in enumerate(groups):
        curves = [_read(run, names, problems) for run in group.runs[:MOST_RUNS]]
        curves = [curve for curve in curves if np.isfinite(curve["updates"]).any()]
        if not curves:
            continue
        places = np.linspace(0, max(float(np.nanmax(curve["updates"])) for curve in curves), PLACES)
        for name in names:
            made = _curve(curves, name, places)
            if made is not None:
                found[name].append({"group": number, **made})
    titles = _TITLES | {name: f"training levels: {name.removeprefix(_LEVEL)}" for name in described}
    return [{"name": name, "title": titles[name], "groups": made} for name, made in found.items() if made]


def _described(groups: Sequence[Group]) -> list[str]:
    """What domains say of levels, as far as the logs have it."""
    names: dict[str, None] = {}
    for group in groups:
        run = group.runs[0]
        columns = [name for name in _first_row(run) if name.startswith(_LEVEL)]
        names |= dict.fromkeys(columns[:_MOST_LEVEL_COLUMNS])
    return list(names)


def _first_row(run: Run) -> dict[str, Any]:
    try:
        with open(open_regular(run.files.metrics, os.O_RDONLY), "rb") as file:
            row = json.loads(file.readline(2**20))
    except (OSError, ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _read(run: Run, names: Sequence[str], problems: list[str]) -> dict[str, np.ndarray]:
    return run.curves(names, PLACES)


def _curve(curves: list[dict[str, np.ndarray]], name: str, places: np.ndarray) -> dict[str, Any] | None:
    """A metric of several runs at the same places; a run counts as far as it has got."""
    rows = []
    for curve in curves:
        known = np.isfinite(curve[name]) & np.isfinite(curve["updates"])
        if known.sum() > 1:
            at, values = curve["updates"][known], curve[name][known]
            rows.append(np.interp(places, at, values, left=values[0], right=np.nan))
    if not rows:
        return None
    values = np.array(rows)
    present = np.isfinite(values).any(axis=0)
    values = values[:, present]
    made = {"updates": short(places[present]), "mean": short(np.nanmean(values, axis=0))}
    if len(rows) > 1:
        made |= {"low": short(np.nanmin(values, axis=0)), "high": short(np.nanmax(values, axis=0))}
    return made
