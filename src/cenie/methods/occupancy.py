"""State-action occupancies of levels, and the Wasserstein-1 distance between them.

A distance is its settings: what it keeps of a cloud of points, and how far two clouds are apart.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from cenie.methods.nearest import euclidean
from cenie.replay.outcomes import Points, evenly_spread
from cenie.settings import setting
from cenie.xla.devices import Devices, shared, side_by_side

_BLOCK = 16
"""Numbers that are compared at a time: one pass over the sums for each block, instead of one for each. 8 take
three times as long on a CPU, and more gain nothing."""


@dataclass(frozen=True)
class Sliced:
    """The Wasserstein distance of projections, averaged over fixed random directions: cheap.

    On a line the best plan moves points in their order, so that sorted projections are all that is needed.
    """

    kind: Literal["sliced"] = "sliced"
    directions: int = setting(
        64, minimum=1, maximum=100_000, help="Directions on which points are projected.", source="ours"
    )
    quantiles: int = setting(
        32,
        minimum=1,
        maximum=100_000,
        help="Equally likely values by which the projections of a level's points are kept.",
        source="ours",
    )

    def numbers(self, dimensions: int) -> int:
        """The length of the description of a cloud of points in this many `dimensions`."""
        return self.directions * self.quantiles

    def describe(self, points: Points) -> Float[Array, "n f"]:
        """The description of each level's points that is kept: quantiles of their projections."""
        directions = unit_directions(points.values.shape[2], self.directions)
        projected = jnp.swapaxes(points.values @ directions, 1, 2)
        ordered = ascending(jnp.where(points.valid[:, None], projected, jnp.inf))
        exists = jnp.arange(points.valid.shape[1]) < points.valid.sum(axis=1, keepdims=True)
        return _flat(evenly_spread(Points(jnp.swapaxes(ordered, 1, 2), exists), self.quantiles))

    def between(self, rows: Float[Array, "r f"], others: Float[Array, "m f"]) -> Float[Array, "r m"]:
        """The sliced Wasserstein-1 distances of all pairs: the mean difference of numbers of the same
        rank."""

        def blocks(vectors: Float[Array, "r f"]) -> Float[Array, "blocks b r"]:
            padded = jnp.pad(vectors, ((0, 0), (0, -vectors.shape[1] % _BLOCK)))
            return padded.T.reshape(-1, _BLOCK, len(vectors))

        def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            for row, other in zip(*block):
                total = total + jnp.abs(row[:, None] - other)
            return total, None

        nothing = jnp.zeros((rows.shape[0], others.shape[0]))
        total, _ = lax.scan(add, nothing, (blocks(rows), blocks(others)))
        return total / rows.shape[1]


@dataclass(frozen=True)
class Exact:
    """The exact Wasserstein distance between `points` of each level: slow, for small buffers."""

    kind: Literal["exact"] = "exact"
    points: int = setting(
        32, minimum=1, maximum=1000, help="Points of each level that are compared.", source="ours"
    )

    def numbers(self, dimensions: int) -> int:
        """The length of the description of a cloud of points in this many `dimensions`."""
        return self.points * dimensions

    def describe(self, points: Points) -> Float[Array, "n f"]:
        """The points that are kept of each level."""
        return _flat(evenly_spread(points, self.points))

    def between(self, rows: Float[Array, "r f"], others: Float[Array, "m f"]) -> Float[Array, "r m"]:
        """The cost of the best one-to-one assignment between equally many points, of all pairs of levels."""
        from optax.assignment import hungarian_algorithm  # loaded where it is used, as in `student.ppo`

        def distance(first: Float[Array, "k d"], second: Float[Array, "k d"]) -> Float[Array, ""]:
            cost = euclidean(first, second)
            return jnp.mean(cost[hungarian_algorithm(cost)])

        rows, others = (flat.reshape(len(flat), self.points, -1) for flat in (rows, others))
        # All pairs at once would hold a matrix of costs for each.
        return lax.map(lambda row: jax.vmap(distance, (None, 0))(row, others), rows)


Distance = Sliced | Exact


def unit_directions(dimensions: int, count: int) -> np.ndarray:
    """Directions [dimensions, count] of length 1, the same in every run."""
    drawn = np.random.default_rng(0).normal(size=(dimensions, count)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=0)


def ascending(values: Float[Array, "*a"]) -> Float[Array, "*a"]:
    """Sorted along the last axis, as whole numbers of the same order: XLA sorts these four times as fast."""

    def in_order(bits: Int[Array, "*a"]) -> Int[Array, "*a"]:
        # The bits of negative numbers grow with their size. This is its own inverse.
        return bits ^ ((bits >> 31) & 0x7FFFFFFF)

    keys = lax.sort(in_order(lax.bitcast_convert_type(values, jnp.int32)))
    return lax.bitcast_convert_type(in_order(keys), jnp.float32)


def pairwise(
    distance: Distance, rows: Float[Array, "r f"], others: Float[Array, "m f"], mesh: Mesh | None = None
) -> Float[Array, "r m"]:
    """The distances between all pairs, every one on every device of the mesh, which share the work."""

    def on_each(devices: Devices | None, rows: Array, others: Array) -> Float[Array, "r m"]:
        return shared(devices, lambda own: distance.between(own, others), rows)

    return side_by_side(mesh, on_each, rows, others)


def _flat(kept: Float[Array, "n k d"]) -> Float[Array, "n f"]:
    """A row for each level; zeros where it has no points."""
    return jnp.where(jnp.isfinite(kept), kept, 0.0).reshape(kept.shape[0], -1)
