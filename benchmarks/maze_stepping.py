"""Random-action stepping of mazes against jaxued's Maze, both with restarts.

    python -m benchmarks.maze_stepping

Both play the same levels with the same actions; rewards, flags and observations are written out as in a
rollout. The two are timed in turns in one process, and the ratio is taken of the medians.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxued.environments import Maze as JaxuedMaze
from jaxued.environments.maze.level import Level as JaxuedLevel
from jaxued.wrappers import AutoReplayWrapper

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.dynamics import Maze
from cenie.envs.maze.generate import generate
from cenie.envs.maze.level import MazeLevel
from cenie.envs.reset import step_and_restart

STEPS = 64
REPEATS = 15
SIZES = (32, 256, 2048)

# jaxued 0.0.1 calls a name that newer versions of JAX have dropped.
if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree.map  # pyright: ignore[reportAttributeAccessIssue]


def ours(levels: MazeLevel, actions: jax.Array) -> Callable[[], Any]:
    """A call that plays all actions with this library."""
    environment = Maze(MazeConfig())

    @jax.jit
    def play(levels, actions):
        keys = jax.random.split(jax.random.key(0), (actions.shape[1], 2))
        _, state = jax.vmap(environment.reset)(keys[:, 0], levels)

        def step(state, action):
            made, _ = step_and_restart(environment, keys, levels, state, action)
            return made.state, (made.observation, made.reward, made.terminated, made.truncated)

        return jax.lax.scan(step, state, actions)[1]

    return partial(play, levels, actions)


def jaxued(levels: MazeLevel, actions: jax.Array) -> Callable[[], Any]:
    """The same with jaxued's Maze and its wrapper that replays the level."""
    environment = AutoReplayWrapper(JaxuedMaze())
    params, count = environment.default_params, actions.shape[1]
    theirs = JaxuedLevel(
        wall_map=levels.wall_map,
        goal_pos=levels.goal.astype(jnp.uint32),
        agent_pos=levels.start.astype(jnp.uint32),
        agent_dir=levels.direction.astype(jnp.uint8),
        width=jnp.full(count, 13),
        height=jnp.full(count, 13),
    )

    @jax.jit
    def play(levels, actions):
        keys = jax.random.split(jax.random.key(0), count)
        _, state = jax.vmap(environment.reset_to_level, (0, 0, None))(keys, levels, params)

        def step(state, action):
            seen, state, reward, done, _ = jax.vmap(environment.step, (0, 0, 0, None))(
                keys, state, action, params
            )
            return state, (seen, reward, done)

        return jax.lax.scan(step, state, actions)[1]

    return partial(play, theirs, actions)


def seconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median time of each call, taken in turns after one call to compile."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(REPEATS + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            if turn > 0:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    print(f"{'mazes':>6} {'ours, steps/s':>14} {'jaxued':>14} {'ratio':>6}")
    for count in SIZES:
        keys = jax.random.split(jax.random.key(1), count)
        levels = jax.vmap(partial(generate, MazeConfig(), "uniform60"))(keys)
        actions = jax.random.randint(jax.random.key(2), (STEPS, count), 0, 7)
        calls = {"ours": ours(levels, actions), "jaxued": jaxued(levels, actions)}
        (observation, *_), (seen, *_) = (call() for call in calls.values())
        assert bool(jnp.all(observation.image == seen.image)), "the two do not play the same"
        taken = seconds(calls)
        mine, theirs = (count * STEPS / taken[name] for name in ("ours", "jaxued"))
        print(f"{count:>6} {mine:>14,.0f} {theirs:>14,.0f} {mine / theirs:>6.2f}")


if __name__ == "__main__":
    main()
