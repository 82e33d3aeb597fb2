"""Gaussian mixtures of many sizes, fitted by expectation maximisation (EM) in one compiled call.

A product of all points with the few columns of one mixture is slow for its size, and one with the columns
of all mixtures wastes most of its work on those that have converged. So a few mixtures at a time take their
steps side by side, and when one has converged, the next takes its place.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cenie.novelty import kmeans
from cenie.novelty.config import CovarianceName
from cenie.novelty.covariance import SHAPES
from cenie.novelty.points import centre

_LOG_SMALLEST_WEIGHT = -8.0 * 2.302585
"""Logarithm of 1e-8: the weight of a component that has lost its points."""


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
    reg: float | jax.Array = 1e-2,
    tolerance: float | jax.Array = 1e-3,
    max_iterations: int | jax.Array = 100,
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
    centres = inside[chain.indices]
    shape = SHAPES[covariance]
    problem = _Problem(
        shape.prepare(inside), valid, jnp.maximum(jnp.sum(valid), 1), covariance, reg, tolerance
    )

    def start(labels: jax.Array, size: jax.Array) -> Mixture:
        return _from_labels(problem, labels, centres, size, origin)

    mixtures = _map(start, shape.abreast, kmeans.nearest_labels(chain.distances, sizes[0]), jnp.array(sizes))
    if starts is not None:
        previous, known = starts
        mixtures = jax.tree.map(partial(_chosen, known), _moved(previous, origin), mixtures)
    possible = jnp.array(sizes) <= chain.distinct
    mixtures, iterations = _converged(problem, mixtures, possible, max_iterations, shape.abreast)
    labels, log_likelihood = _map(partial(_judged, problem), shape.abreast, mixtures)
    finite = jnp.isfinite(log_likelihood)
    for leaf in (mixtures.offsets, mixtures.covariances):
        finite &= jnp.isfinite(leaf).reshape(len(sizes), -1).all(axis=1)
    return Fits(mixtures, labels, log_likelihood, iterations, possible & finite)


def log_density(mixture: Mixture, points: jax.Array, covariance: CovarianceName) -> jax.Array:
    """Logarithm of the density [n] at finite points [n, d]."""
    prepared = SHAPES[covariance].prepare(points - mixture.origin)
    return jax.nn.logsumexp(_log_joint(prepared, mixture, covariance), axis=1)


def count_parameters(size: int, dimensions: int, covariance: CovarianceName) -> int:
    """How many free numbers describe a mixture."""
    return SHAPES[covariance].parameters(size, dimensions) + size * dimensions + size - 1


class _Problem(NamedTuple):
    """What all sizes have in common: the points as their shape of covariance likes them, and the rules."""

    prepared: Any
    valid: jax.Array
    total: jax.Array
    covariance: CovarianceName
    reg: float | jax.Array
    tolerance: float | jax.Array


class _Progress(NamedTuple):
    mixture: Mixture
    best: jax.Array
    iteration: jax.Array
    done: jax.Array


def _converged(
    problem: _Problem,
    mixtures: Mixture,
    possible: jax.Array,
    max_iterations: int | jax.Array,
    abreast: int,
) -> tuple[Mixture, jax.Array]:
    """The mixtures [m, ...] after as many steps as each needs, and how many these are [m]."""
    count = possible.shape[0]
    at = _Progress(
        mixtures, jnp.full(count, jnp.inf), jnp.zeros(count, jnp.int32), ~possible | (max_iterations == 0)
    )

    def advance(at: _Progress, together: int) -> _Progress:
        """One step of the first `together` mixtures that are not done."""
        index = jnp.argsort(at.done, stable=True)[:together]
        new = jax.vmap(partial(_step, problem))(jax.tree.map(lambda leaf: leaf[index], at))
        new = new._replace(done=new.done | (new.iteration >= max_iterations))
        return jax.tree.map(lambda all_of_them, some: all_of_them.at[index].set(some), at, new)

    for together in sorted({min(abreast, count), 1}, reverse=True):
        at = lax.while_loop(
            lambda at, least=together: jnp.sum(~at.done) >= least, partial(advance, together=together), at
        )
    return at.mixture, at.iteration


def _step(problem: _Problem, at: _Progress) -> _Progress:
    """One step of EM. The loss is that of the mixture before it."""
    joint = _log_joint(problem.prepared, at.mixture, problem.covariance)
    log_density = jax.nn.logsumexp(joint, axis=1)
    loss = -jnp.sum(jnp.where(problem.valid, log_density, 0.0)) / problem.total
    responsibilities = jnp.where(problem.valid[:, None], jnp.exp(joint - log_density[:, None]), 0.0)
    # Written so that a loss that is not a number ends the fit too.
    done = ~(at.best - loss >= problem.tolerance)
    mixture = _maximised(problem, responsibilities, at.mixture)
    return _Progress(mixture, jnp.minimum(at.best, loss), at.iteration + 1, done)


def _judged(problem: _Problem, mixture: Mixture) -> tuple[jax.Array, jax.Array]:
    """The most responsible component of each point [n], and the mean log-likelihood."""
    joint = _log_joint(problem.prepared, mixture, problem.covariance)
    log_density = jnp.where(problem.valid, jax.nn.logsumexp(joint, axis=1), 0.0)
    return jnp.argmax(joint, axis=1).astype(jnp.int32), jnp.sum(log_density) / problem.total


def _log_joint(prepared: Any, mixture: Mixture, covariance: CovarianceName) -> jax.Array:
    """Logarithm of weight times density [n, k] of each component at each point."""
    shape = SHAPES[covariance]
    return shape.log_gaussians(prepared, mixture.offsets, mixture.covariances) + mixture.log_weights


def _maximised(problem: _Problem, responsibilities: jax.Array, old: Mixture) -> Mixture:
    """The most likely mixture given the responsibilities.

    A component of less than one point keeps its place with almost no weight, and may win points back.
    """
    shape = SHAPES[problem.covariance]
    counts = jnp.sum(responsibilities, axis=0)
    offsets, covariances = shape.estimate(problem.prepared, responsibilities, counts, None, problem.reg)
    alive = counts >= 1.0
    return Mixture(
        origin=old.origin,
        log_weights=_log_weights(counts, problem.total, old.log_weights > -jnp.inf),
        offsets=_chosen(alive, offsets, old.offsets),
        covariances=_chosen(alive, covariances, old.covariances) if shape.per_component else covariances,
    )


def _from_labels(
    problem: _Problem, labels: jax.Array, centres: jax.Array, size: jax.Array, origin: jax.Array
) -> Mixture:
    """Components around the first `size` centres, each spread as the points that are labelled with it."""
    shape = SHAPES[problem.covariance]
    width, dimensions = centres.shape
    present = jnp.arange(width) < size
    members = jnp.where(problem.valid[:, None], jax.nn.one_hot(labels, width), 0.0)
    counts = jnp.sum(members, axis=0)
    centres = _chosen(present, centres, jnp.zeros_like(centres))
    _, covariances = shape.estimate(problem.prepared, members, counts, centres, problem.reg)
    if shape.per_component:
        covariances = _chosen(present, covariances, shape.unit(width, dimensions))
    return Mixture(origin, _log_weights(counts, problem.total, present), centres, covariances)


def _log_weights(counts: jax.Array, count: jax.Array, present: jax.Array) -> jax.Array:
    weights = jnp.where(counts >= 1.0, jnp.log(counts / count), _LOG_SMALLEST_WEIGHT)
    return jnp.where(present, weights, -jnp.inf)


def _moved(mixtures: Mixture, origin: jax.Array) -> Mixture:
    """The same mixtures [m, ...] in coordinates around another origin."""
    shift = mixtures.origin - origin
    return mixtures._replace(
        origin=jnp.broadcast_to(origin, mixtures.origin.shape), offsets=mixtures.offsets + shift[:, None]
    )


def _chosen(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """New values where the mask of the leading axis is true, old ones elsewhere."""
    return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _map(function: Callable[..., Any], abreast: int, *rows: Any) -> Any:
    """The function of each row of some trees, so many at a time."""
    return lax.map(lambda row: function(*row), rows, batch_size=abreast)
