"""Does the default way to choose a mixture choose as the exact one does?

    python -m benchmarks.novelty_agreement [--presets quick paper] [--updates 160] [--refits 26] [--seed 100]

Windows of a real run, before replays that are evenly spread over it. Every mode fits the same points from the
same centres; the exact one does so from other centres too, which is how far the mixtures of the paper agree
with themselves. For each mode: how often its K is that of the exact mode, the rank correlation of the
novelties that both give to 256 levels as the student of that moment plays them, and the CPU time of a fit.
"""

import argparse
import dataclasses
import json
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks.cycle_profile import CHANGES, EAGER, EXACT, states_before_replays
from benchmarks.novelty_window import RANKED, rank_correlation
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.cenie import CenieNovelty
from cenie.novelty import gmm
from cenie.novelty.config import MixtureConfig
from cenie.novelty.coverage import novelty
from cenie.novelty.points import drawn
from cenie.replay import buffer as buffers
from cenie.replay.outcomes import Points
from cenie.teach.cycle import Setup, TrainState, play


def _screened(steps: int, candidates: int, margin: float) -> dict[str, Any]:
    return {
        "screening_steps": steps,
        "screening_candidates": candidates,
        "screening_margin": margin,
    }


MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "2 steps, 4 go on": _screened(2, 4, 0.05),
    "2 steps, 6 go on": _screened(2, 6, 0.1),
    "8 steps, 5 go on": _screened(8, 5, 0.1),
    "12 steps, 7 go on, within 0.01": _screened(12, 7, 0.01),
    "all go on": {"screening_steps": None},
}
"""What is different from the settings of the preset."""


def played_points(setup: Setup, state: TrainState, key: Any) -> Points:
    """Points of the present student on levels of the buffer, drawn at random."""
    buffer = state.teacher.buffers[0]
    slots = jax.random.choice(key, len(buffer.mask), (RANKED,), p=buffer.mask / jnp.sum(buffer.mask))
    points = play(setup, 0, state.student, buffers.levels_at(buffer, slots), key).points
    assert points is not None
    return points


def points_to_fit(config: MixtureConfig, state: TrainState, key: Any) -> tuple[Array, Array]:
    """What the fit of this moment would see: as many points of the window as it may have."""
    window = state.teacher.novelty.coverage
    points, valid = window.points.reshape(-1, window.points.shape[-1]), window.valid.reshape(-1)
    count = min(config.max_points or valid.size, valid.size)
    index, valid = drawn(key, valid, count)
    return jnp.where(valid[:, None], points[index], 0.0), valid


def agreement(name: str, updates: int, refits: int, seed: int) -> dict[str, Any]:
    """For every mode: share of equal K, rank correlations with the exact mode, CPU seconds of a fit."""
    _, setup = build(preset("maze", "plr-cenie", name, CHANGES | EAGER.get(name, {})))
    own = setup.curriculum.novelty
    assert isinstance(own, CenieNovelty)
    assert isinstance(own.coverage, MixtureConfig)
    given: MixtureConfig = own.coverage
    config = dataclasses.replace(given, warm_start=False)
    states = states_before_replays(setup, updates, refits, seed)
    keys = jax.random.split(jax.random.key(1), (len(states), 3))
    draw, ranked_points = (
        jax.jit(lambda s, k: points_to_fit(config, s, k)),
        jax.jit(lambda s, k: played_points(setup, s, k)),
    )
    # On one device, as the fit does it.
    windows = [jax.device_get(draw(state, key[0])) for state, key in zip(states, keys, strict=True)]
    ranked = [jax.device_get(ranked_points(state, key[1])) for state, key in zip(states, keys, strict=True)]
    coverage = jax.device_get(states[0].teacher.novelty.coverage)

    def fits_of(mode: MixtureConfig, which: int) -> tuple[list[int], list[np.ndarray], float]:
        @jax.jit
        def fit(points: Array, valid: Array, key: Any) -> tuple[Array, Any]:
            previous = gmm.init(mode, points.shape[1])
            fitted = gmm.fit(mode, key, points, valid=valid, previous=previous)
            return fitted.diagnostics["components"], fitted.model

        @jax.jit
        def rank(model: Any, points: Points) -> Array:
            return novelty(
                mode, coverage._replace(model=model, fitted=jnp.ones((), bool)), points.values, points.valid
            )

        jax.block_until_ready(fit(*windows[0], keys[0, 2]))
        components, novelties, seconds = [], [], 0.0
        for number, (window, points) in enumerate(zip(windows, ranked, strict=True)):
            key = jax.random.fold_in(keys[number, 2], which)
            begin = time.process_time()
            size, model = jax.block_until_ready(fit(*window, key))
            seconds += time.process_time() - begin
            components.append(int(size))
            novelties.append(np.asarray(rank(model, points)))
        return components, novelties, seconds / len(windows)

    exact = dataclasses.replace(config, **EXACT)
    expected_sizes, expected, seconds = fits_of(exact, 0)
    found: dict[str, Any] = {"exact": {"K": expected_sizes, "CPU s": round(seconds, 3)}}
    modes = {mode: (dataclasses.replace(config, **changes), 0) for mode, changes in MODES.items()}
    for mode, (settings, which) in (modes | {"exact, other centres": (exact, 1)}).items():
        sizes, novelties, seconds = fits_of(settings, which)
        agree = [rank_correlation(*pair) for pair in zip(novelties, expected, strict=True)]
        found[mode] = {
            "same K": f"{sum(a == b for a, b in zip(sizes, expected_sizes))} of {len(sizes)}",
            "Spearman, mean": round(float(np.mean(agree)), 4),
            "Spearman, least": round(float(np.min(agree)), 4),
            "CPU s": round(seconds, 3),
        }
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["quick", "paper"])
    parser.add_argument("--updates", type=int, default=160)
    parser.add_argument("--refits", type=int, default=26)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    for name in options.presets:
        print(json.dumps({name: agreement(name, options.updates, options.refits, options.seed)}), flush=True)
