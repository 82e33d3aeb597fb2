"""State-action occupancies of levels, and the Wasserstein-1 distance between them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from cenie.methods.nearest import euclidean
from cenie.replay.outcomes import Points, evenly_spread
from cenie.settings import setting
from cenie.xla.devices import Devices, shared, side_by_side


@dataclass(frozen=True)
class Sliced:
    """The Wasserstein distance of projections, averaged over fixed random directions: cheap."""

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


@dataclass(frozen=True)
class Exact:
    """The exact Wasserstein distance between `points` of each level: slow, for small buffers."""

    kind: Literal["exact"] = "exact"
    points: int = setting(
        32, minimum=1, maximum=1000, help="Points of each level that are compared.", source="ours"
    )


@dataclass(frozen=True)
class Entropic:
    """The Wasserstein distance by blurred plans (Sinkhorn), less that of each level from itself: for small
    buffers, as the exact one is."""

    kind: Literal["entropic"] = "entropic"
    points: int = setting(
        32, minimum=1, maximum=1000, help="Points of each level that are compared.", source="ours"
    )
    blur: float = setting(
        0.05,
        above=0.0,
        maximum=1000.0,
        help="The blur of plans: a share of the median distance between the points of the two levels.",
        source="ours",
    )
    iterations: int = setting(
        50, minimum=1, maximum=100_000, help="Steps of Sinkhorn's algorithm.", source="ours"
    )


_BLOCK = 16
"""Numbers that are compared at a time: one pass over the sums for each block, instead of one for each. 8 take
three times as long on a CPU, and more gain nothing."""


@runtime_checkable
class Transport(Protocol):
    """A distance between clouds of points: what it keeps of a cloud, and how far two of them are apart."""

    def numbers(self, dimensions: int) -> int:
        """The length of the description of a cloud of points in this many `dimensions`."""
        ...

    def describe(self, points: Points) -> Float[Array, "n f"]:
        """The description of each level's points that is kept."""
        ...

    def between(self, rows: Float[Array, "r f"], others: Float[Array, "m f"]) -> Float[Array, "r m"]:
        """The distances between all pairs; exactly 0 between equal ones."""
        ...


@dataclass(frozen=True)
class SlicedTransport:
    """The mean over fixed random directions of the distance between projections (sliced Wasserstein-1).

    On a line the best plan moves points in their order, so that sorted projections are all that is needed.
    """

    config: Sliced

    def numbers(self, dimensions: int) -> int:
        return self.config.directions * self.config.quantiles

    def describe(self, points: Points) -> Float[Array, "n f"]:
        directions = unit_directions(points.values.shape[2], self.config.directions)
        projected = jnp.swapaxes(points.values @ directions, 1, 2)
        ordered = ascending(jnp.where(points.valid[:, None], projected, jnp.inf))
        exists = jnp.arange(points.valid.shape[1]) < points.valid.sum(axis=1, keepdims=True)
        return _flat(evenly_spread(Points(jnp.swapaxes(ordered, 1, 2), exists), self.config.quantiles))

    def between(self, rows: Float[Array, "r f"], others: Float[Array, "m f"]) -> Float[Array, "r m"]:
        """The sliced Wasserstein-1 distances: the mean difference of numbers of the same rank."""

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
class _PointTransport:
    """The description shared by both distances between single points: the points."""

    config: Exact | Entropic

    def numbers(self, dimensions: int) -> int:
        return self.config.points * dimensions

    def describe(self, points: Points) -> Float[Array, "n f"]:
        return _flat(evenly_spread(points, self.config.points))


@dataclass(frozen=True)
class ExactTransport(_PointTransport):
    """The cost of the best one-to-one assignment between equally many points of both levels."""

    config: Exact

    def between(self, rows: Float[Array, "r f"], others: Float[Array, "m f"]) -> Float[Array, "r m"]:
        from optax.assignment import hungarian_algorithm  # loaded where it is used, as in `student.ppo`

        def distance(first: Float[Array, "k d"], second: Float[Array, "k d"]) -> Float[Array, ""]:
            cost = euclidean(first, second)
            return jnp.mean(cost[hungarian_algorithm(cost)])

        return _pair_by_pair(distance, self.config.points, rows, others)


@dataclass(frozen=True)
class EntropicTransport(_PointTransport):
    """The cost of the plan that is cheapest once its entropy counts too, less the mean of those from each
    level to itself, which blurred plans do not make for nothing (a Sinkhorn divergence)."""

    config: Entropic

    def between(self, rows: Float[Array, "r f"], others: Float[Array, "m f"]) -> Float[Array, "r m"]:
        def distance(first: Float[Array, "k d"], second: Float[Array, "k d"]) -> Float[Array, ""]:
            pairs = jnp.stack([first, first, second]), jnp.stack([second, first, second])
            costs = jax.vmap(euclidean)(*pairs)
            # One blur for all three, or equal levels would not be at a distance of 0.
            blur = jnp.maximum(self.config.blur * jnp.median(costs[0]), jnp.finfo(jnp.float32).tiny)
            across, *selves = jax.vmap(lambda cost: self._blurred(cost / blur))(costs)
            # Multiplied last: a product contracted with the difference would leave a trace of rounding.
            return jnp.maximum(across - jnp.mean(jnp.stack(selves)), 0.0) * blur

        return _pair_by_pair(distance, self.config.points, rows, others)

    def _blurred(self, cost: Float[Array, "k k"]) -> Float[Array, ""]:
        """The cost of the plan. Both potentials move half of their way at a time, so that neither has the
        last word and the distance is symmetric."""
        count = len(cost)

        def step(_: Array, potentials: tuple[Array, Array]) -> tuple[Array, Array]:
            first, second = potentials
            towards = np.log(count) - logsumexp(second - cost, axis=1)
            back = np.log(count) - logsumexp(first[:, None] - cost, axis=0)
            return (first + towards) / 2.0, (second + back) / 2.0

        first, second = lax.fori_loop(0, self.config.iterations, step, (jnp.zeros(count), jnp.zeros(count)))
        plan = jax.nn.softmax((first[:, None] + second - cost).reshape(-1))
        return jnp.sum(plan * cost.reshape(-1))


def _pair_by_pair(
    distance: Callable[[Float[Array, "k d"], Float[Array, "k d"]], Float[Array, ""]],
    points: int,
    rows: Float[Array, "r f"],
    others: Float[Array, "m f"],
) -> Float[Array, "r m"]:
    """The distances between all pairs of levels, each a cloud of points."""
    rows, others = (flat.reshape(len(flat), points, -1) for flat in (rows, others))
    # All pairs at once would hold a matrix of costs for each.
    return lax.map(lambda row: jax.vmap(distance, (None, 0))(row, others), rows)


def transport_of(config: Sliced | Exact | Entropic) -> Transport:
    match config:
        case Sliced():
            return SlicedTransport(config)
        case Exact():
            return ExactTransport(config)
        case Entropic():
            return EntropicTransport(config)


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
    transport: Transport, rows: Float[Array, "r f"], others: Float[Array, "m f"], mesh: Mesh | None = None
) -> Float[Array, "r m"]:
    """The distances between all pairs, every one on every device of the mesh, which share the work."""

    def on_each(devices: Devices | None, rows: Array, others: Array) -> Float[Array, "r m"]:
        return shared(devices, lambda own: transport.between(own, others), rows)

    return side_by_side(mesh, on_each, rows, others)


def _flat(kept: Float[Array, "n k d"]) -> Float[Array, "n f"]:
    """A row for each level; zeros where it has no points."""
    return jnp.where(jnp.isfinite(kept), kept, 0.0).reshape(kept.shape[0], -1)
