"""POET's novelty: how far a level, written as a few numbers, is from the nearest of all that were admitted.

It looks at the level alone: what the student does on it plays no part, and levels of one encoding are equal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.methods.family import LevelFactory, NoveltySettings
from cenie.methods.nearest import euclidean, last_of_each, mean_of_finite, or_largest, smallest
from cenie.methods.table import Method
from cenie.records import Level
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.play import Play
from cenie.settings import Problem, SettingsError, setting
from cenie.student.networks.base import Network
from cenie.teach.novelty import Novelty
from cenie.xla.devices import on_own_rows


@dataclass(frozen=True)
class Poet(NoveltySettings):
    """POET's novelty: how far a level's encoding, a few numbers, is from the nearest ones admitted so far."""

    kind: Literal["poet"] = "poet"
    neighbours: int = setting(
        5,
        minimum=1,
        maximum=1000,
        help="The nearest encodings over which the distance is averaged.",
        source="POET's code",
    )
    archive: int = setting(
        20_000,
        minimum=1,
        maximum=10_000_000,
        help="Encodings of levels that once entered the buffer: at most this many, the latest.",
        source="ours; POET keeps all",
    )

    def novelty(self, domain: LevelFactory, generator: str, capacity: int) -> Novelty:
        encode, generate = domain.encoding, domain.generator(generator)
        if encode is None:
            message = "poet compares encodings of levels, and this domain has none"
            raise SettingsError([Problem("teacher.novelty", message)])
        (numbers,) = jax.eval_shape(lambda: encode(generate(jax.random.key(0)))).shape
        return PoetNovelty(encode, numbers, capacity, self.neighbours, self.archive)


class PoetState(eqx.Module):
    """The encodings of the latest levels that entered the buffer, and the number of all that did.

    `stored` and `nearest` are the encoding of the level in each slot, and its distances from the nearest
    others of the archive: what is admitted later can only come closer.
    """

    archive: Float[Array, "a d"]
    admitted: Int[Array, ""]
    stored: Float[Array, "c d"]
    nearest: Float[Array, "c k"]


class Encoded(eqx.Module):
    """The encodings of a batch, and how far the nearest of the archive are from each."""

    encodings: Float[Array, "n d"]
    nearest: Float[Array, "n k"]


@dataclass(frozen=True)
class PoetNovelty:
    """The mean distance to the nearest `neighbours` in the `archive` of encodings, each of `numbers`
    numbers."""

    encode: Callable[[Level], Float[Array, " d"]]
    numbers: int
    capacity: int
    neighbours: int
    archive: int

    def init(self, points_shape: tuple[int, int]) -> PoetState:
        return PoetState(
            archive=jnp.zeros((self.archive, self.numbers)),
            admitted=jnp.zeros((), jnp.int32),
            stored=jnp.zeros((self.capacity, self.numbers)),
            nearest=jnp.full((self.capacity, self.neighbours), jnp.inf),
        )

    def examine(
        self,
        state: PoetState,
        play: Play,
        buffer: BufferState,
        *,
        student: Network | None = None,
        mesh: Mesh | None = None,
    ) -> Encoded:
        """Encode a batch, and look for its neighbours."""
        # A loop in there must not wait for the loops of other devices.
        encodings = on_own_rows(mesh, jax.vmap(self.encode), play.levels)
        exists = jnp.arange(self.archive) < state.admitted
        distances = jnp.where(exists, euclidean(encodings, state.archive), jnp.inf)
        return Encoded(encodings, smallest(distances, self.neighbours))

    def score(self, state: PoetState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        """The mean distance of each level from its neighbours; a stored level is not its own."""
        is_stored = (play.slot >= 0)[:, None]
        found: Encoded = play.findings
        novelty = mean_of_finite(jnp.where(is_stored, state.nearest[play.slot], found.nearest))
        return or_largest(novelty, jnp.where(buffer.mask, buffer.column(NOVELTY), -jnp.inf))

    def learn(
        self,
        state: PoetState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> PoetState:
        """Let the levels that have just entered the buffer into the archive."""
        found: Encoded = play.findings
        places = last_of_each(jnp.where(play.slot < 0, play.stored_in, -1), self.capacity)
        is_admitted = places < self.capacity
        stored = state.stored.at[places].set(found.encodings, mode="drop")
        nearest = state.nearest.at[places].set(found.nearest, mode="drop")
        is_other = is_admitted & (places != jnp.arange(self.capacity)[:, None])
        newcomers = jnp.where(is_other, euclidean(stored, found.encodings), jnp.inf)

        number = state.admitted + jnp.cumsum(is_admitted) - 1
        turn = jnp.where(is_admitted, number % self.archive, self.archive)
        return PoetState(
            archive=state.archive.at[turn].set(found.encodings, mode="drop"),
            admitted=state.admitted + is_admitted.sum(),
            stored=stored,
            nearest=smallest(jnp.concatenate([nearest, newcomers], axis=1), self.neighbours),
        )

    def rescore(
        self, state: PoetState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"]:
        """The mean distance of every stored level from its neighbours of today."""
        novelty = mean_of_finite(state.nearest)
        return or_largest(novelty, jnp.where(buffer.mask, novelty, -jnp.inf))

    def metrics(self, state: PoetState, buffer: BufferState) -> dict[str, Array]:
        """The number of levels admitted so far."""
        return {"admitted": state.admitted}


_PAPERS = {"wang2019poet": "POET: novelty by the encoding of levels"}

METHODS = (
    Method("plr-poet", "PLR-POET", "#5e60ce", "plr-robust", {"novelty": Poet()}, _PAPERS),
    Method("accel-poet", "ACCEL-POET", "#3a0ca3", "accel", {"novelty": Poet()}, _PAPERS),
)
