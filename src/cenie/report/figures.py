"""The figures, as matplotlib draws them: in the style of the paper, with intervals, fit for print.

Every function returns a `Figure`; nothing is shown and no global state is changed.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from cenie.report.appearance import colours, group_title
from cenie.report.measure.composition import Composition
from cenie.report.measure.coverage import CoverageMap
from cenie.report.measure.curves import Curve
from cenie.report.measure.scores import SuiteScores
from cenie.report.measure.stats import Estimate
from cenie.report.runs import Group

WIDTH = 7.0
"""Inches, the width of a page of a paper."""
MOST_ROWS = 8
"""Rows of the figure of coverage; its table has all groups."""
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "figure.dpi": 100,
    # Names come from users: what looks like mathematics in them is none.
    "text.parse_math": False,
    "text.usetex": False,
    "legend.frameon": False,
}
_CLASSES = ("#2c7bb6", "#7fcdbb", "#fee08b", "#f46d43", "#a50026", "#4d4d4d")
"""From easy to hard; the last one for what is not on the scale."""


def _styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    def drawn(*arguments: Any, **options: Any) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*arguments, **options)

    return drawn


def _panels(count: int, columns: int, *, height: float = 1.6, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of one size, a few in a row; the rest of the last row stays empty."""
    columns = min(count, columns)
    rows = -(-count // columns)
    width = WIDTH if columns > 1 else 0.6 * WIDTH
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    axes = list(np.ravel(figure.subplots(rows, columns, squeeze=False, **options)))
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def _legend(figure: Figure, groups: Sequence[Group]) -> None:
    looks = colours(groups)
    handles = [Patch(color=looks[group.label], label=group_title(group)) for group in groups]
    longest = max(len(group_title(group)) for group in groups)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=max(1, min(len(groups), 100 // (longest + 6)))
    )


def _name(group: Group, width: int = 26) -> str:
    """The title of a group, on several lines if it is long."""
    return "\n".join(textwrap.wrap(group_title(group), width, break_long_words=False))


def _thousands(value: int | float, _: int | None = None) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@_styled
def level_bars(scores: SuiteScores) -> Figure:
    """A panel for each level: the median over runs, the inter-quartile range, and every run as a dot."""
    groups = [each.group for each in scores.groups]
    looks = colours(groups)
    figure, axes = _panels(len(scores.levels), 4, sharey=True)
    for number, (level, axis) in enumerate(zip(scores.levels, axes)):
        for place, each in enumerate(scores.groups):
            values = each.scores[:, number]
            low, middle, high = each.quartiles[:, number]
            axis.bar(place, middle, 0.8, color=looks[each.group.label], alpha=0.85)
            if len(values) > 1:
                spread = [[middle - low], [high - middle]]
                axis.errorbar(place, middle, spread, color="black", capsize=2, linewidth=0.9)
            dots = place + np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [place]
            axis.plot(dots, values, ".", color="black", markersize=2.5, alpha=0.55)
        axis.set_title(level)
        axis.set_xticks([])
        axis.grid(axis="x", visible=False)
        if scores.measure == "solved rate":  # Other scores may leave the scale from 0 to 1.
            axis.set_ylim(0, 1.02)
    for axis in axes[::4]:
        axis.set_ylabel(scores.measure)
    _legend(figure, groups)
    return figure


@_styled
def aggregates(found: dict[str, dict[str, Estimate]], groups: Sequence[Group]) -> Figure:
    """A panel for each statistic: its value and 95 % interval for each group."""
    looks = colours(groups)
    names = list(next(iter(found.values())))
    figure, axes = _panels(len(names), 5, height=0.4 + 0.27 * len(groups), sharey=True)
    for name, axis in zip(names, axes):
        for place, group in enumerate(groups):
            estimate, colour = found[group.label][name], looks[group.label]
            if np.isfinite(estimate.low):
                axis.barh(place, estimate.high - estimate.low, 0.6, estimate.low, color=colour, alpha=0.65)
            axis.plot([estimate.value] * 2, [place - 0.3, place + 0.3], color="black", linewidth=1.5)
        axis.set_title("optimality gap ↓" if name == "optimality gap" else name)
        axis.set_yticks(range(len(groups)), [_name(group) for group in groups])
        axis.use_sticky_edges = False
        axis.margins(x=0.08)
        axis.set_ylim(len(groups) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
    return figure


@_styled
def profiles(
    thresholds: np.ndarray, found: dict[str, dict[str, np.ndarray]], groups: Sequence[Group]
) -> Figure:
    """The part of all runs on all levels whose score is above a threshold, with 95 % intervals."""
    looks = colours(groups)
    figure, (axis,) = _panels(1, 1, height=2.6)
    for group in groups:
        profile, colour = found[group.label], looks[group.label]
        axis.plot(thresholds, profile["value"], color=colour)
        axis.fill_between(thresholds, profile["low"], profile["high"], color=colour, alpha=0.18, linewidth=0)
    axis.set_xlabel("score s")
    axis.set_ylabel("runs and levels with a score above s")
    axis.set_ylim(0, 1.02)
    _legend(figure, groups)
    return figure


@_styled
def improvements(found: Mapping[tuple[str, str], Estimate], groups: Sequence[Group]) -> Figure:
    """The probability that the method of a row is better than the method of a column."""
    count, labels = len(groups), [group.label for group in groups]
    matrix = np.array([[0.5 if row == col else found[row, col].value for col in labels] for row in labels])
    names = [_name(group) for group in groups]
    size = 0.45 * count + 1.6
    figure = Figure(figsize=(min(WIDTH, size + 1.2), min(WIDTH, size)), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(matrix, vmin=0, vmax=1, cmap="RdBu")
    axis.set_xticks(range(count), names, rotation=40, ha="right")
    axis.set_yticks(range(count), names)
    axis.grid(visible=False)
    for (row, column), probability in np.ndenumerate(matrix):
        if row != column:
            colour = "white" if abs(probability - 0.5) > 0.3 else "black"
            text = "NaN" if np.isnan(probability) else f"{probability:.2f}"
            axis.text(column, row, text, ha="center", va="center", color=colour)
    figure.colorbar(image, ax=axis, shrink=0.8, label="P(row better than column)")
    return figure


@_styled
def curves(
    panels: dict[str, Sequence[Curve]],
    groups: Sequence[Group],
    *,
    x_label: str,
    y_label: str,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """A panel for each title: the mean of the runs over training, shaded by its standard error."""
    looks = colours(groups)
    columns = 3 if len(panels) in (3, 5, 6, 9) else 4
    figure, axes = _panels(len(panels), columns, sharex=True, height=1.55 if len(panels) > columns else 2.2)
    for (title, lines), axis in zip(panels.items(), axes):
        for line in lines:
            colour = looks[line.label]
            axis.plot(line.x, line.mean, color=colour, marker="." if len(line.x) < 12 else None, markersize=3)
            low, high = line.mean - line.error, line.mean + line.error
            axis.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(title)
        if limits is not None:
            axis.set_ylim(*limits)
        axis.xaxis.set_major_formatter(FuncFormatter(_thousands))
    for number, axis in enumerate(axes):
        if number % columns == 0:
            axis.set_ylabel(y_label)
        if number + columns >= len(axes):
            axis.set_xlabel(x_label)
            axis.tick_params(labelbottom=True)
    shown = {line.label for lines in panels.values() for line in lines}
    _legend(figure, [group for group in groups if group.label in shown])
    return figure


@_styled
def compositions(found: Sequence[Composition]) -> Figure:
    """A panel for each group: which part of the replayed levels was how difficult, over training."""
    scale = found[0].scale
    figure, axes = _panels(len(found), 4, sharey=True)
    for each, axis in zip(found, axes):
        edges = np.concatenate([[0.0], each.ends])
        parts = np.nan_to_num(each.parts.T)
        steps = np.concatenate([parts, parts[:, -1:]], axis=1)
        shades = [_class_colour(number) for number in range(len(scale.names))]
        axis.stackplot(edges, steps, colors=shades, step="post", linewidth=0)
        axis.set_title(_name(each.group))
        axis.set_xlabel("updates")
        axis.set_ylim(0, 1)
        axis.set_xlim(0, each.ends[-1])
        axis.grid(visible=False)
        axis.xaxis.set_major_formatter(FuncFormatter(_thousands))
    for axis in axes[::4]:
        axis.set_ylabel("part of replayed levels")
    handles = [Patch(color=_class_colour(number), label=name) for number, name in enumerate(scale.names)]
    figure.legend(handles=handles, title=scale.title, loc="outside lower center", ncols=len(scale.names))
    return figure


def _class_colour(number: int) -> str:
    return _CLASSES[min(number, len(_CLASSES) - 1)]


@_styled
def coverage_evolution(found: CoverageMap) -> Figure:
    """A row for each group and a column for each stage: the joint plane, with what was covered so far."""
    clouds = found.clouds[:MOST_ROWS]
    looks = colours([cloud.recorded.group for cloud in clouds])
    stages, rows = len(clouds[0].covered), len(clouds)
    size = min(WIDTH / stages, 1.7)
    figure = Figure(figsize=(size * stages + 0.5, size * rows), layout="constrained")
    axes = figure.subplots(rows, stages, squeeze=False, sharex=True, sharey=True)
    for row, cloud in enumerate(clouds):
        group, updates = cloud.recorded.group, cloud.recorded.updates
        for stage, covered in enumerate(cloud.covered):
            axis = axes[row, stage]
            seen = cloud.plane[cloud.recorded.stage <= stage]
            axis.scatter(*seen.T, s=1.2, color=looks[group.label], alpha=0.6, linewidth=0, rasterized=True)
            axis.set(xticks=[], yticks=[])
            axis.text(0.03, 0.97, f"{covered:.1%}", transform=axis.transAxes, va="top")
            # Once above all rows, or above each that differs from the one before.
            if stage in updates and (row == 0 or updates != clouds[row - 1].recorded.updates):
                axis.set_title(f"{_thousands(updates[stage])} updates")
        axes[row, 0].set_ylabel(_name(group, 20))
    return figure


@_styled
def gallery(
    rows: Sequence[tuple[str, Sequence[tuple[np.ndarray, str]]]], *, titles: Sequence[str], each: int
) -> Figure:
    """Rows of pictures with a line under each; `titles` stand above every `each` columns."""
    columns = max(len(pictures) for _, pictures in rows)
    size = WIDTH / max(columns, 4)
    figure = Figure(figsize=(WIDTH, (size + 0.4) * len(rows) + 0.2), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set_visible(False)
    for row, (name, pictures) in enumerate(rows):
        axes[row, 0].set_ylabel(name)
        for column, (picture, line) in enumerate(pictures):
            axes[row, column].imshow(picture, interpolation="lanczos")
            axes[row, column].set_xlabel(line, fontsize=5.5)
    for number, title in enumerate(titles):
        axes[0, number * each].set_title(title, loc="left")
    return figure
