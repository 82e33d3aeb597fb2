"""CENIE on an environment of gymnax: a curriculum of cart-poles, all of it compiled.

    python examples/train_gymnax.py DIR [--method accel-cenie] [--updates 60]

or, in the directory of this file, on the command line: `cenie train train_gymnax:cart_poles plr-cenie`.

A level is the parameters of the environment: gravity, the length and mass of the pole, the motor's force. The
student cannot see them and has no memory, so it must find a policy that balances all of them.
"""

import argparse
import dataclasses

import gymnax

import cenie

RANGES = {"gravity": (2.0, 30.0), "length": (0.1, 2.5), "masspole": (0.02, 1.0), "force_mag": (3.0, 20.0)}
STEPS = 200
"""The time limit. A rollout must be longer: levels are scored by the episodes that end in it."""

PRESETS = {
    "quick": {
        "updates": 60,
        "student.num_levels": 32,
        "student.num_steps": 256,
        "student.network.kind": "mlp",
        "student.ppo.learning_rate": 1e-3,
        "student.ppo.epochs": 4,
        "student.ppo.minibatches": 4,
        "student.ppo.gamma": 0.99,
        "student.ppo.normalise_returns": True,
        # To stand until the time is up is no failure.
        "student.ppo.bootstrap_at_timeout": True,
        "teacher.replay.capacity": 256,
        "teacher.replay.priority.temperature": 1.0,
    }
}


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
    domain = cenie.gymnax_domain(
        environment, RANGES, params=params, derive=with_derived_masses, bounds=(0.0, float(STEPS))
    )
    return dataclasses.replace(domain, presets=PRESETS)


def main(directory, method="plr-cenie", overrides=None):
    """Train; returns the mean score on held-out cart-poles before and after."""
    config = cenie.preset(cart_poles(), method, overrides=overrides)
    domain, setup = cenie.build(config)
    run = cenie.train(config, directory, quiet=True)
    suite = domain.suites["extremes"]()

    def score(network):
        rows = cenie.evaluate(domain, network, suite, episodes=10, seed=0)
        return cenie.suite_mean(cenie.level_scores(rows))

    before, after = score(cenie.init(setup, config.seed).student.network), score(run.network)
    print(f"score on cart-poles at the ends of the ranges: {before:.2f} before, {after:.2f} after")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", help="where the run is written")
    parser.add_argument("--method", default="plr-cenie")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.directory, given.method, {"updates": given.updates, "seed": given.seed})
