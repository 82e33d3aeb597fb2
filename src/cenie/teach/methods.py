"""The families of teachers, and the named methods, which are values of them. Imports no JAX.

The command line reads this table before anything heavy is loaded.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from cenie.settings import Problem, setting, show
from cenie.student.config import Memoryless, PPOConfig
from cenie.teach.config import (
    Alpha,
    Cenie,
    Constant,
    DesignerConfig,
    Diplr,
    EditConfig,
    Epoet,
    NoveltyConfig,
    Poet,
    ReplayConfig,
    Traced,
    Utility,
    decay_problems,
)

ScoreName = Literal[
    "pvl",
    "value-l1",
    "signed",
    "maxmc",
    "maxmc-positive",
    "maxmc-start",
    "maxmc-start-positive",
    "td",
    "mna",
    "entropy",
    "learnability",
    "uniform",
]


@dataclass(frozen=True)
class RandomTeacher:
    """Random levels in every cycle, and the student learns from all of them."""

    # A generator of the domain by its name, or by its role: `random` or `simple`.
    generator: str = "random"


@dataclass(frozen=True)
class ReplayTeacher:
    """A level buffer, replayed by score; with or without edits, with or without novelty."""

    # `random` (CENIE and ACCEL papers: 0 to 60 blocks), or `simple` where complexity comes from edits.
    generator: str = "random"
    # PLR learns from new levels too; the others only score them.
    learn_on_new: bool = False
    score: ScoreName = "pvl"  # CENIE paper: positive value loss
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    edit: EditConfig | None = None
    novelty: NoveltyConfig | None = None
    # How much novelty counts beside the score; only read with novelty.
    alpha: Alpha = field(default_factory=Constant)
    # What a transition model and the progress of other levels add to the score.
    correction: Traced | None = None

    def check(self) -> Iterator[Problem]:
        if self.edit is not None and self.edit.children > 1 and self.novelty is None:
            yield Problem("edit.children", "must be 1 without novelty, by which the best child is chosen")


@dataclass(frozen=True)
class DesignerTeacher:
    """A designer that learns to make levels of high utility; with or without level buffers."""

    # Whose place the designer takes: it has the budget of walls, or the ranges, of that generator.
    replaces: str = "random"
    utility: Utility = "regret"
    # A regret below 0, where the antagonist did worse, counts as 0 (dcd; not in the paper, nor in jaxued).
    clip_regret: bool = True
    designer: DesignerConfig = field(default_factory=DesignerConfig)
    # The antagonist has the network and the rollouts of the student, and its PPO unless another one is given
    # (which begins with the defaults of PPO, not with the student's).
    antagonist: PPOConfig | None = None
    # A level buffer for each student, who then learn from replayed levels only.
    replay: ReplayConfig | None = None
    score: ScoreName = "pvl"  # only read with replay
    unfinished: Literal["ignore", "score"] = setting(
        "ignore",
        help="A level on which a student completed no episode: it has no utility (`ignore`), or that of the "
        "return so far (`score`). Only read without replay, which has a setting of this name itself.",
        source="ours",
    )

    @property
    def has_antagonist(self) -> bool:
        return not self.utility.startswith("minus")

    def check(self) -> Iterator[Problem]:
        if self.antagonist is not None:
            yield from decay_problems(self.antagonist, "antagonist")
            if not self.has_antagonist:
                yield Problem("antagonist", f"must be null: there is none with the utility {self.utility}")


@dataclass(frozen=True)
class AlpGmmTeacher:
    """Levels of the kinds on which the student's returns change most, in the domain's space of tasks."""

    # The mixture is fitted after so many tasks, and to so many; until then tasks are uniform. Original code.
    fit_every: int = setting(250, minimum=6, maximum=1_000_000)
    # Among so many past tasks the nearest one is looked for; the original code keeps all.
    database: int = setting(10_000, minimum=6, maximum=10_000_000)
    random_share: float = setting(0.2, minimum=0.0, maximum=1.0)  # original code
    # The fewest and the most Gaussians; AIC chooses. Original code.
    components: tuple[int, int] = setting((2, 20), minimum=1, maximum=100)
    # Added to every variance, in a box of sides 1. The default of the original code's software.
    reg: float = setting(1e-6, above=0.0, maximum=1e30)
    # The returns that count as 0 and as 1; what lies beyond is clipped. None: returns as they are.
    returns: tuple[float, float] | None = None
    # A task of which the rollout completed no episode: `ignore` it, or `score` its return so far.
    unfinished: Literal["ignore", "score"] = "ignore"

    def check(self) -> Iterator[Problem]:
        fewest, most = self.components
        if not fewest <= most <= self.fit_every:
            yield Problem(
                "components",
                f"the fewest must not exceed the most, nor these fit_every ({self.fit_every}), "
                f"got {fewest} and {most}",
            )
        if self.returns is not None and self.returns[0] >= self.returns[1]:
            yield Problem("returns", f"the first must be below the second, got {show(self.returns)}")


@dataclass(frozen=True)
class SflTeacher:
    """Scouts many random levels without learning, and trains on the most learnable of them for a while.

    The numbers are those that SFL was published with for mazes, where a batch has 256 levels.
    """

    generator: str = "random"
    # So many levels are scouted in a phase, each in so many columns of a batch: the original code plays each
    # for 2,000 steps, which is 8 episodes or more.
    scouted: int = setting(25_000, minimum=1, maximum=100_000_000)
    plays: int = setting(8, minimum=1, maximum=100_000)
    # The most learnable so many are kept, and are so large a share of each batch, for so many updates.
    kept: int = setting(1000, minimum=1, maximum=10_000_000)
    kept_share: float = setting(0.5, minimum=0.0, maximum=1.0)
    updates: int = setting(100, minimum=1, maximum=100_000_000)

    def check(self) -> Iterator[Problem]:
        if self.kept > self.scouted:
            yield Problem("kept", f"must not exceed scouted ({self.scouted}), got {self.kept}")


@dataclass(frozen=True)
class PoetTeacher:
    """A population of pairs, each a level and a student that learns on it, which has to prove itself on the
    levels of the others too.

    The numbers are those that POET was published with; its updates are steps of an evolution strategy. What a
    good and a bad return are depends on the domain, whose presets say it.
    """

    # Where the level of the first pair comes from; all others are edits of levels that were admitted.
    generator: str = "simple"
    # So many pairs at most: the oldest leaves for the next.
    pairs: int = setting(25, minimum=2, maximum=1000)  # original code
    # Updates of each pair in a round, after which students are tried on the levels of others.
    turn: int = setting(25, minimum=1, maximum=1_000_000)  # original code: transfers every 25 iterations
    reproduce_at: float | None = setting(
        None,
        help="A pair may have children if its student returns so much on its level. Must be given where the "
        "domain's presets name no value.",
        source="ours",
    )
    # So many children are tried after each round, and so many of them admitted at most. Original code.
    children: int = setting(8, minimum=1, maximum=1000)
    admitted: int = setting(1, minimum=1, maximum=1000)
    criterion: tuple[float, float] | None = setting(
        None,
        help="The minimal criterion: between what the returns on a child must lie, of its parent's student "
        "and of the best one. Must be given where the domain's presets name no values.",
        source="ours",
    )
    # Children are ranked by their distance from the nearest so many encodings of all levels ever admitted.
    neighbours: int = setting(5, minimum=1, maximum=1000)  # original code
    archive: int = setting(2000, minimum=1, maximum=10_000_000)
    # Whether the best student of the other pairs is also tried on a level after an update there.
    proposals: bool = True
    # A level of which no episode was completed: its return is not known (`ignore`), or that so far (`score`).
    unfinished: Literal["ignore", "score"] = "ignore"

    def check(self) -> Iterator[Problem]:
        if self.criterion is not None and self.criterion[0] >= self.criterion[1]:
            yield Problem("criterion", f"the first must be below the second, got {show(self.criterion)}")
        if self.admitted > self.children:
            yield Problem("admitted", f"must not exceed children ({self.children}), got {self.admitted}")
        if self.archive < self.pairs:
            yield Problem("archive", f"must be at least pairs ({self.pairs}), got {self.archive}")


Teacher = RandomTeacher | ReplayTeacher | DesignerTeacher | AlpGmmTeacher | SflTeacher | PoetTeacher


@dataclass(frozen=True)
class OwnTeacher:
    """A curriculum that is passed from Python. It has no settings."""


OWN = "own"
"""The method whose curriculum is passed from Python. It is not in the table: no command can train it."""


@dataclass(frozen=True)
class Method:
    """A row of the table of methods: a family's settings with the values that make the method."""

    summary: str
    settings: Teacher


_PLR = ReplayTeacher()
_ACCEL = ReplayTeacher(
    generator="simple",  # ACCEL paper: complexity comes from edits only
    replay=ReplayConfig(replay_prob=0.8),  # CENIE table, mazes
    edit=EditConfig(),
)
_WITHOUT_MEMORY = DesignerConfig(network=Memoryless())  # dcd: only the designer of PAIRED has an LSTM
_NOVELTIES = {
    "cenie": ("CENIE", Cenie()),
    "diplr": ("DIPLR", Diplr()),
    "poet": ("POET", Poet()),
    "epoet": ("Enhanced POET", Epoet()),
}
_NAMES = {"plr-diplr": "diplr"}
"""Methods that were published under a name of their own."""
_ABLATED = ("cenie", "diplr")
"""The novelties that were published with an ablation that ranks by novelty alone."""


def _novelty_methods() -> Iterator[tuple[str, Method]]:
    """Both replay methods with every novelty, mixed with regret and (dagger, if it was published) alone."""
    for novelty_name, (title, novelty) in _NOVELTIES.items():
        for base_name, base_title, base in (("plr", "PLR-perp", _PLR), ("accel", "ACCEL", _ACCEL)):
            mixed = dataclasses.replace(base, novelty=novelty)
            novelty_only = dataclasses.replace(mixed, alpha=Constant(value=1.0))
            name = f"{base_name}-{novelty_name}"
            name = _NAMES.get(name, name)
            yield name, Method(f"{base_title} by novelty and regret ({title})", mixed)
            if novelty_name in _ABLATED:
                yield f"{name}-dagger", Method(f"{base_title} by novelty alone ({title})", novelty_only)


METHODS = {
    "dr": Method("domain randomisation: random levels, learn from all of them", RandomTeacher()),
    "plr": Method(
        "prioritised level replay: learns from new and replayed levels",
        dataclasses.replace(_PLR, learn_on_new=True),
    ),
    "plr-robust": Method("PLR-perp: learns from replayed levels only", _PLR),
    "accel": Method("replay of edited levels, starting from simple ones", _ACCEL),
    **dict(_novelty_methods()),
    "minimax": Method(
        "a designer learns to lower the student's return",
        DesignerTeacher(utility="minus-return", designer=_WITHOUT_MEMORY),
    ),
    "paired": Method(
        "a designer learns to raise the student's regret, which an antagonist measures", DesignerTeacher()
    ),
    "repaired": Method(
        "PAIRED with a level buffer for each student: learns from replayed levels only",
        DesignerTeacher(designer=_WITHOUT_MEMORY, replay=ReplayConfig(replay_prob=0.95)),  # dcd
    ),
    "plr-learnability": Method(
        "PLR-perp by learnability p(1-p)", dataclasses.replace(_PLR, score="learnability")
    ),
    "traced": Method(
        "ACCEL by regret, transition-prediction error and co-learnability (TRACED)",
        dataclasses.replace(_ACCEL, correction=Traced()),
    ),
    "sfl": Method("trains on the most learnable of many scouted levels (SFL)", SflTeacher()),
    "alp-gmm": Method("levels of the kinds on which returns change most (ALP-GMM)", AlpGmmTeacher()),
    "poet": Method("a population of levels, each with a student of its own (POET)", PoetTeacher()),
}
