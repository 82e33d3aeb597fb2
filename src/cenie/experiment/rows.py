"""The record of an episode that a student plays in an evaluation, and its means by level."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EvaluationRow:
    """One episode on one held-out level."""

    suite: str
    level: str
    variant: str
    episode: int
    episode_return: float
    solved: bool
    score: float
    length: int


def level_means(levels: Sequence[str], values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """The mean of the values of each level name, in the order in which the names come first."""
    if not len(levels):
        return {}
    names, number = np.unique(np.asarray(levels, object), return_inverse=True)
    sums = np.bincount(number, np.asarray(values, float), len(names))
    means = dict(zip(names.tolist(), (sums / np.bincount(number)).tolist(), strict=True))
    return {name: means[name] for name in dict.fromkeys(levels)}


def level_scores(rows: Iterable[EvaluationRow]) -> dict[str, float]:
    """Score of each level name: the mean over its variants and episodes.

    Args:
        rows: the episodes of one suite, as from `evaluate`.

    Returns:
        The scores by level names, on the scale of the suite: solved rates, if no entry of it has bounds.
    """
    found = list(rows)
    return level_means([row.level for row in found], [row.score for row in found])


def solved_rates(rows: Iterable[EvaluationRow]) -> dict[str, float]:
    """Solved rate of each level name, whatever the suite calls its score; see `level_scores`.

    Args:
        rows: The episodes of one suite, as from `evaluate`.

    Returns:
        The rates by level names.
    """
    found = list(rows)
    return level_means([row.level for row in found], [float(row.solved) for row in found])


def suite_mean(scores: Mapping[str, float]) -> float:
    """The score of a suite: every level name counts the same, however many variants it has.

    Args:
        scores: The score of each level name, as from `level_scores`.

    Returns:
        The mean.
    """
    return float(np.mean(list(scores.values())))
