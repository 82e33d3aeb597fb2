"""Mixtures, silhouettes and the whole step of CENIE next to scikit-learn and to a cycle of learning.

    python -m benchmarks.coverage [--rounds 5] [--updates 60]

The data are the LSTM states and actions of a maze student that has been trained for some updates at the
paper's setting (8,192 points of 263 numbers per rollout, 6 to 15 components). All candidates run in one
process and take turns; ratios are medians over the rounds. The walker's setting is played by synthetic
points (65,536 of 28 numbers), since it only matters how many there are.
"""

import argparse
import dataclasses
import itertools
import json
import os
import resource
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture

from benchmarks.ppo_update import KEY, MESH, PAPER, everywhere, play, split, timed
from cenie.envs.base import Domain
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.reset import step_and_restart
from cenie.novelty import coverage
from cenie.novelty.config import MixtureConfig
from cenie.novelty.em import Rules, fit_sizes
from cenie.novelty.silhouette import silhouettes
from cenie.records import Level
from cenie.student.features import rollout_features
from cenie.student.ppo import StudentState, learn
from cenie.student.rollout import collect

DEFAULT = MixtureConfig()
EXACT = MixtureConfig(silhouette_rows=None, max_points=None, screening_steps=None)
WARM = MixtureConfig(warm_start=True)
WALKER = MixtureConfig(reg=1e-6)
SIZES = range(DEFAULT.components[0], DEFAULT.components[1] + 1)
REFITS = 10
AGREEMENT_ROUNDS = 3
# Learns ten times as fast as the paper's student, so that a minute of training fills its memory with life.
EAGER = dataclasses.replace(PAPER, ppo=dataclasses.replace(PAPER.ppo, learning_rate=1e-3))


def logged_features(domain: Domain, updates: int) -> jax.Array:
    """State-action features [r, n, t, d] of the last rollouts of a student in training."""
    state, _, _ = play(EAGER, domain)
    environment = domain.environment

    @jax.jit
    def update(state: StudentState, levels: Level, key: jax.Array) -> tuple[StudentState, jax.Array]:
        rollout = collect(
            environment,
            state.network,
            levels,
            key=key,
            num_steps=PAPER.num_steps,
            advance=step_and_restart,
            keep_features=True,
        )
        features = rollout_features(rollout, environment.action_space)
        return learn(EAGER, state, rollout, key, MESH)[0], features

    generate = jax.jit(jax.vmap(domain.generators["uniform60"]))
    state, kept = everywhere(state), []
    for number in range(updates):
        key = jax.random.fold_in(KEY, number)
        state, features = update(state, split(generate(jax.random.split(key, PAPER.num_levels))), key)
        if number >= updates - REFITS:
            kept.append(np.asarray(features))
    return jnp.asarray(np.stack(kept))


def scikit_mixtures(points: np.ndarray) -> list[GaussianMixture]:
    """Ten mixtures with the same regularisation, tolerance and most iterations as ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [
            GaussianMixture(
                size, covariance_type="diag", reg_covar=1e-2, init_params="k-means++", random_state=0
            ).fit(points)
            for size in SIZES
        ]


def against_scikit_learn(points: jax.Array, rounds: int) -> dict[str, Any]:
    """Ten mixtures, and ten exact silhouettes of the same labels, of one rollout [p, d]."""
    array, valid = np.asarray(points), jnp.ones(len(points), bool)
    fits = jax.jit(lambda points: fit_sizes(KEY, points, valid, sizes=SIZES, rules=Rules()))
    labels = fits(points).labels
    scores = jax.jit(lambda points, labels: silhouettes(points, labels, SIZES, valid=valid))
    rows = [np.asarray(row) for row in labels]
    mixtures = timed({"cenie": lambda: fits(points), "sklearn": lambda: bare(scikit_mixtures, array)}, rounds)
    compared = {
        "cenie": lambda: scores(points, labels),
        "sklearn": lambda: [silhouette_score(array, row) for row in rows],
    }
    exact = timed(compared, max(1, rounds // 2))
    expected = np.array([silhouette_score(array, row) for row in rows])
    theirs = [model.score(array) for model in scikit_mixtures(array)]
    ours = np.asarray(fits(points).log_likelihood)
    return {
        "mixtures": ratio(mixtures),
        "EM iterations": np.asarray(fits(points).iterations).tolist(),
        "log-likelihood per point minus scikit-learn's, mean over sizes": round(
            float(np.mean(ours - theirs)), 3
        ),
        "exact silhouettes": ratio(exact),
        "largest difference of silhouettes": float(
            np.abs(np.asarray(scores(points, labels)) - expected).max()
        ),
    }


def bare(call: Callable[[np.ndarray], Any], array: np.ndarray) -> None:
    """Call for the time only: what is returned is nothing that JAX could wait for."""
    call(array)


def whole_step(
    config: MixtureConfig,
    mesh: Mesh | None,
    state: coverage.CoverageState,
    features: jax.Array,
    key: jax.Array,
) -> Any:
    """What CENIE adds to a replay cycle: score the levels, push them, fit and choose."""
    valid = jnp.ones(features.shape[:2], bool)
    scores = coverage.novelty(config, state, features, valid)
    return coverage.fit(config, coverage.push(state, features, valid), key, mesh=mesh), scores


def next_to_learning(domain: Domain, logged: jax.Array) -> dict[str, Any]:
    """Seconds of the whole step and its share of a replay cycle, alone and over the devices of a run."""
    student, roll, levels = play(PAPER, domain)

    @jax.jit
    def learning(state: StudentState, levels: Level) -> Any:
        return learn(PAPER, state, roll(state, levels), KEY, MESH)

    arguments = everywhere(student), split(levels)
    candidates: dict[str, Callable[[], Any]] = {"learn": lambda: learning(*arguments)}
    for name, config in {"exact": EXACT, "default": DEFAULT, "default, warm start": WARM}.items():
        step, on_mesh = (jax.jit(partial(whole_step, config, mesh)) for mesh in (None, MESH))
        state = step(coverage.init(config, *logged.shape[2:]), logged[0], KEY)[0]
        candidates[f"{name}, 1 device"] = in_turn(partial(step, state), list(logged), KEY)
        spread = [split(features) for features in logged]
        candidates[f"{name}, {len(MESH.devices)} devices"] = in_turn(
            partial(on_mesh, everywhere(state)), spread, everywhere(KEY)
        )
    # How long a fit takes depends on the data, so every logged rollout has its turn.
    seconds = timed(candidates, len(logged))
    cycle = np.mean(seconds.pop("learn"))
    return {
        "learning cycle, s": round(float(cycle), 3),
        **{
            name: {
                "s": round(float(np.mean(values)), 3),
                "share of a replay cycle": round(float(np.mean(values) / (np.mean(values) + cycle)), 3),
            }
            for name, values in seconds.items()
        },
    }


def in_turn(step: Callable[..., Any], batches: list[jax.Array], key: jax.Array) -> Callable[[], Any]:
    """A call of the step with the first batch, then with the next, and so on and round again."""
    turns = itertools.cycle(batches)
    return lambda: step(next(turns), key)


def agreement(logged: jax.Array) -> dict[str, Any]:
    """The size chosen in default and in exact mode at each of some refits, from the same centres."""
    chosen: dict[str, list[int]] = {}
    for name, config in {"exact": EXACT, "default": DEFAULT}.items():
        step = jax.jit(partial(whole_step, config, None))
        state, sizes = coverage.init(config, *logged.shape[2:]), []
        for number in range(AGREEMENT_ROUNDS * len(logged)):
            features = logged[number % len(logged)]
            state, _ = step(state, features, jax.random.fold_in(KEY, number))
            sizes.append(int(state.diagnostics["components"]))
        chosen[name] = sizes
    same = sum(a == b for a, b in zip(chosen["exact"], chosen["default"]))
    return {**chosen, "agree": f"{same} of {len(chosen['exact'])}"}


def walker(rounds: int) -> dict[str, Any]:
    """The default step on as many points as a window of the walker's has."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 28))
    features = centres[rng.integers(0, 10, (32, 2048))] + 0.5 * rng.normal(size=(32, 2048, 28))
    logged = jnp.asarray(features, jnp.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = jax.jit(partial(whole_step, WALKER, None))
    state = step(coverage.init(WALKER, *logged.shape[1:]), logged, KEY)[0]
    seconds = timed({"default": lambda: step(state, logged, KEY)}, rounds)["default"]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "s": round(float(np.median(seconds)), 3),
        "peak memory rose by, MB": round((after - before) / 1024),
    }


def ratio(seconds: dict[str, np.ndarray]) -> dict[str, float]:
    medians = {f"{name}, s": round(float(np.median(values)), 3) for name, values in seconds.items()}
    return {**medians, "sklearn / cenie": round(float(np.median(seconds["sklearn"] / seconds["cenie"])), 2)}


def main(rounds: int, updates: int) -> dict[str, Any]:
    # First, since the peak of memory can only rise.
    figures: dict[str, Any] = {"cores": os.cpu_count(), "walker, 65,536 points of 28": walker(rounds)}
    domain = maze_domain(MazeConfig())
    logged = logged_features(domain, updates)
    points = logged[-1].reshape(-1, logged.shape[-1])
    figures["next to scikit-learn, 8,192 points of 263"] = against_scikit_learn(points, rounds)
    figures["whole step"] = next_to_learning(domain, logged)
    figures["chosen sizes"] = agreement(logged)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=60)
    arguments = parser.parse_args()
    print(json.dumps(main(arguments.rounds, arguments.updates), indent=2))
