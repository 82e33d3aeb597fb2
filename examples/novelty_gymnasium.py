"""The novelty metric alone, in a loop over vectorised Gymnasium environments as in CleanRL.

    python examples/novelty_gymnasium.py [--rollouts 6]

A policy balances ordinary cart-poles. The window of its experience is updated after every rollout, and three
other cart-poles are scored against it: one like those it knows, one on a heavy planet, one with a weak motor.
"""

import argparse

import gymnasium
import numpy as np

from cenie.novelty import Coverage

STEPS, ENVS = 128, 8
CANDIDATES = {
    "as in training": {},
    "gravity 60": {"gravity": 60.0},
    "motor 1": {"force_mag": 1.0},
}


def act(observations, rng):
    """Push the cart under the pole, with some noise."""
    lean = observations @ np.array([0.0, 0.2, 1.0, 0.5])
    return (lean + rng.normal(0.0, 0.1, len(lean)) > 0).astype(np.int64)


def rollout(environments, rng):
    """States and actions [steps, environments, 4 + 2] of one rollout, as CleanRL stores them."""
    points = np.zeros((STEPS, ENVS, 6), np.float32)
    observations, _ = environments.reset(seed=int(rng.integers(2**31)))
    for step in range(STEPS):
        actions = act(observations, rng)
        points[step] = np.concatenate([observations, np.eye(2)[actions]], axis=1)
        observations, *_ = environments.step(actions)
    return points


def changed(settings):
    environments = gymnasium.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
    for environment in environments.envs:
        for name, value in settings.items():
            setattr(environment.unwrapped, name, value)
    return environments


def main(rollouts=6, seed=0):
    """Returns the novelty of each candidate after the last rollout."""
    rng = np.random.default_rng(seed)
    familiar = changed({})
    coverage = Coverage(components=(2, 6), window=32, seed=seed)
    novelty = {}
    for number in range(rollouts):
        points = rollout(familiar, rng)
        for environment in range(ENVS):
            coverage.push(points[:, environment])
        coverage.fit()
        for name, settings in CANDIDATES.items():
            novelty[name] = coverage.novelty(rollout(changed(settings), rng).reshape(-1, 6))
        described = ", ".join(f"{name} {value:.2f}" for name, value in novelty.items())
        print(f"rollout {number}: {coverage.components_} components; novelty: {described}")
    return novelty


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=6)
    main(parser.parse_args().rollouts)
