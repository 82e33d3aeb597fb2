"""Settings of the student. The defaults are the paper's maze student (Table 2 of the CENIE appendix).

Values that the paper leaves to the code base it ran on are marked DCD.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from cenie.settings import LARGEST_INT, Problem, setting


@dataclass(frozen=True)
class NetworkConfig:
    """The student's network: `maze-lstm` remembers, `mlp` does not. Each kind reads its own fields only."""

    kind: Literal["maze-lstm", "mlp"] = "maze-lstm"

    # maze-lstm
    encoder: Literal["conv", "bits"] = "conv"
    """`conv`: a 3x3 convolution over the three code channels (DCD); `bits`: a linear layer on the wall,
    goal and direction bits, much cheaper."""
    conv_channels: int = setting(16, minimum=1, maximum=65_536)  # DCD
    encoder_size: int = setting(64, minimum=1, maximum=65_536)
    """Width of the `bits` encoder."""
    memory_size: int = setting(256, minimum=1, maximum=65_536)  # paper
    head_size: int = setting(32, minimum=1, maximum=65_536)  # DCD: one hidden layer of 32, not two
    forget_bias: float = 0.0  # DCD

    # mlp
    hidden_sizes: tuple[int, ...] = setting((64, 64), minimum=1, maximum=65_536)  # DCD, walker
    activation: Literal["tanh", "relu"] = "tanh"  # DCD, walker
    continuous: Literal["gaussian", "beta"] = "gaussian"
    """Distribution of continuous actions: `gaussian` for the walker, `beta` on [0, 1] for the car."""

    @property
    def recurrent(self) -> bool:
        return self.kind == "maze-lstm"


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation. One update is one rollout: `epochs` passes over `minibatches` parts."""

    learning_rate: float = setting(1e-4, above=0.0)  # paper
    final_learning_rate_fraction: float = setting(1.0, minimum=0.0, maximum=1.0)  # DCD: constant rate
    """The learning rate falls linearly to this fraction over `decay_updates` updates and stays there."""
    decay_updates: int | None = setting(None, minimum=1)
    """None stands for the length of the run, which whoever starts the run fills in."""
    decay_from: int = setting(0, minimum=0)
    """Until this update the learning rate is the full one. A run made longer may let it fall once more."""
    gamma: float = setting(0.995, minimum=0.0, maximum=1.0)  # paper
    gae_lambda: float = setting(0.95, minimum=0.0, maximum=1.0)  # paper
    clip: float = setting(0.2, above=0.0)  # paper
    value_clip: bool = True  # paper, mazes; False means a Huber loss (walker, car)
    value_coef: float = setting(0.5, minimum=0.0)  # paper
    entropy_coef: float = setting(0.0, minimum=0.0)  # paper, mazes
    max_grad_norm: float = setting(0.5, above=0.0)  # paper
    adam_eps: float = setting(1e-5, above=0.0)  # paper
    epochs: int = setting(5, minimum=1, maximum=10_000)  # paper
    minibatches: int = setting(1, minimum=1)  # paper
    normalise_returns: bool = False  # paper, mazes; True for walker and car
    bootstrap_at_rollout_end: bool = True  # DCD does not: it treats the end of a rollout as a terminal step
    bootstrap_at_timeout: bool = False  # DCD
    max_bad_updates: int = setting(10, minimum=1)
    """A run should stop after this many updates in a row with a non-finite loss or gradient."""


@dataclass(frozen=True)
class StudentConfig:
    """A student, and the size of its rollouts: `num_levels` columns of `num_steps` steps."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    num_levels: int = setting(32, minimum=1, maximum=1_000_000)  # paper
    num_steps: int = setting(256, minimum=2, maximum=1_000_000)  # paper

    @property
    def levels_per_minibatch(self) -> int:
        """How many devices, at most, can share both the levels and every minibatch evenly."""
        if self.network.recurrent:
            return self.num_levels // self.ppo.minibatches
        return math.gcd(self.num_levels, self.num_levels * self.num_steps // self.ppo.minibatches)

    def check(self) -> Iterator[Problem]:
        """Minibatches are whole columns for a student with memory, and equal parts of all steps otherwise."""
        if self.network.recurrent and self.num_levels % self.ppo.minibatches:
            yield Problem(
                "ppo.minibatches",
                f"must divide num_levels ({self.num_levels}) for a student with memory, "
                f"got {self.ppo.minibatches}",
            )
        if not self.network.recurrent and self.num_levels * self.num_steps % self.ppo.minibatches:
            yield Problem(
                "ppo.minibatches",
                f"must divide num_levels * num_steps ({self.num_levels * self.num_steps}), "
                f"got {self.ppo.minibatches}",
            )
        if self.num_levels * self.num_steps > LARGEST_INT:
            yield Problem("num_steps", f"times num_levels ({self.num_levels}) must be at most {LARGEST_INT}")
        if self.network.kind == "mlp" and not self.network.hidden_sizes:
            yield Problem("network.hidden_sizes", "must name at least one layer")
