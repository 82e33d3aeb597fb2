"""Whether runs can be compared: in what they differ besides their methods, in sentences."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cenie.report.measure import stats
from cenie.report.measure.scores import SuiteScores, measured_suites, unknown_scores
from cenie.report.runs import FOLLOWS, Group, shown
from cenie.rundir.files import flat
from cenie.rundir.run import Run

_MOST = 6
"""Sentences of one kind that are written out; further ones are counted."""


def comparability(groups: Sequence[Group], suites: Sequence[SuiteScores] | None = None) -> list[str]:
    """In what the runs of one domain differ that should not.

    Runs that are not finished are named, and not held against the others any further.

    Args:
        groups: Groups of one domain.
        suites: The scores of the groups, if they were measured already.

    Returns:
        A sentence for each difference; none if there is no difference.
    """
    suites = measured_suites(groups) if suites is None else suites
    runs = [(group.label, run) for group in groups for run in group.runs]
    finished = [(label, run) for label, run in runs if run.summary is not None]
    return [
        *_limited(_unfinished([run for _, run in runs])),
        *_differing("budgets (updates)", finished, lambda run: str(run.budget)),
        *_differing("budgets (environment steps)", finished, _env_steps),
        *_differing("versions of cenie", finished, lambda run: str(run.version)),
        *_differing("suites played", finished, lambda run: ", ".join(sorted(run.suites)) or "none"),
        *_limited(_evaluations(finished)),
        *_limited(_settings(finished, "env")),
        *_limited(_settings(finished, "student")),
        *_seeds(groups),
        *_limited(_not_exact([run for _, run in runs])),
        *_few_runs(groups),
        *_limited(sentence for scores in suites for sentence in unknown_scores(scores)),
        *_limited(sentence for _, run in runs for sentence in run.damage),
    ]


def _limited(sentences: Iterator[str]) -> list[str]:
    found = list(sentences)
    more = len(found) - _MOST
    return found if more <= 0 else [*found[:_MOST], f"... and {more} more of this kind"]


def _unfinished(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.summary is None:
            yield f"{run.path} is not finished: it counts only where no run of its kind is"


def _not_exact(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.summary is not None and run.summary.get("bit_exact") is False:
            listed = run.summary.get("deviations")
            reasons = [str(each) for each in listed] if isinstance(listed, list) else []
            yield f"{run.path} is marked as not bit exact: {'; '.join(reasons) or 'no reason given'}"


def _few_runs(groups: Sequence[Group]) -> Iterator[str]:
    """Yield cautions about the intervals; none for a single run, which is compared with none."""
    if sum(len(group.counted) for group in groups) < 2:
        return
    found: dict[str, list[str]] = {}
    for group in groups:
        found.setdefault(stats.few_runs(len(group.counted)), []).append(group.label)
    for sentence, labels in found.items():
        if sentence:
            yield f"{sentence} ({', '.join(labels)})"


def _differing(what: str, runs: Sequence[tuple[str, Run]], value: Callable[[Run], str | None]) -> list[str]:
    """One sentence with all values and whose they are, or none if they are all the same."""
    found: dict[str, list[str]] = {}
    for label, run in runs:
        seen = value(run)
        if seen is not None:
            found.setdefault(seen, []).append(label)
    if len(found) < 2:
        return []
    told = "; ".join(f"{seen} ({', '.join(dict.fromkeys(labels))})" for seen, labels in found.items())
    return [f"the {what} differ: {told}"]


def _env_steps(run: Run) -> str:
    settings = run.settings.get("run")
    steps = settings.get("env_steps") if isinstance(settings, dict) else None
    return "no limit" if steps is None else shown(steps)


def _evaluations(runs: Sequence[tuple[str, Run]]) -> Iterator[str]:
    """Yield a note on the choice of the students that are compared, for each suite."""

    def how(run: Run, suite: str) -> str | None:
        episodes = run.final_episodes(suite)
        if not len(episodes):
            return None
        updates = np.unique(episodes.updates)
        # Runs of one budget of environment steps end after slightly different numbers of updates.
        ends = run.summary is not None and updates[-1] == run.summary.get("updates")
        return f"{len(updates)} up to {'the end' if ends else f'update {updates[-1]}'}"

    for suite in dict.fromkeys(suite for _, run in runs for suite in run.suites):
        yield from _differing(
            f"checkpoints played on {suite}", runs, lambda run, suite=suite: how(run, suite)
        )


def _settings(runs: Sequence[tuple[str, Run]], part: str) -> Iterator[str]:
    """Settings of a part of the config that are not the same in all runs."""
    values = [(label, run, dict(flat(run.settings.get(part), part))) for label, run in runs]
    paths = dict.fromkeys(path for _, _, own in values for path in own if path not in FOLLOWS)
    for path in paths:
        found = {id(run): shown(own.get(path)) for _, run, own in values}
        yield from _differing(f"values of {path}", runs, lambda run, found=found: found[id(run)])


def _seeds(groups: Sequence[Group]) -> Iterator[str]:
    seeds = {group.label: [run.seed for run in group.runs] for group in groups}
    if len({tuple(sorted(each)) for each in seeds.values()}) > 1:
        told = "; ".join(f"{label}: {', '.join(map(str, each))}" for label, each in seeds.items())
        yield f"the seeds differ: {told}"
    for label, each in seeds.items():
        if len(set(each)) < len(each):
            yield f"{label} has a seed more than once: its runs are not independent"
