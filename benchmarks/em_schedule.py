"""What the schedule of the EM steps gains: CPU time of a fit of all sizes, each part switched off in turn.

    python -m benchmarks.em_schedule [--points 1536 8192] [--windows 6] [--rounds 3] [--variants NAME ...]

The points are made up: trajectories of a slow random walk through tanh with a one-hot action, 263 numbers as
in a maze. All variants run in one process and take turns. Seconds are CPU time of all threads.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cycle_profile import cpu_seconds
from cenie.novelty import em, em_schedule
from cenie.novelty.covariance import SHAPES

SIZES = range(6, 16)
USUAL = (SHAPES["diag"].widths, em_schedule._CACHED_NUMBERS)
VARIANTS: dict[str, tuple[int, int, bool]] = {
    "as it is": (*USUAL, False),
    "one width for all sizes": (1, USUAL[1], False),
    "a width for each size": (len(SIZES), USUAL[1], False),
    "always one after another": (USUAL[0], 2**62, False),
    "always side by side": (USUAL[0], 0, False),
    "side by side, all as wide as the largest": (USUAL[0], 0, True),
}
"""The number of widths, how many numbers of points fit into a cache, and whether groups have one width."""


def made_up(seed: int, count: int, length: int = 256) -> jax.Array:
    """State-action points [count, 263] of `count / length` trajectories."""
    rng = np.random.default_rng(seed)
    state, rows = rng.normal(size=(count // length, 256)), []
    mixing = rng.normal(size=(256, 256)) / 16
    for _ in range(length):
        state = 0.97 * state + 0.25 * np.tanh(state) @ mixing + 0.1 * rng.normal(size=state.shape)
        action = np.eye(7)[rng.integers(0, 7, len(state))]
        rows.append(np.concatenate([np.tanh(state), action], axis=1))
    return jnp.asarray(np.concatenate(rows), jnp.float32)


def fit_with(widths: int, cached: int, as_wide: bool) -> Callable[[jax.Array], em.Fits]:
    """A program that fits all sizes, traced with another em_schedule."""
    shape, usual = SHAPES["diag"]._replace(widths=widths), em_schedule.stages

    def stages(*how: Any) -> list[em_schedule.Stage]:
        found = usual(*how)
        if not as_wide:
            return found
        return [each._replace(widths=(each.widths[0],) * len(each.widths)) for each in found]

    def fits(points: jax.Array) -> em.Fits:
        changes = {"_CACHED_NUMBERS": cached, "stages": stages}
        with patch.dict(SHAPES, diag=shape), patch.multiple(em_schedule, **changes):
            everything = jnp.ones(len(points), bool)
            return em.fit_sizes(jax.random.key(0), points, everything, sizes=SIZES, rules=em.Rules())

    return jax.jit(fits)


def measure(counts: list[int], windows: int, rounds: int, variants: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for count in counts:
        given = [(made_up(seed, count),) for seed in range(windows)]
        work: dict[Any, Any] = {name: (fit_with(*VARIANTS[name]), given * rounds) for name in variants}
        seconds, first = cpu_seconds(work)
        usual = np.asarray(seconds["as it is"])
        found[f"{count} points"] = {
            name: {
                "CPU ms": round(1000 * float(np.mean(values)), 1),
                "of as it is, median": round(float(np.median(np.asarray(values) / usual)), 3),
                "first call, CPU s": round(first[name], 1),
            }
            for name, values in seconds.items()
        }
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[1536, 8192])
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    print(json.dumps(measure(options.points, options.windows, options.rounds, options.variants), indent=2))
