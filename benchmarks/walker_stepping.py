"""Random-action stepping of walkers on hardcore terrain: ours, gymnasium's and EnvPool's.

    python -m benchmarks.walker_stepping

All restart what has ended. CPU time of the process, over all its threads, is what counts: on a busy machine
it is the only figure that means anything. The three are timed in turns in one process.

Most of our time goes to loops of many small kernels. XLA makes one kernel of a loop if it is told to, as the
command line does for the walker, and this file too; another threshold of the user's is kept:

    XLA_FLAGS=--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=0
"""

import resource
import statistics
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cenie.envs.domains import find_domain
from cenie.envs.reset import step_and_restart
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.dynamics import Walker
from cenie.envs.walker.level import WalkerLevel
from cenie.xla.flags import show_devices

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import envpool
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalker

# XLA reads its flags when it is first used.
show_devices(1, *find_domain("walker").xla_flags)

SIZES = (16, 64, 256)
STEPS = 100
REPEATS = 5


def ours(count: int) -> Callable[[], object]:
    """A call that makes `STEPS` steps, after the time of compilation is printed."""
    walker = Walker(WalkerConfig())
    levels = WalkerLevel(
        jnp.zeros((count, 8)).at[:, 0].set(1.0),
        jnp.arange(count, dtype=jnp.uint32),
        jnp.ones(count, bool),
        jnp.full(count, 2000, jnp.int32),
    )
    courses = jax.jit(jax.vmap(walker.prepare))(levels)
    _, states = jax.vmap(walker.reset)(jax.random.split(jax.random.key(0), count), courses)

    def run(key: jax.Array, states):
        def step(states, key):
            action_key, step_key = jax.random.split(key)
            actions = jax.random.uniform(action_key, (count, 4), minval=-1.0, maxval=1.0)
            made, _ = step_and_restart(
                walker, jax.random.split(step_key, (count, 2)), courses, states, actions
            )
            return made.state, (made.observation, made.reward, made.terminated)

        return jax.lax.scan(step, states, jax.random.split(key, STEPS))

    begin = time.process_time()
    program = jax.jit(run).lower(jax.random.key(0), states).compile()
    print(f"  compiled in {time.process_time() - begin:.0f} s of CPU")
    carry = {"key": jax.random.key(1), "states": states}

    def call() -> object:
        carry["key"], key = jax.random.split(carry["key"])
        carry["states"], outputs = jax.block_until_ready(program(key, carry["states"]))
        return outputs

    return call


def pooled(count: int) -> Callable[[], object]:
    pool = envpool.make_gymnasium("BipedalWalkerHardcore-v3", num_envs=count, num_threads=2, seed=0)
    pool.reset()
    rng = np.random.default_rng(0)

    def call() -> None:
        for _ in range(STEPS):
            pool.step(rng.uniform(-1, 1, (count, 4)).astype(np.float32))

    return call


def gymnasium() -> Callable[[], object]:
    walker = BipedalWalker(hardcore=True)
    walker.reset(seed=0)
    rng = np.random.default_rng(0)

    def call() -> None:
        for _ in range(STEPS):
            if walker.step(rng.uniform(-1, 1, 4).astype(np.float32))[2]:
                walker.reset()

    return call


def main() -> None:
    for count in SIZES:
        print(f"{count} environments")
        calls = {
            "ours": (ours(count), count),
            "envpool": (pooled(count), count),
            "gymnasium": (gymnasium(), 1),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call, _ in calls.values():
            call()
        for _ in range(REPEATS):
            for name, (call, lanes) in calls.items():
                begin = time.process_time()
                call()
                times[name].append((time.process_time() - begin) / (STEPS * lanes) * 1e6)
        figures = {name: statistics.median(each) for name, each in times.items()}
        for name, figure in figures.items():
            print(f"  {name:10} {figure:7.1f} us of CPU per step, {figure / figures['ours']:.2f} of ours")
    print(f"largest memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
