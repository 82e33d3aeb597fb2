"""From episodes to scores: what each run came to on each level of a suite, and curves over training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cenie.report.measure import stats
from cenie.report.runs import Group
from cenie.rundir.evaluations import Episodes
from cenie.rundir.run import Run
from cenie.rundir.worst import worst_levels

MOST_NAMED = 4
"""Levels that a sentence names."""
LOGGED = ("return", "solved", "length", "teacher/buffer_fill", "teacher/novelty", "teacher/regret_total")
"""The columns of the metrics that figures show."""
POINTS = 200
"""How many points a curve of several runs has, at most."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What the runs of a group came to on a suite; rows are runs, columns are levels.

    `scores` are on the scale of the suite (0 is bad, 1 is good), `returns` are raw, `solved` are rates; all
    are means over variants, episodes and checkpoints. `worst` is what each run came to on its worst single
    levels, the entries of the suite; None for a suite of few entries.
    """

    group: Group
    runs: tuple[Run, ...]
    scores: np.ndarray
    returns: np.ndarray
    solved: np.ndarray
    episodes: int
    worst: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class SuiteScores:
    """The scores of all groups that have played a suite, on the levels that all of them have played."""

    suite: str
    levels: tuple[str, ...]
    groups: tuple[Scores, ...]

    @property
    def measure(self) -> str:
        """What a score is, in words."""
        rates = all(np.array_equal(each.scores, each.solved) for each in self.groups)
        return "solved rate" if rates else "normalised score"


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


def suites_of(groups: Sequence[Group]) -> list[str]:
    """Every suite that some run has played, those of most groups first."""
    played = [{suite: None for run in group.runs for suite in run.suites} for group in groups]
    every = dict.fromkeys(suite for suites in played for suite in suites)
    return sorted(every, key=lambda suite: -sum(suite in suites for suites in played))


def counted_runs(group: Group, suite: str) -> list[Run]:
    """The finished runs that have played a suite.

    A group none of whose runs is finished counts with what they have so far, but not as they were untrained.
    """
    played = [(run, run.final_episodes(suite)) for run in group.runs]
    trained = [run for run, episodes in played if len(episodes) and episodes.updates.max() > 0]
    return [run for run in trained if run.summary is not None] or trained


def suite_scores(groups: Sequence[Group], suite: str) -> SuiteScores | None:
    """The scores of the runs that count (`counted_runs`); None if no run has played the suite."""
    found = []
    for group in groups:
        pairs = [(run, run.final_episodes(suite)) for run in counted_runs(group, suite)]
        if pairs:
            found.append((group, pairs))
    if not found:
        return None
    every = [set(episodes.levels()) for _, pairs in found for _, episodes in pairs]
    common = set.intersection(*every)
    levels = [level for level in found[0][1][0][1].levels() if level in common]
    if not levels:
        return None
    scores = []
    for group, pairs in found:
        columns = {
            column: np.array(
                [[episodes.level_means(column)[level] for level in levels] for _, episodes in pairs]
            )
            for column in ("score", "returns", "solved")
        }
        fewest = min(len(episodes) for _, episodes in pairs)
        worst = [_worst(episodes, common) for _, episodes in pairs]
        scores.append(
            Scores(
                group,
                tuple(run for run, _ in pairs),
                columns["score"],
                columns["returns"],
                columns["solved"],
                fewest,
                None if None in worst else np.array(worst),
            )
        )
    return SuiteScores(suite, tuple(levels), tuple(scores))


def _worst(episodes: Episodes, levels: set[str]) -> float | None:
    """The score on the worst entries among those of the levels."""
    kept = episodes.where(np.array([level in levels for level in episodes.level]))
    return worst_levels(list(zip(kept.level, kept.variant)), kept.score)


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
    """The score on a suite (or on a level of it) during training; None if it was not evaluated twice.

    The score of a suite is the mean over its levels.
    """
    lines = []
    for run in group.counted:
        episodes = run.evaluations_by_suite.get(suite)
        progress = None if episodes is None else episodes.over_training
        if progress is None or level not in (None, *progress.levels):
            continue
        chosen = slice(None) if level is None else [progress.levels.index(level)]
        scores = progress.scores[:, chosen].mean(axis=1)
        known = np.isfinite(scores)
        if known.sum() > 1:
            lines.append(np.array([getattr(progress, over)[known], scores[known]], float))
    return mean_curve(group.label, lines)


def logged(run: Run) -> dict[str, np.ndarray]:
    """What figures show of the metrics of a run, with the counters."""
    return run.curves(LOGGED)


def metric_curve(group: Group, name: str, *, over: str = "updates") -> Curve | None:
    """A column of the metrics during training; None if no run has it."""
    lines = []
    for run in group.counted:
        columns = logged(run)
        if name not in columns:
            continue
        known = np.isfinite(columns[name]) & np.isfinite(columns[over])
        if known.sum() > 1:
            lines.append(np.array([columns[over][known], columns[name][known]]))
    return mean_curve(group.label, lines)


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
