"""`cenie report`: everything that can be said of some runs, written into one directory.

Figures (`figures/`, PNG and PDF), the numbers behind them (`tables/`, CSV) and `report.md`, which has all of it
in order. What the runs have not logged becomes a sentence. Only the gallery loads JAX, since domains draw
their levels with it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cenie.report import reference, stats, tables
from cenie.report.appearance import group_title, method_title
from cenie.report.comparable import comparability
from cenie.report.coverage import MOST_POINTS, is_recurrent, measure_coverage
from cenie.report.curriculum import compositions, low_regret_levels
from cenie.report.runs import Group, Opened, group_runs, open_runs
from cenie.report.scores import (
    Curve,
    SuiteScores,
    evaluation_curves,
    metric_curve,
    suite_scores,
    suites_of,
)
from cenie.run.directory import RunDirectoryError
from cenie.run.durable import WriteError, explain, replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AXES = {"updates": "updates", "env_steps": "environment steps"}
_PLAYED_BYTES = 2**28
"""Of all records of levels together so much is read."""
_FEWEST_PLAYED_BYTES, _MOST_PLAYED_BYTES = 2**20, 2**24


@dataclass(frozen=True)
class Options:
    """What to make besides the tables and the figures that are quick to make.

    `coverage` is the joint t-SNE of the points of all methods, which takes most of the time of a report on few
    runs; `pictures` are drawn levels, for which JAX is loaded.
    """

    coverage: bool = True
    pictures: bool = True
    pdf: bool = True
    points: int = MOST_POINTS


@dataclass(frozen=True)
class Item:
    """A figure or table with its caption and files; or, without files, why there is none."""

    title: str
    caption: str
    files: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, eq=False)
class DomainReport:
    """All that is said of the runs of one domain."""

    domain: str
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """What was written, and which directories were left out."""

    out: Path
    domains: tuple[DomainReport, ...]
    skipped: tuple[str, ...]
    files: tuple[Path, ...] = field(default=())


def write_report(
    paths: Iterable[str | Path],
    out: str | Path,
    options: Options | None = None,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Write a report on run directories (or directories of them) into `out`, which is made if need be.

    `progress` hears what is being made. Raises `RunDirectoryError` if there is not one run to report on, and
    `WriteError` if the directory cannot be written to.
    """
    opened = open_runs(Path(path) for path in paths)
    for sentence in opened.skipped:
        progress(sentence)
    if not opened.runs:
        reasons = "".join(f"\n  {sentence}" for sentence in opened.skipped)
        raise RunDirectoryError(f"there is no run to report on{reasons}")
    return _Writer(Path(out), options or Options(), progress).write(opened)


class _Writer:
    """Makes the items of a report one after the other, and writes each at once."""

    def __init__(self, out: Path, options: Options, progress: Callable[[str], None]):
        self._out, self._options, self._progress = out, options, progress
        self._files: list[Path] = []

    def write(self, opened: Opened) -> Report:
        for folder in ("figures", "tables"):
            try:
                (self._out / folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WriteError(
                    f"cannot create {self._out / folder}: {explain(error)}", error.errno
                ) from error
        groups = group_runs(opened.runs)
        self._save("tables/runs.csv", tables.csv_bytes(tables.run_rows(groups)))
        limit = np.clip(_PLAYED_BYTES // len(opened.runs), _FEWEST_PLAYED_BYTES, _MOST_PLAYED_BYTES)
        domains = []
        for domain in dict.fromkeys(group.domain for group in groups):
            own = tuple(group for group in groups if group.domain == domain)
            items = tuple(self._items(own, int(limit)))
            domains.append(DomainReport(domain, own, tuple(comparability(own)), items))
        report = Report(self._out, tuple(domains), opened.skipped)
        self._save("report.md", _markdown(report).encode())
        return Report(self._out, report.domains, report.skipped, tuple(self._files))

    def _save(self, name: str, content: bytes) -> str:
        path = self._out / name
        replace_file(path, content)
        self._files.append(path)
        return name

    def _figure(self, name: str, figure: "Figure") -> tuple[str, ...]:
        import io

        saved = []
        for suffix in ("png", "pdf") if self._options.pdf else ("png",):
            content = io.BytesIO()
            # The time of writing would make other bytes of the same figure.
            no_date = {"CreationDate": None} if suffix == "pdf" else {"Software": "cenie"}
            figure.savefig(content, format=suffix, dpi=170, metadata=no_date)
            saved.append(self._save(f"figures/{name}.{suffix}", content.getvalue()))
        return tuple(saved)

    def _table(self, name: str, rows: Sequence[tables.Row]) -> str:
        return self._save(f"tables/{name}.csv", tables.csv_bytes(rows))

    def _items(self, groups: tuple[Group, ...], limit: int) -> Iterator[Item]:
        domain = groups[0].domain.replace(":", "-")
        suites = [suite_scores(groups, suite) for suite in suites_of(groups)]
        for found in suites:
            if found is not None:
                self._progress(f"{domain}: {found.suite}")
                yield from self._suite_items(f"{domain}-{found.suite}", found)
        if not any(suites):
            yield Item("Held-out levels", "No run has played held-out levels yet.")
        self._progress(f"{domain}: curves")
        yield from self._curve_items(domain, groups)
        self._progress(f"{domain}: curriculum")
        yield self._regret_item(domain, groups)
        yield from self._composition_items(domain, groups, limit)
        self._progress(f"{domain}: coverage")
        yield self._coverage_item(domain, groups)
        self._progress(f"{domain}: gallery")
        yield self._gallery_item(domain, groups)

    def _suite_items(self, name: str, found: SuiteScores) -> Iterator[Item]:
        from cenie.report import figures

        groups = [each.group for each in found.groups]
        self._table(f"{name}-scores", tables.score_rows(found))
        runs = f"{_counted(found)} runs"
        paper = _paper_sentence(found.suite, groups)
        files = (
            *self._figure(f"{name}-levels", figures.level_bars(found)),
            self._table(f"{name}-levels", tables.level_rows(found)),
        )
        caption = (
            f"{found.measure.capitalize()} on {found.suite}: median and inter-quartile range over {runs}; every "
            f"dot is a run. At least {min(each.episodes for each in found.groups)} episodes for each run.{paper}"
        )
        yield Item(f"{found.suite}: levels", caption, files)
        table = tables.comparison(found)
        files = (
            self._table(f"{name}-comparison", tables.comparison_rows(table)),
            self._save(f"tables/{name}-comparison.tex", tables.comparison_latex(table).encode()),
        )
        another = (
            f" The columns named *paper* are of {reference.SOURCE}, which had another budget (2,750 updates, five "
            "seeds, 50 trials for each track)."
            if table.paper
            else ""
        )
        caption = f"{table.title}; bold: within one standard error of the best mean.{another}"
        yield Item(f"{found.suite}: table", caption, files, tables.comparison_markdown(table))
        estimates = {each.group.label: stats.aggregate(each.scores) for each in found.groups}
        files = (
            *self._figure(f"{name}-aggregates", figures.aggregates(estimates, groups)),
            self._table(f"{name}-aggregates", tables.aggregate_rows(found, estimates)),
        )
        caption = (
            f"Statistics over {len(found.levels)} levels with 95 % intervals (stratified bootstrap over runs, "
            f"{stats.RESAMPLES} resamples; none for a single run). The target of the optimality gap is 1; CVaR is "
            f"the mean over the worst {stats.WORST:.0%} of the levels of a run."
        )
        text = tables.aggregate_markdown(found.groups, estimates)
        yield Item(f"{found.suite}: aggregates", caption, files, text)
        yield self._profile_item(name, found)
        if len(groups) > 1:
            yield self._improvement_item(name, found)

    def _profile_item(self, name: str, found: SuiteScores) -> Item:
        from cenie.report import figures

        every = np.concatenate([each.scores.ravel() for each in found.groups])
        thresholds = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), 101)
        profiles = {
            each.group.label: stats.estimate_profile(each.scores, thresholds, resamples=500)
            for each in found.groups
        }
        rows = [
            {"group": label, "threshold": threshold, "part": value, "low": low, "high": high}
            for label, each in profiles.items()
            for threshold, value, low, high in zip(thresholds, each["value"], each["low"], each["high"])
        ]
        groups = [each.group for each in found.groups]
        files = (
            *self._figure(f"{name}-profiles", figures.profiles(thresholds, profiles, groups)),
            self._table(f"{name}-profiles", rows),
        )
        caption = (
            "Performance profiles: the part of runs and levels with a score above s, with 95 % intervals."
        )
        return Item(f"{found.suite}: performance profiles", caption, files)

    def _improvement_item(self, name: str, found: SuiteScores) -> Item:
        from cenie.report import figures

        pairs: dict[tuple[str, str], stats.Estimate] = {}
        matrix = np.full((len(found.groups),) * 2, 0.5)
        for row, one in enumerate(found.groups):
            for column, other in enumerate(found.groups[:row]):
                each = stats.estimate_improvement(one.scores, other.scores, resamples=1000)
                reverse = stats.Estimate(1 - each.value, 1 - each.high, 1 - each.low)
                pairs[one.group.label, other.group.label] = each
                pairs[other.group.label, one.group.label] = reverse
                matrix[row, column], matrix[column, row] = each.value, reverse.value
        groups = [each.group for each in found.groups]
        files = (
            *self._figure(f"{name}-improvement", figures.improvements(matrix, groups)),
            self._table(f"{name}-improvement", tables.improvement_rows(pairs)),
        )
        caption = (
            "Probability of improvement: how probable it is that a run of the method of the row is better on a "
            "level than one of the method of the column (95 % intervals are in the table)."
        )
        return Item(f"{found.suite}: probability of improvement", caption, files)

    def _curve_items(self, domain: str, groups: Sequence[Group]) -> Iterator[Item]:
        from cenie.report import figures

        suites = dict.fromkeys(
            suite for group in groups for run in group.runs for suite in run.evaluations.suites()
        )
        if not suites:
            yield Item("Learning curves", "No run was evaluated while it trained.")
        for suite in suites:
            levels = next(
                run.evaluations.of(suite).levels()
                for group in groups
                for run in group.runs
                if suite in run.evaluations.suites()
            )
            for over, title in _AXES.items():
                panels = {
                    "mean of the levels": _known(
                        evaluation_curves(group, suite, over=over) for group in groups
                    )
                }
                if 1 < len(levels) <= 24:
                    panels |= {
                        level: _known(
                            evaluation_curves(group, suite, over=over, level=level) for group in groups
                        )
                        for level in levels
                    }
                panels = {name: lines for name, lines in panels.items() if lines}
                if not panels:
                    yield Item(f"{suite}: learning curves over {title}", "No run was evaluated twice so far.")
                    continue
                name = f"{domain}-{suite}-curves-{over.replace('_', '-')}"
                figure = figures.curves(panels, groups, x_label=title, y_label="score")
                files = (*self._figure(name, figure), self._table(name, tables.curve_rows(panels, over)))
                caption = (
                    f"Score on {suite} while training, over {title}: mean and standard error over runs, as far "
                    "as all runs of a method go."
                )
                if over == "env_steps":
                    caption += (
                        " Methods that play levels without learning from them take more steps for an update."
                    )
                yield Item(f"{suite}: learning curves over {title}", caption, files)

    def _regret_item(self, domain: str, groups: Sequence[Group]) -> Item:
        from cenie.report import figures

        title = "Total regret in the level buffer"
        lines = _known(metric_curve(group, "teacher/regret_total") for group in groups)
        if not lines:
            return Item(title, "No run has logged it: it takes a method with a level buffer.")
        fills = _known(metric_curve(group, "teacher/buffer_fill") for group in groups)
        panels = {"total regret": lines, "part of the buffer that is filled": fills}
        figure = figures.curves(panels, groups, x_label="updates", y_label="sum of stored scores")
        name = f"{domain}-total-regret"
        files = (*self._figure(name, figure), self._table(name, tables.curve_rows(panels, "updates")))
        caption = (
            "The sum of the scores (regret) of all stored levels over training: mean and standard error over "
            "runs. Compare methods where their buffers are equally full (right), and only if they have the same score."
        )
        return Item(title, caption, files)

    def _composition_items(self, domain: str, groups: Sequence[Group], limit: int) -> Iterator[Item]:
        from cenie.report import figures

        title = "Difficulty of the replayed levels"
        found = compositions(groups, limit=limit)
        if not found:
            yield Item(title, "No run has recorded replayed levels: it takes a method with a level buffer.")
        for each in found:
            scale = each[0].scale
            name = f"{domain}-replayed-{scale.column.removeprefix('level/')}"
            files = (
                *self._figure(name, figures.compositions(each)),
                self._table(name, tables.composition_rows(each)),
            )
            caption = (
                f"Which part of the replayed levels was of which class ({scale.title}), over training; all runs "
                f"of a method together, {sum(one.levels for one in each):,} levels. Of long records a sample is read."
            )
            yield Item(f"{title}: {scale.title}", caption, files)

    def _coverage_item(self, domain: str, groups: Sequence[Group]) -> Item:
        title = "State-action coverage"
        if not self._options.coverage:
            return Item(title, "Left out, as asked for.")
        if len(groups) < 2:
            return Item(title, "Coverage compares methods, and there is one only.")
        try:
            found = measure_coverage(groups, most=self._options.points)
        except ImportError:
            return Item(title, "It needs scikit-learn: pip install 'cenie[report]'.")
        if found is None:
            return Item(
                title, "Fewer than two methods have recorded comparable points (run.recorded_points)."
            )
        from cenie.report import figures

        rows, text = [], ["| | covered | nearest neighbour | paper |", "|---|---|---|---|"]
        for cloud, covered, spread in zip(found.clouds, found.covered, found.spread):
            printed = reference.COVERAGE.values.get(cloud.group.method, "") if domain == "walker" else ""
            error = float(stats.standard_error(spread))
            told = f"{spread.mean():.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}")
            text.append(f"| {group_title(cloud.group)} | {covered[-1]:.1%} | {told} | {printed} |")
            rows += [
                {
                    "group": cloud.group.label,
                    "stage": stage,
                    "updates": found.updates[stage] if stage < len(found.updates) else None,
                    "covered": value,
                    "points": len(cloud.points),
                    "cells": found.side**2,
                    "nearest_neighbour_distance": spread.mean(),
                    "nearest_neighbour_standard_error": error,
                    "paper_another_budget": printed,
                }
                for stage, value in enumerate(covered)
            ]
        name = f"{domain}-coverage"
        files = (*self._figure(name, figures.coverage_evolution(found)), self._table(name, rows))
        count = len(found.clouds[0].points)
        caption = (
            f"One joint t-SNE of {count} points of each method, and the part of {found.side} x {found.side} cells in "
            "which a method has points so far. Beside it, without plane and grid: the mean distance of a point to "
            "its nearest neighbour in the same run (coordinates standardised; mean and standard error over runs)."
        )
        if domain == "walker":
            caption += f" Paper: {reference.COVERAGE.what} after {reference.COVERAGE.budget}, another budget."
        if any(map(is_recurrent, groups)):
            caption += (
                " Caution: these points hold the memory of a recurrent network, which every run learns for itself; "
                "clouds of different runs differ for that reason alone. The paper does this in BipedalWalker only, "
                "where points are observations and actions."
            )
        return Item(title, caption, files, "\n".join(text) + "\n")

    def _gallery_item(self, domain: str, groups: Sequence[Group]) -> Item:
        title = "Levels of low regret: of high and of low novelty"
        if not self._options.pictures:
            return Item(title, "Left out, as asked for.")
        each = 3
        for group in groups:
            chosen = low_regret_levels(group.runs[0], each)
            if chosen:
                break
        else:
            return Item(
                title, "No run has stored levels with both regret and novelty (methods with CENIE do)."
            )
        from cenie.report import figures, pictures

        run = group.runs[0]
        try:
            drawn = [
                pictures.stored_levels(run.path, one.buffer, (*one.novel, *one.familiar)) for one in chosen
            ]
        except pictures.CannotDraw as error:
            return Item(title, f"The levels cannot be drawn: {error}")
        rows = []
        for name, first in (("high novelty", 0), ("low novelty", each)):
            row = []
            for one, images in zip(chosen, drawn):
                places = (*one.novel, *one.familiar)[first : first + each]
                row += [
                    (image, f"regret {one.buffer['regret'][at]:.2f}\nnovelty {one.buffer['novelty'][at]:.1f}")
                    for at, image in zip(places, images[first : first + each])
                ]
            rows.append((name, row))
        titles = [f"{one.updates} updates" for one in chosen]
        files = self._figure(f"{domain}-low-regret", figures.gallery(rows, titles=titles, each=each))
        caption = (
            f"Stored levels of {group_title(group)} (seed {run.seed}): of the lowest 5 % by regret those of the "
            "highest novelty (above) and of the lowest (below). Scores of different times are not comparable."
        )
        return Item(title, caption, files)


def _known(lines: Iterable[Curve | None]) -> list[Curve]:
    return [line for line in lines if line is not None]


def _counted(found: SuiteScores) -> str:
    counts = sorted({len(each.runs) for each in found.groups})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _paper_sentence(suite: str, groups: Sequence[Group]) -> str:
    """What the paper prints of this suite, marked as the paper's."""
    known = reference.REFERENCES.get(suite)
    methods = [group.method for group in groups]
    values = {} if known is None else {name: text for name, text in known.values.items() if name in methods}
    if known is None or not values:
        return ""
    told = "; ".join(f"{method_title(method)} {text}" for method, text in values.items())
    return f" Paper ({known.what}, after {known.budget}, another budget than here): {told}."


def _markdown(report: Report) -> str:
    lines = ["# Report", ""]
    if report.skipped:
        lines += ["Left out:", "", *(f"- {sentence}" for sentence in report.skipped), ""]
    for domain in report.domains:
        lines += [f"## {domain.domain}", "", "| | runs | seeds |", "|---|---|---|"]
        for group in domain.groups:
            seeds = ", ".join(str(run.seed) for run in group.runs)
            lines.append(f"| {group_title(group)} | {len(group.runs)} | {seeds} |")
        lines.append("")
        if domain.notes:
            lines += ["What to mind when comparing:", "", *(f"- {note}" for note in domain.notes), ""]
        for item in domain.items:
            lines += [f"### {item.title}", ""]
            lines += [f"![{item.title}]({name})" for name in item.files if name.endswith(".png")]
            lines += ["", item.caption, ""]
            lines += [item.text] if item.text else []
            others = [name for name in item.files if not name.endswith(".png")]
            lines += [f"Files: {', '.join(f'[{name}]({name})' for name in others)}", ""] if others else []
    return "\n".join(lines) + "\n"
