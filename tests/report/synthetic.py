"""Run directories without training: the files that a run leaves, written by the writers of runs."""

from pathlib import Path
from typing import Any

import numpy as np

from cenie import settings
from cenie.experiment.presets import preset
from cenie.experiment.rows import EvaluationRow
from cenie.rundir.evaluations import Evaluation, EvaluationTable, write_evaluations
from cenie.rundir.files import FORMAT, RunDirectory, write_json
from cenie.rundir.levels import KINDS, LevelTable
from cenie.rundir.metrics import JsonLines
from cenie.rundir.snapshots import Snapshots

LEVELS = {
    "cenie8": ("SixteenRooms", "Labyrinth", "Maze"),
    "walker6": ("BipedalWalker", "Hardcore"),
    "f1": ("Australia", "USA"),
    "perfect-large": ("PerfectMazeLarge",),
}
BOUNDS = {"walker6": (0.0, 300.0), "f1": (-150.0, 850.0)}
SUITE = {"maze": "cenie8", "walker": "walker6"}
STATISTICS = {
    "maze": {"level/path": 40, "level/solvable": 2, "level/walls": 60},
    "walker": {"level/difficulty": 5, "level/roughness": 10},
}


def write_run(
    path: Path,
    method: str = "plr-cenie",
    domain: str = "maze",
    *,
    seed: int = 0,
    skill: float = 0.5,
    updates: int = 40,
    cycles: int = 80,
    evaluations: int = 4,
    levels: int = 4,
    finished: bool = True,
    points: int = 40,
    overrides: dict[str, Any] | None = None,
) -> Path:
    """A run of a method whose students solve a part `skill` of the held-out levels in the end."""
    rng = np.random.default_rng((seed, len(method), round(1000 * skill)))
    given = {"seed": seed, "updates": updates, **(overrides or {})}
    config = preset(domain, method, "quick", given)
    files = RunDirectory(path)
    files.create()
    write_json(files.config, settings.to_data(config))
    suite = SUITE[domain]
    replays = method not in ("dr", "minimax", "paired", "sfl", "alp-gmm")
    novel = "cenie" in method or "diplr" in method
    every = max(cycles // evaluations, 1)
    table, snapshots = EvaluationTable(files.evaluations), Snapshots(files.snapshots)
    table.write(0, 0, 0, episodes(rng, suite, 0.0))
    for cycle in range(every, cycles + 1, every):
        done = updates * cycle // cycles
        table.write(cycle, done, cycle * 1024, episodes(rng, suite, skill * cycle / cycles))
        if points:
            snapshots.write(cycle, snapshot(rng, cycle, done, domain, points, replays, novel))
    JsonLines(files.metrics).write(metric_rows(rng, cycles, updates, skill, replays=replays))
    write_levels(rng, files, domain, cycles, levels, replays=replays, novel=novel)
    if finished:
        write_json(files.summary, summary(config, cycles, updates, suite))
    return path


def episodes(rng: np.random.Generator, suite: str, skill: float, count: int = 6) -> list[EvaluationRow]:
    rows = []
    for number, level in enumerate(LEVELS[suite]):
        for episode in range(count):
            if suite in BOUNDS:
                low, high = BOUNDS[suite]
                total = float(rng.normal(low + (high - low) * skill, 10 + number))
                score, solved = (total - low) / (high - low), total > 230
            else:
                solved = bool(rng.uniform() < skill)
                total = score = float(solved)
            rows.append(EvaluationRow(suite, level, "original", episode, total, solved, score, 50))
    return rows


def evaluate_later(path: Path, suite: str, skill: float, *, cycle: int = 80, checkpoints: int = 2) -> None:
    """What `cenie evaluate` would write."""
    rng = np.random.default_rng(round(1000 * skill))
    played = [
        Evaluation(cycle - back, 40 - back, 1024 * cycle, episodes(rng, suite, skill))
        for back in reversed(range(checkpoints))
    ]
    write_evaluations(path / f"evaluation-{suite}-seed0-cycle{cycle}.csv", played)


def metric_rows(
    rng: np.random.Generator, cycles: int, updates: int, skill: float, *, replays: bool
) -> list[dict[str, Any]]:
    noise = rng.normal(0, 0.02, cycles)
    rows = []
    for cycle in range(1, cycles + 1):
        part = cycle / cycles
        row = {
            "cycle": cycle,
            "updates": updates * cycle // cycles,
            "env_steps": cycle * 1024,
            "length": 100.0,
        }
        row |= {"return": skill * part + float(noise[cycle - 1]), "solved": skill * part}
        row |= {f"student/filler{number}": 0.123456789 for number in range(24)}
        if replays:
            row |= {"teacher/regret_total": 100 * part, "teacher/buffer_fill": min(1.0, 2 * part)}
        rows.append(row)
    return rows


def write_levels(
    rng: np.random.Generator,
    files: RunDirectory,
    domain: str,
    cycles: int,
    levels: int,
    *,
    replays: bool,
    novel: bool,
) -> None:
    shape = (cycles, 1, levels)
    kinds = np.broadcast_to((np.arange(cycles) % 2 * replays)[:, None, None], shape)
    columns: dict[str, np.ndarray] = {"kind": kinds, "episodes": np.ones(shape, np.int64)}
    for name in ("return", "solved", "length", *(("regret",) * replays), *(("novelty",) * novel)):
        columns[name] = rng.uniform(size=shape).astype(np.float32)
    for name, end in STATISTICS[domain].items():
        columns[name] = rng.integers(0, end, shape)
    if replays:
        columns |= {name: rng.integers(0, 100, shape) for name in ("id", "parent", "generation")}
    LevelTable(files.levels).write(range(1, cycles + 1), columns)


def snapshot(
    rng: np.random.Generator, cycle: int, updates: int, domain: str, points: int, replays: bool, novel: bool
) -> dict[str, np.ndarray]:
    width = {"maze": 12, "walker": 28}[domain]
    arrays = {
        "cycle": np.array(cycle),
        "updates": np.array(updates),
        "points/values": rng.normal(size=(points, width)).astype(np.float32) * (1 + cycle / 100),
        "points/kind": np.full(points, KINDS.index("replay")),
    }
    if replays:
        count = 30
        arrays |= {"buffer/regret": rng.uniform(size=count).astype(np.float32), "buffer/id": np.arange(count)}
        arrays |= {"buffer/generation": np.zeros(count, np.int32), "buffer/parent": np.full(count, -1)}
        arrays |= {"buffer/probability": np.full(count, 1 / count, np.float32)}
        if novel:
            arrays["buffer/novelty"] = rng.normal(size=count).astype(np.float32)
        if domain == "walker":
            arrays |= {
                "buffer/levels/parameters": rng.uniform(0, 5, (count, 8)).astype(np.float32),
                "buffer/levels/seed": np.arange(count, dtype=np.uint32),
                "buffer/levels/hardcore": np.zeros(count, bool),
                "buffer/levels/time_limit": np.full(count, 2000, np.int32),
            }
        if domain == "maze":
            arrays |= {
                "buffer/levels/wall_map": rng.uniform(size=(count, 13, 13)) < 0.2,
                "buffer/levels/goal": rng.integers(0, 6, (count, 2)).astype(np.int32),
                "buffer/levels/start": rng.integers(7, 13, (count, 2)).astype(np.int32),
                "buffer/levels/direction": rng.integers(0, 4, count).astype(np.int32),
                "buffer/levels/time_limit": np.full(count, 250, np.int32),
                "buffer/levels/occluded": np.zeros(count, bool),
            }
    return arrays


def summary(config: Any, cycles: int, updates: int, suite: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": "0.1.0",
        "domain": config.domain,
        "method": config.method,
        "preset": config.preset,
        "seed": config.seed,
        "cycles": cycles,
        "updates": updates,
        "env_steps": cycles * 1024,
        "suite": suite,
        "measure": "solved",
        "untrained": {},
        "trained": {},
        "failed_checkpoints": 0,
        "bit_exact": True,
        "deviations": [],
        "notes": [],
    }
