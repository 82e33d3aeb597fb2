"""Film an episode of a trained student on a held-out level, in any domain that has pictures.

python examples/film_episode.py runs/walker-dr-quick-seed0 film.gif [suite [level]]
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

import cenie
from cenie.envs.pictures import gif_bytes

STRIDE = 2
"""Every second state is shown: 25 of the walker's 50 in a second."""


def episode_states(environment, network, level, key, steps):
    """The states of one episode, from its start to its end, with a leading axis of time."""

    @jax.jit
    def play(level, key):
        prepared = environment.prepare(level)
        observation, state = environment.reset(key, prepared)

        def step(carry, time):
            observation, state, memory, ended = carry
            batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], observation)
            memory, decision = network.step(memory, batch, jnp.array([True]) & (time == 0))
            action_key, step_key = jax.random.split(jax.random.fold_in(key, time))
            made = environment.step(step_key, prepared, state, decision.policy.sample(action_key)[0])
            ends = ended | made.terminated | made.truncated
            return (made.observation, made.state, memory, ends), (state, ended)

        carry = (observation, state, network.initial_memory(1), jnp.array(False))
        return jax.lax.scan(step, carry, jnp.arange(steps))[1]

    states, ended = play(level, key)
    length = int(jnp.sum(~ended))
    return jax.tree.map(lambda leaf: leaf[:length], states)


def main(directory: str, film: str, suite: str | None = None, level: str | None = None) -> None:
    run = cenie.load_run(directory)
    render = run.domain.render
    assert render is not None, "there are no pictures of this domain"
    labels, levels = run.domain.suites[suite or run.config.run.suite]().draw(0, 1)
    names = [label[0] for label in labels]
    chosen = levels[names.index(level) if level else 0]
    states = episode_states(run.domain.environment, run.network, chosen, jax.random.key(0), 2000)
    shown = jax.tree.map(lambda leaf: leaf[::STRIDE], states)
    Path(film).write_bytes(gif_bytes(render.episode(chosen, shown), 50 / STRIDE))


if __name__ == "__main__":
    main(*sys.argv[1:])
