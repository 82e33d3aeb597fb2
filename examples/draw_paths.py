"""Draw held-out mazes with the path of a trained student.

python examples/draw_paths.py runs/maze-dr-quick-seed0 paths.png [suite]
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

import cenie
from cenie.envs.maze.render import gallery
from cenie.envs.pictures import png_bytes


def follow(environment, network, level, key, steps):
    """Position and direction at each step of one episode, from its start to its end.

    The environment ends an episode at the step into the goal without making it, so that is done here.
    """
    level = environment.prepare(level)
    observation, state = environment.reset(key, level)
    memory = network.initial_memory(1)
    places = [(*map(int, state.position), int(state.direction))]
    decide = jax.jit(lambda memory, seen, start: network.step(memory, seen, start))
    step = jax.jit(environment.step)
    for time in range(steps):
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], observation)
        memory, decision = decide(memory, batch, jnp.array([time == 0]))
        action_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        result = step(step_key, level, state, decision.policy.sample(action_key)[0])
        observation, state = result.observation, result.state
        place = level.goal if result.solved else state.position
        places.append((*map(int, place), int(state.direction)))
        if result.terminated or result.truncated:
            break
    return places


def main(directory: str, picture: str, suite: str = "cenie8") -> None:
    run = cenie.load_run(directory)
    _, levels = run.domain.suites[suite]().draw(0, 1)
    paths = [
        follow(run.domain.environment, run.network, level, jax.random.key(index), 900)
        for index, level in enumerate(levels)
    ]
    Path(picture).write_bytes(png_bytes(gallery(levels, columns=4, paths=paths, tile=12)))


if __name__ == "__main__":
    main(*sys.argv[1:])
