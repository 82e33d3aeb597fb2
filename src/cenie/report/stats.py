"""Statistics of a few runs on some tasks, with intervals (Agarwal et al. 2021, "Deep RL at the edge of the
statistical precipice"). NumPy only.

Scores are arrays of the shape [..., runs, tasks], on a scale on which 0 is bad and 1 is good (the bounds of a
suite see to that); nothing is clipped but where a definition says so. Statistics reduce the last two axes, so
that all resamples of a bootstrap are reckoned at once. All functions agree with rliable's of these names
(tests/report/golden.json).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Scores = np.ndarray
Values = np.ndarray | np.floating[Any]
"""A number for each array of scores; one number for one array."""
Statistic = Callable[[np.ndarray], Values]

RESAMPLES = 2000
CONFIDENCE = 0.95
WORST = 0.1
"""The part of the levels that `cvar` looks at."""
_CHUNK = 2**22
"""Numbers of resampled scores that are in memory at the same time."""


@dataclass(frozen=True)
class Estimate:
    """A statistic and its interval; the ends are NaN where there is one run only, which has no spread."""

    value: float
    low: float
    high: float


def iqm(scores: Scores) -> Values:
    """Inter-quartile mean: of all scores of all runs, without the lowest and the highest quarter."""
    flat = np.sort(_merged(scores), axis=-1)
    count = flat.shape[-1]
    cut = int(0.25 * count)
    return flat[..., cut : count - cut].mean(axis=-1)


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
    """How probable it is that a run is better than one of the others on a task: the mean over tasks.

    Pairs that are equal count half (Mann and Whitney's U statistic over the number of pairs).
    """
    ours, theirs = scores[..., :, None, :], others[..., None, :, :]
    return ((ours > theirs) + 0.5 * (ours == theirs)).mean(axis=(-3, -2, -1))


def score_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """The part of all runs on all tasks whose score is above each threshold: [..., thresholds]."""
    flat = np.sort(_merged(scores), axis=-1)
    if flat.ndim == 1:
        return 1.0 - np.searchsorted(flat, thresholds, side="right") / flat.size
    return (flat[..., None, :] > thresholds[:, None]).mean(axis=-1)


AGGREGATES: dict[str, Statistic] = {
    "IQM": iqm,
    "median": median,
    "mean": mean,
    "optimality gap": optimality_gap,
    f"CVaR {WORST:.0%}": cvar,
}
"""The statistics of a table, by their names."""

OF_WHOLE_RUNS = (cvar,)
"""Statistics of each run by itself: mixing levels of different runs would give every resample worse ones."""


def _merged(scores: Scores) -> np.ndarray:
    return scores.reshape(*scores.shape[:-2], -1)


def resample_indices(
    rng: np.random.Generator, runs: int, tasks: int, *, resamples: int = RESAMPLES, whole: bool = False
) -> np.ndarray:
    """Which runs a stratified bootstrap draws for each task, with replacement: [resamples, runs, tasks].

    With `whole` all tasks draw the same runs.
    """
    drawn = rng.integers(0, runs, (resamples, runs, 1 if whole else tasks))
    return np.broadcast_to(drawn, (resamples, runs, tasks))


def resampled(scores: Scores, indices: np.ndarray) -> np.ndarray:
    """The scores [runs, tasks] of the drawn runs: [resamples, runs, tasks]."""
    return np.take_along_axis(scores[None], indices, axis=1)


def estimate(
    scores: Scores,
    statistic: Statistic,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """A statistic of scores [runs, tasks] with its percentile interval, by a bootstrap over the runs.

    It is stratified, each task draws runs of its own, but for the statistics in `OF_WHOLE_RUNS`.
    """
    value = float(statistic(scores))
    if len(scores) < 2:
        return Estimate(value, np.nan, np.nan)
    drawn = bootstrap(scores, statistic, resamples=resamples, seed=seed)
    low, high = interval(drawn, confidence)
    return Estimate(value, float(low), float(high))


def bootstrap(
    scores: Scores, statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """The statistic of each resample: [resamples, ...]."""
    rng, whole = np.random.default_rng(seed), statistic in OF_WHOLE_RUNS
    size = max(1, _CHUNK // max(scores.size, 1))
    parts = [
        np.asarray(
            statistic(
                resampled(
                    scores,
                    resample_indices(rng, *scores.shape, resamples=min(size, resamples - at), whole=whole),
                )
            )
        )
        for at in range(0, resamples, size)
    ]
    return np.concatenate(parts)


def interval(drawn: np.ndarray, confidence: float = CONFIDENCE) -> np.ndarray:
    """The two ends between which the middle part of the resamples lies: [2, ...]."""
    outside = (1.0 - confidence) / 2.0
    return np.quantile(drawn, [outside, 1.0 - outside], axis=0)


def estimate_improvement(
    scores: Scores, others: Scores, *, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """The probability of improvement with its interval; the runs of both sides are drawn independently."""
    value = float(probability_of_improvement(scores, others))
    if min(len(scores), len(others)) < 2:
        return Estimate(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    size = max(1, _CHUNK // max(scores.size * len(others), 1))
    parts = []
    for at in range(0, resamples, size):
        count = min(size, resamples - at)
        sides = [
            resampled(side, resample_indices(rng, *side.shape, resamples=count)) for side in (scores, others)
        ]
        parts.append(np.asarray(probability_of_improvement(*sides)))
    low, high = interval(np.concatenate(parts))
    return Estimate(value, float(low), float(high))


def estimate_profile(
    scores: Scores, thresholds: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, np.ndarray]:
    """The profile with pointwise intervals: `value`, `low` and `high`, each [thresholds]."""
    value = score_profile(scores, thresholds)
    if len(scores) < 2:
        nothing = np.full(value.shape, np.nan)
        return {"value": value, "low": nothing, "high": nothing}
    drawn = bootstrap(scores, lambda each: score_profile(each, thresholds), resamples=resamples, seed=seed)
    low, high = interval(drawn)
    return {"value": value, "low": low, "high": high}


def aggregate(scores: Scores, **options: Any) -> dict[str, Estimate]:
    """All `AGGREGATES` of scores [runs, tasks]."""
    return {name: estimate(scores, statistic, **options) for name, statistic in AGGREGATES.items()}


def standard_error(values: np.ndarray, axis: int = 0) -> Values:
    """Of the mean along an axis; NaN for a single value."""
    count = values.shape[axis]
    if count < 2:
        return np.mean(values, axis=axis) * np.nan
    return np.std(values, axis=axis, ddof=1) / np.sqrt(count)
