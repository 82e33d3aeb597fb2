"""The level buffer next to jaxued's: milliseconds to insert, draw and update 32 maze-like levels.

    python benchmarks/buffer_insert.py [--capacity 4000]

Both run in the same process on the same levels and scores, from a full buffer, with rank priorities,
temperature 0.3, staleness 0.3 and duplicate look-up. The state is donated, as in a training cycle.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxued.level_sampler import LevelSampler

from cenie.replay import buffer
from cenie.replay.config import ReplayConfig
from cenie.replay.play import Play

BATCH = 32
ROUNDS = 20
Call = Callable[[Any, Any, jax.Array], Any]
"""(state, levels, scores) -> (state, anything)."""


def main(capacity: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {"capacity": capacity, "batch": BATCH}
    for columns in (1, 2):
        figures[f"cenie, {columns} score(s), ms"] = measure(*ours(capacity, columns), capacity, rng, columns)
    figures["jaxued, ms"] = measure(*jaxued(capacity), capacity, rng, 1)
    figures["cenie / jaxued"] = {
        name: round(value / figures["jaxued, ms"][name], 3)
        for name, value in figures["cenie, 1 score(s), ms"].items()
    }
    return figures


def ours(capacity: int, columns: int) -> tuple[Any, dict[str, Call]]:
    config = ReplayConfig(capacity=capacity)
    mix = jnp.full(columns, 1.0 / columns)

    def with_scores(play: Play, scores: jax.Array) -> Play:
        return dataclasses.replace(play, scores=dict(zip(names, scores.T)), best_return=scores[:, 0])

    def insert(state: buffer.BufferState, levels: Any, scores: jax.Array) -> Any:
        play = with_scores(buffer.locate(state, Play(levels)), scores)
        return buffer.insert(state, play, mix, config)

    def sample(state: buffer.BufferState, levels: Any, scores: jax.Array) -> Any:
        slots, state = buffer.sample(state, jax.random.key(0), BATCH, mix, config.priority)
        return state, (slots, buffer.levels_at(state, slots))

    def update(state: buffer.BufferState, levels: Any, scores: jax.Array) -> Any:
        play = buffer.locate_sampled(state, Play((), slot=jnp.arange(BATCH)))
        return buffer.update(state, with_scores(play, scores)), ()

    names = [f"score{j}" for j in range(columns)]
    state = buffer.init(one_level(), capacity, names)
    return state, {"insert": insert, "sample": sample, "update": update}


def jaxued(capacity: int) -> tuple[Any, dict[str, Call]]:
    sampler = LevelSampler(
        capacity,
        staleness_coeff=0.3,
        prioritization_params={"temperature": 0.3},
        duplicate_check=True,
    )

    def insert(state: Any, levels: Any, scores: jax.Array) -> Any:
        return sampler.insert_batch(state, levels, scores[:, 0], {"max_return": scores[:, 0]})

    def sample(state: Any, levels: Any, scores: jax.Array) -> Any:
        return sampler.sample_replay_levels(state, jax.random.key(0), BATCH)

    def update(state: Any, levels: Any, scores: jax.Array) -> Any:
        extras = {"max_return": scores[:, 0]}
        return sampler.update_batch(state, jnp.arange(BATCH), scores[:, 0], extras), ()

    state = jax.tree.map(jnp.asarray, sampler.initialize(one_level(), {"max_return": -jnp.inf}))
    return state, {"insert": insert, "sample": sample, "update": update}


def measure(
    state: Any, calls: dict[str, Call], capacity: int, rng: np.random.Generator, columns: int
) -> dict[str, float]:
    """Fill the buffer, then take the median time of each call, on levels it has not met."""
    jitted = {name: jax.jit(call, donate_argnums=0) for name, call in calls.items()}
    for first in range(0, capacity, 1000):
        state, _ = jitted["insert"](state, *offers(rng, min(1000, capacity - first), columns))
    return {name: timed(call, jax.tree.map(jnp.copy, state), rng, columns) for name, call in jitted.items()}


def timed(call: Call, state: Any, rng: np.random.Generator, columns: int) -> float:
    batches: Sequence[Any] = [offers(rng, BATCH, columns) for _ in range(ROUNDS)]
    times = []
    for batch in batches:
        begin = time.perf_counter()
        state, rest = call(state, *batch)
        jax.block_until_ready((state, rest))
        times.append(time.perf_counter() - begin)
    return round(1e3 * float(np.median(times[2:])), 3)


def offers(rng: np.random.Generator, n: int, columns: int) -> tuple[Any, jax.Array]:
    """Random arrays of the shapes and types of maze levels, and scores for them."""
    levels = {
        "walls": jnp.asarray(rng.random((n, 13, 13)) < 0.3),
        "goal": jnp.asarray(rng.integers(0, 13, (n, 2)), jnp.int32),
        "start": jnp.asarray(rng.integers(0, 13, (n, 2)), jnp.int32),
        "direction": jnp.asarray(rng.integers(0, 4, n), jnp.int32),
        "time_limit": jnp.full(n, 250, jnp.int32),
        "occluded": jnp.zeros(n, bool),
    }
    return levels, jnp.asarray(rng.random((n, columns)), jnp.float32)


def one_level() -> Any:
    return jax.tree.map(lambda leaf: leaf[0], offers(np.random.default_rng(1), 1, 1)[0])


if __name__ == "__main__":
    # jaxued 0.0.1 calls an alias that newer JAX no longer has.
    jax.tree_map = jax.tree.map  # pyright: ignore[reportAttributeAccessIssue]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacity", type=int, default=4000)
    print(json.dumps(main(parser.parse_args().capacity), indent=2))
