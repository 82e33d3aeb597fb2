"""Pictures of a drive: the track, the line that was driven on it, what the student saw, and a film.

python examples/race_pictures.py pictures [--run runs/racing-dr-quick-seed0] [--suite f1 --level Italy]

Without a run the car is driven by somebody who knows the track (`cenie.envs.racing.driver`).
"""

import argparse
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp

import cenie
from cenie.envs.images import gif_bytes, png_bytes, sheet
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.domain import racing_domain
from cenie.envs.racing.driver import plan, pursue
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.render import drive_picture, episode_frames, render, track_on_host

STRIDE = 4
"""Every fourth physics step is filmed: 12.5 of 50 in a second."""


def drive(config, level, act, steps):
    """The states of one episode at each physics step; `act(memory, frame, state, start)` makes actions."""
    # Single physics steps, so that the film is smooth; an action still lasts as long as it would.
    environment = Racing(dataclasses.replace(config, action_repeat=1), evaluation=True)

    @jax.jit
    def play(level, memory):
        course = environment.prepare(level)
        frame, state = environment.reset(jax.random.key(0), course)

        def step(carry, time):
            frame, state, memory, action, ended = carry
            due = time % config.action_repeat == 0
            remembers, decided = act(memory, frame, state, time)
            memory = jax.tree.map(lambda new, old: jnp.where(due, new, old), remembers, memory)
            action = jnp.where(due, decided, action)
            made = environment.step(jax.random.key(0), course, state, action)
            ends = ended | made.terminated | made.truncated
            return (made.observation, made.state, memory, action, ends), (state, ended)

        carry = frame, state, memory, jnp.zeros(3), jnp.array(False)
        return jax.lax.scan(step, carry, jnp.arange(steps))[1]

    def of(memory):
        states, ended = play(level, memory)
        length = int(jnp.sum(~ended))
        return jax.tree.map(lambda leaf: leaf[:length], states)

    return of


def student(network, seed=0):
    """How a trained student acts, and its first memory."""

    def act(memory, frame, state, time):
        memory, decision = network.step(memory, frame[None], jnp.array([True]) & (time == 0))
        return memory, decision.policy.sample(jax.random.fold_in(jax.random.key(seed), time))[0]

    return act, network.initial_memory(1)


def expert(config, level):
    """How somebody acts who knows the track."""
    planned = plan(track_on_host(level, config.curve_samples))
    return lambda memory, frame, state, time: (memory, pursue(planned, state.car)), ()


def main(out: str, run: str | None, suite: str, level: str | None, steps: int) -> dict[str, int]:
    """Write the pictures; returns how many physics steps the episode had and how many tiles were visited."""
    loaded = cenie.load_run(run) if run else None
    config = loaded.config.env if loaded else RacingConfig()
    domain = loaded.domain if loaded else racing_domain(config)
    labels, levels = domain.suites[suite]().draw(0, 1)
    chosen = levels[[label[0] for label in labels].index(level) if level else 0]
    act, memory = student(loaded.network) if loaded else expert(config, chosen)
    states = drive(config, chosen, act, steps)(memory)
    directory = Path(out)
    directory.mkdir(parents=True, exist_ok=True)
    length = states.time.shape[0]
    some = jax.tree.map(lambda leaf: leaf[:: max(1, length // 12)][:12], states)
    seen = episode_frames(chosen, some, config=config, size=config.frame_size)
    shown = jax.tree.map(lambda leaf: leaf[::STRIDE], states)
    (directory / "track.png").write_bytes(png_bytes(render(chosen, config=config)))
    (directory / "drive.png").write_bytes(png_bytes(drive_picture(chosen, states, config=config)))
    (directory / "seen.png").write_bytes(png_bytes(sheet(list(seen), 6)))
    film = episode_frames(chosen, shown, config=config, size=192)
    (directory / "lap.gif").write_bytes(gif_bytes(film, 50 / STRIDE))
    return {"physics steps": length, "tiles": int(jnp.sum(states.visited[-1]))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--run")
    parser.add_argument("--suite", default="bezier")
    parser.add_argument("--level")
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    print(main(**vars(arguments)))
