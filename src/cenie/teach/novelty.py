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
        """The state before any play. `points_shape`: points per level, numbers per point."""
        ...

    def score(self, state: NoveltyState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        """The novelty of each level of a located play, before `learn` takes it in."""
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
        """Take in a play after it was stored in `play.stored_in`. Consumes the key.

        `enters` says that the student learns from it, or that the buffer is still filling. The devices of
        the `mesh`, if there is one, may share the work.
        """
        ...

    def rescore(
        self, state: NoveltyState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"] | None:
        """New scores of all slots, where they change with what was learned; None where they do not."""
        ...

    def metrics(self, state: NoveltyState, buffer: BufferState) -> dict[str, Any]:
        """The numbers to log: single numbers by name, or `Several` in one array."""
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
