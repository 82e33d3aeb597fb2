"""How far is each of DIPLR's distances from the Wasserstein distance between all points?

    python -m benchmarks.occupancy_distances [--domain maze] [--updates 60] [--levels 24]
        [--points 16 32 64] [--seed 100]

Levels of the buffer of a run of `diplr` (`quick`), as its student of that moment plays them. POT solves the
transport between all points of two levels. For each distance: Spearman's and Pearson's correlation with that
over all pairs of levels, Spearman's of the distances from the nearest level, which are the novelties, and the
CPU time of a pair.
"""

import argparse
import itertools
import json
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ot

from benchmarks.cycle_profile import state_after
from benchmarks.novelty_window import rank_correlation
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.occupancy import Distance, Exact, Sliced
from cenie.replay import buffer as buffers
from cenie.replay.outcomes import Points
from cenie.teach.cycle import play


def points_of(domain: str, updates: int, levels: int, seed: int) -> Points:
    """Points of as many levels of the buffer, drawn at random, as the student plays them."""
    _, setup = build(preset(domain, "diplr", "quick", {"run.devices": 1}))
    state = state_after(setup, updates, seed)
    buffer = state.teacher.buffers[0]

    @jax.jit
    def played(key: Any) -> Points | None:
        chances = buffer.mask / jnp.sum(buffer.mask)
        slots = jax.random.choice(
            key, len(buffer.mask), (setup.student.num_levels,), p=chances, replace=False
        )
        return play(setup, 0, state.student, buffers.levels_at(buffer, slots), key).points

    points = played(jax.random.key(1))
    assert points is not None
    return jax.tree.map(lambda leaf: leaf[:levels], points)


def novelties(pairs: list[tuple[int, int]], distances: list[float]) -> np.ndarray:
    """The distance of each level from the nearest other one."""
    count = max(max(pair) for pair in pairs) + 1
    return np.array(
        [min(distance for pair, distance in zip(pairs, distances) if level in pair) for level in range(count)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--domain", default="maze")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--levels", type=int, default=24)
    parser.add_argument("--points", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))

    points = points_of(options.domain, options.updates, options.levels, options.seed)
    clouds = [
        np.asarray(values, np.float64)[np.asarray(valid)]
        for values, valid in zip(points.values, points.valid, strict=True)
    ]
    pairs = list(itertools.combinations(range(options.levels), 2))
    begin = time.process_time()
    true = [
        float(ot.emd2([], [], ot.dist(clouds[i], clouds[j], metric="euclidean"), numItermax=1_000_000))
        for i, j in pairs
    ]
    seconds = (time.process_time() - begin) / len(pairs)
    nearest = novelties(pairs, true)
    print(json.dumps({"all points": round(seconds * 1e3, 3), "mean": round(float(np.mean(true)), 3)}))

    distances: dict[str, Distance] = {"sliced": Sliced()}
    distances |= {f"exact, {count}": Exact(points=count) for count in options.points}
    for name, distance in distances.items():
        described = distance.describe(points)
        between = jax.jit(distance.between)
        jax.block_until_ready(between(described, described))
        begin = time.process_time()
        found = np.asarray(between(described, described))
        seconds = (time.process_time() - begin) / options.levels**2
        values = [float(found[i, j]) for i, j in pairs]
        figures = {
            "distance": name,
            "Spearman": round(rank_correlation(np.array(values), np.array(true)), 3),
            "Pearson": round(float(np.corrcoef(values, true)[0, 1]), 3),
            "Spearman, nearest": round(rank_correlation(novelties(pairs, values), nearest), 3),
            "over the true one": round(float(np.mean(values) / np.mean(true)), 3),
            "CPU ms a pair": round(seconds * 1e3, 4),
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
