"""Drive laps of all circuits with a driver who knows the track: how long they take, and what they pay.

    python examples/drive_circuits.py [--top-speed 60] [--cornering 55] [--braking 30]

The table has, for each circuit, the physics steps of a lap without a time limit, the return of that lap, and
what the same drive had earned when the time limit of the paper was over, with its score on the paper's scale.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from cenie.envs.racing.circuits import LIMITS, f1_circuit, stack_circuits
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.driver import plan, pursue
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.suites import bounds
from cenie.envs.racing.track import track_of_circuit

LONGEST = 8000
"""Physics steps in which a lap must be driven."""


class Lap(eqx.Module):
    """What is carried from action to action, for each circuit."""

    state: object
    running: jax.Array
    solved: jax.Array
    earned: jax.Array
    within: jax.Array
    """What was earned before the paper's time limit."""


def drive(names: list[str], **how: float) -> Lap:
    """A lap of each circuit, side by side."""
    environment = Racing(RacingConfig(frame_size=16), evaluation=True)
    circuits = stack_circuits([f1_circuit(name, 1024, LONGEST) for name in names])
    courses = jax.jit(jax.vmap(environment.prepare))(circuits)
    tracks = jax.jit(jax.vmap(track_of_circuit))(circuits)
    plans = [plan(jax.tree.map(lambda leaf, n=n: leaf[n], tracks), **how) for n in range(len(names))]
    plans = jax.tree.map(lambda *leaves: jnp.stack(leaves), *plans)
    limits = jnp.array([LIMITS[name] for name in names])
    keys = jax.random.split(jax.random.key(0), len(names))

    def act(lap: Lap, _: None) -> tuple[Lap, None]:
        actions = jax.vmap(pursue)(plans, lap.state.car)
        made = jax.vmap(environment.step)(keys, courses, lap.state, actions)
        reward = jnp.where(lap.running, made.reward, 0.0)
        return Lap(
            state=jax.tree.map(
                lambda new, old: jnp.where(lap.running.reshape(-1, *[1] * (old.ndim - 1)), new, old),
                made.state,
                lap.state,
            ),
            running=lap.running & ~made.terminated & ~made.truncated,
            solved=lap.solved | (lap.running & made.solved),
            earned=lap.earned + reward,
            within=lap.within + jnp.where(made.state.time <= limits, reward, 0.0),
        ), None

    nothing, no = jnp.zeros(len(names)), jnp.zeros(len(names), bool)
    first = Lap(courses.start, ~no, no, nothing, nothing)
    return jax.jit(lambda lap: jax.lax.scan(act, lap, length=-(-LONGEST // 8))[0])(first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, value in (("top-speed", 60.0), ("cornering", 55.0), ("braking", 30.0)):
        parser.add_argument(f"--{name}", type=float, default=value)
    names = list(LIMITS)
    lap = jax.device_get(drive(names, **vars(parser.parse_args())))
    print("| circuit | lap, physics steps | its return | time limit | return by then | score |")
    print("|---|---|---|---|---|---|")
    scores = []
    for n, name in enumerate(names):
        low, high = bounds(LIMITS[name])
        scores.append((float(lap.within[n]) - low) / (high - low))
        steps = str(int(lap.state.time[n])) if lap.solved[n] else "no lap"
        returns = f"{float(lap.earned[n]):.0f} | {LIMITS[name]} | {float(lap.within[n]):.0f}"
        print(f"| {name} | {steps} | {returns} | {scores[-1]:.2f} |")
    print(f"| mean | | {lap.earned.mean():.0f} | | {lap.within.mean():.0f} | {np.mean(scores):.2f} |")


if __name__ == "__main__":
    main()
