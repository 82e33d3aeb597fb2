"""The part of a report on held-out levels: bars, tables, statistics and curves."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from cenie.report import figures, paper_numbers, tables
from cenie.report.appearance import method_title
from cenie.report.measure import stats
from cenie.report.measure.curves import Curve, evaluation_curves
from cenie.report.measure.scores import SuiteScores, unknown_scores
from cenie.report.runs import Group
from cenie.report.writer import Item, ReportWriter

_AXES = {"updates": "updates", "env_steps": "environment steps"}
_MOST_PANELS = 24


def suite_items(writer: ReportWriter, suites: Sequence[SuiteScores], domain: str) -> Iterator[Item]:
    """Everything about every suite that was played; a sentence if none was."""
    found = [scores for scores in suites if scores.groups and scores.levels]
    if not found:
        yield Item("Held-out levels", "No run has played held-out levels yet.")
    for scores in found:
        writer.progress(f"{domain}: {scores.suite}")
        name = f"{domain}-{scores.suite}"
        yield _levels(writer, name, scores)
        yield _comparison(writer, name, scores)
        yield _aggregates(writer, name, scores)
        if sum(len(each.runs) for each in scores.groups) > 1:
            yield _profiles(writer, name, scores)
        if len(scores.groups) > 1:
            yield _improvements(writer, name, scores)


def _levels(writer: ReportWriter, name: str, found: SuiteScores) -> Item:
    writer.table(f"{name}-scores", tables.score_rows(found))
    files = writer.figure(f"{name}-levels", figures.level_bars(found), tables.level_rows(found))
    episodes = min(each.episodes for each in found.groups)
    caption = (
        f"{found.measure.capitalize()} on {found.suite}: median and inter-quartile range over "
        f"{_counted(found)}; every dot is a run. At least {episodes} episodes for each run."
        + _paper_sentence(found.suite, [each.group.method for each in found.groups])
        + _unknown(found)
    )
    return Item(f"{found.suite}: levels", caption, files)


def _unknown(found: SuiteScores) -> str:
    """The reason for NaN statistics, to stand at the end of a caption."""
    return "".join(f" {sentence}." for sentence in unknown_scores(found))


def _intervals(writer: ReportWriter, found: SuiteScores) -> str:
    """The meaning of the intervals in a caption, and their limits."""
    covers = stats.COVERS_STRATIFIED if writer.options.stratified else stats.COVERS
    few = dict.fromkeys(stats.few_runs(len(each.runs)) for each in found.groups)
    return " ".join([covers, *(f"Mind: {sentence}." for sentence in few if sentence)])


def _counted(found: SuiteScores) -> str:
    counts = sorted({len(each.runs) for each in found.groups})
    if counts == [1]:
        return "one run"
    return f"{counts[0]} runs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} runs"


def _paper_sentence(suite: str, methods: Sequence[str]) -> str:
    """The paper's results on this suite, marked as the paper's."""
    known = paper_numbers.REFERENCES.get(suite)
    values = {} if known is None else {name: text for name, text in known.values.items() if name in methods}
    if known is None or not values:
        return ""
    told = "; ".join(f"{method_title(method)} {text}" for method, text in values.items())
    return f" Paper ({known.what}, after {known.budget}, another budget than here): {told}."


def _comparison(writer: ReportWriter, name: str, found: SuiteScores) -> Item:
    table = tables.comparison(found)
    files = (
        writer.table(f"{name}-comparison", tables.comparison_rows(table)),
        writer.save("tables", f"{name}-comparison", ".tex", tables.comparison_latex(table)),
    )
    caption = f"{table.title}; bold: within one standard error of the best mean."
    if table.paper:
        caption += (
            f" The columns named paper are of {paper_numbers.SOURCE}, which had another budget: 2,750 "
            "updates, five seeds, 50 trials for each track."
        )
    caption += _unknown(found)
    return Item(f"{found.suite}: table", caption, files, tables.comparison_markdown(table))


def _aggregates(writer: ReportWriter, name: str, found: SuiteScores) -> Item:
    groups = [each.group for each in found.groups]
    stratified = writer.options.stratified
    estimates = found.aggregates(stratified=stratified)
    figure = figures.aggregates(estimates, groups)
    files = writer.figure(f"{name}-aggregates", figure, tables.aggregate_rows(found, estimates))
    caption = (
        f"Statistics over {len(found.levels)} levels with 95 % intervals ({_how(stratified)}; none for a "
        f"single run). {_intervals(writer, found)} The target of the optimality gap is 1, and lower is "
        f"better; CVaR is the mean over the worst {stats.WORST:.0%} of the "
        + (
            "single levels of a run, found by other episodes than the ones that count."
            if found.has_entries
            else "levels of a run."
        )
        + _unknown(found)
    )
    text = tables.aggregate_markdown(found.groups, estimates)
    return Item(f"{found.suite}: aggregates", caption, files, text)


def _how(stratified: bool) -> str:
    if stratified:
        return f"stratified bootstrap, {stats.RESAMPLES} resamples"
    return (
        "Student's t over runs for mean, optimality gap and CVaR; a bootstrap of whole runs, "
        f"{stats.RESAMPLES} resamples, for IQM and median"
    )


def _profiles(writer: ReportWriter, name: str, found: SuiteScores) -> Item:
    thresholds, profiles = found.profiles(stratified=writer.options.stratified)
    rows = [
        {"group": label, "threshold": threshold, "part": value, "low": low, "high": high}
        for label, each in profiles.items()
        for threshold, value, low, high in zip(thresholds, each["value"], each["low"], each["high"])
    ]
    figure = figures.profiles(thresholds, profiles, [each.group for each in found.groups])
    files = writer.figure(f"{name}-profiles", figure, rows)
    caption = (
        "Performance profiles: the part of runs and levels with a score above s, with 95 % intervals at each "
        f"s. {_intervals(writer, found)}{_unknown(found)}"
    )
    return Item(f"{found.suite}: performance profiles", caption, files)


def _improvements(writer: ReportWriter, name: str, found: SuiteScores) -> Item:
    pairs = found.improvements(stratified=writer.options.stratified)
    figure = figures.improvements(pairs, [each.group for each in found.groups])
    files = writer.figure(f"{name}-improvement", figure, tables.improvement_rows(pairs))
    caption = (
        "How probable it is that a run of the method of the row is better on a level than one of the method "
        "of the column (95 % intervals are in the table, from a bootstrap of the runs of both). "
        f"{_intervals(writer, found)}{_unknown(found)}"
    )
    return Item(f"{found.suite}: probability of improvement", caption, files)


def curve_items(writer: ReportWriter, groups: Sequence[Group], domain: str) -> Iterator[Item]:
    """Scores on held-out levels while training, over updates and over environment steps."""
    writer.progress(f"{domain}: learning curves")
    runs = [run for group in groups for run in group.runs]
    suites = dict.fromkeys(suite for run in runs for suite in run.evaluations.suites())
    if not suites:
        yield Item("Learning curves", "No run was evaluated while it trained.")
    for suite in suites:
        played = next(own for run in runs if len(own := run.evaluations.of(suite)))
        rates = all(
            np.array_equal(own.score, own.solved) for run in runs if len(own := run.evaluations.of(suite))
        )
        levels = played.levels() if 1 < len(played.levels()) < _MOST_PANELS else []
        for over, title in _AXES.items():
            every = {
                level or "mean of the levels": known(
                    evaluation_curves(group, suite, over=over, level=level) for group in groups
                )
                for level in (None, *levels)
            }
            panels = {name: lines for name, lines in every.items() if lines}
            heading = f"{suite}: learning curves over {title}"
            if not panels:
                yield Item(heading, "No run was evaluated twice so far.")
                continue
            name = f"{domain}-{suite}-curves-{over.replace('_', '-')}"
            figure = figures.curves(
                panels,
                groups,
                x_label=title,
                y_label="solved rate" if rates else "score",
                limits=(-0.02, 1.02) if rates else None,
            )
            files = writer.figure(name, figure, tables.curve_rows(panels, over))
            caption = (
                f"On {suite} while training, over {title}: mean and standard error over runs, as far as all "
                "runs of a method go."
            )
            if over == "env_steps":
                caption += (
                    " Methods that play levels without learning from them take more steps for an update."
                )
            yield Item(heading, caption, files)


def known(lines: Iterable[Curve | None]) -> list[Curve]:
    """The curves that there are."""
    return [line for line in lines if line is not None]
