"""The interface of a novelty: it ranks levels beside their score, and learns from experience."""

from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from cenie.replay.buffer import BufferState
from cenie.replay.play import Play
from cenie.student.networks.base import Network

NoveltyState = PyTree[Any]


@runtime_checkable
class Novelty(Protocol):
    """A measure of novelty. Its methods are pure; what it has learned is its state, a pytree of arrays.

    What it keeps of the stored levels is a part of its state, by slot: `learn` is told of every play, and
    `play.stored_in` says where its levels are.
    """

    def init(self, points_shape: tuple[int, int]) -> NoveltyState:
        """The state before any play.

        Args:
            points_shape: Points for each level, and numbers of a point.

        Returns:
            The state, a tree of arrays.
        """
        ...

    def score(self, state: NoveltyState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        """The novelty of each of n levels, before `learn` takes the play in.

        Args:
            state: The state of the novelty.
            play: A located play.
            buffer: The level buffer before this play.

        Returns:
            The novelties [n].
        """
        ...

    def learn(
        self,
        state: NoveltyState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> NoveltyState:
        """Take in a play after it was stored in `play.stored_in`.

        Args:
            state: The state of the novelty.
            play: The play.
            enters: Whether the student learns from it, or the buffer is still filling [].
            key: Consumed.
            mesh: The devices that may share the work, if there are several.

        Returns:
            The state after it.
        """
        ...

    def rescore(
        self, state: NoveltyState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"] | None:
        """New scores of all slots, where they change with what was learned.

        Args:
            state: The state of the novelty.
            buffer: The level buffer of c slots.
            mesh: The devices that may share the work, if there are several.

        Returns:
            The novelties [c]; None if they do not change.
        """
        ...

    def metrics(self, state: NoveltyState, buffer: BufferState) -> dict[str, Any]:
        """The numbers to log.

        Args:
            state: The state of the novelty.
            buffer: The level buffer.

        Returns:
            Single numbers by name, or `Several` in one array.
        """
        ...


@runtime_checkable
class ExaminingNovelty(Novelty, Protocol):
    """A novelty that needs to find something out about a play once, before its other methods are called."""

    def examine(
        self,
        state: NoveltyState,
        play: Play,
        buffer: BufferState,
        *,
        student: Network | None = None,
        mesh: Mesh | None = None,
    ) -> Any:
        """Examine the levels: return the `findings` of the play that the others then get.

        `student` is the network of the first student, where there is one.
        """
        ...


@runtime_checkable
class AccompanyingNovelty(Novelty, Protocol):
    """A novelty that keeps copies of the student."""

    def with_student(self, state: NoveltyState, student: Network) -> NoveltyState:
        """The state before any experience, once the student is there, who has learned nothing yet."""
        ...


def most_novel(novelty_scores: Float[Array, " n"], children: int) -> Bool[Array, " n"]:
    """The most novel of each `children` neighbours; of equal ones the first."""
    families = novelty_scores.reshape(-1, children)
    best = jnp.argmax(families, axis=1)
    return (jnp.arange(children) == best[:, None]).reshape(-1)
