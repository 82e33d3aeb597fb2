"""The families of teachers, and the named methods, which are values of them. Imports no JAX.

The command line reads this table before anything heavy is loaded.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from cenie.methods.config import (
    Cenie,
    DesignerConfig,
    Diplr,
    Epoet,
    NoveltyConfig,
    Poet,
    Traced,
    Utility,
    decay_problems,
)
from cenie.replay.columns import problems_of_weighted
from cenie.replay.config import Alpha, Constant, EditConfig, ReplayConfig
from cenie.settings import Problem, setting, show
from cenie.student.config import Memoryless, PPOConfig

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
    "mna-sum",
    "entropy",
    "learnability",
    "generalised-learnability",
    "uniform",
]

_GENERATOR = "Where new levels come from: a generator of the domain, or its role (random or simple)."
_UNFINISHED = "A level of which no episode was completed: ignore it, or score its return so far."


@dataclass(frozen=True)
class RandomTeacher:
    """Random levels in every cycle, and the student learns from all of them."""

    generator: str = setting("random", help=_GENERATOR, source="paper")


@dataclass(frozen=True)
class ReplayTeacher:
    """A level buffer, replayed by score; with or without edits, with or without novelty."""

    generator: str = setting("random", help=_GENERATOR, source="paper, for PLR-perp")
    learn_on_new: bool = setting(
        False,
        help="Whether the student learns from new levels too, which are only scored otherwise.",
        source="paper, for PLR-perp",
    )
    score: ScoreName = setting(
        "pvl", help="What a play of a level is worth (docs/methods/scores.md).", source="paper"
    )
    scores: tuple[str, ...] = setting(
        (),
        help="Several scores in the place of that one, each with the weight of its ranking, as in "
        "maxmc:0.5,learnability:0.5 (docs/own-score-and-novelty.md). The first one leads.",
        source="ours; the paper has one",
    )
    replay: ReplayConfig = setting(factory=ReplayConfig)
    edit: EditConfig | None = setting(
        None, help="Whether replayed levels are edited, and how; null: they are not.", source="the method"
    )
    novelty: NoveltyConfig | None = setting(
        None, help="What counts beside the score; null: nothing.", source="the method"
    )
    alpha: Alpha = setting(
        factory=Constant, help="How much novelty counts beside the score, if there is any.", source="paper"
    )
    correction: Traced | None = setting(
        None,
        help="What a transition model and the progress of other levels add to the score; null: nothing.",
        source="the method",
    )

    def check(self) -> Iterator[Problem]:
        for problem in problems_of_weighted(self.scores, get_args(ScoreName)):
            yield Problem("scores", problem)
        if self.edit is not None and self.edit.children > 1 and self.novelty is None:
            yield Problem("edit.children", "must be 1 without novelty, by which the best child is chosen")


@dataclass(frozen=True)
class DesignerTeacher:
    """A designer that learns to make levels of high utility; with or without level buffers."""

    replaces: str = setting(
        "random",
        help="Whose place the designer takes: it has the budget of walls, or the ranges, of that generator "
        "(or role).",
        source="ours",
    )
    utility: Utility = setting(
        "regret",
        help="What the designer wants of a level: the best return of the antagonist above the student's mean "
        "return (regret); its mean return above that (mean-regret); whoever did better at best as the "
        "antagonist (flexible-regret); or minus the student's mean, or best, return.",
        source="paper: its equation of PAIRED",
    )
    clip_regret: bool = setting(
        True,
        help="Whether a regret below 0, where the antagonist did worse, counts as 0.",
        source="original code; not in the paper",
    )
    designer: DesignerConfig = setting(factory=DesignerConfig)
    antagonist: PPOConfig | None = setting(
        None,
        help="How the antagonist learns, which has the network and the rollouts of the student; null: as the "
        "student. Another one begins with the defaults, not with the student's settings.",
        source="paper: one column for all agents",
    )
    replay: ReplayConfig | None = setting(
        None,
        help="A level buffer for each student, who then learn from replayed levels only; null: none.",
        source="the method",
    )
    score: ScoreName = setting(
        "pvl",
        help="What a play of a level is worth (docs/methods/scores.md); only read with replay.",
        source="ours: that of PLR-perp in the paper",
    )
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

    fit_every: int = setting(
        250,
        minimum=6,
        maximum=1_000_000,
        help="The mixture is fitted after this many tasks, and to this many; until then tasks are uniform.",
        source="original code",
    )
    database: int = setting(
        10_000,
        minimum=6,
        maximum=10_000_000,
        help="Among how many past tasks the nearest one is looked for.",
        source="ours; the original code keeps all",
    )
    random_share: float = setting(
        0.2, minimum=0.0, maximum=1.0, help="The share of tasks that stay uniform.", source="original code"
    )
    components: tuple[int, int] = setting(
        (2, 20),
        minimum=1,
        maximum=100,
        help="The fewest and the most Gaussians of a mixture; AIC chooses.",
        source="original code",
    )
    reg: float = setting(
        1e-6,
        above=0.0,
        maximum=1e30,
        help="What is added to every variance, in a box of sides 1.",
        source="scikit-learn, with which the original code fits",
    )
    returns: tuple[float, float] | None = setting(
        None,
        help="The returns that count as 0 and as 1; what lies beyond is clipped. null: returns as they are.",
        source="original code, mazes",
    )
    unfinished: Literal["ignore", "score"] = setting("ignore", help=_UNFINISHED, source="ours")

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

    generator: str = setting("random", help=_GENERATOR, source="SFL's code")
    scouted: int = setting(
        25_000,
        minimum=1,
        maximum=100_000_000,
        help="How many levels are scouted in a phase.",
        source="SFL's code",
    )
    plays: int = setting(
        8,
        minimum=1,
        maximum=100_000,
        help="In how many columns of a batch each of them is played.",
        source="ours; SFL's code plays each for 2,000 steps, which is 8 episodes or more",
    )
    kept: int = setting(
        1000,
        minimum=1,
        maximum=10_000_000,
        help="How many of them are kept, the most learnable ones.",
        source="SFL's code",
    )
    kept_share: float = setting(
        0.5,
        minimum=0.0,
        maximum=1.0,
        help="What share of each batch the kept levels are; the rest are new ones.",
        source="SFL's code",
    )
    updates: int = setting(
        100,
        minimum=1,
        maximum=100_000_000,
        help="For how many updates they are trained on, before others are scouted.",
        source="SFL's code",
    )

    score: Literal["learnability", "generalised-learnability"] = setting(
        "learnability",
        help="How learnable a level is: p (1 - p) of its success (learnability); or, where success is rare "
        "or is not the score, the deviation of its returns, weighted by how common their mean is among the "
        "scouted levels (generalised-learnability).",
        source="SFL; generalised: Monette et al. (2025)",
    )
    unfinished: Literal["ignore", "score"] = setting("ignore", help=_UNFINISHED, source="ours")

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

    generator: str = setting(
        "simple",
        help="Where the level of the first pair comes from: a generator of the domain, or its role (random "
        "or simple). All others are edits of levels that were admitted.",
        source="POET's code",
    )
    pairs: int = setting(
        25,
        minimum=2,
        maximum=1000,
        help="How many pairs there are at most: the oldest leaves for the next.",
        source="POET's code",
    )
    turn: int = setting(
        25,
        minimum=1,
        maximum=1_000_000,
        help="Updates of each pair in a round, after which students are tried on the levels of others.",
        source="POET's code",
    )
    reproduce_at: float | None = setting(
        None,
        help="A pair may have children if its student returns this much on its level. Must be given where the"
        " domain's presets name no value.",
        source="ours",
    )
    children: int = setting(
        8,
        minimum=1,
        maximum=1000,
        help="How many children are tried after each round.",
        source="POET's code",
    )
    admitted: int = setting(
        1, minimum=1, maximum=1000, help="How many of them are admitted at most.", source="POET's code"
    )
    criterion: tuple[float, float] | None = setting(
        None,
        help="The minimal criterion: between what the returns on a child must lie, of its parent's student "
        "and of the best one. Must be given where the domain's presets name no values.",
        source="ours",
    )
    neighbours: int = setting(
        5,
        minimum=1,
        maximum=1000,
        help="Children are ranked by their distance from this many encodings, the nearest of all levels ever "
        "admitted.",
        source="POET's code",
    )
    archive: int = setting(
        2000,
        minimum=1,
        maximum=10_000_000,
        help="How many admitted levels are remembered for that, the latest.",
        source="ours; POET keeps all",
    )
    proposals: bool = setting(
        True,
        help="Whether the best student of the other pairs is also tried on a level after an update there.",
        source="ours; POET's code tries all of them",
    )
    unfinished: Literal["ignore", "score"] = setting("ignore", help=_UNFINISHED, source="ours")

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
        "PLR-perp by learnability: p(1-p), or generalised to returns",
        dataclasses.replace(_PLR, score="learnability"),
    ),
    "traced": Method(
        "ACCEL by regret, transition-prediction error and co-learnability (TRACED)",
        dataclasses.replace(_ACCEL, correction=Traced()),
    ),
    "sfl": Method("trains on the most learnable of many scouted levels (SFL)", SflTeacher()),
    "alp-gmm": Method("levels of the kinds on which returns change most (ALP-GMM)", AlpGmmTeacher()),
    "poet": Method("a population of levels, each with a student of its own (POET)", PoetTeacher()),
}
