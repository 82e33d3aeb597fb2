"""Train all methods for the same number of environment steps, and print a table of their scores.

    python examples/compare_all_methods.py --out runs/all-methods
    python examples/compare_all_methods.py --out runs/all-methods --table      # what there is so far
    python examples/compare_all_methods.py --out runs/all-methods --table --scores FILE    # and keep it

Methods play different numbers of rollouts for an update, so that equal updates would favour those that play
most. A run ends by `run.env_steps` here, and its learning rate falls until about then. Runs are made seed by
seed, each on one core; a run that is finished is not repeated and an interrupted one is resumed, so that the
command can be given again. The score of a run is the mean over its last checkpoints.
"""

import argparse
import csv
import json
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import cenie
from cenie.command.sweep import PROGRAM
from cenie.methods.table import METHODS
from does_novelty_help import interval, with_kept

CHECKPOINTS = 5
SUITE, EPISODES = "cenie8-sym", 2

# Rollouts for an update, from short runs at `quick` (docs/methods/README.md); others have about two.
ROLLOUTS = {"dr": 1.0, "plr": 1.0, "sfl": 1.33, "alp-gmm": 1.0, "minimax": 1.0, "poet": 1.4}
# A third seed where an update costs little more than one of `dr`.
CHEAP = (
    "dr",
    "plr",
    "plr-robust",
    "accel",
    "plr-cenie",
    "accel-cenie",
    "plr-learnability",
    "sfl",
    "alp-gmm",
    "minimax",
    "plr-poet",
    "accel-poet",
    "poet",
)


def settings(domain, method, seed, env_steps):
    """What the command line is told, besides the domain, the method and where to write."""
    student = cenie.preset(domain, method, "quick").student
    rollouts = -(-env_steps // (student.num_levels * student.num_steps))
    updates = max(round(rollouts / ROLLOUTS.get(method, 2.0)), 1)
    return {
        "preset": "quick",
        "seed": seed,
        "updates": rollouts,  # never more than one for a rollout
        "student.ppo.decay_updates": updates,
        "run.env_steps": env_steps,
        "run.devices": 1,
        "run.checkpoint_every": max(updates // 20, 1),
        "run.keep_checkpoints": CHECKPOINTS,
        "run.evaluate_every": 1_000_000,
    }


def train_and_evaluate(directory, domain, method, chosen):
    """One run on one core, and the evaluation of its last checkpoints."""
    options = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    command = ["train", domain, method, *options, "--out", str(directory)]
    if (directory / "config.json").exists():
        command = ["train", "--resume", str(directory)]
    if not (directory / "summary.json").exists():
        run(directory, command)
    if not any(directory.glob(f"evaluation-{SUITE}-*.csv")) and domain == "maze":
        options = ["--suite", SUITE, "--episodes", str(EPISODES), "--checkpoints", str(CHECKPOINTS)]
        run(directory, ["evaluate", str(directory), *options])
    print(f"finished: {directory}", flush=True)


def run(directory, arguments):
    with directory.with_name(f"{directory.name}.log").open("a") as log:
        # The command ends with this process: it leaves when its input is closed.
        command = [*PROGRAM, *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as process:
            code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, command)


def score(directory):
    """Mean over levels of the mean over all checkpoints, variants and episodes."""
    found = [*directory.glob(f"evaluation-{SUITE}-*.csv")] or [directory / "evaluations.csv"]
    outcomes = defaultdict(list)
    with found[0].open() as file:
        rows = list(csv.DictReader(file))
    last = max(int(row["cycle"]) for row in rows)
    for row in rows:
        if found[0].name != "evaluations.csv" or int(row["cycle"]) == last:
            outcomes[row["level"]].append(float(row["score"]))
    return np.mean([np.mean(values) for values in outcomes.values()])


def minutes(directory):
    """How long its cycles took."""
    lines = (directory / "timing.jsonl").read_text().splitlines()
    return sum(json.loads(line)["seconds"] for line in lines) / 60


def scores_of(runs):
    """What is printed and kept of every finished run, by method and seed."""
    scores = {}
    for key, path in runs.items():
        if (path / "summary.json").exists():
            summary = json.loads((path / "summary.json").read_text())
            scores[key] = {
                "score": round(float(score(path)), 4),
                "updates": summary["updates"],
                "million steps": round(summary["env_steps"] / 1e6, 2),
                "minutes": round(minutes(path), 2),
            }
    return scores


def print_table(scores, bounds=(0.0, 1.0)):
    """Intervals are cut off at the `bounds` of a score, which those over two seeds often exceed."""
    print("| method | score | seeds | updates | steps (M) | minutes |")
    print("|---|---|---|---|---|---|")
    for method in (name for name in METHODS if any(name == own for own, _ in scores)):
        own = [scores[key] for key in sorted(scores) if key[0] == method]
        values = [row["score"] for row in own]
        mean = {name: np.mean([row[name] for row in own]) for name in ("updates", "million steps", "minutes")}
        cells = [
            interval(values, *bounds),
            ", ".join(f"{value:.3f}" for value in values),
            f"{mean['updates']:.0f}",
        ]
        cells += [f"{mean['million steps']:.2f}", f"{mean['minutes']:.1f}"]
        print(f"| `{method}` | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="by default all")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--domain", default="maze")
    parser.add_argument("--env-steps", type=int, default=300 * 64 * 256)
    parser.add_argument("--seeds", type=int, default=2, help="the cheap methods get one more")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--scores", type=Path, help="a CSV file that keeps the scores of all runs")
    arguments = parser.parse_args()
    methods = arguments.methods or list(METHODS)
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        parser.error(f"no methods: {', '.join(unknown)}; `cenie methods` lists them")
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = {
        (method, seed): arguments.out / f"{method}-seed{seed}"
        for seed in range(arguments.seeds + 1)
        for method in methods
        if seed < arguments.seeds or method in CHEAP
    }
    if not arguments.table:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            jobs = [
                pool.submit(
                    train_and_evaluate,
                    path,
                    arguments.domain,
                    method,
                    settings(arguments.domain, method, seed, arguments.env_steps),
                )
                for (method, seed), path in runs.items()
            ]
        for job in jobs:
            job.result()
    scores = scores_of(runs)
    print_table(scores if arguments.scores is None else with_kept(scores, arguments.scores))


if __name__ == "__main__":
    main()
