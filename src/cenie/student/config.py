"""Settings of the student. The defaults are the student of the paper's mazes.

Where a default comes from is said by the `source` of each setting: `paper` is the CENIE paper, and `original
code` the code base it ran on, with which PLR-perp and ACCEL were published. The settings of a network stand
beside it, in `networks`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cenie.settings import LARGEST_INT, Problem, setting
from cenie.student.encoders import Conv
from cenie.student.networks.recurrent import Lstm
from cenie.student.networks.table import NetworkConfig


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation. One update is one rollout: `epochs` passes over `minibatches` parts."""

    learning_rate: float = setting(
        1e-4, above=0.0, help="The size of Adam's steps, before it falls.", source="paper, mazes"
    )
    final_learning_rate_fraction: float = setting(
        1.0,
        minimum=0.0,
        maximum=1.0,
        help="The learning rate falls linearly to this fraction over decay_updates updates and stays there.",
        source="original code: the rate stays the same",
    )
    decay_updates: int | None = setting(
        None,
        minimum=1,
        help="Updates over which the learning rate falls; null stands for the length of the run, which is "
        "filled in for the student when the run begins.",
        source="ours",
    )
    decay_from: int = setting(
        0,
        minimum=0,
        help="Until this update the learning rate is the full one. A run made longer may let it fall "
        "once more.",
        source="ours",
    )
    gamma: float = setting(
        0.995, minimum=0.0, maximum=1.0, help="The discount of later rewards.", source="paper, mazes"
    )
    gae_lambda: float = setting(
        0.95,
        minimum=0.0,
        maximum=1.0,
        help="The lambda of generalised advantage estimation.",
        source="paper, mazes",
    )
    clip: float = setting(
        0.2,
        above=0.0,
        help="The range in which the ratio of probabilities may differ from 1, and clipped values from the "
        "old ones.",
        source="paper",
    )
    value_clip: bool = setting(
        True,
        help="Whether the loss of values is the squared error with clipped values; else it is a Huber loss.",
        source="paper, mazes",
    )
    value_coef: float = setting(0.5, minimum=0.0, help="The weight of the loss of values.", source="paper")
    entropy_coef: float = setting(
        0.0,
        minimum=0.0,
        help="The weight of the entropy of actions, which keeps the policy random.",
        source="paper, mazes and racing: its students",
    )
    max_grad_norm: float = setting(
        0.5, above=0.0, help="Longer gradients are cut to this norm.", source="paper"
    )
    adam_eps: float = setting(1e-5, above=0.0, help="The epsilon of Adam.", source="paper")
    epochs: int = setting(
        5,
        minimum=1,
        maximum=10_000,
        help="Passes over each rollout in an update.",
        source="paper, mazes and walker",
    )
    minibatches: int = setting(
        1,
        minimum=1,
        help="Parts of a rollout, with a gradient step for each: whole columns for a network with memory, "
        "equal parts of all steps otherwise.",
        source="paper, mazes",
    )
    normalise_returns: bool = setting(
        False,
        help="Whether rewards are divided by the running deviation of discounted returns (a designer's: its "
        "utilities by theirs).",
        source="paper, mazes",
    )
    bootstrap_at_rollout_end: bool = setting(
        True,
        help="Whether the end of a rollout counts as a cut, with the value of what follows, and not as the "
        "end of the episode.",
        source="ours; the original code takes it for the end of the episode",
    )
    bootstrap_at_timeout: bool = setting(
        False,
        help="Whether a time limit counts as a cut, and not as the end of the episode.",
        source="original code",
    )
    max_bad_updates: int = setting(
        10,
        minimum=1,
        help="The run stops after this many updates in a row with a loss or a gradient that is not finite.",
        source="ours",
    )


@dataclass(frozen=True)
class StudentConfig:
    """A student, and the size of its rollouts: `num_levels` columns of `num_steps` steps."""

    network: NetworkConfig = setting(
        factory=lambda: Lstm(encoder=Conv()),
        help="The network that decides and judges: lstm and gru remember, mlp and memoryless do not, and "
        "pixels looks at the last few images.",
        source="paper, mazes",
    )
    ppo: PPOConfig = setting(factory=PPOConfig, help="The student's learning from a rollout.")
    num_levels: int = setting(
        32,
        minimum=1,
        maximum=1_000_000,
        help="Levels that are played side by side: the columns of a rollout.",
        source="paper, mazes",
    )
    num_steps: int = setting(
        256, minimum=2, maximum=1_000_000, help="Steps of a rollout in each column.", source="paper, mazes"
    )

    @property
    def levels_per_minibatch(self) -> int:
        """The largest number of devices that can share both the levels and every minibatch evenly."""
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
