"""DIPLR's novelty: how far the student's experience on a level is from that on the nearest stored level.

The published listing plays all stored levels again in every iteration. Here a level's experience is from
its last play; the distances between all stored levels are kept, and renewed for the levels that were played.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.methods.family import LevelFactory, NoveltySettings
from cenie.methods.nearest import last_of_each, mean_of_finite, nearest_others, or_largest, smallest
from cenie.methods.occupancy import Distance, Sliced, pairwise
from cenie.methods.table import Method
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.config import Constant
from cenie.replay.play import Play
from cenie.settings import setting
from cenie.student.networks.base import Network
from cenie.teach.novelty import Novelty


@dataclass(frozen=True)
class Diplr(NoveltySettings):
    """DIPLR's novelty: how far the student's experience on a level is from that on the nearest stored one."""

    kind: Literal["diplr"] = "diplr"
    distance: Distance = setting(
        factory=Sliced,
        help="The distance between the experience on two levels.",
        source="ours; the Wasserstein distance in the paper",
    )
    neighbours: int = setting(
        1,
        minimum=1,
        maximum=1000,
        help="The nearest levels over which the distance is averaged; more are less noisy.",
        source="paper",
    )

    needs_levels_alone = True

    def novelty(self, domain: LevelFactory, generator: str, capacity: int) -> Novelty:
        return DiplrNovelty(capacity, self.distance, self.neighbours)


class DiplrState(eqx.Module):
    """The knowledge of the level in each slot: its occupancy, and its distances from all others.

    No level is near to itself or to an empty slot: such distances are infinite, once and for all.
    """

    occupancies: Float[Array, "c f"]
    distances: Float[Array, "c c"]


class Compared(eqx.Module):
    """The occupancies of a batch, and their distances from the stored ones and from each other."""

    occupancies: Float[Array, "n f"]
    to_stored: Float[Array, "n c"]
    to_batch: Float[Array, "n n"]


@dataclass(frozen=True)
class DiplrNovelty:
    """The mean distance to the nearest `neighbours` among the `capacity` levels of the buffer."""

    capacity: int
    distance: Distance
    neighbours: int = 1

    def init(self, points_shape: tuple[int, int]) -> DiplrState:
        numbers = self.distance.numbers(points_shape[1])
        infinite = jnp.full((self.capacity, self.capacity), jnp.inf)
        return DiplrState(jnp.zeros((self.capacity, numbers)), infinite)

    def examine(
        self,
        state: DiplrState,
        play: Play,
        buffer: BufferState,
        *,
        student: Network | None = None,
        mesh: Mesh | None = None,
    ) -> Compared:
        """Compare a batch with what is stored."""
        occupancies = self.distance.describe(play.points)
        others = jnp.concatenate([state.occupancies, occupancies])
        distances = pairwise(self.distance, occupancies, others, mesh)
        to_stored, to_batch = distances[:, : self.capacity], distances[:, self.capacity :]
        is_other = ~jnp.eye(len(to_batch), dtype=bool)
        return Compared(
            occupancies,
            to_stored=jnp.where(buffer.mask, to_stored, jnp.inf),
            to_batch=jnp.where(is_other, to_batch, jnp.inf),
        )

    def score(self, state: DiplrState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        """DIPLR's distance: how far each level is from the nearest other one that is stored."""
        found: Compared = play.findings
        novelty = nearest_others(found.to_stored, play.slot, buffer.mask, self.neighbours)
        return or_largest(novelty, jnp.where(buffer.mask, buffer.column(NOVELTY), -jnp.inf))

    def learn(
        self,
        state: DiplrState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> DiplrState:
        """Keep what was found of the levels that are stored now."""
        found: Compared = play.findings
        places = last_of_each(play.stored_in, self.capacity)
        distances = state.distances.at[places].set(found.to_stored, mode="drop")
        distances = distances.at[:, places].set(found.to_stored.T, mode="drop")
        distances = distances.at[places[:, None], places].set(found.to_batch, mode="drop")
        return DiplrState(state.occupancies.at[places].set(found.occupancies, mode="drop"), distances)

    def rescore(
        self, state: DiplrState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"]:
        """The distance of every stored level from the nearest other one that is stored now."""
        novelty = mean_of_finite(smallest(state.distances, self.neighbours))
        return or_largest(novelty, jnp.where(buffer.mask, novelty, -jnp.inf))

    def metrics(self, state: DiplrState, buffer: BufferState) -> dict[str, Array]:
        """The difference between the stored levels: their mean distance from each other."""
        total = jnp.where(jnp.isfinite(state.distances), state.distances, 0.0).sum()
        return {"mean_distance": total / jnp.maximum(buffer.size * (buffer.size - 1), 1)}


_PAPERS = {"li2023generalization": "DIPLR: diversity of trajectories"}
_ALONE = {"alpha": Constant(value=1.0)}
"""The published ablation, marked with a dagger: novelty ranks alone."""

METHODS = (
    Method("diplr", "DIPLR", "#c9a100", "plr-robust", {"novelty": Diplr()}, _PAPERS),
    Method("diplr-dagger", "DIPLR†", "#e6d27a", "diplr", _ALONE),
    Method("accel-diplr", "ACCEL-DIPLR", "#8a6d00", "accel", {"novelty": Diplr()}, _PAPERS),
    Method("accel-diplr-dagger", "ACCEL-DIPLR†", "#bfae6b", "accel-diplr", _ALONE),
)
