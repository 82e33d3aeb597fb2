"""The record of a whole cycle: a student's play on a batch of levels, and the teacher's knowledge of them.

A play begins as what the teacher asks for, and every step of a cycle fills in more of it: playing (rollout,
outcomes, advantages, points), locating (which levels are equal, and which are stored), scoring and storing.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from cenie.records import Advantages, Level, Rollout
from cenie.replay.outcomes import Outcomes, Points
from cenie.xla.devices import per_level

if TYPE_CHECKING:
    _T = TypeVar("_T")
    Later = Annotated[_T, "filled in by a later step of the cycle"]
else:
    # None before. A type checker does not ask at every use whether the step was made.
    Later = Optional

NEW, REPLAY, EDIT = 0, 1, 2
"""The kinds of levels in a cycle: new ones of the source, replayed ones of the buffer, or edits of those."""

_LATER: Any = None

_STEPS = ("rollout", "outcomes", "advantages", "points", "statistics", "findings")
"""Fields used for scores and novelty only, and large or split over devices."""


class Play(eqx.Module):
    """A student's play on a batch of `n` levels, and the teacher's knowledge of them. Parts that are not
    known yet are None. `t` is the number of steps.

    What is per level is split over the devices of a run, as long as it has many steps; what the teacher knows
    is on every device in full.

    Attributes:
        levels: Asked for: the levels, with a leading axis [n].
        rollout: Played: observations, actions, rewards and ends of the steps [n, t, ...].
        outcomes: Played: the completed episodes of each level.
        advantages: Played: advantages, targets and errors of the critic [n, t].
        points: Played: state-action points for novelty, where they are needed.
        statistics: Played: numbers of the domain that describe the levels [n], by name, where they are
            logged.
        kind: Asked for: `NEW`, `REPLAY` or `EDIT` [].
        learned: Asked for: whether the student learned from the levels [].
        parents: Asked for: the id of the edited level [n], or -1, in case the level enters the buffer.
        generations: Asked for: the number of edits since a generated level [n].
        leader: Located: the first row of the batch with the same level [n].
        slot: Located: where the level was stored before this batch [n], or -1.
        fingerprints: Located: a hash of each level [n].
        best_return: Located: the highest return ever seen on each level [n], -inf without any. This batch is
            included once the play is scored.
        findings: Located: what an `ExaminingNovelty` found out.
        scores: Scored: scores [n] by name.
        entry_scores: Scored: scores [n] of the first episodes alone, where these decide about the entry.
        valid: Scored: which rows have a score that counts [n].
        stored_in: Stored: where each level is stored after the batch [n], or -1.
        episodes: Which completed episodes a score looks at.
    """

    levels: Level = per_level()
    rollout: Later[Rollout] = per_level(default=None)
    outcomes: Later[Outcomes] = per_level(default=None)
    advantages: Later[Advantages] = per_level(default=None)
    points: Later[Points] = per_level(default=None)
    statistics: Later[dict[str, Array]] = per_level(default=None)
    kind: Later[Int[Array, ""]] = _LATER
    learned: Later[Bool[Array, ""]] = _LATER
    parents: Later[Int[Array, " n"]] = _LATER
    generations: Later[Int[Array, " n"]] = _LATER
    leader: Later[Int[Array, " n"]] = _LATER
    slot: Later[Int[Array, " n"]] = _LATER
    fingerprints: Later[UInt32[Array, " n"]] = _LATER
    best_return: Later[Float[Array, " n"]] = _LATER
    findings: Any = None
    scores: Later[dict[str, Float[Array, " n"]]] = _LATER
    entry_scores: Later[dict[str, Float[Array, " n"]]] = _LATER
    valid: Later[Bool[Array, " n"]] = _LATER
    stored_in: Later[Int[Array, " n"]] = _LATER
    episodes: Literal["average", "first", "last"] = eqx.field(static=True, default="average")

    @property
    def is_new(self) -> Bool[Array, ""]:
        """Whether the source made the levels, as opposed to replayed or edited ones."""
        return self.kind == NEW

    @property
    def is_replayed(self) -> Bool[Array, ""]:
        """Whether the levels come from the buffer."""
        return self.kind == REPLAY

    @property
    def same_level(self) -> Bool[Array, "n n"]:
        """Pairs of rows with the same level."""
        return self.leader[:, None] == self.leader

    @property
    def is_copy(self) -> Bool[Array, " n"]:
        """The rows whose level has an earlier row in the batch."""
        return self.leader < jnp.arange(self.leader.shape[0])

    def located_as(self, other: "Play") -> "Play":
        """The play with what `locate` found out about another play of the same levels.

        Args:
            other: The other play.

        Returns:
            The play.
        """
        names = ("leader", "slot", "fingerprints", "best_return")
        return dataclasses.replace(self, **{name: getattr(other, name) for name in names})

    def with_best_return(self) -> "Play":
        """The play whose best returns include this batch: all rows of a level have one.

        Returns:
            The play.
        """
        reached = jnp.where(jnp.isfinite(self.outcomes.max_return), self.outcomes.max_return, -jnp.inf)
        best_now = jnp.where(self.same_level, reached, -jnp.inf).max(axis=1)
        return dataclasses.replace(self, best_return=jnp.maximum(self.best_return, best_now))

    def without_steps(self) -> "Play":
        """The play as the buffer needs it, whose size does not depend on the number of steps.

        Returns:
            The play.
        """
        return dataclasses.replace(self, **dict.fromkeys(_STEPS))
