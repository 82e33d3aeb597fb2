"""Curves over training: scores on held-out levels, and columns of the metrics, over the runs of a group.

A figure shows means with standard errors as far as all runs go (`Curve`). The page shows statistics with
intervals at every evaluation (`ScoreCurve`), and means between the lowest and the highest run
(`MetricRange`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenie.report.measure import stats
from cenie.report.runs import Group
from cenie.rundir.evaluations import Episodes, LevelCurves
from cenie.rundir.run import Run

LOGGED = ("return", "solved", "length", "teacher/buffer_fill", "teacher/novelty", "teacher/regret_total")
"""The columns of the metrics that figures show."""
POINTS = 200
"""The largest number of points in the mean of several curves."""
RESAMPLES = 1000
"""Resamples of a bootstrap at one point of a curve."""
STATISTICS = {"IQM": stats.iqm, "mean": stats.mean}
"""The statistics of score curves, by the names of `stats.AGGREGATES`."""
_TOGETHER = 0.02
"""Evaluations that are no further apart than this part of a training count as one."""


@dataclass(frozen=True, eq=False)
class Curve:
    """The mean of the runs of a group over training, and its standard error (NaN for a single run)."""

    label: str
    x: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    runs: int


def evaluation_curves(
    group: Group, suite: str, *, over: str = "updates", level: str | None = None
) -> Curve | None:
    """The score on a suite (or on a level of it) during training.

    Args:
        group: The runs.
        suite: The name of the suite.
        over: The x-axis: `updates` or `env_steps`.
        level: The name of a level; by default the score is the mean over all levels of the suite.

    Returns:
        The mean over the runs with its standard error; None if the suite was not evaluated twice.
    """
    lines = []
    for run in group.counted:
        episodes = run.evaluations_by_suite.get(suite)
        progress = None if episodes is None else episodes.over_training
        if progress is None or level not in (None, *progress.levels):
            continue
        chosen = slice(None) if level is None else [progress.levels.index(level)]
        scores = progress.scores[:, chosen].mean(axis=1)
        lines.append(known_points(getattr(progress, over), scores))
    return mean_curve(group.label, [line for line in lines if line.shape[1] > 1])


def logged(run: Run) -> dict[str, np.ndarray]:
    """The columns of a run's metrics that figures show, with the counters."""
    return run.curves(LOGGED)


def metric_curve(group: Group, name: str, *, over: str = "updates") -> Curve | None:
    """A column of the metrics during training.

    Args:
        group: The runs.
        name: One of the columns that figures show, such as `solved` or `return`.
        over: The x-axis: `updates` or `env_steps`.

    Returns:
        The mean over the runs with its standard error; None if no run has the column.
    """
    every = [logged(run) for run in group.counted]
    lines = [known_points(columns[over], columns[name]) for columns in every if name in columns]
    return mean_curve(group.label, [line for line in lines if line.shape[1] > 1])


def known_points(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The points [2, points] of a curve whose both coordinates are finite."""
    points = np.array([x, y], float)
    return points[:, np.isfinite(points).all(axis=0)]


def updates_at(run: Run, cycles: Any) -> np.ndarray | None:
    """After how many updates these cycles of a run were; None if its metrics do not say."""
    columns = logged(run)
    counted = known_points(columns["cycle"], columns["updates"])
    return np.interp(cycles, *counted) if counted.size else None


def mean_curve(label: str, lines: Sequence[np.ndarray]) -> Curve | None:
    """The mean of curves [2, points], each read between its points, as far as all of them go.

    Where all have the same places they are kept; otherwise places are equally spaced.
    """
    if not lines:
        return None
    begin, end = max(line[0, 0] for line in lines), min(line[0, -1] for line in lines)
    first = lines[0][0]
    same = all(np.array_equal(line[0], first) for line in lines)
    x = first if same and len(first) <= POINTS else np.linspace(begin, end, POINTS)
    values = np.stack([np.interp(x, line[0], line[1]) for line in lines])
    return Curve(label, x, values.mean(axis=0), np.asarray(stats.standard_error(values)), len(lines))


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """Statistics over the runs at the evaluations of all of them, with their intervals.

    `runs` is how many count at each place.
    """

    updates: np.ndarray
    env_steps: np.ndarray
    runs: np.ndarray
    estimates: dict[str, list[stats.Estimate]]


def score_curve(evaluations: Sequence[Episodes], *, most: int, stratified: bool = False) -> ScoreCurve | None:
    """Statistics over the levels that all runs have played at all times.

    Runs evaluate at slightly different updates, so that each is interpolated between its own evaluations;
    before its first one and after its last one it does not count.

    Args:
        evaluations: for each run its episodes on a suite.
        most: how many points the curve has at most.
        stratified: for the intervals of rliable.

    Returns:
        The curve; None if no run was evaluated.
    """
    runs = [(own, own.always_played()) for own in (each.over_training for each in evaluations if len(each))]
    if not runs:
        return None
    shared = [level for level in runs[0][1] if all(level in scores for _, scores in runs)]
    places = _apart(np.unique(np.concatenate([own.updates for own, _ in runs]).astype(float)))
    places = places[evenly(len(places), most)]
    env_steps, counts = [], []
    estimates: dict[str, list[stats.Estimate]] = {name: [] for name in STATISTICS}
    for place in places:
        present = [(own, scores) for own, scores in runs if own.updates[0] <= place <= own.updates[-1]]
        table = np.array([_at(place, own, [scores[level] for level in shared]) for own, scores in present])
        env_steps.append(float(np.mean([_at(place, own, [own.env_steps]) for own, _ in present])))
        counts.append(len(present))
        for name, statistic in STATISTICS.items():
            estimates[name].append(_estimate(table, statistic, stratified))
    return ScoreCurve(places, np.array(env_steps), np.array(counts), estimates)


def _at(place: float, run: LevelCurves, columns: Sequence[np.ndarray]) -> list[float]:
    """The values of some columns of a run between its evaluations."""
    return [float(np.interp(place, run.updates, column)) for column in columns]


def _estimate(scores: np.ndarray, statistic: stats.Statistic, stratified: bool) -> stats.Estimate:
    if not scores.size:
        return stats.Estimate(np.nan, np.nan, np.nan)
    return stats.estimate(scores, statistic, stratified=stratified, resamples=RESAMPLES)


def _apart(places: np.ndarray) -> np.ndarray:
    """Without places that the next one follows at once: runs evaluate a few updates earlier or later."""
    return places[np.append(np.diff(places) > _TOGETHER * places[-1], True)]


@dataclass(frozen=True, eq=False)
class MetricRange:
    """A column of the metrics: the mean over runs, and the lowest and the highest of them."""

    updates: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: int


def metric_range(
    curves: Sequence[dict[str, np.ndarray]], name: str, places: np.ndarray
) -> MetricRange | None:
    """A column of the metrics of several runs at the same places; a run counts as far as it has got."""
    rows = []
    for curve in curves:
        at, values = known_points(curve["updates"], curve[name])
        if len(at) > 1:
            rows.append(np.interp(places, at, values, left=values[0], right=np.nan))
    if not rows:
        return None
    values = np.array(rows)
    present = np.isfinite(values).any(axis=0)
    values = values[:, present]
    ends = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    return MetricRange(places[present], np.nanmean(values, axis=0), *ends, len(rows))


def evenly(count: int, most: int) -> list[int]:
    """Choose at most `most` of the numbers below `count`, the first and the last included."""
    if count <= most:
        return list(range(count))
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()
