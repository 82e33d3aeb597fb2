"""The student's update next to a textbook LSTM in JAX and to torch's; and what a rollout costs beside it.

    python -m benchmarks.ppo_update [--rounds 7]

All do the same arithmetic on the same maze rollout, in one process and taking turns, so that other load on
the machine hits all alike; ratios are medians over the rounds. The textbook and torch use all cores
through their own threads, the library one host device per core, as a training run does.
"""

import argparse
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from cenie.envs.base import Domain
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.reset import step_and_restart
from cenie.records import Level, Memory, Observation, Rollout
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.encoders import Bits
from cenie.student.lstm import LSTM
from cenie.student.networks.base import Decision, Network
from cenie.student.networks.recurrent import Lstm, Recurrent
from cenie.student.networks.table import make_network
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from cenie.student.rollout import collect

CORES = len(os.sched_getaffinity(0))
jax.config.update("jax_num_cpu_devices", CORES)

PAPER = StudentConfig()
QUICK = StudentConfig(
    network=Lstm(encoder=Bits(codes=(2, 8)), memory_size=64, forget_bias=1.0),
    ppo=PPOConfig(learning_rate=1e-3, entropy_coef=0.005, gamma=0.99, epochs=4, minibatches=4),
    num_levels=64,
)
MESH = Mesh(np.array(jax.devices()), ("levels",))
KEY = jax.random.key(0)


class Textbook(Network):
    """The maze student with the usual LSTM: one loop over time, one row per level, derived by JAX."""

    recurrent: ClassVar[bool] = True

    inner: Recurrent
    input_weight: Array
    memory_weight: Array
    bias: Array

    def __init__(self, inner: Recurrent):
        assert isinstance(inner.core, LSTM)
        weight = inner.core.weight
        size = weight.shape[0] // 4
        self.memory_weight = weight[:, -size:].T
        self.input_weight = weight[:, : -size - 1].T
        self.bias = weight[:, -size - 1]
        self.inner = eqx.tree_at(lambda net: net.core.weight, inner, jnp.zeros((4 * size, 0)))

    def initial_memory(self, count: int) -> Memory:
        zeros = jnp.zeros((count, self.memory_weight.shape[0]))
        return zeros, zeros

    def step(self, memory: Memory, observation: Observation, start: Array) -> tuple[Memory, Decision]:
        raise NotImplementedError

    def sequence(self, memory: Memory, observation: Observation, start: Array) -> Decision:
        observation = jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), observation)
        inputs = jnp.moveaxis(self.inner.encoder(observation), 0, -1)
        outputs = jnp.moveaxis(self.outputs(memory, inputs, start.T), -1, 0)
        return jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), self.inner._decide(outputs))

    def outputs(self, memory: Memory, inputs: Array, start: Array) -> Array:
        """[t, n, h] from inputs [t, n, d]."""

        def cell(memory: Memory, at: tuple[Array, Array]) -> tuple[Memory, Array]:
            x, first = at
            h, c = (jnp.where(first[:, None], 0.0, part) for part in memory)
            i, f, g, o = jnp.split(x @ self.input_weight + h @ self.memory_weight + self.bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return jax.lax.scan(cell, memory, (inputs, start))[1]


class TorchStudent(torch.nn.Module):
    """The paper's student in torch; the sequence is cut wherever any level starts an episode."""

    def __init__(self, actions: int):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3)
        self.direction = torch.nn.Linear(4, 5)
        self.lstm = torch.nn.LSTM(149, 256)
        self.actor = torch.nn.Sequential(
            torch.nn.Linear(256, 32), torch.nn.Tanh(), torch.nn.Linear(32, actions)
        )
        self.critic = torch.nn.Sequential(torch.nn.Linear(256, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def forward(self, image: Any, direction: Any, start: Any) -> tuple[Any, Any]:
        time, count = start.shape
        codes = torch.relu(self.conv(image).reshape(time * count, -1))
        inputs = torch.cat([codes, self.direction(direction)], dim=1).reshape(time, count, -1)
        keep = (~start).float()[..., None]
        cuts = [0, *(t for t in range(1, time) if start[t].any()), time]
        state = (torch.zeros(1, count, 256), torch.zeros(1, count, 256))
        parts = []
        for begin, end in itertools.pairwise(cuts):
            part, state = self.lstm(inputs[begin:end], tuple(half * keep[begin] for half in state))
            parts.append(part)
        outputs = torch.cat(parts).reshape(time * count, -1)
        return self.actor(outputs), self.critic(outputs)[:, 0]


def torch_update(config: StudentConfig, rollout: Rollout, advantage: Array, actions: int) -> Callable:
    """The five gradient steps of one update, on the data of the rollout."""
    torch.set_num_threads(CORES)

    def by_time(values: Array) -> Any:
        swapped = np.swapaxes(np.asarray(values), 0, 1)
        return torch.as_tensor(np.ascontiguousarray(swapped)).flatten(0, 1)

    ppo = config.ppo
    image = by_time(rollout.observation.image).permute(0, 3, 1, 2).float() / 10
    direction = torch.nn.functional.one_hot(by_time(rollout.observation.direction).long(), 4).float()
    start = by_time(rollout.start).reshape(config.num_steps, config.num_levels)
    action, old_log_prob = by_time(rollout.action).long()[:, None], by_time(rollout.log_prob)
    old_value, raw = by_time(rollout.value), by_time(advantage)
    target, scaled = raw + old_value, (raw - raw.mean()) / (raw.std() + 1e-5)
    student = TorchStudent(actions)
    adam = torch.optim.Adam(student.parameters(), lr=ppo.learning_rate, eps=ppo.adam_eps)

    def update() -> float:
        loss = torch.zeros(())
        for _ in range(ppo.epochs):
            logits, value = student(image, direction, start)
            log_prob = torch.log_softmax(logits, dim=1).gather(1, action)[:, 0]
            ratio = torch.exp(log_prob - old_log_prob)
            clipped = ratio.clamp(1 - ppo.clip, 1 + ppo.clip)
            near = old_value + (value - old_value).clamp(-ppo.clip, ppo.clip)
            value_loss = 0.5 * torch.max((value - target) ** 2, (near - target) ** 2).mean()
            loss = ppo.value_coef * value_loss - torch.min(ratio * scaled, clipped * scaled).mean()
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), ppo.max_grad_norm)
            adam.step()
        return loss.item()

    return update


def play(config: StudentConfig, domain: Domain) -> tuple[StudentState, Callable, Level]:
    """A new student, a function that collects a rollout with it, and levels for it."""
    space = domain.environment.observation_space
    network = make_network(config.network, space, domain.environment.action_space, KEY)
    levels = jax.vmap(domain.generators["uniform60"])(jax.random.split(KEY, config.num_levels))

    def rollout(state: StudentState, levels: Level) -> Rollout:
        return collect(
            domain.environment,
            state.network,
            levels,
            key=KEY,
            num_steps=config.num_steps,
            advance=step_and_restart,
        )

    return init_student(config, network), rollout, levels


def split(tree: Any) -> Any:
    return jax.device_put(tree, NamedSharding(MESH, PartitionSpec("levels")))


def everywhere(tree: Any) -> Any:
    return jax.device_put(tree, NamedSharding(MESH, PartitionSpec()))


def timed(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of every candidate in every round, after one call to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, call in candidates.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            if number:
                seconds[name].append(time.perf_counter() - begin)
    return {name: np.array(values) for name, values in seconds.items()}


def updates(rounds: int) -> dict[str, float]:
    """Seconds of one update at the paper's maze setting."""
    domain = maze_domain(MazeConfig())
    state, roll, levels = play(PAPER, domain)
    rollout = jax.jit(roll)(state, levels)
    actions = domain.environment.action_space.n  # pyright: ignore[reportAttributeAccessIssue]
    # An untrained student hardly ever ends an episode; a trained one does about every hundred steps.
    ends = jax.random.bernoulli(KEY, 0.01, rollout.start.shape).at[:, 0].set(True)
    trained = dataclasses.replace(rollout, start=ends)
    ours = jax.jit(lambda state, rollout: learn(PAPER, state, rollout, KEY, MESH))
    theirs = jax.jit(lambda state, rollout: learn(PAPER, state, rollout, KEY))
    textbook = init_student(PAPER, Textbook(state.network))  # pyright: ignore[reportArgumentType]
    advantage = advantages_for(PAPER, state, rollout).advantage
    mine = everywhere(state), split(rollout)
    seconds = timed(
        {
            "cenie": lambda: ours(*mine),
            "textbook": lambda: theirs(textbook, rollout),
            "torch, long episodes": torch_update(PAPER, rollout, advantage, actions),
            "torch, episodes of 100": torch_update(PAPER, trained, advantage, actions),
        },
        rounds,
    )
    return _summary(seconds)


def gradient_difference() -> float:
    """Largest difference from the textbook's gradient of the LSTM, relative to its largest entry."""
    network = make_network(PAPER.network, *_maze_spaces(), KEY)
    assert isinstance(network, Recurrent)
    textbook = Textbook(network)
    keys = jax.random.split(KEY, 3)
    n, t = PAPER.num_levels, PAPER.num_steps
    width, size = textbook.input_weight.shape[0], textbook.memory_weight.shape[0]
    inputs = jax.random.normal(keys[0], (width, t, n))
    start = jax.random.bernoulli(keys[1], 0.01, (t, n))
    pull = jax.random.normal(keys[2], (size, t, n))
    ours = eqx.filter_jit(
        eqx.filter_grad(lambda m: jnp.sum(pull * m.sequence(m.initial_state(n), inputs, start)))
    )
    by_rows = jnp.moveaxis(inputs, 0, -1)
    theirs = eqx.filter_jit(
        eqx.filter_grad(
            lambda m: jnp.sum(pull * jnp.moveaxis(m.outputs(m.initial_memory(n), by_rows, start), -1, 0))
        )
    )
    expected = theirs(textbook)
    parts = [expected.input_weight.T, expected.bias[:, None], expected.memory_weight.T]
    expected = jnp.concatenate(parts, axis=1)
    return float(jnp.abs(ours(network.core).weight - expected).max() / jnp.abs(expected).max())


def cycles(config: StudentConfig, maze: MazeConfig, rounds: int) -> dict[str, float]:
    """Seconds of a cycle that learns and of one that only plays and scores, split over the devices."""
    state, roll, levels = play(config, maze_domain(maze))

    @jax.jit
    def learning(state: StudentState, levels: Level) -> Any:
        return learn(config, state, roll(state, levels), KEY, MESH)

    @jax.jit
    def scoring(state: StudentState, levels: Level) -> Array:
        advantage = advantages_for(config, state, roll(state, levels)).advantage
        return jnp.mean(jnp.maximum(advantage, 0.0), axis=1)

    arguments = everywhere(state), split(levels)
    seconds = timed({"learn": lambda: learning(*arguments), "score": lambda: scoring(*arguments)}, rounds)
    steps = config.num_levels * config.num_steps
    return {
        **{f"{name}, s": round(float(np.median(values)), 4) for name, values in seconds.items()},
        "score / learn": round(float(np.median(seconds["score"] / seconds["learn"])), 3),
        "env steps per s when learning": round(steps / float(np.median(seconds["learn"]))),
    }


def _maze_spaces() -> tuple[Any, Any]:
    environment = maze_domain(MazeConfig()).environment
    return environment.observation_space, environment.action_space


def _summary(seconds: dict[str, np.ndarray]) -> dict[str, float]:
    figures = {f"{name}, s": round(float(np.median(values)), 3) for name, values in seconds.items()}
    others = {name: values for name, values in seconds.items() if name != "cenie"}
    ratios = {
        f"{name} / cenie": round(float(np.median(values / seconds["cenie"])), 2)
        for name, values in others.items()
    }
    return figures | ratios


def main(rounds: int) -> dict[str, Any]:
    quick = MazeConfig(num_actions=3)
    return {
        "cores": CORES,
        "update at the paper's setting": updates(rounds),
        "largest gradient difference from the textbook": gradient_difference(),
        "cycle at the paper's setting": cycles(PAPER, MazeConfig(), rounds),
        "cycle of the quick preset, 64 levels": cycles(QUICK, quick, rounds),
        "cycle of the quick preset, 128 levels": cycles(
            dataclasses.replace(QUICK, num_levels=128), quick, rounds
        ),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    print(json.dumps(main(parser.parse_args().rounds), indent=2))
