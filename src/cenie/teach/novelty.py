"""What a novelty is: something that ranks levels beside their score, and learns from experience."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cenie.records import Level
from cenie.replay.buffer import BufferState, Remembered
from cenie.replay.outcomes import Points
from cenie.student.networks import Network

NoveltyState = PyTree[Any]


class Experience(eqx.Module):
    """What novelty looks at: the levels of a batch, and the state-action points of the student on them.

    `is_new`: the batch was made by the source, as opposed to replayed or edited levels. `student` is the
    network of the one who played them, where there is one. The teacher adds in which `slots` levels are
    stored already (-1: in none), what an `ExaminingNovelty` found, and whether the student `learned` from it.
    """

    levels: Level
    points: Points
    is_new: Bool[Array, ""]
    student: Network | None = None
    slots: Int[Array, " n"] | None = None
    findings: Any = None
    learned: Bool[Array, ""] | None = None


@runtime_checkable
class Novelty(Protocol):
    """A measure of novelty. Its methods are pure; what it has learned is its state, a pytree of arrays."""

    def remembered(self, points_shape: tuple[int, int]) -> Mapping[str, Remembered]:
        """What is to be kept of each stored level. `points_shape`: points per level, numbers per point."""
        ...

    def init(self, points_shape: tuple[int, int]) -> NoveltyState:
        """The state before any experience."""
        ...

    def score(self, state: NoveltyState, experience: Experience, buffer: BufferState) -> Float[Array, " n"]:
        """How novel each level is, before `learn` takes it in."""
        ...

    def memory(self, state: NoveltyState, experience: Experience) -> dict[str, Float[Array, "n ..."]]:
        """The values of `remembered` for these levels."""
        ...

    def learn(
        self,
        state: NoveltyState,
        experience: Experience,
        *,
        slots: Int[Array, " n"],
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> NoveltyState:
        """Take in a batch after it was stored in the `slots` (-1: not stored). Consumes the key.

        `enters` says that the student learns from it, or that the buffer is still filling. The devices of
        the `mesh`, if there is one, may share the work.
        """
        ...

    def rescore(
        self, state: NoveltyState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"] | None:
        """New scores of all slots, where they change with what was learned; None where they do not."""
        ...

    def metrics(self, state: NoveltyState, buffer: BufferState) -> dict[str, Array]:
        """What to log: single numbers, or several in an array (`measure.apart`)."""
        ...


@runtime_checkable
class ExaminingNovelty(Novelty, Protocol):
    """A novelty that needs to find something out about a batch once, before its other methods are called."""

    def examine(
        self, state: NoveltyState, experience: Experience, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Any:
        """What there is to know of the levels: the `findings` of the experience that the others then get."""
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
