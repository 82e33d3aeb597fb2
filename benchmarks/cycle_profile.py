"""Where the time of a replay cycle of `plr-cenie` goes, part by part.

    python -m benchmarks.cycle_profile [--presets paper quick] [--updates 40] [--rounds 12]

A student is trained in a real run on one host device per core. The states of the run before its last replays
are kept, and all candidates begin from them, so that points, windows and models are those of training. All
run in one process and take turns, after a call to warm up. Seconds are CPU time of all threads, because that
does not depend on what else the machine does; means over the rounds, since a fit takes as long as its data
want.

What novelty costs is the whole cycle minus the same cycle with a novelty that does nothing; the parts are
programs of their own, and what they leave is the rest.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CORES = len(os.sched_getaffinity(0))
jax.config.update("jax_num_cpu_devices", CORES)

from cenie.devices import side_by_side  # noqa: E402, the devices must be known first
from cenie.novelty import coverage, kmeans, mixture  # noqa: E402
from cenie.novelty.config import MixtureConfig  # noqa: E402
from cenie.novelty.selection import sizes_of  # noqa: E402
from cenie.novelty.silhouette import silhouettes  # noqa: E402
from cenie.run.build import build, place  # noqa: E402
from cenie.run.presets import preset  # noqa: E402
from cenie.student.features import state_action_features  # noqa: E402
from cenie.student.ppo import learn  # noqa: E402
from cenie.teach import buffer as buffers  # noqa: E402
from cenie.teach.buffer import Remembered  # noqa: E402
from cenie.teach.cenie import CenieNovelty  # noqa: E402
from cenie.teach.curriculum import REPLAY  # noqa: E402
from cenie.teach.cycle import Setup, TrainState, cycle, init, play  # noqa: E402
from cenie.teach.novelty import Experience  # noqa: E402
from cenie.teach.teacher import ask  # noqa: E402

EXACT = {"silhouette_rows": None, "max_points": None, "screening_steps": None}
# The paper's student learns a tenth as fast: a minute of training must fill its memory with life.
EAGER = {"paper": {"student.ppo.learning_rate": 1e-3}}


@dataclasses.dataclass(frozen=True)
class Nothing:
    """The state and memory of a novelty, and no work."""

    of: CenieNovelty

    def remembered(self, points_shape: tuple[int, int]) -> Mapping[str, Remembered]:
        return self.of.remembered(points_shape)

    def init(self, points_shape: tuple[int, int]) -> Any:
        return self.of.init(points_shape)

    def score(self, state: Any, experience: Experience, buffer: Any) -> jax.Array:
        return jnp.zeros(experience.points.valid.shape[0])

    def memory(self, state: Any, experience: Experience) -> dict[str, jax.Array]:
        count = experience.points.valid.shape[0]
        kept = self.remembered(experience.points.values.shape[1:])
        return {name: jnp.zeros((count, *what.shape)) for name, what in kept.items()}

    def learn(self, state: Any, experience: Experience, **_: Any) -> Any:
        return state

    def rescore(self, state: Any, buffer: Any, **_: Any) -> None:
        return None

    def metrics(self, state: Any, buffer: Any) -> dict[str, jax.Array]:
        return {}


def with_novelty(setup: Setup, novelty: Any) -> Setup:
    return dataclasses.replace(setup, curriculum=dataclasses.replace(setup.curriculum, novelty=novelty))


def replays_of_a_run(setup: Setup, updates: int, kept: int) -> list[TrainState]:
    """The states before the last replays of a run of so many updates."""
    state, found = place(setup, init(setup, 0)), []
    while int(state.counters.updates) < updates:
        after, metrics, _ = cycle(setup, state)
        if int(metrics["teacher/kind"]) == REPLAY:
            found = [*found, state][-kept:]
        state = place(setup, after)
    return found


def parts_of(setup: Setup, state: TrainState) -> dict[str, Callable[[], Any]]:
    """The parts of a replay cycle as calls, on what the student plays in this state."""
    novelty, mesh = setup.curriculum.novelty, setup.mesh
    assert isinstance(novelty, CenieNovelty)
    assert isinstance(novelty.coverage, MixtureConfig)
    config, sizes, key = novelty.coverage, sizes_of(novelty.coverage), jax.random.key(1)
    programs = _programs(setup)
    levels = programs["ask"](state)
    played = programs["play"](state.student, levels)
    experience = Experience(levels, played.points, jnp.zeros((), bool))
    window = coverage.push(state.teacher.novelty.coverage, played.points.values, played.points.valid)
    points, valid, labels = programs["labels"](window)
    few = sizes[::-1] if config.screening_steps is None else sizes[::-1][: config.screening_candidates]
    del few
    return {
        "play": lambda: programs["play alone"](state.student, levels),
        "learn": lambda: programs["learn"](state.student, played.rollout),
        "features": lambda: programs["features"](played.rollout),
        "scoring": lambda: programs["score"](state.teacher.novelty, experience, state.teacher.replay.buffer),
        "push": lambda: programs["push"](state.teacher.novelty.coverage, played.points),
        "fit": lambda: programs["fit"](window, key),
        "of which k-means++": lambda: programs["k-means++"](points, valid, key),
        "of which silhouettes": lambda: programs["silhouettes"](points, valid, labels, key),
        "rescoring": lambda: programs["rescore"](state.teacher.novelty, state.teacher.replay.buffer),
    }


_PROGRAMS: dict[Any, dict[str, Callable[..., Any]]] = {}


def _programs(setup: Setup) -> dict[str, Callable[..., Any]]:
    """One compiled program for each part, made once for a setup."""
    if id(setup) in _PROGRAMS:
        return _PROGRAMS[id(setup)]
    novelty, mesh, student = setup.curriculum.novelty, setup.mesh, setup.student
    config = novelty.coverage
    sizes, key = sizes_of(config), jax.random.key(0)
    bare = with_novelty(setup, None)

    def labels(window: Any) -> Any:
        points, valid = window.points.reshape(-1, window.points.shape[-1]), window.valid.reshape(-1)
        fits = mixture.fit_sizes(key, points, valid, sizes=sizes, rules=mixture.Rules(reg=config.reg))
        return points, valid, fits.labels

    screens = config.screening_steps is not None
    few = sizes[::-1][: config.screening_candidates] if screens else sizes
    rows = config.silhouette_rows

    def compare(points: jax.Array, valid: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
        def on(devices: Any, points: jax.Array, valid: jax.Array, labels: jax.Array, key: jax.Array) -> Any:
            labels = labels[::-1][: len(few)] if screens else labels
            return silhouettes(points, labels, few, valid=valid, key=key, rows=rows, devices=devices)

        return side_by_side(mesh, on, points, valid, labels, key)

    def centres(points: jax.Array, valid: jax.Array, key: jax.Array) -> Any:
        return side_by_side(
            mesh,
            lambda _, points, valid, key: kmeans.chain(key, points, valid, sizes[-1]),
            points,
            valid,
            key,
        )

    return _PROGRAMS.setdefault(
        id(setup),
        {
            "ask": jax.jit(
                lambda state: buffers.levels_at(
                    state.teacher.replay.buffer,
                    ask(setup.curriculum, state.teacher, state.key, student.num_levels)[0].batches[0].slots,
                )
            ),
            "play": jax.jit(lambda state, levels: play(setup, 0, state, levels, key)),
            "play alone": jax.jit(lambda state, levels: play(bare, 0, state, levels, key)),
            "learn": jax.jit(lambda state, rollout: learn(student, state, rollout, key, mesh)),
            "features": jax.jit(
                lambda rollout: state_action_features(rollout, setup.environment.action_space)
            ),
            "score": jax.jit(novelty.score),
            "push": jax.jit(lambda window, points: coverage.push(window, points.values, points.valid)),
            "fit": jax.jit(lambda window, key: coverage.fit(config, window, key, mesh)),
            "k-means++": jax.jit(centres),
            "labels": jax.jit(labels),
            "silhouettes": jax.jit(compare),
            "rescore": jax.jit(partial(novelty.rescore, mesh=mesh)),
        },
    )
