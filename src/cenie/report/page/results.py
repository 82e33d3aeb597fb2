"""What the students came to on held-out levels: learning curves and results of each level, with intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cenie.report.measure import stats
from cenie.report.measure.scores import counted_runs
from cenie.report.page.numbers import evenly, one, short
from cenie.report.runs import Group
from cenie.rundir.evaluations import Episodes
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run

MOST_POINTS = 60
"""Of a learning curve."""
RESAMPLES = 1000
"""Of a bootstrap at one point of a curve."""
MOST_DOTS = 20
"""Runs of a group whose own results on a level are shown as dots."""
_TOGETHER = 0.02
"""Evaluations that are no further apart than this part of a training count as one."""
STATISTICS = {"IQM": stats.iqm, "mean": stats.mean}


def suite_results(
    groups: Sequence[Group], problems: list[str], *, stratified: bool = False
) -> list[dict[str, Any]]:
    """For each domain and suite: the curve of each group, and its final results level by level.

    What cannot be read is added to the `problems`.
    """
    results = []
    for domain in dict.fromkeys(group.domain for group in groups):
        own = [(number, group) for number, group in enumerate(groups) if group.domain == domain]
        read = {id(run): _readable(run, problems) for _, group in own for run in group.runs}
        suites = dict.fromkeys(suite for found in read.values() for suite in found)
        for suite in suites:
            made = [_of_group(number, group, suite, read, stratified) for number, group in own]
            made = [each for each in made if each is not None]
            if made:
                results.append(_suite(domain, suite, made, stratified))
    return results


def _readable(run: Run, problems: list[str]) -> list[str]:
    """The suites that a run has played, as far as its tables can be read."""
    try:
        return run.suites
    except RunDirectoryError as error:
        problems.append(f"evaluations of {run.path} are left out: {error}")
        return []


def _of_group(
    number: int, group: Group, suite: str, read: dict[int, list[str]], stratified: bool
) -> dict[str, Any] | None:
    runs = [run for run in group.runs if suite in read[id(run)]]
    if not runs:
        return None
    counted = [run for run in counted_runs(group, suite) if run in runs] or runs
    final = [run.final_episodes(suite).level_means() for run in counted]
    curve = _curve([run.evaluations.of(suite) for run in runs], stratified)
    return {"group": number, "final": final, "curve": curve, "seeds": [run.seed for run in counted]}


def _suite(domain: str, suite: str, made: list[dict[str, Any]], stratified: bool) -> dict[str, Any]:
    levels = list(dict.fromkeys(name for each in made for run in each["final"] for name in run))
    return {
        "domain": domain,
        "name": suite,
        "levels": levels,
        "groups": [
            {
                "group": each["group"],
                "seeds": each["seeds"],
                "curve": each["curve"],
                "levels": [_level(each["final"], level) for level in levels],
                "overall": _overall(each["final"], stratified),
            }
            for each in made
        ],
    }


def _level(final: list[dict[str, float]], level: str) -> dict[str, Any]:
    """Median, quartiles and the single runs, as the paper's bars show them; `unknown` of them are NaN."""
    values = np.array([run[level] for run in final if level in run])
    if not len(values):
        return {"median": None, "low": None, "high": None, "runs": [], "unknown": 0}
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {
        "median": one(middle),
        "low": one(low),
        "high": one(high),
        "runs": short(values[:MOST_DOTS]),
        "unknown": int(np.isnan(values).sum()),
    }


def _overall(final: list[dict[str, float]], stratified: bool) -> dict[str, Any]:
    """Each statistic over the levels that all runs have played, with its interval; None where a score is NaN
    or, for the ends, where there is no interval."""
    shared = [level for level in final[0] if all(level in run for run in final)]
    scores = np.array([[run[level] for level in shared] for run in final])
    return {
        name: _estimate(scores, statistic, stats.RESAMPLES, stratified)
        for name, statistic in STATISTICS.items()
    }


def _estimate(
    scores: np.ndarray, statistic: stats.Statistic, resamples: int, stratified: bool
) -> list[int | float | None]:
    if not scores.size:
        return [None, None, None]
    found = stats.estimate(scores, statistic, stratified=stratified, resamples=resamples)
    return [one(found.value), one(found.low), one(found.high)]


def _curve(evaluations: list[Episodes], stratified: bool) -> dict[str, Any] | None:
    """Statistics over the runs at the evaluations of all of them.

    Runs evaluate at slightly different updates, so that each is interpolated between its own evaluations;
    before its first one and after its last one it does not count.
    """
    tables = [table for table in map(_table, evaluations) if table is not None]
    if not tables:
        return None
    shared = [level for level in tables[0][2] if all(level in table[2] for table in tables)]
    places = _apart(np.unique(np.concatenate([table[0] for table in tables])))
    places = places[evenly(len(places), MOST_POINTS)]
    points: dict[str, list[Any]] = {"updates": short(places), "env_steps": [], "runs": []}
    points |= {name: [] for name in STATISTICS}
    for place in places:
        present = [table for table in tables if table[0][0] <= place <= table[0][-1]]
        rows = [
            [np.interp(place, updates, scores[level]) for level in shared] for updates, _, scores in present
        ]
        steps = [np.interp(place, at, made) for at, made, _ in present]
        points["env_steps"].append(one(float(np.mean(steps))))
        points["runs"].append(len(present))
        for name, statistic in STATISTICS.items():
            points[name].append(_estimate(np.array(rows), statistic, RESAMPLES, stratified))
    return points


def _apart(places: np.ndarray) -> np.ndarray:
    """Without places that the next one follows at once: runs evaluate a few updates earlier or later."""
    return places[np.append(np.diff(places) > _TOGETHER * places[-1], True)]


def _table(episodes: Episodes) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]] | None:
    """When a run was evaluated, in updates and environment steps, and the score of each level then."""
    if not len(episodes):
        return None
    curves = episodes.over_training
    return curves.updates.astype(float), curves.env_steps.astype(float), curves.always_played()
