"""A student's result on its worst levels: the conditional value at risk (CVaR) of a large suite.

As in SFL (Rutherford et al., 2024), episodes that count are others than those that say which levels are the
worst. Levels that look worst by the episodes of a few plays are unlucky ones in part; counted by the same
episodes they would look worse than they are.
"""

from collections.abc import Hashable, Sequence

import numpy as np

WORST = 0.1
"""The part of the levels that counts."""
FEWEST_ENTRIES = 100
"""A suite of fewer entries has no worst tenth to speak of."""


def worst_levels(
    entries: Sequence[Hashable], scores: Sequence[float] | np.ndarray, worst: float = WORST
) -> float | None:
    """The mean score on the worst entries of a suite, found by one half of the plays, counted by the other.

    Either half finds them once, and the result is the mean of both. Of entries that are equally bad, each
    counts in part. Half of the plays do not find the very worst entries, so that the result is above what
    many plays would come to.

    Args:
        entries: which entry of the suite each play was of; plays of an entry that follow one another fall
            into different halves.
        scores: the score of each play.
        worst: the part of the entries that counts.

    Returns:
        The mean score; None for a suite of fewer than `FEWEST_ENTRIES` entries, or if one was played once.
    """
    names, number = np.unique([str(entry) for entry in entries], return_inverse=True)
    if len(names) < FEWEST_ENTRIES or np.bincount(number).min() < 2:
        return None
    half = _place_in_group(number) % 2
    cell = 2 * number + half
    means = np.bincount(cell, scores, 2 * len(names)) / np.bincount(cell, minlength=2 * len(names))
    one, other = means.reshape(-1, 2).T
    return float((_tail(one, other, worst) + _tail(other, one, worst)) / 2)


def _place_in_group(number: np.ndarray) -> np.ndarray:
    """The number of elements of the same value before each."""
    order = np.argsort(number, kind="stable")
    first = np.searchsorted(number[order], number[order])
    places = np.empty(len(number), int)
    places[order] = np.arange(len(number)) - first
    return places


def _tail(found_by: np.ndarray, counted: np.ndarray, worst: float) -> float:
    """The mean of `counted` where `found_by` is lowest; of equal values each has the same weight."""
    values, group = np.unique(found_by, return_inverse=True)
    sizes = np.bincount(group)
    before = np.cumsum(sizes) - sizes
    weights = np.clip((worst * len(counted) - before) / sizes, 0.0, 1.0)[group]
    if not np.isfinite(values).all():
        return float("nan")
    return float((weights * counted).sum() / weights.sum())
