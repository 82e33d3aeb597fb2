"""Where the time of a replay cycle of `plr-cenie` goes, part by part.

    python -m benchmarks.cycle_profile [--presets paper quick] [--modes default exact] [--updates 60]
        [--states 20] [--seed 100]

A student is trained in a real run on one host device per core. States of the run before its replays are
kept, evenly spread over it, and everything begins from them, so that points, windows and models are those of
training. All parts and whole cycles, with and without novelty, run in one process and take turns, after a
call to warm up. Seconds are CPU time of all threads, because that depends least on what else the machine
does; means over the states, since a fit takes as long as its points want: the share of novelty in eight
states of a run was anything from 10 to 19 %.

The share of novelty is what the cycle saves with a novelty that does nothing, and its standard error is that
of a ratio of means over the states. The parts are programs of their own, in which the compiler cannot merge
as much as in one, so that they do not add up to the cycle.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cenie.experiment.build import build, place
from cenie.experiment.presets import preset
from cenie.methods.cenie import CenieNovelty
from cenie.novelty import coverage, em, kmeans
from cenie.novelty.config import MixtureConfig
from cenie.novelty.gmm import sizes_of
from cenie.novelty.silhouette import silhouettes
from cenie.replay.buffer import BufferState, levels_at
from cenie.replay.play import REPLAY, Play
from cenie.student.features import rollout_features
from cenie.student.ppo import learn
from cenie.teach.cycle import Setup, TrainState, init, play
from cenie.xla.parts import CompiledCycles, cycle

EXACT = {"silhouette_rows": None, "screening_steps": None}
MODES: dict[str, dict[str, Any]] = {"default": {}, "exact": EXACT}
"""What is different from the settings of the preset."""
CHANGES = {"run.recorded_points": 0, "teacher.replay.min_fill": 0.1}
"""Replay begins early, so that a run of minutes has replays; the buffer still has room for 4,000 levels."""
UNLIMITED = 1_000_000
EAGER = {"paper": {"student.ppo.learning_rate": 1e-3}}
"""The paper's student learns a tenth as fast: a minute of training must fill its memory with life."""


@dataclasses.dataclass(frozen=True)
class Nothing:
    """What a novelty keeps, and none of its work."""

    of: CenieNovelty

    def init(self, points_shape: tuple[int, int]) -> Any:
        return self.of.init(points_shape)

    def score(self, state: Any, played: Play, buffer: BufferState) -> jax.Array:
        return jnp.zeros(len(played.points.valid))

    def learn(self, state: Any, played: Play, **_: Any) -> Any:
        return state

    def rescore(self, state: Any, buffer: BufferState, **_: Any) -> None:
        return None

    def metrics(self, state: Any, buffer: BufferState) -> dict[str, jax.Array]:
        return {}


def with_novelty(setup: Setup, novelty: Any) -> Setup:
    return dataclasses.replace(setup, curriculum=dataclasses.replace(setup.curriculum, novelty=novelty))


def states_before_replays(setup: Setup, updates: int, count: int, seed: int = 0) -> list[TrainState]:
    """So many states of a run of so many updates whose next cycle replays levels, evenly spread over it."""
    state, found, due = place(setup, init(setup, seed)), [], 0.0
    while int(state.counters.updates) < updates:
        after, metrics, _ = cycle(setup, state)
        done = int(state.counters.updates)
        if int(metrics["teacher/kind"]) == REPLAY and done >= due and len(found) < count:
            found.append(state)
            due = done + (updates - done) / (count - len(found) + 1)
        state = place(setup, after)
    return found


def state_after(setup: Setup, updates: int, seed: int = 0) -> TrainState:
    """The state of a run after so many updates."""
    state = place(setup, init(setup, seed))
    while int(state.counters.updates) < updates:
        state = place(setup, cycle(setup, state)[0])
    return state


def parts(setup: Setup, states: list[TrainState]) -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """Names of the parts of a cycle, compiled programs, and their arguments in each of the states."""
    novelty, mesh, student = setup.curriculum.novelty, setup.mesh, setup.student
    assert isinstance(novelty, CenieNovelty)
    config, key = novelty.coverage, jax.random.key(1)
    assert isinstance(config, MixtureConfig)
    sizes = sizes_of(config)
    finalists = sizes if config.screening_steps is None else sizes[::-1][: config.screening_candidates]

    def replayed(state: TrainState) -> Any:
        levels = levels_at(state.teacher.buffers[0], state.teacher.replayed[0])
        return play(setup, 0, state.student, Play(levels, kind=jnp.asarray(REPLAY)), key)

    def window_of(state: TrainState, points: Any) -> coverage.CoverageState:
        return coverage.push(state.teacher.novelty.coverage, points.values, points.valid)

    def labelled(window: coverage.CoverageState) -> tuple[jax.Array, jax.Array]:
        points = window.points.reshape(-1, window.points.shape[-1])
        points = points[:: max(1, len(points) // (config.max_points or len(points)))]
        rules = em.Rules(config.covariance, config.reg, config.tolerance, config.max_iterations)
        everything = jnp.ones(len(points), bool)
        return points, em.fit_sizes(key, points, everything, sizes=finalists_range, rules=rules).labels

    finalists_range = range(min(finalists), max(finalists) + 1)
    play_all = jax.jit(replayed)
    played = [play_all(state) for state in states]
    windows = [jax.jit(window_of)(state, each.points) for state, each in zip(states, played, strict=True)]
    # On one device, as the fit does it.
    clustered = [jax.jit(labelled)(jax.device_get(window)) for window in windows]
    yield "play", play_all, [(state,) for state in states]
    yield (
        "learn",
        jax.jit(lambda state, rollout: learn(student, state, rollout, key, mesh)),
        [(state.student, each.rollout) for state, each in zip(states, played, strict=True)],
    )
    yield (
        "features",
        jax.jit(lambda rollout: rollout_features(rollout, setup.environment.action_space)),
        [(each.rollout,) for each in played],
    )
    yield (
        "scoring",
        jax.jit(novelty.score),
        [
            (state.teacher.novelty, each, state.teacher.buffers[0])
            for state, each in zip(states, played, strict=True)
        ],
    )
    yield (
        "push",
        jax.jit(window_of),
        [(state, each.points) for state, each in zip(states, played, strict=True)],
    )
    yield (
        "fit",
        jax.jit(lambda window: coverage.fit(config, window, key, mesh=mesh)),
        [(window,) for window in windows],
    )
    yield (
        "fit: k-means++",
        jax.jit(lambda points: kmeans.chain(key, points, jnp.ones(len(points), bool), sizes[-1])),
        [(points,) for points, _ in clustered],
    )
    yield (
        "fit: silhouettes",
        jax.jit(
            lambda points, labels: silhouettes(
                points,
                labels,
                finalists_range,
                valid=jnp.ones(len(points), bool),
                key=key,
                rows=config.silhouette_rows,
            )
        ),
        clustered,
    )
    yield (
        "rescoring",
        jax.jit(partial(novelty.rescore, mesh=mesh)),
        [(state.teacher.novelty, state.teacher.buffers[0]) for state in states],
    )


def profile(name: str, modes: list[str], updates: int, count: int, seed: int) -> dict[str, Any]:
    """CPU seconds and shares of the parts of a replay cycle, and of what novelty adds to it."""
    default = build(preset("maze", "plr-cenie", name, CHANGES | EAGER.get(name, {})))[1]
    novelty = default.curriculum.novelty
    assert isinstance(novelty, CenieNovelty)
    settings = {mode: dataclasses.replace(novelty.coverage, **MODES[mode]) for mode in modes}
    setups = {
        mode: with_novelty(default, dataclasses.replace(novelty, coverage=coverage))
        for mode, coverage in settings.items()
    }
    states = states_before_replays(default, updates, count, seed)
    work = {
        (mode, "cycle"): (CompiledCycles(setup, 1), [(state, UNLIMITED) for state in states])
        for mode, setup in (setups | {"none": with_novelty(default, Nothing(novelty))}).items()
    }
    for mode, setup in setups.items():
        work |= {(mode, part): (program, given) for part, program, given in parts(setup, states)}
    calls, compile_seconds = cpu_seconds(work)
    seconds = {name: float(np.mean(values)) for name, values in calls.items()}
    found: dict[str, Any] = {
        "devices": jax.device_count(),
        "states": len(states),
        "cycle without novelty": round(seconds["none", "cycle"], 4),
    }
    for mode in setups:
        whole = seconds[mode, "cycle"]
        own = {part: value for (of, part), value in seconds.items() if of == mode}
        own["fit: EM and screening"] = own["fit"] - own["fit: k-means++"] - own["fit: silhouettes"]
        share, error = share_saved(calls[mode, "cycle"], calls["none", "cycle"])
        found[mode] = {
            "share of novelty in the cycle": round(share, 3),
            "its standard error": round(error, 3),
            "CPU s": {part: round(value, 4) for part, value in own.items()},
            "share": {part: round(value / whole, 3) for part, value in own.items()},
            "compile, CPU s": {
                part: round(value, 1) for (of, part), value in compile_seconds.items() if of == mode
            },
        }
    return found


def share_saved(whole: list[float], without: list[float]) -> tuple[float, float]:
    """Which share of the whole is saved on average over the states, and its standard error."""
    share = 1.0 - np.mean(without) / np.mean(whole)
    residuals = (1.0 - share) * np.array(whole) - np.array(without)
    return float(share), float(np.std(residuals, ddof=1) / np.mean(whole) / np.sqrt(len(whole)))


def cpu_seconds(work: dict[Any, tuple[Callable[..., Any], list[Any]]]) -> tuple[dict[Any, list[float]], dict]:
    """CPU seconds of the calls of each program, one per argument and taking turns; and of its first."""
    first, later = {}, {name: [] for name in work}
    for name, (program, given) in work.items():
        first[name] = _cpu(program, given[0])
    for turn in range(len(next(iter(work.values()))[1])):
        for name, (program, given) in work.items():
            later[name].append(_cpu(program, given[turn]))
    return later, first


def _cpu(program: Callable[..., Any], arguments: Any) -> float:
    begin = time.process_time()
    jax.block_until_ready(program(*arguments))
    return time.process_time() - begin


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["paper", "quick"])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--states", type=int, default=20)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    for name in options.presets:
        found = profile(name, options.modes, options.updates, options.states, options.seed)
        print(json.dumps({name: found}, indent=2), flush=True)
