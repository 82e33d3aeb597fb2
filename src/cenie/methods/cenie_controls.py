"""Controls for CENIE's novelty: rankings that say nothing of how novel a level is, in its place.

Whatever they reach, novelty has to exceed before it can be said to help.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.methods.cenie import CenieNovelty, CenieState
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.play import Play


class ShuffledState(eqx.Module):
    """The state of the novelty that is dealt out, and the number of batches so far."""

    inner: CenieState
    batches: Int[Array, ""]


@dataclass(frozen=True)
class ShuffledNovelty:
    """CENIE's novelty, shuffled: after every batch each stored level gets the novelty of another one, at
    random.

    As many levels are as novel, but not the same ones.
    """

    inner: CenieNovelty

    def init(self, points_shape: tuple[int, int]) -> ShuffledState:
        return ShuffledState(self.inner.init(points_shape), jnp.zeros((), jnp.int32))

    def score(self, state: ShuffledState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        return self.inner.score(state.inner, play, buffer)

    def learn(
        self,
        state: ShuffledState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> ShuffledState:
        learned = self.inner.learn(state.inner, play, enters=enters, key=key, mesh=mesh)
        return ShuffledState(learned, state.batches + 1)

    def rescore(
        self, state: ShuffledState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"]:
        """The novelties of the stored levels, dealt out anew among them."""
        measured = self.inner.rescore(state.inner, buffer, mesh=mesh)
        stored = buffer.column(NOVELTY) if measured is None else measured
        chance = jax.random.uniform(jax.random.key(state.batches), stored.shape)
        slots = jnp.where(buffer.mask, jnp.arange(len(stored)), len(stored))
        dealt = jnp.argsort(jnp.where(buffer.mask, chance, 2.0))
        return stored.at[jnp.sort(slots)].set(stored[dealt], mode="drop")

    def metrics(self, state: ShuffledState, buffer: BufferState) -> dict[str, Array]:
        return self.inner.metrics(state.inner, buffer)


class AgeState(eqx.Module):
    """The number of batches played."""

    batches: Int[Array, ""]


@dataclass(frozen=True)
class AgeNovelty:
    """The time at which a level was last played, as if what is recent were novel."""

    def init(self, points_shape: tuple[int, int]) -> AgeState:
        return AgeState(jnp.zeros((), jnp.int32))

    def score(self, state: AgeState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        return jnp.broadcast_to(state.batches.astype(jnp.float32), play.points.valid.shape[:1])

    def learn(
        self,
        state: AgeState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> AgeState:
        return AgeState(state.batches + 1)

    def rescore(self, state: AgeState, buffer: BufferState, *, mesh: Mesh | None = None) -> None:
        return None

    def metrics(self, state: AgeState, buffer: BufferState) -> dict[str, Array]:
        return {}
