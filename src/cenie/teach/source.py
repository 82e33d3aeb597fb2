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
        """The state before the first proposal.

        Args:
            key: Consumed.

        Returns:
            The state, a tree of arrays.
        """
        ...

    def propose(self, state: SourceState, key: PRNGKeyArray, count: int) -> tuple[Level, Proposal]:
        """Propose new levels.

        Args:
            state: The state of the source.
            key: Consumed.
            count: The number of levels, n.

        Returns:
            The levels with a leading axis [n]; and what the source wants back in `learn`, a tree of arrays.
        """
        ...

    def learn(
        self, state: SourceState, proposal: Proposal, feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[SourceState, dict[str, Array]]:
        """Take in how the students fared on the proposed levels. Called after new levels only, never after
        replayed or edited ones.

        Args:
            state: The state of the source.
            proposal: The second result of `propose`.
            feedback: For each student the outcomes of the n levels.
            key: Consumed.

        Returns:
            The state after it, and what to log by name, each an array [].
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
    """Levels drawn one by one from a fixed generator, which learns nothing.

    Attributes:
        generate: From a key to a level.
    """

    generate: Callable[[PRNGKeyArray], Level]

    def init(self, key: PRNGKeyArray) -> tuple[()]:
        """The state before the first proposal.

        Args:
            key: Not used.

        Returns:
            (): nothing is remembered.
        """
        return ()

    def propose(self, state: tuple[()], key: PRNGKeyArray, count: int) -> tuple[Level, tuple[()]]:
        """Draw new levels.

        Args:
            state: ().
            key: Consumed.
            count: The number of levels, n.

        Returns:
            The levels with a leading axis [n], and ().
        """
        return jax.vmap(self.generate)(jax.random.split(key, count)), ()

    def learn(
        self, state: tuple[()], proposal: tuple[()], feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[tuple[()], dict[str, Array]]:
        """Learn nothing.

        Args:
            state: ().
            proposal: ().
            feedback: Not used.
            key: Not used.

        Returns:
            (), and nothing to log.
        """
        return state, {}
