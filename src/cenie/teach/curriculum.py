"""A method as data: a frozen record of the parts that distinguish one teacher from another."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cenie.records import Level, Rollout
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY, REGRET, name_problem, weight_problem
from cenie.replay.config import Alpha, Constant, ReplayConfig
from cenie.replay.play import Play
from cenie.replay.scores import Score
from cenie.replay.weight import WeightState
from cenie.teach.novelty import Novelty
from cenie.teach.source import Proposal, Source, SourceState


@dataclass(frozen=True)
class Column:
    """A score by which the stored levels are ranked.

    Attributes:
        name: The name in logs, tables and the page.
        score: The score.
        weight: How much its ranking counts among the rankings of all scores; with 0 it is only recorded.

    Raises:
        ValueError: The name is taken or no name, or the weight is no number of at least 0.
    """

    name: str
    score: Score
    weight: float = 1.0

    def __post_init__(self) -> None:
        for what, problem in (("name", name_problem(self.name)), ("weight", weight_problem(self.weight))):
            if problem is not None:
                raise ValueError(f"the {what} of a score {problem}, got {getattr(self, what)!r}")


def ranked_by(score: Score) -> tuple[Column, ...]:
    """The one column of a method that ranks levels by one of our scores."""
    return (Column(REGRET, score),)


@runtime_checkable
class Correction(Protocol):
    """A model that learns beside a score, and adds to it. What it has learned is its state, a pytree."""

    def init(self, capacity: int, num_levels: int, key: PRNGKeyArray) -> PyTree[Any]:
        """The state before any batch. Consumes the key."""
        ...

    def score(self, state: PyTree[Any], play: Play, mesh: Mesh | None) -> Float[Array, " n"]:
        """The addition to the score of each level of a batch, before the model learns from it."""
        ...

    def errors(self, state: PyTree[Any], rollout: Rollout) -> Float[Array, "n t"]:
        """The error of the model at each step, by whose gradient it learns."""
        ...

    def learn(
        self,
        state: PyTree[Any],
        play: Play,
        *,
        scores: Float[Array, " c"],
        ids: Int[Array, " c"],
        mesh: Mesh | None,
    ) -> tuple[PyTree[Any], Float[Array, " c"], dict[str, Array]]:
        """Take in a play that is stored in `play.stored_in`, after which all slots have these scores and ids.

        Returns the state, the corrected scores of all slots, and what to log.
        """
        ...


@dataclass(frozen=True)
class Replay:
    """A level buffer, the scores by which its levels are ranked, and when they are played again.

    Attributes:
        config: Settings of the buffer, of priorities and of replay.
        scores: The scores. The first one leads, where one number is needed of a level: it chooses `easy` and
            `hard` parents, and its changes move an adaptive weight of novelty.
        correction: A model that learns; what it says is added to the first score.

    Raises:
        ValueError: There is no score, two have one name, or none has a weight above 0.
    """

    config: ReplayConfig
    scores: tuple[Column, ...]
    correction: Correction | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in self.scores]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"replay needs scores of different names, got {names}")
        if not sum(column.weight for column in self.scores) > 0:
            raise ValueError(f"replay needs a score with a weight above 0: {', '.join(names)}")

    @property
    def leading(self) -> str:
        """The name of the first score."""
        return self.scores[0].name

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights of the scores, which sum to 1."""
        total = sum(column.weight for column in self.scores)
        return tuple(column.weight / total for column in self.scores)


@dataclass(frozen=True)
class Editing:
    """After a replay, with some probability, small changes of the replayed levels are tried out.

    Attributes:
        edit: From a key and a level to a changed level.
        probability: The probability that the levels of a replay are edited in the next cycle.
        parents: Which levels are edited: the whole `batch`, one child each; or only the four `easy` (or
            `hard`) levels of the batch, with the lowest (highest) score. Each parent then gets an equal share
            of the children.
        children: With m > 1 a parent has m children side by side, and only the most novel one is offered to
            the buffer; a batch then has room for an m-th of the parents.
    """

    edit: Callable[[PRNGKeyArray, Level], Level]
    probability: float
    parents: Literal["batch", "easy", "hard"]
    children: int = 1


@dataclass(frozen=True)
class Curriculum:
    """A teacher, as data. Recipes build it; `teacher.ask`, `teacher.tell` and the one cycle interpret it.

    Attributes:
        source: Makes new levels.
        learn_on_new: Whether students take gradient steps on levels that they meet for the first time:
            always, never, or as a function of the source's state says.
        replay: The level buffer and its scores, if levels are played again.
        editing: Edits of what was replayed, if there are any.
        novelty: A second ranking of the stored levels, if there is one.
        alpha: The weight of novelty; the scores share the rest.
        students: How many students play in every cycle. The first one is evaluated.
        own_levels: Whether each student replays levels of a level buffer of its own; otherwise all play the
            same levels.
        unfinished: Whether a level without a completed episode tells the source what it has returned so far
            (`score`), or nothing (`ignore`); with `replay`, its own setting of this name counts.
        features: What describes a step to the novelty: the `memory` of the network, or the `observation`.

    Raises:
        ValueError: A part needs replay and there is none, parts exclude each other, or there is no student.
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
        if self.replay is None:
            return ()
        scores = tuple(column.name for column in self.replay.scores)
        return scores if self.novelty is None else (*scores, NOVELTY)

    @property
    def buffers(self) -> int:
        """The number of level buffers."""
        if self.replay is None:
            return 0
        return self.students if self.own_levels else 1

    def learns_on_new(self, source: SourceState) -> Bool[Array, ""]:
        """Whether students learn from new levels in the cycle before which the source has this state.

        Args:
            source: The state of the source.

        Returns:
            A boolean array [].
        """
        learns = self.learn_on_new
        return jnp.asarray(learns(source) if callable(learns) else learns)

    def reads(self, part: str) -> bool:
        """Whether a score needs this optional part of a rollout.

        Args:
            part: `entropy` or `solved`.

        Returns:
            Whether any score names it.
        """
        scores = () if self.replay is None else self.replay.scores
        return any(part in column.score.needs for column in scores)


class Assignment(eqx.Module):
    """The teacher's request for one cycle: play these levels, and learn from them if `students_learn`.

    One batch for each level buffer (or one at all), as plays that are yet to be played: without `own_levels`
    all students play the first. `proposal` is what the source wants back with the outcome of its levels.
    """

    kind: Int[Array, ""]
    students_learn: Bool[Array, ""]
    batches: tuple[Play, ...]
    proposal: Proposal

    def batch_of(self, student: int) -> Play:
        """The batch that a student plays."""
        return self.batches[min(student, len(self.batches) - 1)]


class TeacherState(eqx.Module):
    """Everything a teacher remembers between cycles.

    `buffers` are the level buffers, `replayed` the slots of each that were replayed last; `edit_due` says
    that the next cycle edits the levels in them.
    """

    source: PyTree[Any] = ()
    buffers: tuple[BufferState, ...] = ()
    replayed: tuple[Int[Array, " n"], ...] = ()
    edit_due: Bool[Array, ""] | None = None
    novelty: PyTree[Any] = None
    weight: WeightState | None = None
    correction: PyTree[Any] = None

    @property
    def buffer(self) -> BufferState | None:
        """The (first) level buffer, if there is one."""
        return self.buffers[0] if self.buffers else None
