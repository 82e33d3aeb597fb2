"""The part of a report on the curriculum: regret in the buffer, difficulty, coverage, and levels to look
at."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from cenie.report import figures, paper_numbers, tables
from cenie.report.appearance import group_title
from cenie.report.measure import stats
from cenie.report.measure.composition import LOW_REGRET, Chosen, compositions, low_regret_levels
from cenie.report.measure.coverage import CoverageMap, is_recurrent
from cenie.report.measure.curves import metric_curve
from cenie.report.runs import Group
from cenie.report.suite_items import known
from cenie.report.writer import Item, ReportWriter
from cenie.rundir.files import RunDirectoryError

_PICTURES = 3
"""Levels of each kind that are drawn at each stage."""


def curriculum_items(
    writer: ReportWriter,
    groups: Sequence[Group],
    domain: str,
    *,
    limit: int,
    coverage: Future[CoverageMap | None] | None,
) -> Iterator[Item]:
    """All of it; `limit` is how many bytes of the records of a run are read.

    `coverage` is being reckoned, if it was asked for and there are methods to compare.
    """
    writer.progress(f"{domain}: curriculum")
    yield _total_regret(writer, groups, domain)
    yield from _compositions(writer, groups, domain, limit)
    gallery = _gallery(writer, groups, domain)  # Made first: coverage may have to be waited for.
    yield _coverage(writer, groups, domain, coverage)
    yield gallery


def _total_regret(writer: ReportWriter, groups: Sequence[Group], domain: str) -> Item:
    title = "Total regret in the level buffer"
    lines = known(metric_curve(group, "teacher/regret_total") for group in groups)
    if not lines:
        return Item(title, "No run has logged it: it takes a method with a level buffer.")
    fills = known(metric_curve(group, "teacher/buffer_fill") for group in groups)
    panels = {"total regret": lines, "filled part of the buffer": fills}
    figure = figures.curves(panels, groups, x_label="updates", y_label="sum of scores")
    name = f"{domain}-total-regret"
    files = writer.figure(name, figure, tables.curve_rows(panels, "updates"))
    caption = (
        "The sum of the regret of all stored levels over training: mean and standard error over runs. "
        "Compare methods where their buffers are equally full (right), and only if they have the same score."
    )
    return Item(title, caption, files)


def _compositions(writer: ReportWriter, groups: Sequence[Group], domain: str, limit: int) -> Iterator[Item]:
    title = "Difficulty of the replayed levels"
    found = compositions(groups, limit=limit)
    if not found:
        yield Item(title, "No run has recorded replayed levels: it takes a method with a level buffer.")
    for each in found:
        scale = each[0].scale
        name = f"{domain}-replayed-{scale.column.removeprefix('level/')}"
        files = writer.figure(name, figures.compositions(each), tables.composition_rows(each))
        count = sum(one.levels for one in each)
        caption = (
            f"The share of each class ({scale.title}) in the replayed levels, over training: all runs "
            f"of a method together, {count:,} levels. Of long records a sample is read."
        )
        yield Item(f"{title}: {scale.title}", caption, files)


def _coverage(
    writer: ReportWriter, groups: Sequence[Group], domain: str, coverage: Future[CoverageMap | None] | None
) -> Item:
    title = "State-action coverage"
    if not writer.options.coverage:
        return Item(title, "Left out, as asked for.")
    if coverage is None:
        return Item(title, "Coverage compares methods, and there is one only.")
    writer.progress(f"{domain}: coverage")
    try:
        found = coverage.result()
    except RunDirectoryError as error:
        return Item(title, f"Left out: {error}")
    except ImportError:
        return Item(title, "It needs scikit-learn: pip install 'cenie[report]'.")
    if found is None:
        return Item(title, "Fewer than two methods have recorded comparable points (run.recorded_points).")
    paper = paper_numbers.COVERAGE
    printed = paper.values if domain == "walker" else {}
    rows, text = _coverage_tables(found, printed)
    name = f"{domain}-coverage"
    files = writer.figure(name, figures.coverage_evolution(found), rows)
    caption = (
        f"One joint t-SNE of {len(found.clouds[0].plane)} points of each method, and the part of "
        f"{found.side} x {found.side} cells in which a method has points so far. Without plane and grid: "
        "the mean distance of a point to its nearest neighbour in the same run, coordinates standardised "
        "(mean and standard error over runs)."
    )
    if len(found.clouds) > figures.MOST_ROWS:
        caption += f" The first {figures.MOST_ROWS} methods are drawn."
    if printed:
        caption += f" Paper: {paper.what} after {paper.budget}, another budget than here."
    if any(map(is_recurrent, groups)):
        caption += (
            " Caution: these points hold the memory of a recurrent network, which every run learns for "
            "itself, so that clouds of different runs lie apart for that reason alone. The paper does this "
            "in BipedalWalker only, where points are observations and actions."
        )
    return Item(title, caption, files, text)


def _coverage_tables(found: CoverageMap, printed: dict[str, str]) -> tuple[list[tables.Row], str]:
    rows, lines = [], ["| | covered | nearest neighbour | *paper: covered* |", "|---|---|---|---|"]
    for cloud in found.clouds:
        group, updates = cloud.recorded.group, cloud.recorded.updates
        paper = printed.get(group.method, "")
        mean, error = float(np.nanmean(cloud.spread)), float(stats.standard_error(cloud.spread))
        told = f"{mean:.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}")
        lines.append(
            f"| {tables.markdown(group_title(group))} | {cloud.covered[-1]:.1%} | {told} | {paper} |"
        )
        rows += [
            {
                "group": group.label,
                "stage": stage,
                "updates": updates.get(stage),
                "covered": value,
                "points": len(cloud.plane),
                "cells": found.side**2,
                "nearest_neighbour_distance": mean,
                "nearest_neighbour_standard_error": error,
                "paper_another_budget": paper,
            }
            for stage, value in enumerate(cloud.covered)
        ]
    return rows, "\n".join(lines) + "\n"


def _gallery(writer: ReportWriter, groups: Sequence[Group], domain: str) -> Item:
    title = "Levels of low regret: of high and of low novelty"
    if not writer.options.pictures:
        return Item(title, "Left out, as asked for.")
    for group in groups:
        chosen = low_regret_levels(group.runs[0], _PICTURES)
        if chosen:
            return _drawn(writer, title, group, domain, chosen)
    return Item(title, "No run has stored levels with both regret and novelty; methods with a novelty do.")


def _drawn(writer: ReportWriter, title: str, group: Group, domain: str, chosen: Sequence[Chosen]) -> Item:
    from cenie.report import shown_levels  # loads JAX

    writer.progress(f"{domain}: gallery")
    run = group.runs[0]
    novel = [(one.buffer, one.novel) for one in chosen]
    familiar = [(one.buffer, one.familiar) for one in chosen]
    try:
        images = shown_levels.stored_pictures(run, [*novel, *familiar], writer.options.domains)
    except shown_levels.CannotDraw as error:
        return Item(title, f"The levels cannot be drawn: {error}")
    rows = [
        ("high novelty", _with_scores(novel, images[: len(novel)])),
        ("low novelty", _with_scores(familiar, images[len(novel) :])),
    ]
    titles = [f"{one.updates} updates" for one in chosen]
    files = writer.figure(f"{domain}-low-regret", figures.gallery(rows, titles=titles, each=_PICTURES))
    caption = (
        f"Stored levels of {group_title(group)} (seed {run.seed}): among the lowest {LOW_REGRET:.0%} by "
        "regret, the levels of the highest novelty (above) and of the lowest (below). Scores of different "
        "times are not comparable."
    )
    return Item(title, caption, files)


def _with_scores(
    chosen: Sequence[tuple[dict[str, np.ndarray], np.ndarray]], images: Sequence[Sequence[np.ndarray]]
) -> list[tuple[np.ndarray, str]]:
    """The images of rows of buffers, each with what was thought of the level."""
    return [
        (image, f"regret {regret:.2f}\nnovelty {novelty:.1f}")
        for (buffer, rows), drawn in zip(chosen, images, strict=True)
        for image, regret, novelty in zip(drawn, buffer["regret"][rows], buffer["novelty"][rows], strict=True)
    ]
