"""Gaussian mixtures of many sizes, fitted by expectation maximisation (EM) in one compiled call.

A product of all points with the few columns of one mixture is slow for its size. So the mixtures take their
steps side by side, each with just the columns it needs; and when some have converged and would only be
carried along, the others go on in smaller groups, the largest mixtures first.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cenie.devices import Devices, shared
from cenie.novelty import kmeans
from cenie.novelty.config import CovarianceName
from cenie.novelty.covariance import SHAPES, Assigned
from cenie.novelty.points import centre, rows_where
from cenie.novelty.precision import column_sums, mean_where

_LOG_SMALLEST_WEIGHT = -8.0 * 2.302585
"""Logarithm of 1e-8: the weight of a component that has lost its points."""


class Mixture(NamedTuple):
    """A mixture of up to `k` Gaussians in `d` dimensions; components that do not exist have weight 0.

    `origin` [d] is a point in the middle of the data, and `offsets` [k, d] are the means relative to it:
    in these coordinates squares can be expanded without losing many digits. `whitening` makes points of a
    component's covariance such of covariance 1; it is [k, d] (diagonal, spherical: 1 / standard deviation),
    [k, d, d] (full) or [d, d] (tied), upper triangular.
    """

    origin: jax.Array
    log_weights: jax.Array
    offsets: jax.Array
    whitening: jax.Array

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
        whitening=SHAPES[covariance].unit(components, dimensions),
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
    previous: tuple[Mixture, jax.Array] | None = None,
) -> Fits:
    """Fit a mixture of each size to the valid ones of clean points [n, d]. Consumes the key."""
    start = begin(key, points, valid, sizes, covariance, reg, tolerance, previous)
    return fit_from(start, jnp.ones(len(sizes), bool), max_iterations)


class Start(NamedTuple):
    """Where fits of several sizes begin: the points, relative to an origin in their middle, and mixtures.

    `mixtures` [m, ...] are the first ones of each size, smallest size first; `distinct` is how many of the
    centres differ.
    """

    sizes: range
    points: jax.Array
    problem: "_Problem"
    mixtures: Mixture
    distinct: jax.Array


def begin(
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    sizes: range,
    covariance: CovarianceName,
    reg: float | jax.Array,
    tolerance: float | jax.Array,
    previous: tuple[Mixture, jax.Array] | None = None,
    devices: Devices | None = None,
) -> Start:
    """First mixtures of all sizes from one k-means++ chain among the valid ones of clean points [n, d].

    Every point belongs to its nearest centre, and the means are the centres themselves. `previous` are
    mixtures [m, ...] to start from instead, for those sizes where its mask [m] is true. A fit will end when
    the mean negative log-likelihood falls by less than `tolerance` below the lowest so far; `reg` is added
    to all variances. The work is shared out over `devices`, if there are several. Consumes the key.
    """
    origin = centre(points, valid)
    inside = jnp.where(valid[:, None], points - origin, 0.0)
    chain = kmeans.chain(key, inside, valid, sizes[-1])
    centres, labels = inside[chain.indices], kmeans.nearest_labels(chain.distances, sizes[0])
    problem = _problem(inside, valid, covariance, reg, tolerance)
    around_centres = partial(_from_labels, problem, centres, origin, widths=_widths(sizes, devices))
    largest_first = shared(devices, around_centres, labels[::-1], jnp.array(sizes[::-1]))
    mixtures = jax.tree.map(lambda leaf: leaf[::-1], largest_first)
    if previous is not None:
        old, known = previous
        mixtures = jax.tree.map(partial(rows_where, known), _moved(old, origin), mixtures)
    return Start(sizes, inside, problem, mixtures, chain.distinct)


def fit_from(
    start: Start,
    wanted: jax.Array,
    max_iterations: int | jax.Array,
    subset: tuple[jax.Array, jax.Array] | None = None,
    devices: Devices | None = None,
) -> Fits:
    """Fit those sizes that are `wanted` [m]; the others stay where they start and are not ok.

    `subset` are indices of points and a mask: if given, the steps of the fits look at these points only. The
    sizes are shared out over `devices`, if there are several.
    """
    problem = looked_at = start.problem
    if subset is not None:
        index, mask = subset
        rows = jnp.where(mask[:, None], start.points[index], 0.0)
        looked_at = _problem(rows, mask, problem.covariance, problem.reg, problem.tolerance)
    sizes, widths = jnp.array(start.sizes), _widths(start.sizes, devices)
    # Wanted ones first, shared out in turn, from the largest to the smallest: so they are spread evenly, and
    # the largest that can be left on any device is known when the program is compiled.
    order = jnp.lexsort((-sizes, ~wanted))

    def fit(mixtures: Mixture, ok: jax.Array) -> Fits:
        mixtures, iterations = _converged(looked_at, mixtures, ok, max_iterations, widths)
        labels, log_likelihood = _judged(problem, mixtures, widths)
        for leaf in (log_likelihood, mixtures.offsets, mixtures.whitening):
            ok &= jnp.isfinite(leaf).reshape(len(ok), -1).all(axis=1)
        return Fits(mixtures, labels, log_likelihood, iterations, ok)

    rows = start.mixtures, wanted & (sizes <= start.distinct)
    fits = shared(devices, fit, *jax.tree.map(lambda leaf: leaf[order], rows))
    return jax.tree.map(lambda leaf: leaf[jnp.argsort(order)], fits)


def log_density(mixture: Mixture, points: jax.Array, covariance: CovarianceName) -> jax.Array:
    """Logarithm of the density [n] at finite points [n, d]."""
    shape = SHAPES[covariance]
    prepared = shape.prepare(points - mixture.origin)
    joint = shape.log_gaussians(prepared, mixture.offsets, mixture.whitening) + mixture.log_weights
    return jax.nn.logsumexp(joint, axis=1)


def count_parameters(size: int, dimensions: int, covariance: CovarianceName) -> int:
    """How many free numbers describe a mixture."""
    return SHAPES[covariance].parameters(size, dimensions) + size * dimensions + size - 1


def _widths(sizes: range, devices: Devices | None) -> tuple[int, ...]:
    """The most components that the mixtures of one device have, if sizes are dealt out from the largest."""
    return tuple(range(sizes[-1], sizes[0] - 1, -1 if devices is None else -devices.number))


class _Problem(NamedTuple):
    """What all sizes have in common: the points as their shape of covariance likes them, and the rules."""

    prepared: Any
    valid: jax.Array
    total: jax.Array
    covariance: CovarianceName
    reg: float | jax.Array
    tolerance: float | jax.Array


def _problem(
    inside: jax.Array,
    valid: jax.Array,
    covariance: CovarianceName,
    reg: float | jax.Array,
    tolerance: float | jax.Array,
) -> _Problem:
    prepared = SHAPES[covariance].prepare(inside)
    return _Problem(prepared, valid, jnp.maximum(jnp.sum(valid), 1), covariance, reg, tolerance)


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
    widths: Sequence[int],
) -> tuple[Mixture, jax.Array]:
    """The mixtures [m, ...] after as many steps as each needs, and how many these are [m].

    Mixture i has at most `widths[i]` components, of which none is larger than the one before.
    """
    count = possible.shape[0]
    progress = _Progress(
        mixtures, jnp.full(count, jnp.inf), jnp.zeros(count, jnp.int32), ~possible | (max_iterations == 0)
    )

    def advance(progress: _Progress, together: int) -> _Progress:
        """One step of the first `together` mixtures that are not done."""
        index = jnp.argsort(progress.done, stable=True)[:together]
        new = _step(problem, jax.tree.map(lambda leaf: leaf[index], progress), widths[:together])
        new = new._replace(done=new.done | (new.iteration >= max_iterations))
        return jax.tree.map(lambda old, new: old.at[index].set(new), progress, new)

    for together in sorted(
        {min(group, count) for group in SHAPES[problem.covariance].group_sizes}, reverse=True
    ):
        progress = lax.while_loop(
            lambda progress, least=together: jnp.sum(~progress.done) >= least,
            partial(advance, together=together),
            progress,
        )
    return progress.mixture, progress.iteration


def _step(problem: _Problem, progress: _Progress, widths: Sequence[int]) -> _Progress:
    """One step of EM for each mixture [m, ...]. The losses are those of the mixtures before it."""
    old = _packed(problem, progress.mixture, widths)
    responsibilities, densities = [], []
    for joint in _log_joints(problem, old, widths):
        log_density = jax.nn.logsumexp(joint, axis=1)
        densities.append(log_density)
        shares = jnp.exp(joint - log_density[:, None])
        responsibilities.append(jnp.where(problem.valid[:, None], shares, 0.0))
    loss = -mean_where(problem.valid, jnp.stack(densities))
    # Written so that a loss that is not a number ends the fit too.
    done = ~(progress.best - loss >= problem.tolerance)
    counts = jnp.concatenate([column_sums(part) for part in responsibilities])
    new = _maximised(problem, Assigned(jnp.concatenate(responsibilities, axis=1), counts), old, widths)
    mixture = _stacked(problem, new, progress.mixture, widths)
    return _Progress(mixture, jnp.minimum(progress.best, loss), progress.iteration + 1, done)


def _judged(problem: _Problem, mixtures: Mixture, widths: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """The most responsible component of each point [m, n], and the mean log-likelihoods [m]."""
    joints = _log_joints(problem, _packed(problem, mixtures, widths), widths)
    densities = jnp.stack([jax.nn.logsumexp(joint, axis=1) for joint in joints])
    labels = jnp.stack([jnp.argmax(joint, axis=1).astype(jnp.int32) for joint in joints])
    return labels, mean_where(problem.valid, densities)


def _log_joints(problem: _Problem, mixtures: Mixture, widths: Sequence[int]) -> list[jax.Array]:
    """For each mixture the logarithm of weight times density [n, k] of its components at all points."""
    shape = SHAPES[problem.covariance]
    if shape.per_component:
        together = shape.log_gaussians(problem.prepared, mixtures.offsets, mixtures.whitening)
        densities = _cut(together, widths, axis=1)
    else:
        parts = zip(_cut(mixtures.offsets, widths, axis=0), mixtures.whitening)
        densities = [shape.log_gaussians(problem.prepared, *part) for part in parts]
    return [
        density + log_weights
        for density, log_weights in zip(densities, _cut(mixtures.log_weights, widths, axis=0))
    ]


def _estimates(
    problem: _Problem,
    assigned: Assigned,
    widths: Sequence[int],
) -> tuple[jax.Array, jax.Array]:
    """Means [c, d] and whitening of packed mixtures."""
    shape = SHAPES[problem.covariance]
    if shape.per_component:
        return shape.estimate(problem.prepared, assigned, problem.reg)
    columns = _cut(assigned.responsibilities, widths, axis=1), _cut(assigned.counts, widths, axis=0)
    centres = [None] * len(widths) if assigned.centres is None else _cut(assigned.centres, widths, axis=0)
    parts = [
        shape.estimate(problem.prepared, Assigned(*part), problem.reg) for part in zip(*columns, centres)
    ]
    means, whitening = zip(*parts)
    return jnp.concatenate(means), jnp.stack(whitening)


def _maximised(problem: _Problem, assigned: Assigned, old: Mixture, widths: Sequence[int]) -> Mixture:
    """The most likely packed mixtures, given the responsibilities of all their components.

    A component of less than one point keeps its place with almost no weight, and may win points back.
    """
    alive = assigned.counts >= 1.0
    offsets, whitening = _estimates(problem, assigned, widths)
    if SHAPES[problem.covariance].per_component:
        whitening = rows_where(alive, whitening, old.whitening)
    return Mixture(
        origin=old.origin,
        log_weights=_log_weights(assigned.counts, problem.total, old.log_weights > -jnp.inf),
        offsets=rows_where(alive, offsets, old.offsets),
        whitening=whitening,
    )


def _from_labels(
    problem: _Problem,
    centres: jax.Array,
    origin: jax.Array,
    labels: jax.Array,
    sizes: jax.Array,
    widths: Sequence[int],
) -> Mixture:
    """Mixtures [m, ...] around the first centres, each component spread as the points of its label.

    Mixture i has `sizes[i]` components, at most `widths[i]`; `labels` are [m, n].
    """
    shape, (count, dimensions) = SHAPES[problem.covariance], centres.shape
    owner, place = _columns(widths)
    present = jnp.asarray(place) < sizes[owner]
    middles = rows_where(present, centres[place], jnp.zeros_like(centres[place]))
    members = jnp.concatenate(
        [jax.nn.one_hot(row, width) * problem.valid[:, None] for row, width in zip(labels, widths)], axis=1
    )
    counts = jnp.sum(members, axis=0)
    offsets, whitening = _estimates(problem, Assigned(members, counts, middles), widths)
    if shape.per_component:
        whitening = rows_where(present, whitening, shape.unit(*offsets.shape))
    log_weights = _log_weights(counts, problem.total, present)
    blank = empty(count, dimensions, problem.covariance)._replace(log_weights=jnp.full(count, -jnp.inf))
    blanks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(widths), *leaf.shape)), blank)
    origins = jnp.broadcast_to(origin, blanks.origin.shape)
    return _stacked(problem, Mixture(origins, log_weights, offsets, whitening), blanks, widths)


# Packed mixtures: the components of all of them in one row [c, ...], each with only as many as its width.
# What is the same for every component is then one operation, and not one for each mixture.


def _columns(widths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each component of packed mixtures: its mixture [c], and its place in it [c]."""
    return np.repeat(np.arange(len(widths)), widths), np.concatenate([np.arange(width) for width in widths])


def _packed(problem: _Problem, mixtures: Mixture, widths: Sequence[int]) -> Mixture:
    """Mixtures [m, ...] packed; origins, and a whitening that components share, keep their axis [m]."""
    columns = _columns(widths)
    return mixtures._replace(
        **{name: getattr(mixtures, name)[columns] for name in _per_component(problem.covariance)}
    )


def _stacked(problem: _Problem, packed: Mixture, full: Mixture, widths: Sequence[int]) -> Mixture:
    """The opposite: mixtures [m, ...], what was cut off taken from the full ones."""
    places = np.arange(full.log_weights.shape[1])
    ends = np.cumsum(widths)[:, None]
    index = ends - np.asarray(widths)[:, None] + places
    exists = index < ends

    def put_back(new: jax.Array, old: jax.Array) -> jax.Array:
        mask = exists.reshape(*exists.shape, *[1] * (old.ndim - 2))
        return jnp.where(mask, new[np.where(exists, index, 0)], old)

    return packed._replace(
        **{
            name: put_back(getattr(packed, name), getattr(full, name))
            for name in _per_component(problem.covariance)
        }
    )


def _per_component(covariance: CovarianceName) -> tuple[str, ...]:
    """The fields of a mixture that have an axis of components."""
    own = ("whitening",) if SHAPES[covariance].per_component else ()
    return ("log_weights", "offsets", *own)


def _log_weights(counts: jax.Array, count: jax.Array, present: jax.Array) -> jax.Array:
    weights = jnp.where(counts >= 1.0, jnp.log(counts / count), _LOG_SMALLEST_WEIGHT)
    return jnp.where(present, weights, -jnp.inf)


def _moved(mixtures: Mixture, origin: jax.Array) -> Mixture:
    """The same mixtures [m, ...] in coordinates around another origin."""
    shift = mixtures.origin - origin
    return mixtures._replace(
        origin=jnp.broadcast_to(origin, mixtures.origin.shape), offsets=mixtures.offsets + shift[:, None]
    )


def _cut(array: jax.Array, widths: Sequence[int], axis: int) -> list[jax.Array]:
    """Consecutive parts of these widths along an axis."""
    return jnp.split(array, list(itertools.accumulate(widths))[:-1], axis=axis)
