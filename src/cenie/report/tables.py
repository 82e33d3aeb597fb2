"""Tables of a report: rows of plain values, and how they are written as CSV, Markdown and LaTeX."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenie.report import paper_numbers
from cenie.report.appearance import group_title, method_title
from cenie.report.measure.composition import Composition
from cenie.report.measure.curves import Curve
from cenie.report.measure.scores import GroupScores, SuiteScores
from cenie.report.measure.stats import Estimate, Mean
from cenie.report.runs import Group

Row = dict[str, Any]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With which a cell begins that a spreadsheet calculates."""
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "⊥": r"$^\perp$",
        "†": r"$^\dag$",
        "\n": " ",
        "\r": " ",
    }
    | {character: "\\" + character for character in "_%&$#{}"}
)
_MARKDOWN = str.maketrans(
    {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " "}
    | {character: "\\" + character for character in "\\`*[]|$"}
)
"""Characters that Markdown reads otherwise: marks of its own, of HTML and of mathematics."""


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """Rows of the same columns as a CSV file; numbers have all their digits, and NaN is `nan`.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def run_rows(groups: Sequence[Group]) -> list[Row]:
    """The compared runs: a row for each."""
    return [
        {
            "domain": group.domain,
            "group": group.label,
            "method": group.method,
            "preset": run.settings.get("preset"),
            "seed": run.seed,
            "budget_updates": run.budget,
            "updates": (run.summary or {}).get("updates"),
            "env_steps": (run.summary or {}).get("env_steps"),
            "finished": run.summary is not None,
            "version": run.version,
            "directory": str(run.path),
        }
        for group in groups
        for run in group.runs
    ]


def score_rows(found: SuiteScores) -> list[Row]:
    """Every number behind the figures of a suite: a row for each run and level."""
    return [
        {
            "suite": found.suite,
            "group": each.group.label,
            "seed": run.seed,
            "level": level,
            "score": each.scores[row, column],
            "return": each.returns[row, column],
            "solved": each.solved[row, column],
            "directory": str(run.path),
        }
        for each in found.groups
        for row, run in enumerate(each.runs)
        for column, level in enumerate(found.levels)
    ]


def level_rows(found: SuiteScores) -> list[Row]:
    """Statistics over runs of each level, of the score on the scale of the suite and of the raw return."""
    rows = []
    for each in found.groups:
        for column, level in enumerate(found.levels):
            score, returned = each.means["scores"][column], each.means["returns"][column]
            low, middle, high = each.quartiles[:, column]
            rows.append(
                {
                    "suite": found.suite,
                    "group": each.group.label,
                    "level": level,
                    "runs": len(each.runs),
                    "score_mean": score.value,
                    "score_standard_error": score.error,
                    "score_median": middle,
                    "score_q1": low,
                    "score_q3": high,
                    "return_mean": returned.value,
                    "return_standard_error": returned.error,
                }
            )
    return rows


def aggregate_rows(found: SuiteScores, estimates: Mapping[str, Mapping[str, Estimate]]) -> list[Row]:
    """The statistics over all levels, with 95 % intervals."""
    runs = {each.group.label: len(each.runs) for each in found.groups}
    return [
        {
            "suite": found.suite,
            "group": label,
            "statistic": name,
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "runs": runs[label],
            "levels": len(found.levels),
        }
        for label, each in estimates.items()
        for name, estimate in each.items()
    ]


def improvement_rows(pairs: Mapping[tuple[str, str], Estimate]) -> list[Row]:
    """The probability that a run of one group is better than one of another."""
    return [
        {"group": one, "better_than": other, "probability": each.value, "low": each.low, "high": each.high}
        for (one, other), each in pairs.items()
    ]


def curve_rows(panels: Mapping[str, Sequence[Curve]], over: str) -> list[Row]:
    """The points of curves."""
    return [
        {
            "panel": title,
            "group": line.label,
            over: x,
            "mean": mean,
            "standard_error": error,
            "runs": line.runs,
        }
        for title, lines in panels.items()
        for line in lines
        for x, mean, error in zip(line.x, line.mean, line.error)
    ]


def composition_rows(found: Sequence[Composition]) -> list[Row]:
    """The parts of the replayed levels that were of each class, in each interval of training."""
    return [
        {
            "group": each.group.label,
            "by": each.scale.title,
            "until_update": end,
            "class": name,
            "part": each.parts[interval, number],
        }
        for each in found
        for interval, end in enumerate(each.ends)
        for number, name in enumerate(each.scale.names)
    ]


@dataclass(frozen=True)
class Cell:
    """A mean and its standard error; bold if it is within one standard error of the best mean of its row."""

    mean: float
    error: float
    bold: bool


@dataclass(frozen=True)
class ComparisonTable:
    """Means of each level for every group, and what the paper prints of it."""

    title: str
    groups: tuple[Group, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    digits: int
    paper: dict[str, dict[str, tuple[float, float]]]


def comparison(found: SuiteScores) -> ComparisonTable:
    """A row for each level and one for their mean: solved rates, or raw returns if a suite goes by them.

    Bold is what reaches the best mean with its own standard error, which is how the paper's table of F1
    tracks reads (but for one cell of it, PLR-CENIE-dagger on USA).
    """
    rates = found.measure == "solved rate"
    names = [*found.levels, "Mean"] if len(found.levels) > 1 else found.levels
    means = [each.means["solved" if rates else "returns"] for each in found.groups]
    rows = tuple((name, bold_cells([each[row] for each in means])) for row, name in enumerate(names))
    title = f"{found.suite}: {'solved rate' if rates else 'return'}, mean and standard error over runs"
    groups = tuple(each.group for each in found.groups)
    return ComparisonTable(
        title, groups, rows, 2 if rates else 0, paper_numbers.f1_returns() if found.suite == "f1" else {}
    )


def bold_cells(means: Sequence[Mean]) -> tuple[Cell, ...]:
    """The cells of a row, one for each group."""
    best = max((each.value for each in means if not np.isnan(each.value)), default=np.nan)
    return tuple(
        Cell(each.value, each.error, bool(each.value + np.nan_to_num(each.error) >= best)) for each in means
    )


def comparison_rows(table: ComparisonTable) -> list[Row]:
    """The table with a column for each number; numbers of the paper are named as such."""
    rows = []
    for level, cells in table.rows:
        row: Row = {"level": level}
        for group, cell in zip(table.groups, cells):
            row[group.label] = cell.mean
            row[f"{group.label} standard error"] = cell.error
            row[f"{group.label} bold"] = int(cell.bold)
        for method, (mean, error) in table.paper.get(level, {}).items():
            row[f"paper (another budget): {method}"] = mean
            row[f"paper (another budget): {method} standard error"] = error
        rows.append(row)
    return rows


def comparison_markdown(table: ComparisonTable) -> str:
    """The table for people."""
    papers = list(next(iter(table.paper.values()), {}))
    names = [markdown(group_title(group)) for group in table.groups]
    names += [f"*paper: {method_title(method)}*" for method in papers]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for level, cells in table.rows:
        ours = [(_number(cell.mean, cell.error, table.digits, " ± "), cell.bold) for cell in cells]
        texts = [f"**{text}**" if is_bold else text for text, is_bold in ours]
        printed = table.paper.get(level, {})
        texts += [_number(*printed[method], 0, " ± ") if method in printed else "" for method in papers]
        lines.append(f"| {markdown(level)} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def comparison_latex(table: ComparisonTable) -> str:
    """The table for a paper (booktabs); ours only."""
    names = " & ".join(_latex(group_title(group)) for group in table.groups)
    lines = [
        f"% {_latex(table.title)}; bold: within one standard error of the best mean",
        rf"\begin{{tabular}}{{l{'r' * len(table.groups)}}}",
        r"\toprule",
        rf" & {names} \\",
        r"\midrule",
    ]
    for level, cells in table.rows:
        if level == "Mean":
            lines.append(r"\midrule")
        texts = []
        for cell in cells:
            text = _number(cell.mean, cell.error, table.digits, r"$\pm$")
            texts.append(rf"\textbf{{{text}}}" if cell.bold else text)
        lines.append(rf"{_latex(level)} & {' & '.join(texts)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _number(mean: float, error: float, digits: int, between: str) -> str:
    if np.isnan(mean):
        return "NaN"
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f"{between}{error:.{digits}f}")


def _latex(text: str) -> str:
    """A text that LaTeX prints as it is."""
    return text.translate(_LATEX)


def markdown(text: str) -> str:
    """A text that may stand in a line or a table of Markdown."""
    return text.translate(_MARKDOWN)


def aggregate_markdown(groups: Sequence[GroupScores], estimates: Mapping[str, Mapping[str, Estimate]]) -> str:
    """The statistics over all levels, with their intervals."""
    names = list(next(iter(estimates.values())))
    lines = [f"| | runs | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for each in groups:
        texts = [_interval(estimates[each.group.label][name]) for name in names]
        lines.append(f"| {markdown(group_title(each.group))} | {len(each.runs)} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def _interval(estimate: Estimate) -> str:
    if np.isnan(estimate.value):
        return "NaN"
    if np.isnan(estimate.low):
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
