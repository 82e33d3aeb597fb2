"""A curriculum for a Gymnasium environment and a student that know nothing of JAX.

    python examples/own_loop_gymnasium.py [--method accel] [--tasks 80]

The levels are cart-poles: poles of different lengths, gravities and motors. The student is a linear policy
in NumPy. The teacher only sees levels, rewards and value estimates.
"""

import argparse

import gymnasium
import numpy as np

from cenie import Teacher
from cenie.bridges.teacher import OFFERED

RANGES = {"length": (0.05, 2.5), "gravity": (2.0, 40.0), "force": (2.0, 20.0)}
STEPS = 200
GAMMA = 0.98


def generate(rng):
    """A random cart-pole."""
    return {name: rng.uniform(low, high) for name, (low, high) in RANGES.items()}


def edit(rng, level):
    """The same cart-pole with one property changed a little."""
    name = rng.choice(list(RANGES))
    return level | {name: np.clip(level[name] * np.exp(rng.normal(0.0, 0.3)), *RANGES[name])}


class Student:
    """A linear policy with a quadratic baseline, trained by the policy gradient."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.policy = np.zeros(4)
        self.baseline = np.zeros(15)

    def chance_of_right(self, observation):
        return 1.0 / (1.0 + np.exp(-np.clip(observation @ self.policy, -30.0, 30.0)))

    def value(self, observations):
        return quadratic(observations) @ self.baseline

    def learn(self, episodes):
        """One step along the gradient, and a new baseline by least squares."""
        observations, actions, returns = (np.concatenate([e[name] for e in episodes]) for name in PARTS)
        advantage = returns - self.value(observations)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gradient = (advantage * (actions - self.chance_of_right(observations))) @ observations
        self.policy += 0.5 * gradient / (np.linalg.norm(gradient) + 1e-8)
        inputs = quadratic(observations)
        self.baseline = np.linalg.solve(inputs.T @ inputs + np.eye(15), inputs.T @ returns)


PARTS = ("observations", "actions", "returns")


def quadratic(observations):
    """The observation, its products, and 1."""
    row, column = np.triu_indices(4)
    products = observations[:, row] * observations[:, column]
    return np.concatenate([observations, products, np.ones((len(observations), 1))], axis=1)


def play(environment, student, level, seed):
    """One episode of a level."""
    cart = environment.unwrapped
    cart.length, cart.gravity, cart.force_mag = level["length"], level["gravity"], level["force"]
    cart.polemass_length = cart.masspole * cart.length
    observation, _ = environment.reset(seed=seed)
    observations, actions, rewards = [], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = int(student.rng.random() < student.chance_of_right(observation))
        observations.append(observation)
        actions.append(action)
        observation, reward, terminated, truncated, _ = environment.step(action)
        rewards.append(float(reward))
    ends = np.arange(len(rewards)) == len(rewards) - 1
    returns = np.zeros(len(rewards) + 1)
    for t in reversed(range(len(rewards))):
        returns[t] = rewards[t] + GAMMA * returns[t + 1]
    return {
        "observations": np.array(observations, np.float64),
        "actions": np.array(actions),
        "returns": returns[:-1],
        "reward": np.array(rewards),
        "terminated": ends & terminated,
        "truncated": ends & truncated,
        # What counts as solved is ours to say: the pole stood until the time was up.
        "solved": ends & truncated,
    }


def balanced(environment, student, count=40):
    """Mean number of steps on cart-poles that the teacher has never seen."""
    rng = np.random.default_rng(12345)
    return float(np.mean([len(play(environment, student, generate(rng), i)["reward"]) for i in range(count)]))


def main(method="plr-robust", tasks=80, seed=0):
    """Train; returns the mean number of balanced steps before and after."""
    environment = gymnasium.make("CartPole-v1", max_episode_steps=STEPS)
    student = Student(seed)
    teacher = Teacher(
        method,
        generate=generate,
        edit=edit,
        num_levels=8,
        gamma=GAMMA,
        # A small buffer, because this student learns in a few dozen tasks.
        settings={} if method == "dr" else {"replay.capacity": 64, "replay.priority.temperature": 1.0},
        seed=seed,
    )
    before = balanced(environment, student)
    for number in range(tasks):
        task = teacher.ask()
        episodes = [play(environment, student, level, number) for level in task.levels]
        value = [student.value(episode["observations"]) for episode in episodes]
        if task.learn:
            student.learn(episodes)
        flags = ("reward", "terminated", "truncated", "solved")
        log = teacher.tell(value=value, **{name: [e[name] for e in episodes] for name in flags})
        if number % 10 == 0:
            steps = np.mean([len(episode["reward"]) for episode in episodes])
            print(f"task {number:3d} ({task.kind:6}) {steps:6.1f} steps, buffer {log.get('buffer_size', 0)}")
    after = balanced(environment, student)
    print(f"balanced steps on 40 unseen cart-poles: {before:.1f} before, {after:.1f} after")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="plr-robust", choices=OFFERED)
    parser.add_argument("--tasks", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.method, arguments.tasks, arguments.seed)
