"""Where new levels come from: a source proposes them, and may learn from what became of its proposals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array, PRNGKeyArray, PyTree

from cenie.envs.base import Environment
from cenie.records import Level
from cenie.replay.outcomes import Outcomes
from cenie.student.config import StudentConfig
from cenie.student.networks.base import Network
from cenie.student.ppo import StudentState

SourceState = PyTree[Any]
Proposal = PyTree[Any]
"""The part of a proposal that its source needs in order to learn from it, such as the design episode."""


@runtime_checkable
class Source(Protocol):
    """A maker of levels. Its methods are pure; what it remembers is its state, a pytree of arrays."""

    def init(self, key: PRNGKeyArray) -> SourceState:
        """The state before the first proposal. Consumes the key."""
        ...

    def propose(self, state: SourceState, key: PRNGKeyArray, count: int) -> tuple[Level, Proposal]:
        """`count` levels along a leading axis. Consumes the key."""
        ...

    def learn(
        self, state: SourceState, proposal: Proposal, feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[SourceState, dict[str, Array]]:
        """Take in how each student fared on the proposed levels; returns what to log. Consumes the key.

        Called after new levels only, never after replayed or edited ones.
        """
        ...


@runtime_checkable
class PopulationSource(Source, Protocol):
    """A source that has students of its own and plays one of them in each cycle.

    The student of the run is then a copy of that one which is to be evaluated, made anew after every cycle.
    """

    def with_student(self, state: SourceState, student: StudentState) -> SourceState:
        """The state of a population that begins with this student, which has learned nothing."""
        ...

    def player(self, state: SourceState) -> StudentState:
        """The student that plays the levels that are proposed next."""
        ...

    def taken_back(self, state: SourceState, student: StudentState) -> SourceState:
        """Put the student that just played back into the population, learned or not, before `learn`."""
        ...

    def evaluated(self, state: SourceState) -> StudentState:
        """The student that stands for the population."""
        ...


@runtime_checkable
class LearningSource(Source, Protocol):
    """A source that makes levels by playing an environment, and learns from that as a student does."""

    def learner(self, state: SourceState, count: int) -> tuple[Environment, StudentConfig, Network]:
        """The maker of `count` levels: its environment, its settings as a student's, and its network."""
        ...


@dataclass(frozen=True)
class RandomSource:
    """Levels drawn one by one from a fixed generator, which learns nothing."""

    generate: Callable[[PRNGKeyArray], Level]

    def init(self, key: PRNGKeyArray) -> tuple[()]:
        return ()

    def propose(self, state: tuple[()], key: PRNGKeyArray, count: int) -> tuple[Level, tuple[()]]:
        return jax.vmap(self.generate)(jax.random.split(key, count)), ()

    def learn(
        self, state: tuple[()], proposal: tuple[()], feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[tuple[()], dict[str, Array]]:
        return state, {}
