"""Random driving: ours and gymnasium's CarRacing, in microseconds of CPU for a physics step.

    python -m benchmarks.racing_stepping [--environments 16]

CPU time of the process, over all its threads, is what counts: on a busy machine nothing else means
anything. Both are timed in turns in one process and restart what has ended. Gymnasium draws a frame for each
physics step. Ours draws one for each action, which lasts eight of them; or, where it has to be known of every
physics step whether grass alone is seen, all eight. Only that compares like with like. The marks are 300
and 50 times gymnasium's speed.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from cenie.envs.domains import find_domain
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.generate import continuous_level
from cenie.envs.reset import step_and_restart
from cenie.xla.flags import show_devices

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from gymnasium.envs.box2d.car_racing import CarRacing

# XLA reads its flags when it is first used.
show_devices(1, *find_domain("racing").xla_flags)

ACTIONS = 50
"""That ours makes in a call."""
GYMNASIUM_STEPS = 60
REPEATS = 5


def ours(count: int, green: Literal["observed", "exact"], texel: float) -> tuple[Callable[[], object], int]:
    """A call, and how many physics steps it makes; the time of compilation is printed."""
    config = RacingConfig(green=green, texel=texel)
    racing = Racing(config)
    levels = jax.vmap(continuous_level)(jax.random.split(jax.random.key(0), count))
    courses = jax.jit(jax.vmap(racing.prepare))(levels)
    _, states = jax.vmap(racing.reset)(jax.random.split(jax.random.key(0), count), courses)

    def run(key: jax.Array, states, courses):
        def step(states, key):
            action_key, step_key = jax.random.split(key)
            actions = jax.random.uniform(action_key, (count, 3)) * jnp.array([1.0, 1.0, 0.2])
            made, _ = step_and_restart(
                racing, jax.random.split(step_key, (count, 2)), courses, states, actions
            )
            return made.state, (made.observation[:, ::7, ::7], made.reward, made.terminated)

        return jax.lax.scan(step, states, jax.random.split(key, ACTIONS))

    begin = time.process_time()
    program = jax.jit(run).lower(jax.random.key(0), states, courses).compile()
    print(f"  compiled in {time.process_time() - begin:.0f} s of CPU")
    carry = {"key": jax.random.key(1), "states": states}

    def call() -> object:
        carry["key"], key = jax.random.split(carry["key"])
        carry["states"], outputs = jax.block_until_ready(program(key, carry["states"], courses))
        return outputs

    return call, ACTIONS * config.action_repeat * count


def gymnasium() -> tuple[Callable[[], object], int]:
    env = CarRacing()
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def call() -> None:
        for _ in range(GYMNASIUM_STEPS):
            action = rng.uniform((-1.0, 0.0, 0.0), (1.0, 1.0, 0.2)).astype(np.float32)
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return call, GYMNASIUM_STEPS


def main(count: int) -> None:
    calls = {
        "one frame per action, texels of 0.25": ours(count, "observed", 0.25),
        "one frame per action, texels of 0.5": ours(count, "observed", 0.5),
        "all frames, texels of 0.25": ours(count, "exact", 0.25),
        "gymnasium": gymnasium(),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call, _ in calls.values():
        call()
    for _ in range(REPEATS):
        for name, (call, steps) in calls.items():
            begin = time.process_time()
            call()
            times[name].append((time.process_time() - begin) / steps * 1e6)
    print(f"{count} environments, microseconds of CPU for a physics step (median of {REPEATS}, lowest)")
    for name, values in times.items():
        ratio = statistics.median(theirs / own for theirs, own in zip(times["gymnasium"], values))
        print(
            f"  {name:40s} {statistics.median(values):9.2f} {min(values):9.2f}  {ratio:7.1f} times gymnasium"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=int, default=16)
    main(parser.parse_args().environments)
