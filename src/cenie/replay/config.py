"""Settings of level replay. Imports no JAX.

In their sources `paper` is the CENIE paper, and `original code` the PyTorch code base (dcd) that it ran on,
with which PLR-perp and ACCEL were published.
"""

import math
from dataclasses import dataclass
from typing import Literal

from cenie.settings import setting


@dataclass(frozen=True)
class PriorityConfig:
    """The settings that turn the scores of the stored levels into probabilities of replay."""

    transform: Literal["rank", "power", "top-k", "softmax", "uniform"] = setting(
        "rank", help="The transform that turns scores into probabilities.", source="paper"
    )
    temperature: float = setting(
        0.3,
        above=0.0,
        help="Weights are raised to 1 / temperature: the lower, the more the highest scores are preferred.",
        source="paper, mazes: its beta",
    )
    top_k: int = setting(
        1, minimum=1, help="Levels that share the mass equally; only read by top-k.", source="ours"
    )
    ties: Literal["stable", "average"] = setting(
        "stable",
        help="The order of equal scores: the older level ranks higher (stable), or they share their mean "
        "rank (average).",
        source="ours",
    )
    staleness_coef: float = setting(
        0.3,
        minimum=0.0,
        maximum=1.0,
        help="The share of the probability that depends on the time since a level was played.",
        source="original code, mazes; the paper has 0.5",
    )


@dataclass(frozen=True)
class ReplayConfig:
    """The level buffer, and when and how it is replayed."""

    capacity: int = setting(
        4000,
        minimum=1,
        maximum=100_000_000,
        help="The largest number of stored levels.",
        source="paper, mazes",
    )
    replay_prob: float = setting(
        0.5,
        minimum=0.0,
        maximum=1.0,
        help="The probability that a batch is replayed, once the buffer is full enough.",
        source="paper, for PLR-perp",
    )
    schedule: Literal["proportionate", "fixed"] = setting(
        "proportionate",
        help="Whether that probability is at most the share of the buffer that is filled (proportionate), or "
        "the same from the beginning (fixed).",
        source="original code; fixed in the paper's listings",
    )
    min_fill: float = setting(
        0.5,
        minimum=0.0,
        maximum=1.0,
        help="The share of the buffer that must be filled before anything is replayed.",
        source="original code; 1 in the paper's listings",
    )
    insertion: Literal["mixture", "raw"] = setting(
        "mixture",
        help="The quantity by which a newcomer must exceed the level that it replaces: the mixed "
        "probability of replay, or one raw score.",
        source="paper",
    )
    victim: Literal["least-likely", "lowest-priority"] = setting(
        "least-likely",
        help="The level that leaves a full buffer. lowest-priority: the one with the lowest replay "
        "probability by score alone, CENIE's Eq. 5, as the paper's listings say. least-likely: the one with "
        "the lowest replay probability, staleness included; newcomers of a batch then mostly replace each "
        "other (docs/decisions.md).",
        source="original code; lowest-priority in the paper's listings",
    )
    repeated: Literal["average", "last"] = setting(
        "average",
        help="The play that counts if one level has several in one batch. With last, the first one decides "
        "about the entry.",
        source="ours; last in the original code",
    )
    unfinished: Literal["ignore", "score"] = setting(
        "ignore",
        help="A rollout that completed no episode of a level: ignore it, so that the level has no score, or "
        "score it as if the episode had ended with the rollout.",
        source="original code",
    )
    priority: PriorityConfig = setting(factory=PriorityConfig)

    @property
    def levels_before_replay(self) -> int:
        """The number of levels the buffer must hold before any is replayed: `min_fill` of its slots."""
        # The factor undoes the mistakes of binary fractions, such as 0.7 * 10 > 7.
        return math.ceil(self.min_fill * self.capacity * (1 - 1e-12))


@dataclass(frozen=True)
class Constant:
    """A weight of novelty that never changes, as in the paper."""

    kind: Literal["constant"] = "constant"
    value: float = setting(0.5, minimum=0.0, maximum=1.0, help="The weight.", source="paper")


@dataclass(frozen=True)
class Linear:
    """A weight of novelty that moves from `start` to `end` within `replays` replayed batches."""

    kind: Literal["linear"] = "linear"
    start: float = setting(0.5, minimum=0.0, maximum=1.0, help="The weight at the beginning.", source="ours")
    end: float = setting(0.0, minimum=0.0, maximum=1.0, help="The weight at the end.", source="ours")
    replays: int = setting(
        1000, minimum=1, help="Replayed batches until the weight gets there.", source="ours"
    )


@dataclass(frozen=True)
class Adaptive:
    """A weight of novelty that begins at `start` and moves towards the ranking whose levels change their
    regret more, by at most `rate` (of the log-odds) in one replay."""

    kind: Literal["adaptive"] = "adaptive"
    start: float = setting(0.5, minimum=0.0, maximum=1.0, help="The weight at the beginning.", source="ours")
    rate: float = setting(
        0.05, above=0.0, help="The largest move of its log-odds in one replay.", source="ours"
    )


Alpha = Constant | Linear | Adaptive
"""The weight of novelty beside regret when levels are sampled (alpha of CENIE Eq. 5)."""
