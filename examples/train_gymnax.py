"""CENIE on an environment of gymnax: a curriculum of cart-poles, all of it compiled.

    python examples/train_gymnax.py [--method accel-cenie] [--updates 60]

A level is the parameters of the environment: gravity, the length and mass of the pole, the motor's force. The
student cannot see them and has no memory, so it must find a policy that balances all of them.
"""

import argparse
import dataclasses
import functools

import gymnax
import jax

import cenie
from cenie import settings
from cenie.student.config import Mlp, PPOConfig, StudentConfig
from cenie.teach.cycle import Setup
from cenie.teach.methods import METHODS
from cenie.teach.recipes import curriculum

RANGES = {"gravity": (2.0, 30.0), "length": (0.1, 2.5), "masspole": (0.02, 1.0), "force_mag": (3.0, 20.0)}
STEPS = 200
"""The time limit. A rollout must be longer: levels are scored by the episodes that end in it."""


def with_derived_masses(params):
    """gymnax's cart-pole keeps two numbers that follow from others."""
    return dataclasses.replace(
        params,
        total_mass=params.masscart + params.masspole,
        polemass_length=params.masspole * params.length,
    )


def cart_poles() -> cenie.Domain:
    """The domain of cart-poles; a score of 1 means that the pole stood until the time was up."""
    environment, params = gymnax.make("CartPole-v1")
    params = dataclasses.replace(params, max_steps_in_episode=STEPS)
    return cenie.gymnax_domain(
        environment, RANGES, params=params, derive=with_derived_masses, bounds=(0.0, float(STEPS))
    )


STUDENT = StudentConfig(
    network=Mlp(),
    ppo=PPOConfig(
        learning_rate=1e-3,
        epochs=4,
        minibatches=4,
        gamma=0.99,
        normalise_returns=True,
        # To stand until the time is up is no failure.
        bootstrap_at_timeout=True,
    ),
    num_levels=32,
    num_steps=256,
)
TEACHER = {"replay.capacity": 256, "replay.priority.temperature": 1.0}


def main(method="plr-cenie", updates=60, seed=0, student=STUDENT, teacher=TEACHER):
    """Train; returns the mean score on held-out cart-poles before and after."""
    domain = cart_poles()
    setup = Setup(
        environment=domain.environment,
        statistics=domain.statistics,
        students=(student,),
        curriculum=curriculum(domain, settings.replace(METHODS[method].settings, teacher)),
    )
    suite = domain.suites["extremes"]()

    def score(state):
        rows = cenie.evaluate(domain, state.student.network, suite, episodes=10, seed=seed)
        return cenie.suite_mean(cenie.level_scores(rows))

    train = jax.jit(functools.partial(cenie.cycles, setup, count=10))
    state = cenie.init(setup, seed)
    before = score(state)
    while (done := int(state.counters.updates)) < updates:
        state, _, metrics = train(state, updates=updates)
        print(f"{done:4d} updates, episodes last {float(metrics['length'][0]):5.1f} steps")
    after = score(state)
    print(f"score on cart-poles at the ends of the ranges: {before:.2f} before, {after:.2f} after")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="plr-cenie", choices=[name for name in METHODS if name != "dr"])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.method, arguments.updates, arguments.seed)
