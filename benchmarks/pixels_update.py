"""A gradient step of the car's student at the original code's size: ours, torch's and plain convolutions.

    python -m benchmarks.pixels_update [--rounds 5]

500 steps of four frames of 96 x 96 pixels, from bytes to the moved parameters, in a loop of several steps as
PPO has it. CPU time of the process, over all its threads, taking turns. Torch has its best layout (channels
last) and that of the original code. The plain form, which XLA has on accelerators, shows why a CPU needs
another; it is left out unless `--plain` is given, because it takes minutes.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch

from cenie.records import Rollout
from cenie.spaces import Box
from cenie.student import convolutions, networks
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.networks.pixels import FrameStack, Pixels
from cenie.student.networks.table import make_network
from cenie.student.ppo import init_student, learn

LEVELS, STEPS, ACTIONS = 4, 125, 3
EPOCHS = 2
CONFIG = StudentConfig(
    network=Pixels(),
    ppo=PPOConfig(
        learning_rate=3e-4, epochs=EPOCHS, minibatches=1, value_clip=False, normalise_returns=False
    ),
    num_levels=LEVELS,
    num_steps=STEPS,
)


def rollout(network: FrameStack) -> Rollout:
    rng = np.random.default_rng(0)
    no = jnp.zeros((LEVELS, STEPS), bool)

    def numbers(*shape: int) -> jax.Array:
        return jnp.asarray(rng.random(shape), jnp.float32)

    return Rollout(
        observation=jnp.asarray(rng.integers(0, 256, (LEVELS, STEPS, 96, 96, 3), np.uint8)),
        action=0.1 + 0.8 * numbers(LEVELS, STEPS, ACTIONS),
        log_prob=numbers(LEVELS, STEPS),
        value=numbers(LEVELS, STEPS),
        reward=numbers(LEVELS, STEPS),
        terminated=no,
        truncated=no,
        solved=no,
        start=no.at[:, 0].set(True),
        memory=network.initial_memory(LEVELS),
        last_value=numbers(LEVELS),
    )


def ours(*, plain: bool = False) -> Callable[[], object]:
    """`EPOCHS` gradient steps of the library; plain convolutions take all rows at once."""
    network = make_network(
        CONFIG.network, Box((96, 96, 3), 0, 255, "uint8"), Box((ACTIONS,), 0, 1), jax.random.key(0)
    )
    assert isinstance(network, FrameStack)
    state, played = init_student(CONFIG, network), rollout(network)
    was = networks.on_cpu
    if plain:
        networks.on_cpu = convolutions.on_cpu = lambda: False
    update = eqx.filter_jit(lambda state, played: learn(CONFIG, state, played, jax.random.key(0)))
    program = update.lower(state, played).compile()
    networks.on_cpu = convolutions.on_cpu = was
    return lambda: jax.block_until_ready(eqx.filter(program(state, played), eqx.is_array))


class TorchStudent(torch.nn.Module):
    """The layers of the original code."""

    def __init__(self):
        super().__init__()
        sizes = (
            (12, 8, 4, 2),
            (8, 16, 3, 2),
            (16, 32, 3, 2),
            (32, 64, 3, 2),
            (64, 128, 3, 1),
            (128, 256, 3, 1),
        )
        layers = [(torch.nn.Conv2d(a, b, k, stride=s), torch.nn.ReLU()) for a, b, k, s in sizes]
        self.trunk = torch.nn.Sequential(*(part for pair in layers for part in pair))
        self.actor = torch.nn.Sequential(torch.nn.Linear(256, 100), torch.nn.ReLU())
        self.alpha, self.beta = torch.nn.Linear(100, ACTIONS), torch.nn.Linear(100, ACTIONS)
        self.critic = torch.nn.Sequential(torch.nn.Linear(256, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1))

    def forward(self, images: Any) -> tuple[Any, Any, Any]:
        features = self.trunk(images / 128.0 - 1.0).flatten(1)
        hidden, plus = self.actor(features), torch.nn.functional.softplus
        return 1 + plus(self.alpha(hidden)), 1 + plus(self.beta(hidden)), self.critic(features)[:, 0]


def theirs(*, channels_last: bool) -> Callable[[], object]:
    """The same number of gradient steps in torch, on stacks of frames that are made beforehand."""
    rng = np.random.default_rng(0)
    rows = LEVELS * STEPS
    images = torch.as_tensor(rng.integers(0, 256, (rows, 12, 96, 96), np.uint8))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    images = images.contiguous(memory_format=layout)
    student = TorchStudent().to(memory_format=layout)
    adam = torch.optim.Adam(student.parameters(), lr=3e-4, eps=1e-5)
    action = torch.as_tensor(rng.uniform(0.1, 0.9, (rows, ACTIONS)).astype(np.float32))
    old, advantage, target = (torch.as_tensor(rng.random(rows).astype(np.float32)) for _ in range(3))

    def update() -> float:
        loss = torch.zeros(())
        for _ in range(EPOCHS):
            alpha, beta, value = student(images.float())
            ratio = torch.exp(torch.distributions.Beta(alpha, beta).log_prob(action).sum(1) - old)
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = 0.5 * torch.nn.functional.smooth_l1_loss(value, target) - gain
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 0.5)
            adam.step()
        return loss.item()

    return update


def main(rounds: int, with_plain: bool) -> dict[str, Any]:
    calls = {
        "ours": ours(),
        "torch, channels last": theirs(channels_last=True),
        "torch, as the original code": theirs(channels_last=False),
    }
    if with_plain:
        calls["plain convolutions in the loop"] = ours(plain=True)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            if number:
                times[name].append((time.process_time() - begin) / EPOCHS * 1e3)
    own = np.array(times["ours"])
    return {
        name: {
            "CPU ms per step of 500": round(float(np.median(values)), 1),
            "to ours": round(float(np.median(np.array(values) / own)), 2),
        }
        for name, values in times.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true")
    arguments = parser.parse_args()
    print(json.dumps(main(arguments.rounds, arguments.plain), indent=2))
