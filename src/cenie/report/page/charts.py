"""The data of the page's charts: results of students on held-out levels, and what was logged of training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cenie.report.measure.curves import STATISTICS, metric_range, score_curve
from cenie.report.measure.scores import GroupScores, SuiteScores
from cenie.report.measure.stats import Estimate
from cenie.report.page.numbers import one, short
from cenie.report.runs import Group
from cenie.rundir.metrics import column_names

MOST_POINTS = 60
"""Points of a curve."""
MOST_DOTS = 20
"""Runs of a group whose own results on a level are shown as dots."""
MOST_LOGS = 10
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


def suite_results(
    groups: Sequence[Group], measured: Mapping[str, Sequence[SuiteScores]], *, stratified: bool = False
) -> list[dict[str, Any]]:
    """For each domain and suite: the curve of each group, and its final results level by level.

    `measured` has the suites of each domain.
    """
    return [
        {
            "domain": domain,
            "name": suite.suite,
            "levels": list(suite.levels),
            "groups": [
                _group(groups.index(each.group), each, suite, stratified) for each in _in_order(suite, groups)
            ],
        }
        for domain, suites in measured.items()
        for suite in suites
    ]


def _in_order(suite: SuiteScores, groups: Sequence[Group]) -> Iterable[GroupScores]:
    """The groups of a suite in the order of the page; untrained ones show what there is."""
    return sorted((*suite.groups, *suite.untrained), key=lambda each: groups.index(each.group))


def _group(number: int, scores: GroupScores, suite: SuiteScores, stratified: bool) -> dict[str, Any]:
    aggregates = scores.aggregates(stratified=stratified)
    return {
        "group": number,
        "seeds": [run.seed for run in scores.runs],
        "curve": _curve(scores.group, suite.suite, stratified),
        "levels": [_level(scores, place) for place in range(len(suite.levels))],
        "overall": {name: _estimate(aggregates.get(name)) for name in STATISTICS},
    }


def _level(scores: GroupScores, place: int) -> dict[str, Any]:
    """Median, quartiles and the single runs, as the paper's bars show them; `unknown` of them are NaN."""
    low, middle, high = scores.quartiles[:, place].tolist()
    values = scores.scores[:, place]
    return {
        "median": one(middle),
        "low": one(low),
        "high": one(high),
        "runs": short(values[:MOST_DOTS]),
        "unknown": sum(value != value for value in values.tolist()),
    }


def _estimate(found: Estimate | None) -> list[int | float | None]:
    """A statistic with its interval; None where a score is NaN, or there is no interval."""
    return [None, None, None] if found is None else [one(found.value), one(found.low), one(found.high)]


def _curve(group: Group, suite: str, stratified: bool) -> dict[str, Any] | None:
    runs = [run for run in group.runs if suite in run.suites]
    evaluations = [run.evaluations_by_suite[suite] for run in runs if suite in run.evaluations_by_suite]
    found = score_curve(evaluations, most=MOST_POINTS, stratified=stratified)
    if found is None:
        return None
    return {
        "updates": short(found.updates),
        "env_steps": [one(value) for value in found.env_steps.tolist()],
        "runs": found.runs.tolist(),
        **{name: [_estimate(each) for each in estimates] for name, estimates in found.estimates.items()},
    }


def training_data(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """For each metric the curve of each group: the mean over its runs, and the lowest and highest of them."""
    described = _described(groups)
    names = [*_TITLES, *described]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number, group in enumerate(groups):
        curves = [run.curves(names, MOST_POINTS) for run in group.runs[:MOST_LOGS]]
        curves = [curve for curve in curves if np.isfinite(curve["updates"]).any()]
        if not curves:
            continue
        places = np.linspace(0, max(float(np.nanmax(curve["updates"])) for curve in curves), MOST_POINTS)
        for name in names:
            made = metric_range(curves, name, places)
            if made is not None:
                ends = {"low": short(made.low), "high": short(made.high)} if made.runs > 1 else {}
                mean = {"updates": short(made.updates), "mean": short(made.mean)}
                found[name].append({"group": number, **mean, **ends})
    titles = _TITLES | {name: f"training levels: {name.removeprefix(_LEVEL)}" for name in described}
    return [{"name": name, "title": titles[name], "groups": made} for name, made in found.items() if made]


def _described(groups: Sequence[Group]) -> list[str]:
    """The domains' statistics of levels, as far as the logs have them."""
    names: dict[str, None] = {}
    for group in groups:
        columns = [name for name in column_names(group.runs[0].files.metrics) if name.startswith(_LEVEL)]
        names |= dict.fromkeys(columns[:_MOST_LEVEL_COLUMNS])
    return list(names)
