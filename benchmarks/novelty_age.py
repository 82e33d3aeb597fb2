"""Does the stored novelty say what a level is worth now, or when it was measured?

Trains `plr-cenie` on the maze's quick preset. After every so many updates all stored levels are played by
the present student and measured under the present model. Printed are rank correlations over the buffer: the
stored novelty with that one (`present`), two such replays with each other (`ceiling`), and stored and present
novelty with the time since the last play (`stored_age`, `present_age`).

    python -m benchmarks.novelty_age --stored as-played --updates 300 --every 50 --seed 7
"""

import argparse
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from cenie.experiment.build import build, place
from cenie.experiment.presets import preset
from cenie.methods.cenie import CenieNovelty
from cenie.novelty import coverage
from cenie.replay.buffer import levels_at
from cenie.replay.columns import NOVELTY, REGRET
from cenie.replay.play import Play
from cenie.teach.cycle import Setup, TrainState, init, play
from cenie.xla.parts import CompiledCycles


def replayed_novelty(setup: Setup, state: TrainState, key: Any) -> tuple[np.ndarray, np.ndarray]:
    """The novelty of each stored level as the present student and model find it, and its mean length."""
    novelty = setup.curriculum.novelty
    assert isinstance(novelty, CenieNovelty)
    assert state.teacher.buffer is not None
    size, batch = int(state.teacher.buffer.size), setup.student.num_levels

    @jax.jit
    def measure(state: TrainState, slots: jax.Array, key: Any) -> tuple[jax.Array, jax.Array]:
        assert state.teacher.buffer is not None
        levels = levels_at(state.teacher.buffer, slots)
        played = play(setup, 0, state.student, Play(levels), key)
        window, points = state.teacher.novelty.coverage, played.points
        return (
            coverage.novelty(novelty.coverage, window, points.values, points.valid),
            played.outcomes.mean_length,
        )

    found = [
        measure(
            state, jnp.minimum(jnp.arange(first, first + batch), size - 1), jax.random.fold_in(key, first)
        )
        for first in range(0, size, batch)
    ]
    novelties, lengths = (np.concatenate(parts)[:size] for parts in zip(*found, strict=True))
    return novelties, lengths


def correlations(setup: Setup, state: TrainState) -> dict[str, float]:
    """The rank correlations of the table."""
    assert state.teacher.buffer is not None
    buffer = state.teacher.buffer
    size = int(buffer.size)
    present, lengths = replayed_novelty(setup, state, jax.random.key(1))
    again, _ = replayed_novelty(setup, state, jax.random.key(2))
    stored, regret, age = (
        np.asarray(values)[:size]
        for values in (buffer.column(NOVELTY), buffer.column(REGRET), buffer.staleness)
    )
    pairs = {
        "present": (stored, present),
        "ceiling": (present, again),
        "stored_age": (stored, age),
        "present_age": (present, age),
        "stored_regret": (stored, regret),
        "present_length": (present, lengths),
    }
    return {name: round(float(spearmanr(*pair).statistic), 3) for name, pair in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stored", default="as-played", choices=("as-played", "relative", "rescored"))
    parser.add_argument(
        "--window", type=int, default=None, help="levels in the window; the preset's if not given"
    )
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    overrides: dict[str, Any] = {"teacher.novelty.stored.kind": options.stored, "run.devices": 1}
    if options.window is not None:
        overrides["teacher.novelty.coverage.window"] = options.window
    _, setup = build(preset("maze", "plr-cenie", "quick", overrides))
    advance, state = CompiledCycles(setup, 1), place(setup, init(setup, options.seed))
    for updates in range(options.every, options.updates + 1, options.every):
        while int(state.counters.updates) < updates:
            state, *_ = advance(state, updates)
        print(
            json.dumps({"stored": options.stored, "updates": updates} | correlations(setup, state)),
            flush=True,
        )


if __name__ == "__main__":
    main()
