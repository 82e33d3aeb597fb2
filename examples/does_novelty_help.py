"""Does novelty help? The paper's question, with the controls that an expert would ask for.

    python examples/does_novelty_help.py plr-robust plr-cenie --out runs/novelty --seeds 10 11 12
    python examples/does_novelty_help.py --out runs/novelty --report
    python examples/does_novelty_help.py --ranks RUN ...

Every arm trains the same student for as many gradient updates, on the maze; without names all arms are
trained. A finished run is not repeated and an interrupted one is gone on with, so the command can be given
again. The score of a run is the mean over its last checkpoints; arms are compared seed by seed. The last
command says with what the stored novelty of any runs goes along.

Two arms are controls (`teacher.novelty.control`): `shuffled` is CENIE's novelty, dealt out anew to other
levels after every batch (as many levels are as novel, but not the same ones); `age` is no more than the time
of the last play.
"""

import argparse
import csv
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import stats

import cenie

CHECKPOINTS = 5
SUITES = {"cenie8-sym": 2, "accel12": 5, "perfect-large": 10}
"""Episodes for each entry: of 72, 12 and 1 entries."""
STEPS = "million steps played"


@dataclass(frozen=True)
class Arm:
    """A method with some settings."""

    method: str
    settings: dict = field(default_factory=dict)

    @property
    def ranks_novelty(self):
        return "cenie" in self.method


# ACCEL from empty mazes needs far more updates than a laptop has (docs/notebook/methods.md).
WALLS = {"teacher.generator": "uniform60"}
# The paper's weight of novelty, which is more than that of the preset.
HALF = {"teacher.alpha.value": 0.5}
ARMS = {
    "plr-robust": Arm("plr-robust"),
    "plr-cenie": Arm("plr-cenie", HALF),
    "plr-cenie-relative": Arm("plr-cenie", {**HALF, "teacher.novelty.stored.kind": "relative"}),
    "dr": Arm("dr"),
    "shuffled": Arm("plr-cenie", {**HALF, "teacher.novelty.control": "shuffled"}),
    "age": Arm("plr-cenie", {**HALF, "teacher.novelty.control": "age"}),
    "plr-cenie-dagger": Arm("plr-cenie-dagger"),
    "accel": Arm("accel", WALLS),
    "accel-cenie": Arm("accel-cenie", {**HALF, **WALLS}),
    "alpha-0.25": Arm("plr-cenie", {"teacher.alpha.value": 0.25}),
    "alpha-0.75": Arm("plr-cenie", {"teacher.alpha.value": 0.75}),
}


def settings_of(seed, updates):
    return {
        "seed": seed,
        "updates": updates,
        "run.devices": 1,
        "run.checkpoint_every": max(updates // 20, 1),
        "run.keep_checkpoints": CHECKPOINTS,
    }


def train_one(arm, directory, overrides, suites):
    """Train one run, or go on with it; evaluate what was not evaluated yet."""
    config = cenie.preset("maze", arm.method, "quick", arm.settings | overrides)
    run = cenie.train(config, directory, resume=True, quiet=True)
    for suite, episodes in suites.items():
        if not any(directory.glob(f"evaluation-{suite}-seed*-cycle{run.summary['cycles']}.csv")):
            run.evaluate(suite, episodes=episodes, checkpoints=CHECKPOINTS, quiet=True)


def train_all(names, arguments):
    """One process and one core for each run, the seeds in turn."""

    def one(name, seed):
        directory = arguments.out / f"{name}-seed{seed}"
        command = [sys.executable, __file__, "--out", str(arguments.out), "--updates", str(arguments.updates)]
        with (arguments.out / f"{name}-seed{seed}.log").open("a") as log:
            subprocess.run(
                [*command, "--one", name, "--seeds", str(seed)], stdout=log, stderr=log, check=True
            )
        print(f"finished: {directory}", flush=True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(one, name, seed) for seed in arguments.seeds for name in names]
        for job in jobs:
            job.result()


def interval(values, lowest=-np.inf, highest=np.inf):
    """The mean and its 95 % interval over seeds (Student's t), as far as it is possible at all."""
    mean = np.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean:.3f} ({max(mean - half, lowest):.3f} to {min(mean + half, highest):.3f})"


def score_of(run, suite):
    """Mean over levels of the mean over checkpoints, variants and episodes."""
    return cenie.suite_mean(run.later_evaluations[suite].level_means())


def rank_correlation(first, second):
    """Spearman's; NaN where one of them is constant, as lengths are while no level is solved."""
    constant = min(np.ptp(first), np.ptp(second)) == 0
    return np.nan if constant else stats.spearmanr(first, second).statistic


def what_novelty_ranks(run):
    """Rank correlations of novelty over the buffer, and unsolvable levels among the novel, by snapshot."""
    played = run.played_levels
    rows = []
    for path in run.snapshots.values():
        snapshot = cenie.read_snapshot(path)
        buffer = snapshot.buffers[0]
        # Of each level the last play before the snapshot.
        earlier = np.flatnonzero(played["cycle"] <= snapshot.cycle)
        last = dict(zip(played["id"][earlier], earlier, strict=True))
        known = np.array([number in last for number in buffer["id"]])
        place = np.array([last[number] for number in buffer["id"][known]])
        novelty = buffer["novelty"][known]
        others = {
            "regret": buffer["regret"][known],
            "walls": played["level/walls"][place],
            # No path is longer than every path.
            "path": np.where(played["level/solvable"][place] < 1, 170, played["level/path"][place]),
            "episode length": played["length"][place],
            "last played": buffer["last_played"][known],
        }
        row = {name: rank_correlation(novelty, values) for name, values in others.items()}
        novel = novelty >= np.quantile(novelty, 0.9)
        unsolvable = played["level/solvable"][place] < 1
        row |= {"unsolvable": unsolvable.mean(), "unsolvable among the novel": unsolvable[novel].mean()}
        rows.append({"updates": snapshot.updates, **row})
    return rows


def table(header, rows):
    for cells in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(str(cell) for cell in cells)} |")
    print()


def finished_runs(out):
    """By arm and seed."""
    runs = {}
    for directory in sorted(path for path in out.iterdir() if (path / "summary.json").exists()):
        name, seed = directory.name.rsplit("-seed", 1)
        run = cenie.load_run(directory)
        if len(run.later_evaluations) == len(SUITES):
            runs[name, int(seed)] = run
    return runs


def with_kept(scores, file):
    """These scores and those that the file keeps of earlier runs; the file keeps all of them from now on."""
    if file.exists():
        with file.open(newline="") as kept:
            rows = list(csv.DictReader(kept))
        old = {(row.pop("arm"), int(row.pop("seed"))): row for row in rows}
        numbers = {key: {name: float(cell) for name, cell in row.items()} for key, row in old.items()}
        scores = numbers | scores
    columns = next(iter(scores.values()), {})
    with file.open("w", newline="") as kept:
        writer = csv.DictWriter(kept, ["arm", "seed", *columns], lineterminator="\n")
        writer.writeheader()
        for arm, seed in sorted(scores):
            writer.writerow({"arm": arm, "seed": seed, **scores[arm, seed]})
    return scores


def show_ranks(runs):
    """What novelty ranks in some runs, by their names, as a table; nothing if there are none."""
    rows = [(name, row) for name, run in runs.items() for row in what_novelty_ranks(run)]
    if rows:
        body = [[name, row.pop("updates"), *(f"{cell:.2f}" for cell in row.values())] for name, row in rows]
        columns = rows[0][1]
        table(["run", "updates", *columns], body)


def report(out, file=None):
    """Tables of all runs that are finished, and of those whose scores are in the file, if there is one."""
    runs = finished_runs(out) if out.exists() else {}
    scores = {}
    for key, run in runs.items():
        found = {suite: round(score_of(run, suite), 4) for suite in SUITES}
        scores[key] = found | {STEPS: round(run.summary["env_steps"] / 1e6, 1)}
    scores = scores if file is None else with_kept(scores, file)
    names = [name for name in ARMS if any(arm == name for arm, _ in scores)]
    seeds = {name: sorted(seed for arm, seed in scores if arm == name) for name in names}
    rows = []
    for name in names:
        means = [interval([scores[name, seed][suite] for seed in seeds[name]]) for suite in SUITES]
        steps = np.mean([scores[name, seed][STEPS] for seed in seeds[name]])
        rows.append([name, len(seeds[name]), *means, f"{steps:.1f}"])
    table(["arm", "seeds", *SUITES, STEPS], rows)
    for base in (base for base in ("plr-robust", "plr-cenie") if base in names):
        rows = []
        for name in (name for name in names if name != base):
            pairs = [(scores[name, seed], scores[base, seed]) for seed in seeds[name] if seed in seeds[base]]
            changes = [interval([one[suite] - other[suite] for one, other in pairs]) for suite in SUITES]
            rows += [[name, len(pairs), *changes]] if pairs else []
        table([f"minus {base}, seed by seed", "seeds", *SUITES], rows)
    show_ranks({f"{arm}-seed{seed}": run for (arm, seed), run in runs.items() if ARMS[arm].ranks_novelty})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arms", nargs="*", metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ranks", type=Path, nargs="+", metavar="RUN", help="print what novelty ranks")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="print the tables of the finished runs")
    parser.add_argument("--scores", type=Path, help="a CSV file that keeps the scores of all reported runs")
    parser.add_argument("--one", choices=ARMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.arms) - set(ARMS):
        parser.error(f"ARM must be one of {', '.join(ARMS)}, got {', '.join(sorted(unknown))}")
    if arguments.ranks:
        show_ranks({path.name: cenie.load_run(path) for path in arguments.ranks})
    elif arguments.out is None:
        parser.error("--out DIR is needed: where the runs are")
    elif arguments.report:
        report(arguments.out, arguments.scores)
    elif arguments.one:
        (seed,) = arguments.seeds
        directory = arguments.out / f"{arguments.one}-seed{seed}"
        train_one(ARMS[arguments.one], directory, settings_of(seed, arguments.updates), SUITES)
    else:
        train_all(arguments.arms or list(ARMS), arguments)


if __name__ == "__main__":
    main()
