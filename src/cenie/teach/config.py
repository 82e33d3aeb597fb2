"""Settings of level replay, novelty and designers. Imports no JAX.

`dcd` in the comments is the PyTorch code base that PLR-perp and ACCEL were published with.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from cenie.novelty.config import CoverageConfig, MixtureConfig
from cenie.settings import Problem, setting
from cenie.student.config import Lstm, NetworkConfig, PPOConfig


@dataclass(frozen=True)
class PriorityConfig:
    """How the scores of the stored levels become probabilities of replay."""

    transform: Literal["rank", "power", "top-k", "softmax", "uniform"] = "rank"  # CENIE section 4; PLR
    # CENIE's beta and dcd's `level_replay_temperature`, mazes: the exponent is 1 / temperature.
    temperature: float = setting(0.3, above=0.0)
    # Only read by `top-k`: how many levels share the mass equally.
    top_k: int = setting(1, minimum=1)
    # `stable`: the older of two equal levels ranks higher. `average`: equal levels share their mean rank.
    ties: Literal["stable", "average"] = "stable"
    # dcd's mazes; the CENIE table has 0.5.
    staleness_coef: float = setting(0.3, minimum=0.0, maximum=1.0)


@dataclass(frozen=True)
class ReplayConfig:
    """The level buffer, and when and how it is replayed."""

    capacity: int = setting(4000, minimum=1, maximum=100_000_000)  # CENIE table, mazes
    replay_prob: float = setting(0.5, minimum=0.0, maximum=1.0)  # CENIE table, PLR-perp (ACCEL: 0.8)
    # `proportionate` (dcd) replays with probability min(fill, replay_prob); the CENIE listing is `fixed`.
    schedule: Literal["proportionate", "fixed"] = "proportionate"
    min_fill: float = setting(0.5, minimum=0.0, maximum=1.0)  # dcd; 1.0 is the CENIE listing read literally
    # `mixture` compares newcomer and victim by their mixed probabilities, `raw` (dcd) by one raw score.
    insertion: Literal["mixture", "raw"] = "mixture"
    # Who leaves a full buffer: the level least likely to be replayed, staleness included (dcd), or that of
    # the lowest score. The first protects levels that were not played for long, but lets most newcomers of a
    # batch replace each other; see docs/decisions.md.
    victim: Literal["least-likely", "lowest-score"] = "least-likely"
    # Several plays of one level in one batch: `average` them, or keep the `last` one (dcd, where the first
    # one decides about the entry).
    repeated: Literal["average", "last"] = "average"
    # A rollout that completed no episode of a level: `ignore` it (dcd), so that the level has no score; or
    # `score` it as if the episode had ended with the rollout.
    unfinished: Literal["ignore", "score"] = "ignore"
    priority: PriorityConfig = PriorityConfig()

    @property
    def levels_before_replay(self) -> int:
        """How many levels the buffer must hold before any is replayed: `min_fill` of its slots."""
        # The factor undoes the mistakes of binary fractions, such as 0.7 * 10 > 7.
        return math.ceil(self.min_fill * self.capacity * (1 - 1e-12))


@dataclass(frozen=True)
class EditConfig:
    """Edits of the levels that were just replayed; how many changes one makes is a setting of the domain."""

    probability: float = setting(1.0, minimum=0.0, maximum=1.0)  # CENIE table
    # CENIE table: batch; the original code's configs: easy.
    parents: Literal["batch", "easy", "hard"] = "batch"
    # Of so many children of a parent only the most novel one is offered to the buffer. 1: as in the paper.
    children: int = setting(1, minimum=1)


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
    points: int = setting(32, minimum=1, maximum=100_000)


@dataclass(frozen=True)
class Cenie:
    """CENIE's novelty: a model of what the student has met, and how often it is fitted again."""

    kind: Literal["cenie"] = "cenie"
    coverage: CoverageConfig = field(default_factory=MixtureConfig)
    # The paper fits after every replay; more is cheaper (its section on limitations proposes it).
    refit_every: int = setting(1, minimum=1)
    # How novelties that were measured at different times are made comparable; see docs/novelty.md.
    stored: AsPlayed | Relative | Rescored = field(default_factory=AsPlayed)


@dataclass(frozen=True)
class Traced:
    """TRACED's additions to a score: the error of a transition model, and co-learnability."""

    kind: Literal["traced"] = "traced"
    transition_weight: float = setting(1.0, minimum=0.0)  # original code
    colearnability_weight: float = setting(1.0, minimum=0.0)  # original code
    memory_size: int = setting(128, minimum=1, maximum=100_000)  # original code
    # One step for each batch; the original code has one of 1e-4 for each episode.
    learning_rate: float = setting(1e-3, above=0.0)


@dataclass(frozen=True)
class Sliced:
    """The Wasserstein distance of projections, averaged over fixed random directions: cheap."""

    kind: Literal["sliced"] = "sliced"
    directions: int = setting(64, minimum=1, maximum=100_000)
    # The projections of a level's points on a direction are kept as so many equally likely values.
    quantiles: int = setting(32, minimum=1, maximum=100_000)


@dataclass(frozen=True)
class Exact:
    """The Wasserstein distance itself, between so many points of each level: slow, for small buffers."""

    kind: Literal["exact"] = "exact"
    points: int = setting(32, minimum=1, maximum=1000)


@dataclass(frozen=True)
class Entropic:
    """The Wasserstein distance by blurred plans (Sinkhorn), less that of each level from itself: for small
    buffers, as the exact one is."""

    kind: Literal["entropic"] = "entropic"
    points: int = setting(32, minimum=1, maximum=1000)
    # How far plans are blurred: a share of the median distance between the points of the two levels.
    blur: float = setting(0.05, above=0.0, maximum=1000.0)
    iterations: int = setting(50, minimum=1, maximum=100_000)


@dataclass(frozen=True)
class Diplr:
    """DIPLR's novelty: how far the student's experience on a level is from that on the nearest stored one."""

    kind: Literal["diplr"] = "diplr"
    distance: Sliced | Exact | Entropic = field(default_factory=Sliced)
    # The paper's distance is that from the nearest level; the mean over more of them is less noisy.
    neighbours: int = setting(1, minimum=1, maximum=1000)


@dataclass(frozen=True)
class Poet:
    """POET's novelty: how far a level's encoding, a few numbers, is from the nearest ones admitted so far."""

    kind: Literal["poet"] = "poet"
    neighbours: int = setting(5, minimum=1, maximum=1000)  # POET
    # Encodings of levels that once entered the buffer, the latest so many; POET keeps all.
    archive: int = setting(20_000, minimum=1, maximum=10_000_000)


@dataclass(frozen=True)
class Epoet:
    """Enhanced POET's novelty (PATA-EC): how far the ranks of past students on a level are from those on the
    nearest stored levels."""

    kind: Literal["epoet"] = "epoet"
    neighbours: int = setting(5, minimum=1, maximum=1000)  # Enhanced POET
    # So many past students play every new level.
    students: int = setting(8, minimum=2, maximum=1000)
    # After so many batches that were learned from, the present student takes the place of the oldest one and
    # plays all stored levels.
    snapshot_every: int = setting(100, minimum=1)
    # An episode is cut after so many steps; None: never, as in the original.
    max_steps: int | None = setting(None, minimum=1, maximum=1_000_000)
    # Returns are clipped to these before they are ranked, so that two complete failures are equal.
    lowest_return: float = -1e9
    highest_return: float = 1e9

    def check(self) -> Iterator[Problem]:
        if self.lowest_return >= self.highest_return:
            yield Problem("highest_return", f"must be above lowest_return ({self.lowest_return:g})")


NoveltyConfig = Cenie | Diplr | Poet | Epoet


@dataclass(frozen=True)
class Constant:
    """A weight of novelty that never changes, as in the paper."""

    kind: Literal["constant"] = "constant"
    value: float = setting(0.5, minimum=0.0, maximum=1.0)  # paper


@dataclass(frozen=True)
class Linear:
    """A weight of novelty that moves from `start` to `end` within `replays` replayed batches."""

    kind: Literal["linear"] = "linear"
    start: float = setting(0.5, minimum=0.0, maximum=1.0)
    end: float = setting(0.0, minimum=0.0, maximum=1.0)
    replays: int = setting(1000, minimum=1)


@dataclass(frozen=True)
class Adaptive:
    """A weight of novelty that begins at `start` and moves towards the ranking whose levels change their
    regret more, by at most `rate` (of the log-odds) in one replay."""

    kind: Literal["adaptive"] = "adaptive"
    start: float = setting(0.5, minimum=0.0, maximum=1.0)
    rate: float = setting(0.05, above=0.0)


Alpha = Constant | Linear | Adaptive
"""The weight of novelty beside regret when levels are sampled (alpha of CENIE Eq. 5)."""


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

    network: NetworkConfig = field(default_factory=Lstm)
    # With `normalise_returns` the utility is divided by the running deviation of all utilities.
    ppo: PPOConfig = field(default_factory=PPOConfig)
    # What is paid for a level: its `utility`; or its `rank` by utility in the batch, from 0 to 1, so that the
    # few levels on which a student failed by chance do not decide alone.
    paid: Literal["utility", "rank"] = "utility"

    def check(self) -> Iterator[Problem]:
        yield from decay_problems(self.ppo, "ppo")


def decay_problems(ppo: PPOConfig, path: str) -> Iterator[Problem]:
    """A decay that nobody fills in: designers and antagonists need not learn in every update of a run."""
    if ppo.final_learning_rate_fraction < 1.0 and ppo.decay_updates is None:
        message = "must be given where the learning rate falls (final_learning_rate_fraction below 1)"
        yield Problem(f"{path}.decay_updates", message)
