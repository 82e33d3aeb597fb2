"""Does a student that learned to walk in one simulator walk in the other, with the same weights?

    python examples/walker_transfer.py runs/walker-dr-quick-seed0          # ours: played in both
    python examples/walker_transfer.py --train gym-walker.eqx --seed 0     # trained in gymnasium, in both

Both tasks of gymnasium are played, BipedalWalker-v3 and BipedalWalkerHardcore-v3, with sampled actions. The
second command first trains a student on gymnasium's flat task, which is Box2D, by a plain loop around the
same PPO, and keeps its weights. Needs `pip install "gymnasium[box2d]"`.
"""

import argparse
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import cenie
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.domain import walker_domain
from cenie.experiment.evaluate import play_once
from cenie.experiment.presets import preset
from cenie.records import Rollout
from cenie.student.networks.table import make_network
from cenie.student.ppo import init_student, learn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Box2D's binding warns while it is imported
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalker

TASKS = {"BipedalWalker": 1600, "Hardcore": 2000}
"""The entries of our suite `walker6` that are gymnasium's tasks, and their time limits."""


@eqx.filter_jit
def decide(network, observations, key):
    _, decision = network.step((), observations, jnp.zeros(len(observations), bool))
    action = decision.policy.sample(key)
    return action, decision.policy.log_prob(action), decision.value


class Walkers:
    """Gymnasium's walkers side by side; a finished episode restarts on a new terrain."""

    def __init__(self, count, seed, hardcore):
        self.walkers = [BipedalWalker(hardcore=hardcore) for _ in range(count)]
        self.limit = TASKS["Hardcore" if hardcore else "BipedalWalker"]
        self.time = np.zeros(count, int)
        resets = [walker.reset(seed=seed + n)[0] for n, walker in enumerate(self.walkers)]
        self.observation = np.array(resets, np.float32)

    def step(self, actions):
        """Rewards, ends by a fall or by arrival, and by time; and the observations before restarts."""
        rewards, terminated = np.zeros(len(actions), np.float32), np.zeros(len(actions), bool)
        self.time += 1
        for n, walker in enumerate(self.walkers):
            self.observation[n], rewards[n], terminated[n], _, _ = walker.step(np.clip(actions[n], -1, 1))
        last = self.observation.copy()
        truncated = (self.time >= self.limit) & ~terminated
        for n in np.flatnonzero(terminated | truncated):
            self.observation[n], self.time[n] = self.walkers[n].reset()[0], 0
        return rewards, terminated, truncated, last


def returns_in_gymnasium(network, hardcore, episodes, seed):
    walkers = Walkers(episodes, seed, hardcore)
    total, running, time = np.zeros(episodes), np.ones(episodes, bool), 0
    while running.any():
        action, _, _ = decide(network, walkers.observation, jax.random.fold_in(jax.random.key(seed), time))
        rewards, terminated, truncated, _ = walkers.step(np.asarray(action))
        total += np.where(running, rewards, 0)
        running &= ~(terminated | truncated)
        time += 1
    return total


def returns_in_ours(network, task, episodes, seed):
    domain = walker_domain(WalkerConfig())
    labels, levels = domain.suites["walker6"]().draw(seed, episodes)
    chosen = domain.stack([level for label, level in zip(labels, levels, strict=True) if label[0] == task])
    keys = jax.random.split(jax.random.key(seed), episodes)
    return play_once(domain.environment, network, chosen, keys=keys)[0]


def trained_in_gymnasium(config, seed, updates):
    """The student of the walker's quick preset after so many updates on gymnasium's flat task."""
    student, domain = config.student, walker_domain(WalkerConfig())
    environment = domain.environment
    network_key, key = jax.random.split(jax.random.key(seed))
    network = make_network(
        student.network, environment.observation_space, environment.action_space, network_key
    )
    state = init_student(student, network)
    update = eqx.filter_jit(learn)
    walkers = Walkers(student.num_levels, 1000 * seed, hardcore=False)
    start = np.ones(student.num_levels, bool)
    for number in range(updates):
        learn_key, *keys = jax.random.split(jax.random.fold_in(key, number), student.num_steps + 2)
        rows = []
        for step_key in keys[:-1]:
            seen = walkers.observation.copy()
            action, log_prob, value = decide(state.network, seen, step_key)
            reward, terminated, truncated, last = walkers.step(np.asarray(action))
            final_value = decide(state.network, last, step_key)[2]
            solved = terminated & (reward > -100)
            row = (seen, action, log_prob, value, reward, terminated, truncated, solved, start, final_value)
            rows.append(jax.tree.map(np.asarray, row))
            start = terminated | truncated
        columns = [jnp.asarray(np.stack(column, axis=1)) for column in zip(*rows, strict=True)]
        rollout = Rollout(
            *columns[:9],
            memory=(),
            last_value=decide(state.network, walkers.observation, keys[-1])[2],
            final_value=columns[9],
        )
        state, _ = update(student, state, rollout, learn_key)
        ends = rollout.done.sum()
        print(
            f"update {number + 1}/{updates}: reward {rollout.reward.mean():.3f}, {ends} episodes", flush=True
        )
    return state.network


def interval(values):
    """Mean and 95 % interval over episodes."""
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):7.1f} ± {half:4.1f}"


def main(run: str | None, *, train=None, seed=0, updates=None, episodes=100):
    config = preset("walker", "dr", "quick")
    if run is not None:
        network = cenie.load_run(run).network
    else:
        network = trained_in_gymnasium(config, seed, updates or config.updates)
        if train is not None:
            eqx.tree_serialise_leaves(Path(train), network)
    for task in TASKS:
        ours = returns_in_ours(network, task, episodes, 77)
        theirs = returns_in_gymnasium(network, task == "Hardcore", episodes, 77)
        print(f"{task:14s} ours {interval(ours)}   gymnasium {interval(theirs)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", help="a run directory of the walker")
    parser.add_argument("--train", help="train in gymnasium instead, and keep the weights in this file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--episodes", type=int, default=100)
    given = vars(parser.parse_args())
    if (given["run"] is None) == (given["train"] is None):
        parser.error("give a run directory, or --train")
    main(given.pop("run"), **given)
