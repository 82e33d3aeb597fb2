"""How much of novelty's ranking is the luck of the window?

Opens a run of `plr-cenie`, lets its newest student play levels sampled as for replay, and fits the model to
windows of several sizes that share no level. Printed for each size: the rank correlation of the novelties
that two windows give to the same plays of 256 other levels (`agree`: 1 would be no luck at all), and of these
novelties with the length of the episodes (its mean and spread over the windows).

    python -m benchmarks.novelty_window RUN [--windows 16 32 64 128 256] [--repeats 6] [--max_points 8192]
"""

import argparse
import dataclasses
import itertools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import rankdata

import cenie
from cenie.methods.cenie import CenieNovelty
from cenie.novelty import coverage
from cenie.novelty.config import CoverageConfig
from cenie.replay import buffer as buffers
from cenie.replay.outcomes import Points
from cenie.teach import teacher
from cenie.teach.cycle import TrainState, play

RANKED = 256


def played_points(run: cenie.Run, levels: int) -> tuple[Points, Array]:
    """Points and mean episode length of so many plays of levels that are sampled for replay."""
    setup, batch = run.setup, run.config.student.num_levels

    @jax.jit
    def sampled(state: TrainState, key: Any) -> tuple[Points, Array]:
        buffer, config = state.teacher.buffers[0], setup.curriculum.replay
        assert config is not None
        mix = teacher.current_mix(setup.curriculum, state.teacher)
        chances = buffers.probabilities(buffer, mix, config.config.priority)
        slot_key, play_key = jax.random.split(key)
        slots = jax.random.choice(slot_key, len(chances), (batch,), p=chances)
        played = play(setup, 0, state.student, buffers.levels_at(buffer, slots), play_key)
        assert played.points is not None
        return played.points, played.outcomes.mean_length

    found = [sampled(run.state, key) for key in jax.random.split(jax.random.key(0), -(-levels // batch))]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[:levels], *found)


def rankings(config: CoverageConfig, points: Points, windows: list[Points]) -> np.ndarray:
    """The novelty of all points under the model of each window."""

    @jax.jit
    def under(window: Points, points: Points, key: Any) -> Array:
        state = coverage.init(config, *window.values.shape[1:])
        state = coverage.fit(config, coverage.push(state, window.values, window.valid), key)
        return coverage.novelty(config, state, points.values, points.valid)

    keys = jax.random.split(jax.random.key(1), len(windows))
    return np.stack([under(window, points, key) for window, key in zip(windows, keys, strict=True)])


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--windows", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--max_points", type=int, default=8192)
    options = parser.parse_args()
    run = cenie.load_run(options.run)
    novelty = run.setup.curriculum.novelty
    assert isinstance(novelty, CenieNovelty)
    points, lengths = played_points(run, RANKED + options.repeats * max(options.windows))

    def part(first: int, count: int) -> Points:
        return jax.tree.map(lambda values: values[first : first + count], points)

    for size in options.windows:
        config = dataclasses.replace(novelty.coverage, window=size, max_points=options.max_points)
        windows = [part(RANKED + number * size, size) for number in range(options.repeats)]
        ranked = rankings(config, part(0, RANKED), windows)
        agree = [rank_correlation(*pair) for pair in itertools.combinations(ranked, 2)]
        length = [rank_correlation(row, np.asarray(lengths[:RANKED])) for row in ranked]
        print(
            json.dumps(
                {
                    "updates": int(run.state.counters.updates),
                    "window": size,
                    "agree": round(float(np.mean(agree)), 3),
                    "with episode length": round(float(np.mean(length)), 3),
                    "its spread": round(float(np.std(length, ddof=1)), 3),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
