"""Gaussian mixtures of many sizes, fitted by expectation maximisation (EM) in one compiled call.

The sizes are fitted one after another, each until it converges, so that none waits for another. Sizes
that are close together share one compiled loop: a component more costs almost nothing, because a product
of all points with a few columns is bound by reading the points.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cenie.novelty import kmeans
from cenie.novelty.config import CovarianceName
from cenie.novelty.covariance import SHAPES, Shape
from cenie.novelty.points import centre

_LOG_SMALLEST_WEIGHT = -8.0 * 2.302585
"""Logarithm of 1e-8: the weight of a component that has lost its points."""

_COLUMNS = 8
"""Sizes share a compiled loop if their numbers of components are equal after rounding up to this."""


class Mixture(NamedTuple):
    """A mixture of up to `k` Gaussians in `d` dimensions; components that do not exist have weight 0.

    `origin` [d] is a point in the middle of the data, and `offsets` [k, d] are the means relative to it:
    in these coordinates squares can be expanded without losing many digits. `covariances` are [k, d]
    (diagonal, spherical), [k, d, d] (full) or [d, d] (tied).
    """

    origin: jax.Array
    log_weights: jax.Array
    offsets: jax.Array
    covariances: jax.Array

    @property
    def means(self) -> jax.Array:
        return self.origin + self.offsets


class Fits(NamedTuple):
    """Mixtures of `m` sizes, stacked along a leading axis, and what became of each fit.

    `labels` [m, n] is the component of highest responsibility of each point, `log_likelihood` [m] the
    mean over the points, `iterations` [m] the EM steps taken. A size is not `ok` [m] if the points have
    fewer distinct values than it has components, or if the fit is not finite; its mixture is useless.
    """

    mixtures: Mixture
    labels: jax.Array
    log_likelihood: jax.Array
    iterations: jax.Array
    ok: jax.Array


class _Progress(NamedTuple):
    mixture: Mixture
    best: jax.Array
    iteration: jax.Array
    done: jax.Array


def empty(components: int, dimensions: int, covariance: CovarianceName) -> Mixture:
    """A mixture of one standard Gaussian, of the shapes of one with `components`."""
    return Mixture(
        origin=jnp.zeros(dimensions),
        log_weights=jnp.full(components, -jnp.inf).at[0].set(0.0),
        offsets=jnp.zeros((components, dimensions)),
        covariances=SHAPES[covariance].unit(components, dimensions),
    )


def fit_sizes(
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    sizes: range,
    covariance: CovarianceName = "diag",
    reg: float = 1e-2,
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    starts: tuple[Mixture, jax.Array] | None = None,
) -> Fits:
    """Fit a mixture of each size to the valid ones of clean points [n, d]. Consumes the key.

    A fit starts from the first centres of one k-means++ chain: every point belongs to its nearest centre,
    and the means are the centres themselves. `starts` are mixtures [m, ...] to start from instead, for
    those sizes where its mask [m] is true. A fit ends when the mean negative log-likelihood falls by less
    than `tolerance` below the lowest so far. `reg` is added to all variances.
    """
    origin = centre(points, valid)
    inside = jnp.where(valid[:, None], points - origin, 0.0)
    chain = kmeans.chain(key, inside, valid, sizes[-1])
    labels = kmeans.nearest_labels(chain.distances, sizes[0])
    prepared = SHAPES[covariance].prepare(inside)
    rule = _Rule(covariance, reg, tolerance, max_iterations)

    def fit(width: int, size: jax.Array, labels: jax.Array, start: Any) -> Fits:
        present = jnp.arange(width) < size
        centres = jnp.where(present[:, None], inside[chain.indices[:width]], 0.0)
        mixture = _from_labels(prepared, valid, labels, centres, present, origin, rule)
        if start is not None:
            previous, known = start
            mixture = jax.tree.map(
                lambda a, b: jnp.where(known, a, b),
                _moved(_cut(previous, width, covariance), origin),
                mixture,
            )
        return _fit(prepared, valid, mixture, present, size <= chain.distinct, rule)

    def fit_group(group: _Group) -> Fits:
        some = slice(group.first, group.last)
        rows = (jnp.array(sizes[some]), labels[some], jax.tree.map(lambda leaf: leaf[some], starts))
        fits = lax.map(lambda row: fit(group.width, *row), rows)
        return fits._replace(mixtures=_padded(fits.mixtures, group.width, sizes[-1], covariance))

    parts = [fit_group(group) for group in _groups(sizes)]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def log_density(mixture: Mixture, points: jax.Array, covariance: CovarianceName) -> jax.Array:
    """Logarithm of the density [n] at finite points [n, d]."""
    prepared = SHAPES[covariance].prepare(points - mixture.origin)
    return jax.nn.logsumexp(_log_joint(prepared, mixture, covariance), axis=1)


def count_parameters(size: int, dimensions: int, covariance: CovarianceName) -> int:
    """How many free numbers describe a mixture."""
    return SHAPES[covariance].parameters(size, dimensions) + size * dimensions + size - 1


class _Rule(NamedTuple):
    """How to fit: the plain settings of all sizes."""

    covariance: CovarianceName
    reg: float
    tolerance: float
    max_iterations: int


def _fit(
    prepared: Any, valid: jax.Array, start: Mixture, present: jax.Array, possible: jax.Array, rule: _Rule
) -> Fits:
    count = jnp.maximum(jnp.sum(valid), 1)

    def step(at: _Progress) -> _Progress:
        joint = _log_joint(prepared, at.mixture, rule.covariance)
        log_density = jax.nn.logsumexp(joint, axis=1)
        loss = -jnp.sum(jnp.where(valid, log_density, 0.0)) / count
        responsibilities = jnp.where(valid[:, None], jnp.exp(joint - log_density[:, None]), 0.0)
        mixture = _maximised(prepared, responsibilities, at.mixture, present, count, rule)
        # Written so that a loss that is not a number ends the fit too.
        done = ~(at.best - loss >= rule.tolerance)
        return _Progress(mixture, jnp.minimum(at.best, loss), at.iteration + 1, done)

    begin = _Progress(start, jnp.float32(jnp.inf), jnp.int32(0), ~possible)
    end = lax.while_loop(lambda at: ~at.done & (at.iteration < rule.max_iterations), step, begin)
    joint = _log_joint(prepared, end.mixture, rule.covariance)
    log_likelihood = jnp.sum(jnp.where(valid, jax.nn.logsumexp(joint, axis=1), 0.0)) / count
    finite = [jnp.isfinite(leaf).all() for leaf in (end.mixture.offsets, end.mixture.covariances)]
    return Fits(
        mixtures=end.mixture,
        labels=jnp.argmax(joint, axis=1).astype(jnp.int32),
        log_likelihood=log_likelihood,
        iterations=end.iteration,
        ok=possible & jnp.isfinite(log_likelihood) & finite[0] & finite[1],
    )


def _log_joint(prepared: Any, mixture: Mixture, covariance: CovarianceName) -> jax.Array:
    """Logarithm of weight times density [n, k] of each component at each point."""
    shape = SHAPES[covariance]
    return shape.log_gaussians(prepared, mixture.offsets, mixture.covariances) + mixture.log_weights


def _maximised(
    prepared: Any,
    responsibilities: jax.Array,
    old: Mixture,
    present: jax.Array,
    count: jax.Array,
    rule: _Rule,
) -> Mixture:
    """The most likely mixture given the responsibilities.

    A component of less than one point keeps its place with almost no weight, and may win points back.
    """
    shape = SHAPES[rule.covariance]
    counts = jnp.sum(responsibilities, axis=0)
    offsets, covariances = shape.estimate(prepared, responsibilities, counts, None, rule.reg)
    alive = counts >= 1.0
    return Mixture(
        origin=old.origin,
        log_weights=_log_weights(counts, count, present),
        offsets=jnp.where(alive[:, None], offsets, old.offsets),
        covariances=_kept(shape, alive, covariances, old.covariances),
    )


def _from_labels(
    prepared: Any,
    valid: jax.Array,
    labels: jax.Array,
    centres: jax.Array,
    present: jax.Array,
    origin: jax.Array,
    rule: _Rule,
) -> Mixture:
    """Components around given centres, each spread as the points that are labelled with it."""
    shape = SHAPES[rule.covariance]
    width, dimensions = centres.shape
    members = jnp.where(valid[:, None], jax.nn.one_hot(labels, width), 0.0)
    counts = jnp.sum(members, axis=0)
    _, covariances = shape.estimate(prepared, members, counts, centres, rule.reg)
    return Mixture(
        origin=origin,
        log_weights=_log_weights(counts, jnp.maximum(jnp.sum(valid), 1), present),
        offsets=centres,
        covariances=_kept(shape, present, covariances, shape.unit(width, dimensions)),
    )


def _log_weights(counts: jax.Array, count: jax.Array, present: jax.Array) -> jax.Array:
    weights = jnp.where(counts >= 1.0, jnp.log(counts / count), _LOG_SMALLEST_WEIGHT)
    return jnp.where(present, weights, -jnp.inf)


def _kept(shape: Shape, mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """New covariances for the components in the mask [k], old ones for the others."""
    if not shape.per_component:
        return new
    return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


class _Group(NamedTuple):
    """Sizes that share a loop, from the first position up to the last, with so many components."""

    first: int
    last: int
    width: int


def _groups(sizes: range) -> Iterator[_Group]:
    widths = [min(-(-size // _COLUMNS) * _COLUMNS, sizes[-1]) for size in sizes]
    for width in sorted(set(widths)):
        first = widths.index(width)
        yield _Group(first, first + widths.count(width), width)


def _padded(mixtures: Mixture, width: int, components: int, covariance: CovarianceName) -> Mixture:
    """Mixtures [m, ...] of `width` components with further ones of weight 0."""
    if width == components:
        return mixtures
    count, _, dimensions = mixtures.offsets.shape
    none = empty(components - width, dimensions, covariance)
    none = none._replace(log_weights=jnp.full(components - width, -jnp.inf))

    def joined(leaf: jax.Array, more: jax.Array) -> jax.Array:
        return jnp.concatenate([leaf, jnp.broadcast_to(more, (count, *more.shape))], axis=1)

    return Mixture(
        origin=mixtures.origin,
        log_weights=joined(mixtures.log_weights, none.log_weights),
        offsets=joined(mixtures.offsets, none.offsets),
        covariances=joined(mixtures.covariances, none.covariances)
        if SHAPES[covariance].per_component
        else mixtures.covariances,
    )


def _cut(mixture: Mixture, width: int, covariance: CovarianceName) -> Mixture:
    """The mixture without components beyond `width`."""
    covariances = mixture.covariances
    if SHAPES[covariance].per_component:
        covariances = covariances[:width]
    return Mixture(mixture.origin, mixture.log_weights[:width], mixture.offsets[:width], covariances)


def _moved(mixture: Mixture, origin: jax.Array) -> Mixture:
    """The same mixture in coordinates around another origin."""
    return mixture._replace(origin=origin, offsets=mixture.offsets + (mixture.origin - origin))
