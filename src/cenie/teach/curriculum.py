"""What a method is: a frozen record of the parts that distinguish one teacher from another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.novelty.config import CoverageConfig
from cenie.novelty.coverage import CoverageState
from cenie.teach import scores
from cenie.teach.buffer import BufferState
from cenie.teach.config import AlphaConfig, ReplayConfig
from cenie.teach.scores import ScoreInputs
from cenie.types import Level

NEW, REPLAY, EDIT = 0, 1, 2
"""What the levels of a cycle are: generated, drawn from the buffer, or edited from the last replay."""


@dataclass(frozen=True)
class Score:
    """A column of the level buffer, and its weight when levels are drawn for replay.

    A curriculum with novelty weighs its two scores itself.
    """

    name: str
    compute: Callable[[ScoreInputs], Float[Array, " n"]]
    weight: float = 1.0


@dataclass(frozen=True)
class Replay:
    """A level buffer, what is remembered of its levels, and when they are played again."""

    config: ReplayConfig
    scores: tuple[Score, ...]

    @property
    def mix(self) -> Float[Array, " s"]:
        return jnp.array([score.weight for score in self.scores], jnp.float32)


@dataclass(frozen=True)
class Editing:
    """After a replay, with some probability, small changes of the replayed levels are tried out.

    `parents`: the whole `batch`, one child each; or only the four `easy` (or `hard`) levels of the batch,
    those of the lowest (highest) first score, each of which then gets an equal share of the children.
    With `children` m > 1 a parent has m children side by side, of which only the most novel is offered to
    the buffer; a batch then has room for an m-th of the parents.
    """

    edit: Callable[[PRNGKeyArray, Level], Level]
    probability: float
    parents: Literal["batch", "easy", "hard"]
    children: int = 1


@dataclass(frozen=True)
class Novelty:
    """A model of what the student has met, and the weight of novelty beside the first score."""

    coverage: CoverageConfig
    refit_every: int
    alpha: AlphaConfig


@dataclass(frozen=True)
class Curriculum:
    """A teacher, as data. Recipes build it; `teacher.ask`, `teacher.tell` and the one cycle interpret it.

    `generate` draws one new level from a key. `learn_on_new` says whether the student takes gradient
    steps on levels that it meets for the first time.
    """

    generate: Callable[[PRNGKeyArray], Level]
    learn_on_new: bool
    replay: Replay | None = None
    editing: Editing | None = None
    novelty: Novelty | None = None

    @property
    def reads_entropy(self) -> bool:
        """Whether rollouts must keep the entropy of the policy."""
        return self.replay is not None and any(s.compute is scores.entropy for s in self.replay.scores)


class Assignment(eqx.Module):
    """What the teacher asks for in one cycle: play these levels, and learn from them or not.

    `slots` is where replayed levels are stored; `parents` (ids, or -1) and `generations` are the lineage
    of levels that may enter the buffer.
    """

    kind: Int[Array, ""]
    levels: Level
    learn: Bool[Array, ""]
    slots: Int[Array, " n"]
    parents: Int[Array, " n"]
    generations: Int[Array, " n"]


class ReplayState(eqx.Module):
    """What a teacher with a buffer remembers.

    `edit_due` says that the next cycle edits the levels in the slots `replayed`.
    """

    buffer: BufferState
    edit_due: Bool[Array, ""]
    replayed: Int[Array, " n"]


class NoveltyState(eqx.Module):
    """What a teacher with a model of coverage remembers.

    `pushes` counts the batches that entered the window, `replays` those that were replayed; `log_odds` is
    the adaptive weight of novelty.
    """

    coverage: CoverageState
    pushes: Int[Array, ""]
    replays: Int[Array, ""]
    log_odds: Float[Array, ""]


class TeacherState(eqx.Module):
    """Everything a teacher remembers between cycles."""

    replay: ReplayState | None = None
    novelty: NoveltyState | None = None
