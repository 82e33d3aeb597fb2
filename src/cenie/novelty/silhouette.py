"""Mean silhouettes of several labelings of the same points, from one pass over their distances.

The distances of a tile of points from another are computed once and multiplied by the memberships of all
labelings side by side, which gives the sums of distances from every point to every cluster.

With `rows`, exact scores are computed for a few points only. A control variate corrects their mean: a rough
silhouette with root mean squares in place of mean distances. These follow from the clusters' means and
spreads, so that they are known for all points. The two scores differ by little, and so do the errors of the
drawn points in both. On the states of a maze student this divides the error by five.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cenie.novelty.points import centre, drawn
from cenie.novelty.precision import in_double_precision

_TILE = 1024
"""Points per side of a tile: large enough for fast products, small enough for the cache."""

_ROUNDING = 8.0
"""Points are equal if their squared distance is below this many units in the last place of their squared
lengths."""

_SMALLEST_SHARE = 0.05
"""In single precision, squared distances that decide a score must be at least this share of the mean squared
length."""


def silhouettes(
    points: jax.Array,
    labels: jax.Array,
    clusters: Sequence[int],
    *,
    valid: jax.Array,
    key: jax.Array | None = None,
    rows: int | None = None,
) -> jax.Array:
    """The mean silhouette of each labeling of the same points.

    s_j = (b_j - a_j) / max(a_j, b_j), with a_j the mean distance of point j from the others of its cluster
    and b_j the smallest mean distance from the points of another cluster.

    Args:
        points: Clean points [n, d].
        labels: The labelings [m, n]; labeling i has labels below `clusters[i]`, and some may be absent.
        clusters: The number of clusters of each labeling.
        valid: Which points count [n].
        key: Draws rows; consumed. Needed with `rows` only.
        rows: For how many points exact scores are computed. They are the same for all labelings and give an
            unbiased estimate of the mean over all. None: for all points.

    Returns:
        The means [m]. A point alone in its cluster counts 0. A labeling with fewer than two clusters present
        gets -1.
    """
    clustering = _clustered(points, labels, clusters, valid)
    if rows is None or rows >= points.shape[0]:
        scores = _scores_of_sums(clustering, _sums_between_all(clustering), clustering.labels)
        return _where_compared(clustering, _mean_over(scores, valid))
    assert key is not None, "rows are drawn with a key"
    index, taken = drawn(key, valid, rows)
    sums = _sums_from_rows(clustering.points[index], index, clustering)
    scores = _scores_of_sums(clustering, sums, clustering.labels[index])
    relatives = _rough_scores(clustering)
    correction = _mean_over(relatives, valid) - _mean_over(relatives[index], taken)
    return _where_compared(clustering, _mean_over(scores, taken) + correction)


def rough_silhouettes(
    points: jax.Array,
    labels: jax.Array,
    clusters: Sequence[int],
    valid: jax.Array,
) -> jax.Array:
    """Silhouettes with root mean squares in place of mean distances: some hundredths off, and far cheaper.

    Args:
        points: Clean points [n, d].
        labels: The labelings [m, n].
        clusters: The number of clusters of each labeling.
        valid: Which points count [n].

    Returns:
        The means over all points [m]; -1 where fewer than two clusters are present.
    """
    clustering = _clustered(points, labels, clusters, valid)
    return _where_compared(clustering, _mean_over(_rough_scores(clustering), valid))


class _Clustering(NamedTuple):
    """All labelings of the same points; their clusters stand side by side.

    Attributes:
        points: The points around their middle [n, d].
        labels: Their labels [n, m]; -1 for missing points.
        members: Which points belong to which cluster [c, n].
        clusters: How many of the clusters belong to each labeling.
        sizes: How many points each cluster has [c].
        sums: The sums of their points [c, d].
        squares: The sums of their squared lengths [c].
        single: Whether single precision is enough for distances [].
    """

    points: jax.Array
    labels: jax.Array
    members: jax.Array
    clusters: Sequence[int]
    sizes: jax.Array
    sums: jax.Array
    squares: jax.Array
    single: jax.Array


def _clustered(
    points: jax.Array, labels: jax.Array, clusters: Sequence[int], valid: jax.Array
) -> _Clustering:
    inside = jnp.where(valid[:, None], points - centre(points, valid), 0.0)
    labels = jnp.where(valid[:, None], labels.T, -1)
    members = _members(labels, clusters)
    sizes, sums, squares = _moments(inside, members)
    labeling = np.repeat(np.arange(len(clusters)), clusters)
    single = _is_single_enough(sizes, sums, squares, labeling[:, None] == labeling)
    return _Clustering(inside, labels, members, clusters, sizes, sums, squares, single)


def _members(labels: jax.Array, clusters: Sequence[int]) -> jax.Array:
    """Memberships [c, r] of points with these labels [r, m]."""
    labeling = np.repeat(np.arange(len(clusters)), clusters)
    cluster = np.concatenate([np.arange(count) for count in clusters])
    return (cluster[:, None] == labels.T[labeling]).astype(jnp.float32)


def _moments(points: jax.Array, members: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The clusters' sums of 1 [c], of points [c, d] and of their squared lengths [c]."""
    return jnp.sum(members, axis=1), members @ points, members @ jnp.sum(jnp.square(points), axis=1)


def _is_single_enough(
    sizes: jax.Array, sums: jax.Array, squares: jax.Array, together: np.ndarray
) -> jax.Array:
    """Whether distances within or between clusters are large, compared with the lengths of their points.

    Expanded squares (x - y)^2 lose digits of small distances. That does not matter where the larger one of a
    point's two mean distances, by which its score is divided, is not small. Root mean squares stand for them
    here. `together` [c, c] are pairs of clusters of the same labeling.
    """
    lengths, middles = squares / jnp.maximum(sizes, 1.0), sums / jnp.maximum(sizes, 1.0)[:, None]
    spreads = lengths - jnp.sum(jnp.square(middles), axis=1)
    between = spreads[:, None] + spreads + _squared_distances(middles, middles)
    others = together & ~np.eye(len(together), dtype=bool) & (sizes > 0.0)
    larger = jnp.maximum(2.0 * spreads, jnp.min(jnp.where(others, between, jnp.inf), axis=1))
    return jnp.all((larger >= _SMALLEST_SHARE * lengths) | (sizes < 2.0))


def _scores_of_sums(clustering: _Clustering, sums: jax.Array, labels: jax.Array) -> jax.Array:
    """The scores [r, m] of points with these labels [r, m] from their sums of distances [c, r]."""
    own = _members(labels, clustering.clusters)
    return _scores(_per_member(sums, own, clustering), own, clustering).T


def _per_member(sums: jax.Array, own: jax.Array, clustering: _Clustering) -> jax.Array:
    """From sums over clusters [c, r] to means; a point is not a member of its own cluster for itself."""
    return sums / jnp.maximum(clustering.sizes[:, None] - own, 1.0)


def _scores(means: jax.Array, own: jax.Array, clustering: _Clustering) -> jax.Array:
    """The scores [m, r] of some points from their mean distances and memberships [c, r].

    A loop over labelings, each seen through a window of equal width, so that the program is compiled once
    and not once for each.
    """
    counts, width = np.asarray(clustering.clusters), max(clustering.clusters)
    firsts = np.cumsum(counts) - counts
    starts = np.minimum(firsts, sum(counts) - width)

    def scores_of(labeling: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        start, before, behind = labeling
        part, member = (lax.dynamic_slice_in_dim(array, start, width) for array in (means, own))
        inside = (jnp.arange(width) >= before) & (jnp.arange(width) < behind)
        sizes = jnp.where(inside, lax.dynamic_slice_in_dim(clustering.sizes, start, width), 0.0)
        return _score(part, (member > 0.0) & inside[:, None], sizes[:, None])

    windows = (starts, firsts - starts, firsts - starts + counts)
    return lax.map(scores_of, jax.tree.map(jnp.asarray, windows))


def _score(means: jax.Array, own: jax.Array, sizes: jax.Array) -> jax.Array:
    """The score [r] of each point from mean distances [k, r], membership [k, r] and cluster sizes [k, 1]."""
    inner = jnp.sum(jnp.where(own, means, 0.0), axis=0)
    outer = jnp.min(jnp.where(own | (sizes == 0.0), jnp.inf, means), axis=0)
    larger = jnp.maximum(inner, outer)
    compared = (jnp.sum(jnp.where(own, sizes, 0.0), axis=0) > 1.0) & (larger > 0.0) & jnp.isfinite(outer)
    return jnp.where(compared, (outer - inner) / jnp.where(compared, larger, 1.0), 0.0)


def _rough_scores(clustering: _Clustering) -> jax.Array:
    """The scores [n, m] of all points by root mean squares, which follow from the clusters' moments."""
    points, own = clustering.points, clustering.members
    sums = lax.cond(
        clustering.single,
        lambda: _sums_of_squares(points, clustering.sizes, clustering.sums, clustering.squares),
        lambda: _double_sums_of_squares(points, points, own),
    )
    return _scores(jnp.sqrt(jnp.maximum(_per_member(sums, own, clustering), 0.0)), own, clustering).T


def _sums_of_squares(rows: jax.Array, sizes: jax.Array, sums: jax.Array, squares: jax.Array) -> jax.Array:
    """Sums of squared distances [c, r] from rows to the members of clusters of these moments."""
    lengths = jnp.sum(jnp.square(rows), axis=1)
    return sizes[:, None] * lengths - 2.0 * sums @ rows.T + squares[:, None]


@in_double_precision
def _double_sums_of_squares(rows: jax.Array, points: jax.Array, members: jax.Array) -> jax.Array:
    return _sums_of_squares(rows, *_moments(points, members))


def _mean_over(scores: jax.Array, rows: jax.Array) -> jax.Array:
    """The mean [m] of scores [r, m] over the rows of the mask [r]."""
    return jnp.sum(jnp.where(rows[:, None], scores, 0.0), axis=0) / jnp.maximum(jnp.sum(rows), 1)


def _where_compared(clustering: _Clustering, means: jax.Array) -> jax.Array:
    """The means [m], but -1 where there are no two clusters to compare."""
    labelings = (
        np.arange(len(clustering.clusters))
        == np.repeat(np.arange(len(clustering.clusters)), clustering.clusters)[:, None]
    )
    present = jnp.sum(labelings & (clustering.sizes > 0.0)[:, None], axis=0)
    return jnp.where(present >= 2, means, -1.0)


def _sums_between_all(clustering: _Clustering) -> jax.Array:
    """Sums of distances [c, n] from every point to the members of every cluster.

    Every pair of tiles is visited once; its distances serve the points of both.
    """
    count = clustering.points.shape[0]
    tile = min(_TILE, count)
    points, members = _filled_up(clustering.points, tile, 0), _filled_up(clustering.members, tile, 1)
    ahead, behind = np.tril_indices(points.shape[0] // tile)

    def visit(sums: jax.Array, pair: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        i, j = pair[0] * tile, pair[1] * tile
        same = (jnp.arange(tile) + i)[:, None] == jnp.arange(tile) + j
        distances = _distances(clustering, _tile(points, i, tile, 0), _tile(points, j, tile, 0), same)
        forth = _tile(sums, i, tile, 1) + _tile(members, j, tile, 1) @ distances.T
        sums = lax.dynamic_update_slice_in_dim(sums, forth, i, 1)
        back = jnp.where(i == j, 0.0, _tile(members, i, tile, 1) @ distances)
        return lax.dynamic_update_slice_in_dim(sums, _tile(sums, j, tile, 1) + back, j, 1), None

    pairs = jnp.asarray(ahead), jnp.asarray(behind)
    return lax.scan(visit, jnp.zeros_like(members), pairs)[0][:, :count]


def _sums_from_rows(rows: jax.Array, index: jax.Array, clustering: _Clustering) -> jax.Array:
    """Sums of distances [c, r] from some rows, the points at `index`, to the members of every cluster."""
    tile = min(_TILE, clustering.points.shape[0])
    points, members = _filled_up(clustering.points, tile, 0), _filled_up(clustering.members, tile, 1)

    def visit(sums: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
        same = index[:, None] == jnp.arange(tile) + start
        distances = _distances(clustering, rows, _tile(points, start, tile, 0), same)
        return sums + _tile(members, start, tile, 1) @ distances.T, None

    starts = jnp.arange(0, points.shape[0], tile)
    return lax.scan(visit, jnp.zeros((members.shape[0], rows.shape[0])), starts)[0]


def _distances(clustering: _Clustering, rows: jax.Array, columns: jax.Array, same: jax.Array) -> jax.Array:
    """Distances [r, c]; exactly 0 from a point to itself and to its copies."""
    squares = lax.cond(clustering.single, _squared_distances, _double_squared_distances, rows, columns)
    return jnp.sqrt(jnp.where(same, 0.0, squares))


def _squared_distances(rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Squared distances [r, c] in the precision of the points."""
    total = jnp.sum(jnp.square(rows), axis=1)[:, None] + jnp.sum(jnp.square(columns), axis=1)
    squares = total - 2.0 * rows @ columns.T
    return jnp.where(squares <= _ROUNDING * jnp.finfo(rows.dtype).eps * total, 0.0, squares)


_double_squared_distances = in_double_precision(_squared_distances)


def _filled_up(array: jax.Array, tile: int, axis: int) -> jax.Array:
    """The array with zeros up to a whole number of tiles along the axis of points."""
    missing = -array.shape[axis] % tile
    return jnp.pad(array, [(0, missing if number == axis else 0) for number in range(array.ndim)])


def _tile(array: jax.Array, start: jax.Array, tile: int, axis: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(array, start, tile, axis)
