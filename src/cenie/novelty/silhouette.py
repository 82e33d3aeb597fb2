"""Mean silhouettes of several labelings of the same points, from one pass over their distances.

The distances of a tile of points from another are computed once and multiplied by the memberships of all
labelings side by side, which gives the sums of distances from every point to every cluster.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cenie.novelty.points import centre, drawn

_TILE = 1024
"""Points per side of a tile: large enough for fast products, small enough for the cache."""

_ROUNDING = 1e-6
"""Squared distances below this share of the squared lengths are rounding errors of equal points."""


def silhouettes(
    points: jax.Array,
    labels: jax.Array,
    clusters: Sequence[int],
    valid: jax.Array,
    key: jax.Array | None = None,
    rows: int | None = None,
) -> jax.Array:
    """The mean silhouette [m] of each labeling [m, n] of the valid ones of clean points [n, d].

    Labeling i has labels below `clusters[i]`, some of which may be absent. A point alone in its cluster
    counts 0; a labeling with fewer than two clusters present gets -1. With `rows` the mean is over that
    many points, drawn with the key and the same for all labelings, each compared with all points: an
    unbiased estimate of the mean over all.
    """
    inside = jnp.where(valid[:, None], points - centre(points, valid), 0.0)
    labeling = np.repeat(np.arange(len(clusters)), clusters)
    cluster = np.concatenate([np.arange(count) for count in clusters])
    members = ((cluster == labels[labeling].T) & valid[:, None]).astype(jnp.float32)
    sizes = jnp.sum(members, axis=0)
    if rows is None or rows >= points.shape[0]:
        sums = _sums_between_all(inside, members)
        taken, own = valid, members
    else:
        assert key is not None, "rows are drawn with a key"
        index, taken = drawn(key, valid, rows)
        sums = _sums_from_rows(inside[index], index, inside, members)
        own = members[index]
    scores = [
        _mean_score(sums[:, some], own[:, some] > 0.0, sizes[some], taken)
        for some in (np.flatnonzero(labeling == number) for number in range(len(clusters)))
    ]
    return jnp.stack(scores)


def _mean_score(sums: jax.Array, own: jax.Array, sizes: jax.Array, taken: jax.Array) -> jax.Array:
    """From sums of distances [r, k], membership [r, k] and cluster sizes [k] to the mean over the rows."""
    size = jnp.sum(jnp.where(own, sizes, 0.0), axis=1)
    inner = jnp.sum(jnp.where(own, sums, 0.0), axis=1) / jnp.maximum(size - 1.0, 1.0)
    others = jnp.where(own | (sizes == 0.0), jnp.inf, sums / jnp.maximum(sizes, 1.0))
    outer = jnp.min(others, axis=1)
    larger = jnp.maximum(inner, outer)
    score = jnp.where(
        (size > 1.0) & (larger > 0.0), (outer - inner) / jnp.where(larger > 0.0, larger, 1.0), 0.0
    )
    mean = jnp.sum(jnp.where(taken, score, 0.0)) / jnp.maximum(jnp.sum(taken), 1)
    return jnp.where(jnp.sum(sizes > 0.0) >= 2, mean, -1.0)


def _sums_between_all(points: jax.Array, members: jax.Array) -> jax.Array:
    """Sums of distances [n, c] from every point to the members of every cluster.

    Every pair of tiles is visited once; its distances serve the points of both.
    """
    count = points.shape[0]
    tile = min(_TILE, count)
    points, members = (_filled_up(array, tile) for array in (points, members))
    squares = jnp.sum(jnp.square(points), axis=1)
    ahead, behind = np.tril_indices(points.shape[0] // tile)

    def visit(sums: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        i, j = pair[0] * tile, pair[1] * tile
        here, there = jnp.arange(tile) + i, jnp.arange(tile) + j
        distances = _distances(
            _tile(points, i, tile),
            _tile(squares, i, tile),
            _tile(points, j, tile),
            _tile(squares, j, tile),
            here[:, None] == there,
        )
        forth = _tile(sums, i, tile) + distances @ _tile(members, j, tile)
        sums = lax.dynamic_update_slice_in_dim(sums, forth, i, 0)
        back = jnp.where(i == j, 0.0, distances.T @ _tile(members, i, tile))
        return lax.dynamic_update_slice_in_dim(sums, _tile(sums, j, tile) + back, j, 0), None

    pairs = jnp.asarray(ahead), jnp.asarray(behind)
    return lax.scan(visit, jnp.zeros_like(members), pairs)[0][:count]


def _sums_from_rows(rows: jax.Array, index: jax.Array, points: jax.Array, members: jax.Array) -> jax.Array:
    """Sums of distances [r, c] from some rows, the points at `index`, to the members of every cluster."""
    tile = min(_TILE, points.shape[0])
    points, members = (_filled_up(array, tile) for array in (points, members))
    squares, row_squares = (jnp.sum(jnp.square(array), axis=1) for array in (points, rows))

    def visit(sums: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
        same = index[:, None] == jnp.arange(tile) + start
        distances = _distances(
            rows, row_squares, _tile(points, start, tile), _tile(squares, start, tile), same
        )
        return sums + distances @ _tile(members, start, tile), None

    starts = jnp.arange(0, points.shape[0], tile)
    return lax.scan(visit, jnp.zeros((rows.shape[0], members.shape[1])), starts)[0]


def _distances(
    rows: jax.Array, row_squares: jax.Array, columns: jax.Array, column_squares: jax.Array, same: jax.Array
) -> jax.Array:
    """Distances [r, c]; exactly 0 from a point to itself and to its copies."""
    total = row_squares[:, None] + column_squares
    square = total - 2.0 * rows @ columns.T
    return jnp.sqrt(jnp.where(same | (square <= _ROUNDING * total), 0.0, square))


def _filled_up(array: jax.Array, tile: int) -> jax.Array:
    """The array with rows of zeros up to a whole number of tiles."""
    return jnp.pad(array, ((0, -array.shape[0] % tile), (0, 0)))


def _tile(array: jax.Array, start: jax.Array, tile: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(array, start, tile)
