"""From episodes to scores: what each run came to on each level of a suite."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenie.report.measure import stats
from cenie.report.runs import Group
from cenie.rundir.evaluations import Episodes
from cenie.rundir.run import Run
from cenie.rundir.worst import worst_levels

MOST_NAMED = 4
"""Levels that a sentence names."""
_PAIR_RESAMPLES = 1000
_PROFILE_RESAMPLES = 500


@dataclass(frozen=True, eq=False)
class GroupScores:
    """The results of a group's runs on a suite. Results are means over variants, episodes and checkpoints.

    Attributes:
        group: The group.
        runs: The runs that count, n.
        scores: Results on the scale of the suite (0 is bad, 1 is good): [n, levels].
        returns: Returns [n, levels].
        solved: Solved rates [n, levels].
        episodes: The fewest episodes of a run.
        worst: The score of each run on its worst single levels, the entries of the suite: [n]; None for a
            suite of few entries.
    """

    group: Group
    runs: tuple[Run, ...]
    scores: np.ndarray
    returns: np.ndarray
    solved: np.ndarray
    episodes: int
    worst: np.ndarray | None = None

    @functools.cached_property
    def quartiles(self) -> np.ndarray:
        """The lower quartile, the median and the upper quartile over the runs: [3, levels]."""
        return np.quantile(self.scores, [0.25, 0.5, 0.75], axis=0)

    @functools.cached_property
    def means(self) -> dict[str, list[stats.Mean]]:
        """Means over the runs of `scores`, `returns` and `solved`: of each level and, as the last one, of the
        mean over levels."""
        return {
            name: [stats.mean_over_runs(column) for column in (*table.T, table.mean(axis=1))]
            for name, table in (("scores", self.scores), ("returns", self.returns), ("solved", self.solved))
        }

    def aggregates(self, *, stratified: bool) -> dict[str, stats.Estimate]:
        """The statistics over all levels with their intervals.

        Args:
            stratified: Whether the intervals are rliable's.

        Returns:
            The estimates by the names of `aggregate`; none if there are no levels.
        """
        if stratified not in self._aggregates:
            made = stats.aggregate(self.scores, stratified=stratified) if self.scores.size else {}
            self._aggregates[stratified] = made
        return self._aggregates[stratified]

    @functools.cached_property
    def _aggregates(self) -> dict[bool, dict[str, stats.Estimate]]:
        return {}


@dataclass(frozen=True, eq=False)
class SuiteScores:
    """The scores of all groups that have played a suite, on the levels that all of them have played.

    Attributes:
        suite: The name of the suite.
        levels: The names of the levels.
        groups: The results of each group.
        untrained: Groups none of whose runs has learned anything yet.
    """

    suite: str
    levels: tuple[str, ...]
    groups: tuple[GroupScores, ...]
    untrained: tuple[GroupScores, ...] = ()

    @property
    def measure(self) -> str:
        """The meaning of a score, in words."""
        rates = all(np.array_equal(each.scores, each.solved) for each in self.groups)
        return "solved rate" if rates else "normalised score"

    @property
    def has_entries(self) -> bool:
        """Whether CVaR is over the single entries of the suite; it is over level names otherwise."""
        return all(each.worst is not None for each in self.groups)

    def aggregates(self, *, stratified: bool) -> dict[str, dict[str, stats.Estimate]]:
        """The statistics of each group with their intervals.

        Args:
            stratified: Whether the intervals are rliable's.

        Returns:
            The estimates by the label of the group and the names of `aggregate`.
        """
        found = {each.group.label: {**each.aggregates(stratified=stratified)} for each in self.groups}
        for each in self.groups:
            if self.has_entries and each.worst is not None:
                found[each.group.label][stats.CVAR] = stats.estimate(each.worst[:, None], stats.mean)
        return found

    def profiles(self, *, stratified: bool) -> tuple[np.ndarray, dict[str, dict[str, np.ndarray]]]:
        """The performance profile of each group: how many of its results are above each threshold.

        Args:
            stratified: Whether the intervals are rliable's.

        Returns:
            Thresholds [101] over the range of all scores; and by the label of each group its profile with the
            ends of the interval, each an array [101].
        """
        every = np.concatenate([[0.0, 1.0], *(each.scores.ravel() for each in self.groups)])
        thresholds = np.linspace(np.nanmin(every), np.nanmax(every), 101)
        how: Any = {"stratified": stratified, "resamples": _PROFILE_RESAMPLES}
        return thresholds, {
            each.group.label: stats.estimate_profile(each.scores, thresholds, **how) for each in self.groups
        }

    def improvements(self, *, stratified: bool) -> dict[tuple[str, str], stats.Estimate]:
        """The probability that a run of one group is better than one of another.

        Args:
            stratified: Whether the intervals are rliable's.

        Returns:
            The estimates by both labels.
        """
        found: dict[tuple[str, str], stats.Estimate] = {}
        how: Any = {"stratified": stratified, "resamples": _PAIR_RESAMPLES}
        for place, one in enumerate(self.groups):
            for other in self.groups[:place]:
                each = stats.estimate_improvement(one.scores, other.scores, **how)
                reverse = stats.Estimate(1 - each.value, 1 - each.high, 1 - each.low)
                found[one.group.label, other.group.label] = each
                found[other.group.label, one.group.label] = reverse
        return found


def unknown_scores(found: SuiteScores) -> list[str]:
    """Which scores of a suite are NaN, in a sentence for each run; none if all are numbers."""
    sentences = []
    for each in found.groups:
        for run, scores in zip(each.runs, each.scores, strict=True):
            levels = [level for level, score in zip(found.levels, scores) if np.isnan(score)]
            if levels:
                sentences.append(
                    f"{each.group.label}, seed {run.seed}: the score on {', '.join(levels[:MOST_NAMED])}"
                    + (f" and {len(levels) - MOST_NAMED} more levels" if len(levels) > MOST_NAMED else "")
                    + f" of {found.suite} is NaN, and so is every statistic that counts it"
                )
    return sentences


def measured_suites(groups: Sequence[Group]) -> list[SuiteScores]:
    """The scores of some groups on every suite that some run has played, suites of most groups first.

    Runs that are finished count, or all if none is; see `counted_runs`.
    """
    played = [{suite: None for run in group.runs for suite in run.suites} for group in groups]
    every = dict.fromkeys(suite for suites in played for suite in suites)
    order = sorted(every, key=lambda suite: -sum(suite in suites for suites in played))
    return [_measured(groups, suite) for suite in order]


def measured_domains(groups: Sequence[Group]) -> dict[str, list[SuiteScores]]:
    """The same for the groups of each domain."""
    domains = dict.fromkeys(group.domain for group in groups)
    return {
        domain: measured_suites([group for group in groups if group.domain == domain]) for domain in domains
    }


def suite_scores(groups: Sequence[Group], suite: str) -> SuiteScores | None:
    """The scores of the runs that count (`counted_runs`) on a suite.

    Args:
        groups: Groups of one domain.
        suite: The name of the suite.

    Returns:
        The scores; None if no trained run has played the suite, or there is no level that all have played.
    """
    found = _measured(groups, suite)
    return found if found.groups and found.levels else None


def counted_runs(group: Group, suite: str) -> list[Run]:
    """The finished runs that have played a suite.

    A group none of whose runs is finished counts with what they have so far, but not as they were untrained.
    """
    played = [(run, run.final_episodes(suite)) for run in group.runs]
    trained = [run for run, episodes in played if len(episodes) and episodes.updates.max() > 0]
    return [run for run in trained if run.summary is not None] or trained


def _measured(groups: Sequence[Group], suite: str) -> SuiteScores:
    trained, untrained = [], []
    for group in groups:
        counted = counted_runs(group, suite)
        pairs = [(run, run.final_episodes(suite)) for run in counted or group.runs]
        pairs = [(run, episodes) for run, episodes in pairs if len(episodes)]
        if pairs:
            (trained if counted else untrained).append((group, pairs))
    deciding = [episodes for _, pairs in trained or untrained for _, episodes in pairs]
    common = set.intersection(*(set(episodes.levels()) for episodes in deciding)) if deciding else set()
    levels = tuple(level for level in (deciding[0].levels() if deciding else ()) if level in common)
    return SuiteScores(
        suite,
        levels,
        tuple(_group_scores(group, pairs, levels) for group, pairs in trained),
        tuple(_group_scores(group, pairs, levels) for group, pairs in untrained),
    )


def _group_scores(
    group: Group, pairs: Sequence[tuple[Run, Episodes]], levels: tuple[str, ...]
) -> GroupScores:
    columns = {}
    for column in ("score", "returns", "solved"):
        means = [episodes.level_means(column) for _, episodes in pairs]
        columns[column] = np.array([[mean.get(level, np.nan) for level in levels] for mean in means])
    worst = [_worst(episodes, set(levels)) for _, episodes in pairs]
    return GroupScores(
        group,
        tuple(run for run, _ in pairs),
        scores=columns["score"],
        returns=columns["returns"],
        solved=columns["solved"],
        episodes=min(len(episodes) for _, episodes in pairs),
        worst=None if None in worst else np.array(worst),
    )


def _worst(episodes: Episodes, levels: set[str]) -> float | None:
    """The score on the worst entries among the levels."""
    kept = episodes.where(np.array([level in levels for level in episodes.level]))
    return worst_levels(list(zip(kept.level, kept.variant)), kept.score)
