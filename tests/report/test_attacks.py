"""Whatever stands in the files of a run, the page of all runs is made, and says what it has left out."""

import io
import json
import os
import random
import re
import warnings

import numpy as np
import pytest

from cenie.report.build import write_report
from cenie.report.page.data import page_data
from cenie.report.page.write import json_for_html
from cenie.report.runs import group_runs, open_runs
from cenie.report.writer import Options
from cenie.rundir.archives import archive_bytes
from tests.report.synthetic import evaluate_later, write_run

FILES = (
    "config.json",
    "summary.json",
    "metrics.jsonl",
    "levels.csv",
    "evaluations.csv",
    "evaluation-perfect-large-seed0-cycle80.csv",
    "snapshots/cycle-00000080.npz",
)
ODD = ("1e999", "NaN", "null", "[]", "{}", '"x"', "-1", "9" * 30, "1.5", '"\\udc80"', "", "1_0", "٣", "inf")
ARRAYS = (
    lambda array: array[:0] if array.ndim else np.zeros(0),
    lambda array: np.full(array.shape, np.nan),
    lambda array: np.full(array.shape, np.inf),
    lambda array: np.full(array.shape, -(2**62)),
    lambda array: np.zeros((3, 2)),
    lambda array: array[:-1] if array.ndim else np.array([1, 2]),
)


def truncated(file, rng):
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])


def flipped(file, rng):
    content = bytearray(file.read_bytes())
    for _ in range(20):
        content[rng.randrange(len(content))] = rng.randrange(256)
    file.write_bytes(bytes(content))


def emptied(file, rng):
    file.write_bytes(b"")


def gone(file, rng):
    file.unlink()


def a_directory(file, rng):
    file.unlink()
    file.mkdir()


def a_link(file, rng):
    file.unlink()
    file.symlink_to("/dev/zero")


def a_pipe(file, rng):
    file.unlink()
    os.mkfifo(file)


def odd_values(file, rng):
    """Some values are of another kind, or no numbers at all; in a table a whole column is."""
    if file.suffix == ".npz":
        arrays = dict(np.load(io.BytesIO(file.read_bytes())))
        name = rng.choice(sorted(arrays))
        arrays[name] = rng.choice(ARRAYS)(arrays[name])
        file.write_bytes(archive_bytes(arrays))
        return
    text = file.read_text()
    if file.suffix == ".csv":
        header, *rows = [line.split(",") for line in text.splitlines()]
        column, value = rng.randrange(len(header)), rng.choice(ODD)
        rows = [[*row[:column], value, *row[column + 1 :]] for row in rows]
        file.write_text("".join(",".join(row) + "\n" for row in [header, *rows]))
        return
    places = list(re.finditer(r"(?<=: )[^,:\n{}\[\]]+(?=[,\n}])", text))
    chosen = rng.sample(places, min(3, len(places)))
    for place in sorted(chosen, key=lambda each: each.start(), reverse=True):
        text = text[: place.start()] + rng.choice(ODD) + text[place.end() :]
    file.write_text(text)


@pytest.mark.parametrize(
    "damage", [truncated, flipped, emptied, gone, a_directory, a_link, a_pipe, odd_values]
)
def test_the_page_is_made_whatever_stands_in_the_files_of_a_run(tmp_path, damage):
    good = write_run(tmp_path / "good", "dr")
    for number, name in enumerate(FILES):
        for again in range(6 if damage is odd_values else 1):
            path = write_run(tmp_path / f"bad{number}-{again}", "plr-cenie")
            evaluate_later(path, "perfect-large", 0.5)
            damage(path / name, random.Random(f"{name} {again}"))
            opened = open_runs([good, path])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = page_data(group_runs(opened.runs), skipped=opened.skipped)
            json.loads(json_for_html(data))
            assert any(run["path"] == str(good) for run in data["runs"])
            assert not any("Error:" in sentence for sentence in data["skipped"]), data["skipped"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [truncated, flipped, emptied, gone, a_directory, odd_values])
def test_a_report_is_made_whatever_stands_in_the_files_of_a_run(tmp_path, damage, name):
    write_run(tmp_path / "runs" / "good", "dr")
    path = write_run(tmp_path / "runs" / "bad", "plr-cenie")
    evaluate_later(path, "perfect-large", 0.5)
    damage(path / name, random.Random(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_report([tmp_path / "runs"], tmp_path / "out", Options(pdf=False, points=60, pictures=False))
