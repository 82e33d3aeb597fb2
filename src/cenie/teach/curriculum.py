"""What a method is: a frozen record of the parts that distinguish one teacher from another."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cenie.teach.buffer import BufferState
from cenie.teach.config import Alpha, Constant, ReplayConfig
from cenie.teach.novelty import Novelty
from cenie.teach.scores import Score
from cenie.teach.source import Proposal, Source, SourceState
from cenie.teach.traced import TracedCorrection, TracedState
from cenie.types import Level

NEW, REPLAY, EDIT = 0, 1, 2
"""What the levels of a cycle are: new ones of the source, replayed ones of the buffer, or edits of those."""

REGRET, NOVELTY = "regret", "novelty"
"""The columns of the level buffer: the score of the levels, whichever it is, and novelty where it counts."""


@dataclass(frozen=True)
class Replay:
    """A level buffer, the score by which its levels are ranked, and when they are played again.

    `correction` is what a model that learns adds to the scores.
    """

    config: ReplayConfig
    score: Score
    correction: TracedCorrection | None = None


@dataclass(frozen=True)
class Editing:
    """After a replay, with some probability, small changes of the replayed levels are tried out.

    `parents`: the whole `batch`, one child each; or only the four `easy` (or `hard`) levels of the batch,
    those of the lowest (highest) score, each of which then gets an equal share of the children.
    With `children` m > 1 a parent has m children side by side, of which only the most novel is offered to
    the buffer; a batch then has room for an m-th of the parents.
    """

    edit: Callable[[PRNGKeyArray, Level], Level]
    probability: float
    parents: Literal["batch", "easy", "hard"]
    children: int = 1


@dataclass(frozen=True)
class Curriculum:
    """A teacher, as data. Recipes build it; `teacher.ask`, `teacher.tell` and the one cycle interpret it.

    `source` makes new levels. `learn_on_new` says whether students take gradient steps on levels that they
    meet for the first time: always, never, or as a function of the source's state says. `unfinished` says
    whether a level of which no episode was completed tells the source what it has returned so far; with
    `replay` its own setting of this name counts. `novelty` ranks the levels of the buffer beside the score,
    with the weight `alpha`; `features` says what describes a step to it. All `students` play in every cycle:
    the same levels, or, where `own_levels` says so, each those of its own level buffer when levels are
    replayed. The first student is the one that is
    evaluated.
    """

    source: Source
    learn_on_new: bool | Callable[[SourceState], Bool[Array, ""]]
    replay: Replay | None = None
    editing: Editing | None = None
    novelty: Novelty | None = None
    alpha: Alpha = field(default_factory=Constant)
    students: int = 1
    own_levels: bool = False
    unfinished: Literal["ignore", "score"] = "ignore"
    features: Literal["memory", "observation"] = "memory"

    def __post_init__(self) -> None:
        for name in ("editing", "novelty", "own_levels"):
            if self.replay is None and getattr(self, name):
                raise ValueError(f"a curriculum with {name} needs replay")
        if self.own_levels and self.novelty is not None:
            raise ValueError("novelty is measured for one level buffer: own_levels must be False")
        if self.own_levels and self.replay is not None and self.replay.correction is not None:
            raise ValueError("scores are corrected for one level buffer: own_levels must be False")
        if self.students < 1:
            raise ValueError(f"a curriculum needs at least one student, got {self.students}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the scores that are stored of each level."""
        return (REGRET,) if self.novelty is None else (REGRET, NOVELTY)

    @property
    def buffers(self) -> int:
        """How many level buffers there are."""
        if self.replay is None:
            return 0
        return self.students if self.own_levels else 1

    def learns_on_new(self, source: SourceState) -> Bool[Array, ""]:
        """Whether students learn from new levels in the cycle before which the source has this state."""
        learns = self.learn_on_new
        return jnp.asarray(learns(source) if callable(learns) else learns)

    def reads(self, part: str) -> bool:
        """Whether the score needs this optional part of a rollout."""
        return self.replay is not None and part in self.replay.score.needs


class Batch(eqx.Module):
    """The levels that a student is to play.

    `slots` is where replayed levels are stored; `parents` (ids, or -1) and `generations` are the lineage
    of levels that may enter the buffer.
    """

    levels: Level
    slots: Int[Array, " n"]
    parents: Int[Array, " n"]
    generations: Int[Array, " n"]


class Assignment(eqx.Module):
    """What the teacher asks for in one cycle: play these levels, and learn from them if `students_learn`.

    One batch for each level buffer (or one at all): without `own_levels` all students play the first.
    `proposal` is what the source wants back with the outcome of its levels.
    """

    kind: Int[Array, ""]
    students_learn: Bool[Array, ""]
    batches: tuple[Batch, ...]
    proposal: Proposal

    def batch_of(self, student: int) -> Batch:
        return self.batches[min(student, len(self.batches) - 1)]


class ReplayState(eqx.Module):
    """A level buffer, and the slots that were `replayed` last."""

    buffer: BufferState
    replayed: Int[Array, " n"]


class WeightState(eqx.Module):
    """What the weight of novelty depends on: the number of replays, and the log-odds of an adaptive one."""

    replays: Int[Array, ""]
    log_odds: Float[Array, ""]


class TeacherState(eqx.Module):
    """Everything a teacher remembers between cycles. `edit_due`: the next cycle edits what was replayed."""

    source: PyTree[Any] = ()
    replays: tuple[ReplayState, ...] = ()
    edit_due: Bool[Array, ""] | None = None
    novelty: PyTree[Any] = None
    weight: WeightState | None = None
    correction: TracedState | None = None

    @property
    def replay(self) -> ReplayState | None:
        """The (first) level buffer, if there is one."""
        return self.replays[0] if self.replays else None
