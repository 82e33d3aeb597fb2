"""Statistics of a few runs on some tasks, with intervals (Agarwal et al. 2021, "Deep RL at the edge of the
statistical precipice").

Scores are arrays of the shape [..., runs, tasks], on a scale on which 0 is bad and 1 is good (the bounds of a
suite see to that); nothing is clipped but where a definition says so. Statistics reduce the last two axes, so
that all resamples of a bootstrap are reckoned at once. All statistics agree with rliable's of these names
(tests/report/golden.json); a score that is NaN makes each of them NaN.

Intervals are over *runs*. A run is good or bad as a whole, on all levels at once, so that its levels are no
independent samples: rliable's bootstrap, which draws runs for each level by itself, holds the truth in 45 to
61 % of the cases where it says 95 % (2 to 10 runs that differ twice as much as their levels do).
Here a mean over runs has Student's interval, and every other statistic a bootstrap of whole runs, whose
percentiles are widened as Student's t is wider than a normal distribution (Hesterberg 2015, "What teachers
should know about the bootstrap"). Both hold it in 91 to 97 %, the bootstrap from `FEW` runs on; of two runs
it holds it in half of the cases.
`stratified=True` has the intervals of rliable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from cenie.rundir.worst import WORST

Scores = np.ndarray
Values = np.ndarray | np.floating[Any]
"""A number for each array of scores; one number for one array."""
Statistic = Callable[[np.ndarray], Values]

RESAMPLES = 2000
CONFIDENCE = 0.95
FEW = 5
"""Runs from which on a bootstrap of whole runs holds the truth about as often as it says."""
COVERS = (
    "A 95 % interval is over runs: it is to hold what other seeds of the same settings would come to on "
    "these same levels. It says nothing of other levels, other settings or longer training."
)
COVERS_STRATIFIED = (
    "A 95 % interval is a stratified bootstrap as in rliable: runs are drawn for each level by itself, as if "
    "a run that is good on one level were not for that reason good on others. Where runs are good or bad as "
    "a whole it is far too narrow."
)
_CHUNK = 2**22
"""Numbers of resampled scores that are in memory at the same time."""


@dataclass(frozen=True)
class Mean:
    """A mean over runs and its standard error, which is NaN for a single run."""

    value: float
    error: float


@dataclass(frozen=True)
class Estimate:
    """A statistic and its interval.

    The ends are NaN where there is one run only, which has no spread; all three are NaN if a score is.
    """

    value: float
    low: float
    high: float


def iqm(scores: Scores) -> Values:
    """Inter-quartile mean: of all scores of all runs, without the lowest and the highest quarter.

    Args:
        scores: Scores [..., runs, tasks].

    Returns:
        The means [...]; NaN where a score is NaN.
    """
    flat = np.sort(_merged(scores), axis=-1)
    count = flat.shape[-1]
    cut = int(0.25 * count)
    return _if_known(flat[..., cut : count - cut].mean(axis=-1), scores)


def median(scores: Scores) -> Values:
    """The median over tasks of the mean over runs."""
    return np.median(np.mean(scores, axis=-2), axis=-1)


def mean(scores: Scores) -> Values:
    """The mean over tasks of the mean over runs."""
    return np.mean(scores, axis=(-2, -1))


def optimality_gap(scores: Scores, target: float = 1.0) -> Values:
    """By how much scores miss a target beyond which improvements do not count; lower is better."""
    return target - np.minimum(scores, target).mean(axis=(-2, -1))


def cvar(scores: Scores, worst: float = WORST) -> Values:
    """The mean score on the worst part of the levels, level by level, averaged over runs.

    The conditional value at risk of the score of a level: every run has worst levels of its own, and the
    last of them counts in part where `worst` is no whole number of levels.
    """
    ordered = np.sort(scores, axis=-1)
    levels = ordered.shape[-1]
    weights = np.clip(worst * levels - np.arange(levels), 0.0, 1.0)
    return ((ordered * weights).sum(axis=-1) / weights.sum()).mean(axis=-1)


def probability_of_improvement(scores: Scores, others: Scores) -> Values:
    """The probability that a run is better than one of the others on a task: the mean over tasks.

    Pairs that are equal count half (Mann and Whitney's U statistic over the number of pairs).
    """
    ours, theirs = scores[..., :, None, :], others[..., None, :, :]
    better = ((ours > theirs) + 0.5 * (ours == theirs)).mean(axis=(-3, -2, -1))
    return _if_known(_if_known(better, scores), others)


def score_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """The part of all runs on all tasks whose score is above each threshold: [..., thresholds]."""
    flat = _merged(scores)
    return np.where(
        _known(scores)[..., None], (flat[..., None, :] > thresholds[:, None]).mean(axis=-1), np.nan
    )


CVAR = f"CVaR {WORST:.0%}"

AGGREGATES: dict[str, Statistic] = {
    "IQM": iqm,
    "median": median,
    "mean": mean,
    "optimality gap": optimality_gap,
    CVAR: cvar,
}
"""The statistics of a table, by their names."""

MEANS_OVER_RUNS = (mean, optimality_gap, cvar)
"""Statistics that are the mean over runs of what each run has by itself."""


def _merged(scores: Scores) -> np.ndarray:
    return scores.reshape(*scores.shape[:-2], -1)


def _known(scores: Scores) -> np.ndarray:
    return np.asarray(~np.isnan(scores).any(axis=(-2, -1)))


def _if_known(values: Values, scores: Scores) -> Values:
    """NaN in the place of a value that is of no use, since a score is NaN: sorting and comparing hide it."""
    return np.where(_known(scores), values, np.nan)[()]


def resample_indices(
    rng: np.random.Generator, runs: int, tasks: int, *, resamples: int = RESAMPLES, stratified: bool = False
) -> np.ndarray:
    """Which runs a bootstrap draws for each task, with replacement: [resamples, runs, tasks].

    All tasks draw the same runs; in a `stratified` bootstrap each draws runs of its own.
    """
    drawn = rng.integers(0, runs, (resamples, runs, tasks if stratified else 1))
    return np.broadcast_to(drawn, (resamples, runs, tasks))


def resampled(scores: Scores, indices: np.ndarray) -> np.ndarray:
    """The scores [runs, tasks] of the drawn runs: [resamples, runs, tasks]."""
    return np.take_along_axis(scores[None], indices, axis=1)


def estimate(
    scores: Scores,
    statistic: Statistic,
    *,
    stratified: bool = False,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """A statistic with an interval over the runs.

    Args:
        scores: [runs, tasks].
        statistic: one of `AGGREGATES`, or any function that reduces the last two axes.
        stratified: rliable's interval, a bootstrap that draws runs for each task by itself. It is too narrow
            where runs are good or bad as a whole. (Not of `cvar`: levels of different runs mixed would make
            every resample worse.)
        resamples: of a bootstrap.
        confidence: how often the interval is to hold the truth.
        seed: of a bootstrap.

    Returns:
        The value and the ends: Student's t for `MEANS_OVER_RUNS`, a bootstrap of whole runs for others.
    """
    value = float(statistic(scores))
    if len(scores) < 2 or np.isnan(value):
        return Estimate(value, np.nan, np.nan)
    stratified = stratified and statistic is not cvar
    if statistic in MEANS_OVER_RUNS and not stratified:
        low, high = t_interval(np.asarray(statistic(scores[:, None, :])), confidence)
    else:
        drawn = bootstrap(scores, statistic, stratified=stratified, resamples=resamples, seed=seed)
        low, high = interval(drawn, confidence, runs=None if stratified else len(scores))
    return Estimate(value, float(low), float(high))


def t_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> np.ndarray:
    """Student's interval for the mean of values [runs, ...]: the ends [2, ...], NaN for a single run."""
    centre = np.mean(values, axis=0)
    half = (
        stdtrit(len(values) - 1, (1 + confidence) / 2) * standard_error(values) if len(values) > 1 else np.nan
    )
    return np.stack([centre - half, centre + half])


def bootstrap(
    scores: Scores,
    statistic: Callable[..., Values],
    others: Scores | None = None,
    *,
    stratified: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> np.ndarray:
    """The statistic of each resample: [resamples, ...].

    A statistic of two sides also gets `others`, whose runs are drawn independently.
    """
    sides = (scores,) if others is None else (scores, others)
    rng = np.random.default_rng(seed)
    size = max(1, _CHUNK // max(scores.size * (1 if others is None else len(others)), 1))
    parts = []
    for at in range(0, resamples, size):
        count = min(size, resamples - at)
        drawn = [
            resampled(side, resample_indices(rng, *side.shape, resamples=count, stratified=stratified))
            for side in sides
        ]
        parts.append(np.asarray(statistic(*drawn)))
    return np.concatenate(parts)


def interval(drawn: np.ndarray, confidence: float = CONFIDENCE, *, runs: int | None = None) -> np.ndarray:
    """The two ends of the middle part of the resamples: [2, ...].

    With `runs`, where whole runs were drawn, the part is widened: a resample of n runs has (n - 1) / n of the
    variance that it should have, and the spread of few runs is not known but estimated (Hesterberg
    2015). Of fewer than `FEW` runs it then reaches from the worst resample to the best, and is still too
    narrow.
    """
    outside = (1.0 - confidence) / 2.0
    if runs is not None:
        outside = float(ndtr(np.sqrt(runs / (runs - 1)) * stdtrit(runs - 1, outside)))
    return np.quantile(drawn, [outside, 1.0 - outside], axis=0)


def estimate_improvement(
    scores: Scores,
    others: Scores,
    *,
    stratified: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The probability of improvement with its interval; the runs of both sides are drawn independently."""
    value, fewest = float(probability_of_improvement(scores, others)), min(len(scores), len(others))
    if fewest < 2 or np.isnan(value):
        return Estimate(value, np.nan, np.nan)
    how: Any = {"stratified": stratified, "resamples": resamples, "seed": seed}
    drawn = bootstrap(scores, probability_of_improvement, others, **how)
    low, high = interval(drawn, runs=None if stratified else fewest)
    return Estimate(value, float(low), float(high))


def estimate_profile(
    scores: Scores,
    thresholds: np.ndarray,
    *,
    stratified: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """The profile with pointwise intervals: `value`, `low` and `high`, each [thresholds].

    A profile is a mean over runs, too: its interval is Student's, as far as a part of a whole can go.
    """
    value = score_profile(scores, thresholds)
    if len(scores) < 2 or np.isnan(value).any():
        nothing = np.full(value.shape, np.nan)
        return {"value": value, "low": nothing, "high": nothing}
    if stratified:
        how: Any = {"stratified": True, "resamples": resamples, "seed": seed}
        low, high = interval(bootstrap(scores, lambda each: score_profile(each, thresholds), **how))
    else:
        low, high = np.clip(t_interval(score_profile(scores[:, None, :], thresholds)), 0.0, 1.0)
    return {"value": value, "low": low, "high": high}


def few_runs(runs: int) -> str:
    """A caution about intervals of this few runs, in a sentence; empty if there are enough."""
    if runs >= FEW:
        return ""
    if runs == 1:
        return "one run has no interval: a difference from it may be luck"
    return (
        f"{runs} runs are few: intervals of means hold but are wide; intervals of IQM, median and "
        f"probability of improvement are too narrow below {FEW} runs"
    )


def aggregate(scores: Scores, **options: Any) -> dict[str, Estimate]:
    """All `AGGREGATES` of some scores, with their intervals.

    Args:
        scores: Scores [runs, tasks].
        options: Options of `estimate`, such as `stratified`.

    Returns:
        IQM, median, mean, optimality gap and CVaR by these names, each with `value`, `low` and `high`.
    """
    return {name: estimate(scores, statistic, **options) for name, statistic in AGGREGATES.items()}


def mean_over_runs(values: np.ndarray) -> Mean:
    """The mean of values [runs] with its standard error."""
    return Mean(float(values.mean()), float(standard_error(values)))


def standard_error(values: np.ndarray, axis: int = 0) -> Values:
    """The standard error of the mean along an axis; NaN for a single value."""
    count = values.shape[axis]
    if count < 2:
        return np.mean(values, axis=axis) * np.nan
    return np.std(values, axis=axis, ddof=1) / np.sqrt(count)
