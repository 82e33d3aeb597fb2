"""The families of teachers, and the named methods, which are values of them. Imports no JAX.

The command line reads this table before anything heavy is loaded.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from cenie.settings import Problem
from cenie.teach.config import (
    Alpha,
    Cenie,
    Constant,
    Diplr,
    EditConfig,
    Epoet,
    NoveltyConfig,
    Poet,
    ReplayConfig,
)

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

    def check(self) -> Iterator[Problem]:
        if self.edit is not None and self.edit.children > 1 and self.novelty is None:
            yield Problem("edit.children", "must be 1 without novelty, by which the best child is chosen")


Teacher = RandomTeacher | ReplayTeacher


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
    "sfl": Method(
        "replay of levels by learnability p(1-p), learns from those only",
        dataclasses.replace(_PLR, score="learnability"),
    ),
}
