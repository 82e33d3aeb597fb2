"""The tables of docs/results.md are those of the seeds in docs/data, with the intervals of reports."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from cenie.report.measure import stats

DOCS = Path(__file__).parent.parent / "docs"
TABLES = [
    ("does-novelty-help", "arm", "cenie8-sym", r"\| `{arm}` \| 8 \| {value} \|", 0.0006),
    ("does-novelty-help", "arm", "accel12", r"\| `{arm}` \| 8 \|[^|]+\| {value} \|", 0.0006),
    ("does-novelty-help", "arm", "perfect-large", r"\| `{arm}` \| 8 \|[^|]+\|[^|]+\| {value} \|", 0.0006),
    ("all-methods", "arm", "score", r"\| `{arm}` \| \d+ \| {value} \|", 0.0006),
    ("racing-bezier", "method", "mean return", r"\| `{arm}` \| [^|]*\| {value} \|", 0.6),
    ("racing-f1", "method", "mean return", r"\| `{arm}` \| [^|]*\| [^|]*\| [^|]*\| {value} \|", 0.6),
    (
        "racing-f1",
        "method",
        "mean score",
        r"\| `{arm}` \|[^|]*\|[^|]*\|[^|]*\|[^|]*\|[^|]*\| {value} \|",
        0.0006,
    ),
    ("walker-comparison", "method", "mean", r"\| `{arm}` \| [\d, ]+\| \d+ \| {value} \|", 0.6),
]
NUMBER = r"\**(-?[\d.]+)\**"
VALUE = rf"{NUMBER} \({NUMBER} to {NUMBER}\)"


@pytest.mark.parametrize(("data", "key", "column", "row", "error"), TABLES)
def test_a_table_has_the_means_and_intervals_of_its_seeds(data, key, column, row, error):
    text = (DOCS / "results.md").read_text().replace("`plr-cenie`, `stored=relative`", "`plr-cenie-relative`")
    with (DOCS / "data" / f"{data}.csv").open() as file:
        rows = list(csv.DictReader(file))
    compared = 0
    for arm in dict.fromkeys(each[key] for each in rows):
        scores = np.array([[float(each[column])] for each in rows if each[key] == arm])
        if data == "does-novelty-help" and len(scores) < 8:
            continue  # every seed is shown in the place of an interval
        found = stats.estimate(scores, stats.mean)
        ends = [found.low, found.high]
        if data == "all-methods":  # as the text says
            ends = np.clip(ends, 0.0, 1.0).tolist()
        matches = re.findall(row.format(arm=re.escape(arm), value=VALUE), text)
        assert matches, arm
        assert any(
            np.allclose([float(number) for number in match], [found.value, *ends], rtol=0, atol=error)
            for match in matches
        ), (arm, found, matches)
        compared += 1
    assert compared >= 3
