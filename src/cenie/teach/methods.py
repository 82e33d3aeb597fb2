"""The settings of each method and the table of methods. Imports no JAX: the command line reads it."""

from dataclasses import dataclass, field
from typing import Literal

from cenie.settings import setting
from cenie.teach.config import AlphaConfig, NoveltyConfig, ReplayConfig

ScoreName = Literal[
    "pvl",
    "value-l1",
    "signed",
    "maxmc",
    "maxmc-positive",
    "maxmc-start",
    "td",
    "entropy",
    "learnability",
    "uniform",
]


@dataclass(frozen=True)
class DomainRandomisation:
    """Settings of `dr`: a random level for every environment in every cycle."""

    generator: str = "uniform60"


@dataclass(frozen=True)
class LevelReplay:
    """Settings of `plr` and `plr-robust`."""

    generator: str = "uniform60"  # CENIE and ACCEL papers: 0 to 60 blocks
    score: ScoreName = "pvl"  # CENIE paper: positive value loss
    replay: ReplayConfig = field(default_factory=ReplayConfig)


@dataclass(frozen=True)
class Accel:
    """Settings of `accel`; how many changes an edit makes is a setting of the domain."""

    generator: str = "empty"  # ACCEL paper: complexity comes from edits only
    score: ScoreName = "pvl"
    # CENIE table, mazes: replay rate 0.8.
    replay: ReplayConfig = field(default_factory=lambda: ReplayConfig(replay_prob=0.8))
    edit_prob: float = setting(1.0, minimum=0.0, maximum=1.0)  # CENIE table
    # CENIE table: batch; the original code's configs: easy.
    parents: Literal["batch", "easy", "hard"] = "batch"


@dataclass(frozen=True)
class PlrCenie:
    """Settings of `plr-cenie`."""

    generator: str = "uniform60"
    score: ScoreName = "pvl"
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)
    alpha: AlphaConfig = field(default_factory=AlphaConfig)


@dataclass(frozen=True)
class PlrCenieDagger:
    """Settings of `plr-cenie-dagger`, which ranks by novelty alone; the score is only logged."""

    generator: str = "uniform60"
    score: ScoreName = "pvl"
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)


@dataclass(frozen=True)
class AccelCenie:
    """Settings of `accel-cenie`."""

    generator: str = "empty"
    score: ScoreName = "pvl"
    replay: ReplayConfig = field(default_factory=lambda: ReplayConfig(replay_prob=0.8))
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)
    alpha: AlphaConfig = field(default_factory=AlphaConfig)
    edit_prob: float = setting(1.0, minimum=0.0, maximum=1.0)
    parents: Literal["batch", "easy", "hard"] = "batch"
    # Of so many children of a parent only the most novel one is offered to the buffer. 1: as in the paper.
    children: int = setting(1, minimum=1)


@dataclass(frozen=True)
class AccelCenieDagger:
    """Settings of `accel-cenie-dagger`, which ranks by novelty alone; the score is only logged."""

    generator: str = "empty"
    score: ScoreName = "pvl"
    replay: ReplayConfig = field(default_factory=lambda: ReplayConfig(replay_prob=0.8))
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)
    edit_prob: float = setting(1.0, minimum=0.0, maximum=1.0)
    parents: Literal["batch", "easy", "hard"] = "batch"
    children: int = setting(1, minimum=1)


@dataclass(frozen=True)
class Learnability:
    """Settings of `sfl`, sampling for learnability: replay of levels that are solved now and then."""

    generator: str = "uniform60"
    replay: ReplayConfig = field(default_factory=ReplayConfig)


@dataclass(frozen=True)
class Method:
    """A row of the table of methods; `recipe` names a function of `cenie.teach.recipes`."""

    summary: str
    recipe: str
    settings: type


METHODS = {
    "dr": Method("domain randomisation: random levels, learn from all of them", "dr", DomainRandomisation),
    "plr": Method("prioritised level replay: learns from new and replayed levels", "plr", LevelReplay),
    "plr-robust": Method("PLR-perp: learns from replayed levels only", "plr_robust", LevelReplay),
    "accel": Method("replay of edited levels, starting from simple ones", "accel", Accel),
    "plr-cenie": Method("PLR-perp by novelty and regret (CENIE)", "plr_cenie", PlrCenie),
    "accel-cenie": Method("ACCEL by novelty and regret (CENIE)", "accel_cenie", AccelCenie),
    "plr-cenie-dagger": Method("PLR-perp by novelty alone", "plr_cenie_dagger", PlrCenieDagger),
    "accel-cenie-dagger": Method("ACCEL by novelty alone", "accel_cenie_dagger", AccelCenieDagger),
    "sfl": Method("replay of levels by learnability p(1-p), learns from those only", "sfl", Learnability),
}
