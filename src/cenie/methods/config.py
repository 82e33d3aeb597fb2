"""Settings of the parts of methods: novelties, corrections, designers. Imports no JAX.

In their sources `paper` is the CENIE paper, and `original code` the PyTorch code base (dcd) that it ran on,
with which PLR-perp and ACCEL were published.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cenie.novelty.config import CoverageConfig, MixtureConfig
from cenie.settings import Problem, setting
from cenie.student.config import Lstm, NetworkConfig, PPOConfig


@dataclass(frozen=True)
class AsPlayed:
    """A stored level keeps the novelty of its last play, as in the paper: it grows old with the model."""

    kind: Literal["as-played"] = "as-played"


@dataclass(frozen=True)
class Relative:
    """The novelty of a play is measured against that of the latest new levels, under the same model."""

    kind: Literal["relative"] = "relative"


@dataclass(frozen=True)
class Rescored:
    """After each fit all stored levels are measured again, by so many points of their last play.

    For points that mean the same for ever, such as observations: those of a learning memory do not.
    """

    kind: Literal["rescored"] = "rescored"
    points: int = setting(
        32, minimum=1, maximum=100_000, help="Points that are kept of each level.", source="ours"
    )


@dataclass(frozen=True)
class Cenie:
    """CENIE's novelty: a model of what the student has met, and how often it is fitted again."""

    kind: Literal["cenie"] = "cenie"
    coverage: CoverageConfig = setting(
        factory=MixtureConfig, help="What is fitted to the student's experience.", source="paper"
    )
    refit_every: int = setting(
        1,
        minimum=1,
        help="After how many replays the model is fitted again; more is cheaper (the paper proposes it among "
        "its limitations).",
        source="paper",
    )
    measure: Literal["mean", "highest", "first-episode"] = setting(
        "mean",
        help="The novelty of a level: the mean over all steps of its rollout (Eq. 3), the highest step, "
        "or the mean over its first episode.",
        source="paper",
    )
    window_takes: Literal["replayed", "generated", "both"] = setting(
        "replayed",
        help="Which trajectories enter the window once the level buffer is filled: on replayed levels, on "
        "new and edited ones, or on all.",
        source="paper",
    )
    features: Literal["memory", "observation"] = setting(
        "memory",
        help="What describes a step beside its action: the memory of the student, or what it observes.",
        source="paper",
    )
    control: Literal["none", "shuffled", "age"] = setting(
        "none",
        help="A control in the place of novelty, for experiments: novelties dealt out at random among the "
        "stored levels (shuffled), or when a level was last played (age).",
        source="ours",
    )
    stored: AsPlayed | Relative | Rescored = setting(
        factory=AsPlayed,
        help="How novelties that were measured at different times are compared (docs/novelty.md).",
        source="paper",
    )


@dataclass(frozen=True)
class Traced:
    """TRACED's additions to a score: the error of a transition model, and co-learnability."""

    kind: Literal["traced"] = "traced"
    transition_weight: float = setting(
        1.0, minimum=0.0, help="How much the error of the transition model counts.", source="TRACED's code"
    )
    colearnability_weight: float = setting(
        1.0, minimum=0.0, help="How much co-learnability counts.", source="TRACED's code"
    )
    memory_size: int = setting(
        128, minimum=1, maximum=100_000, help="Units of the model's memory.", source="TRACED's code"
    )
    learning_rate: float = setting(
        1e-3,
        above=0.0,
        help="The size of the model's one step for each batch.",
        source="ours; TRACED's code has one of 1e-4 for each episode",
    )


@dataclass(frozen=True)
class Sliced:
    """The Wasserstein distance of projections, averaged over fixed random directions: cheap."""

    kind: Literal["sliced"] = "sliced"
    directions: int = setting(
        64, minimum=1, maximum=100_000, help="On how many directions points are projected.", source="ours"
    )
    quantiles: int = setting(
        32,
        minimum=1,
        maximum=100_000,
        help="As how many equally likely values the projections of a level's points are kept.",
        source="ours",
    )


@dataclass(frozen=True)
class Exact:
    """The Wasserstein distance itself, between so many points of each level: slow, for small buffers."""

    kind: Literal["exact"] = "exact"
    points: int = setting(
        32, minimum=1, maximum=1000, help="How many points of each level are compared.", source="ours"
    )


@dataclass(frozen=True)
class Entropic:
    """The Wasserstein distance by blurred plans (Sinkhorn), less that of each level from itself: for small
    buffers, as the exact one is."""

    kind: Literal["entropic"] = "entropic"
    points: int = setting(
        32, minimum=1, maximum=1000, help="How many points of each level are compared.", source="ours"
    )
    blur: float = setting(
        0.05,
        above=0.0,
        maximum=1000.0,
        help="How far plans are blurred: a share of the median distance between the points of the two "
        "levels.",
        source="ours",
    )
    iterations: int = setting(
        50, minimum=1, maximum=100_000, help="Steps of Sinkhorn's algorithm.", source="ours"
    )


@dataclass(frozen=True)
class Diplr:
    """DIPLR's novelty: how far the student's experience on a level is from that on the nearest stored one."""

    kind: Literal["diplr"] = "diplr"
    distance: Sliced | Exact | Entropic = setting(
        factory=Sliced,
        help="How the experience on two levels is compared.",
        source="ours; the Wasserstein distance in the paper",
    )
    neighbours: int = setting(
        1,
        minimum=1,
        maximum=1000,
        help="Over how many of the nearest levels the distance is averaged; more are less noisy.",
        source="paper",
    )


@dataclass(frozen=True)
class Poet:
    """POET's novelty: how far a level's encoding, a few numbers, is from the nearest ones admitted so far."""

    kind: Literal["poet"] = "poet"
    neighbours: int = setting(
        5,
        minimum=1,
        maximum=1000,
        help="Over how many of the nearest encodings the distance is averaged.",
        source="POET's code",
    )
    archive: int = setting(
        20_000,
        minimum=1,
        maximum=10_000_000,
        help="Encodings of levels that once entered the buffer: at most this many, the latest.",
        source="ours; POET keeps all",
    )


@dataclass(frozen=True)
class Epoet:
    """Enhanced POET's novelty (PATA-EC): how far the ranks of past students on a level are from those on the
    nearest stored levels."""

    kind: Literal["epoet"] = "epoet"
    neighbours: int = setting(
        5,
        minimum=1,
        maximum=1000,
        help="Over how many of the nearest levels the distance is averaged.",
        source="Enhanced POET's code",
    )
    students: int = setting(
        8, minimum=2, maximum=1000, help="How many past students play every new level.", source="ours"
    )
    snapshot_every: int = setting(
        100,
        minimum=1,
        help="After how many batches that were learned from the present student takes the place of the "
        "oldest one, and plays all stored levels.",
        source="ours",
    )
    max_steps: int | None = setting(
        None,
        minimum=1,
        maximum=1_000_000,
        help="An episode is cut after this many steps; null: never.",
        source="Enhanced POET's code",
    )
    lowest_return: float = setting(
        -1e9,
        help="Returns below count as this before they are ranked, so that two complete failures are equal.",
        source="ours",
    )
    highest_return: float = setting(
        1e9, help="Returns above count as this before they are ranked.", source="ours"
    )

    def check(self) -> Iterator[Problem]:
        if self.lowest_return >= self.highest_return:
            yield Problem("highest_return", f"must be above lowest_return ({self.lowest_return:g})")


NoveltyConfig = Cenie | Diplr | Poet | Epoet


Utility = Literal["regret", "mean-regret", "flexible-regret", "minus-return", "minus-best-return"]
"""What a designer wants of a level, from completed episodes only.

`regret` (displayed equation of PAIRED): the antagonist's best return minus the student's mean return.
`mean-regret` (listing of PAIRED): the same with the antagonist's mean return. `flexible-regret` (dcd):
whoever did better at best is the antagonist, and of equals the student. `minus-return` (Minimax): minus the
student's mean return, and `minus-best-return` (Minimax in dcd) minus its best one.
"""


@dataclass(frozen=True)
class DesignerConfig:
    """A learned designer of levels: its network, and how it learns from the utility of what it designed."""

    network: NetworkConfig = setting(
        factory=Lstm,
        help="What designs and judges; board reads and chooses tiles as waves across an image.",
        source="original code, mazes: the designer of PAIRED",
    )
    ppo: PPOConfig = setting(factory=PPOConfig, help="How the designer learns from what it designed.")
    paid: Literal["utility", "rank"] = setting(
        "utility",
        help="What is paid for a level: its utility; or its rank by utility in the batch, from 0 to 1, so "
        "that the few levels on which a student failed by chance do not decide alone.",
        source="paper",
    )

    def check(self) -> Iterator[Problem]:
        yield from decay_problems(self.ppo, "ppo")


def decay_problems(ppo: PPOConfig, path: str) -> Iterator[Problem]:
    """A decay that nobody fills in: designers and antagonists need not learn in every update of a run."""
    if ppo.final_learning_rate_fraction < 1.0 and ppo.decay_updates is None:
        message = "must be given where the learning rate falls (final_learning_rate_fraction below 1)"
        yield Problem(f"{path}.decay_updates", message)
