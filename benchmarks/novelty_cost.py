"""What DIPLR's novelty costs beside CENIE's, for level buffers of growing size.

    python -m benchmarks.novelty_cost [--sizes 100 500 1000 2000 4000] [--rounds 3] [--exact-up-to 500]

The setting is that of the maze's `quick` preset: 64 levels a batch, 256 points a level. The points are those
of an untrained student on random mazes. A gradient update of PLR-perp goes with one batch of new levels and
one of replayed ones, so that the cost of an update is that of both: to examine, score, learn and rescore. All
runs in one process on one device, and takes turns. Seconds are CPU time of all threads.

`published DIPLR` is reckoned: the listing in the CENIE paper plays all stored levels again in every iteration
and compares all of them with each other. Measured are the play of one batch and the comparison of all pairs.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cycle_profile import cpu_seconds
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.cenie import CenieNovelty
from cenie.methods.diplr import DiplrNovelty
from cenie.methods.occupancy import Exact, Sliced
from cenie.replay import buffer as buffers
from cenie.replay.columns import NOVELTY, REGRET
from cenie.replay.play import NEW, Play
from cenie.teach.cycle import Setup, init, play
from cenie.teach.novelty import ExaminingNovelty, Novelty

BATCHES_PER_UPDATE = 2
"""Of PLR-perp at a replay probability of one half: a new one, and the one that is learned from."""


def batch_of(novelty: Novelty) -> Callable[..., Any]:
    """A program that does with a batch what the teacher does."""

    def told(state: Any, played: Play, buffer: buffers.BufferState, enters: jax.Array) -> Any:
        if isinstance(novelty, ExaminingNovelty):
            played = dataclasses.replace(played, findings=novelty.examine(state, played, buffer))
        scores = novelty.score(state, played, buffer)
        played = dataclasses.replace(played, stored_in=jnp.arange(len(scores)))
        after = novelty.learn(state, played, enters=enters, key=jax.random.key(0))
        return scores, after, novelty.rescore(after, buffer)

    return jax.jit(told)


def full_buffer(example: Any, size: int) -> Any:
    buffer = buffers.init(example, size, (REGRET, NOVELTY))
    return type(buffer)(**{**vars(buffer), "size": jnp.asarray(size, jnp.int32)})


def work_of(novelty: Novelty, played: Play, size: int) -> tuple[Callable[..., Any], Any, Any]:
    """The program of a novelty, and its arguments for a batch of new levels and one that is learned from."""
    program, points = batch_of(novelty), played.points.values
    example = jax.tree.map(lambda leaf: leaf[0], played.levels)
    buffer = full_buffer(example, size)
    state = novelty.init(points.shape[1:])
    for _ in range(2):  # a full window, and a model
        _, state, _ = program(state, played, buffer, jnp.asarray(True))
    return program, *((state, played, buffer, jnp.asarray(enters)) for enters in (False, True))


def measure(sizes: list[int], rounds: int, exact_up_to: int) -> dict[str, Any]:
    config = preset("maze", "plr-cenie", "quick", {"run.devices": 1, "run.recorded_points": 0})
    _, setup = build(config)
    play_batch, played = played_once(setup)
    nowhere = jnp.full(len(played.points.valid), -1)
    new = Play(played.levels, points=played.points, kind=jnp.asarray(NEW), slot=nowhere)
    assert isinstance(setup.curriculum.novelty, CenieNovelty)
    work: dict[Any, Any] = {("play", 0): (play_batch, [()] * rounds)}
    cenie_novelty = dataclasses.replace(setup.curriculum.novelty, capacity=max(sizes))
    novelties: dict[Any, Novelty] = {("cenie", 0): cenie_novelty}
    novelties |= {("sliced", size): DiplrNovelty(size, Sliced()) for size in sizes}
    novelties |= {("exact", size): DiplrNovelty(size, Exact()) for size in sizes if size <= exact_up_to}
    for (name, size), novelty in novelties.items():
        program, new, learned = work_of(novelty, new, size or max(sizes))
        work[name, size, "new"] = program, [new] * rounds
        work[name, size, "learned"] = program, [learned] * rounds
    all_pairs = jax.jit(Sliced().between)
    for size in sizes:
        rows = jnp.asarray(np.random.default_rng(0).normal(size=(size, 64 * 32)), jnp.float32)
        work["all pairs", size] = all_pairs, [(rows, rows)] * rounds
    seconds = {name: float(np.mean(values)) for name, values in cpu_seconds(work)[0].items()}

    def update(name: str, size: int) -> float:
        return seconds[name, size, "new"] + seconds[name, size, "learned"]

    cenie, batch = update("cenie", 0), seconds["play", 0]
    found: dict[str, Any] = {
        "play of a batch, CPU s": round(batch, 3),
        "CENIE, CPU s per update": round(cenie, 3),
    }
    for size in sizes:
        again = BATCHES_PER_UPDATE * (batch * size / len(played.points.valid) + seconds["all pairs", size])
        costs = {"DIPLR, sliced": update("sliced", size), "published DIPLR, sliced, reckoned": again}
        if size <= exact_up_to:
            costs["DIPLR, exact"] = update("exact", size)
        found[f"{size} levels"] = {
            name: {"CPU s per update": round(cost, 3), "of CENIE's": round(cost / cenie, 3)}
            for name, cost in costs.items()
        }
    return found


def played_once(setup: Setup) -> tuple[Callable[[], Any], Any]:
    """A program that plays a batch of random levels with an untrained student, and what it played."""
    key, count = jax.random.key(1), setup.student.num_levels
    source, state = setup.curriculum.source, init(setup, 0)
    levels, _ = source.propose(source.init(key), key, count)
    play_batch = jax.jit(lambda student, levels: play(setup, 0, student, Play(levels), key))
    program = partial(play_batch, state.student, levels)
    return program, program()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500, 1000, 2000, 4000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exact-up-to", type=int, default=500)
    options = parser.parse_args()
    print(json.dumps(measure(options.sizes, options.rounds, options.exact_up_to), indent=2))
