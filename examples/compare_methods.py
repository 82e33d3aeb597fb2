"""Train several methods with several seeds, two runs at a time, and compare them on held-out levels.

    python examples/compare_methods.py --out runs/comparison --seeds 3 --updates 800 \
        dr plr-robust "accel --teacher.generator uniform60" accel

Each argument is a method, with settings if wanted. A run that is finished is not repeated and an interrupted
one is resumed, so the command can be given again. The score of a run (on mazes, the solved rate) is the mean
over its last checkpoints; the interval is that of the mean over seeds (Student's t, 95 %).
"""

import argparse
import csv
import json
import shlex
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy import stats

SUITES = {"cenie8": 10, "cenie8-sym": 2}
"""Episodes for each entry: cenie8 has 8 entries, cenie8-sym 72."""
CHECKPOINTS = 5


def train_and_evaluate(directory, recipe, seed, updates):
    """One run on one core, and the evaluation of its last checkpoints."""
    method, *settings = shlex.split(recipe)
    spacing = max(updates // 20, 1)
    command = ["train", "maze", method, "--preset", "quick", "--seed", str(seed), "--updates", str(updates)]
    command += [
        "--run.devices",
        "1",
        "--run.checkpoint_every",
        str(spacing),
        "--run.evaluate_every",
        "1000000",
    ]
    command += ["--run.keep_checkpoints", str(CHECKPOINTS), "--out", str(directory), *settings]
    if (directory / "config.json").exists():
        command = ["train", "--resume", str(directory)]
    summary = directory / "summary.json"
    if not summary.exists():
        cenie(directory, command)
    cycles = json.loads(summary.read_text())["cycles"]  # there is none if the run was told to stop
    for suite, episodes in SUITES.items():
        if any(directory.glob(f"evaluation-{suite}-seed*-cycle{cycles}.csv")):
            continue
        options = ["--suite", suite, "--episodes", str(episodes), "--checkpoints", str(CHECKPOINTS)]
        cenie(directory, ["evaluate", str(directory), *options])
    print(f"finished: {directory}", flush=True)


def cenie(directory, arguments):
    with directory.with_name(f"{directory.name}.log").open("a") as log:
        subprocess.run(
            [sys.executable, "-m", "cenie.command.cli", *arguments], stdout=log, stderr=log, check=True
        )


def score(directory, suite):
    """Mean over levels of the mean over all checkpoints, variants and episodes."""
    (path,) = directory.glob(f"evaluation-{suite}-seed*.csv")
    outcomes = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            outcomes[row["level"]].append(float(row["score"]))
    return np.mean([np.mean(values) for values in outcomes.values()])


def interval(values):
    """The mean and its 95 % interval over seeds."""
    mean = np.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="+", metavar="METHOD")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = {
        (recipe, seed): arguments.out / f"{recipe.replace(' --', '-').replace(' ', '-')}-seed{seed}"
        for seed in range(arguments.seeds)
        for recipe in arguments.recipes
    }
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [
            pool.submit(train_and_evaluate, path, recipe, seed, arguments.updates)
            for (recipe, seed), path in runs.items()
        ]
        for job in jobs:
            job.result()
    print(f"| method | {' | '.join(f'{suite} | seeds' for suite in SUITES)} |")
    print(f"|---|{'---|---|' * len(SUITES)}")
    for recipe in arguments.recipes:
        cells = []
        for suite in SUITES:
            values = [score(runs[recipe, seed], suite) for seed in range(arguments.seeds)]
            cells += [interval(values), ", ".join(f"{value:.3f}" for value in values)]
        print(f"| {recipe} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
