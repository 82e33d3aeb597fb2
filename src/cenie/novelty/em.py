"""Gaussian mixtures of many sizes, fitted by expectation maximisation (EM) in one compiled call.

A step is two products of all points with the columns of a mixture, and a column that no component needs
takes as long as others. So mixtures take their steps one after another, the largest first. A compiled step
has a fixed number of columns; there are a few such widths, and each mixture takes the next one above its
size. Where the points do not fit into a cache, reading them takes the time: there mixtures take their steps
side by side, and when some have converged and would only be carried along, the rest go on in smaller groups.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cenie.novelty import kmeans
from cenie.novelty.config import CovarianceName
from cenie.novelty.covariance import ONE_POINT, SHAPES, Assigned, Shape
from cenie.novelty.points import centre, rows_where
from cenie.novelty.precision import mean_where, row_sums

_LOG_SMALLEST_WEIGHT = -8.0 * 2.302585
"""Logarithm of 1e-8: the weight of a component that has lost its points."""


_CACHED_POINTS = 2**20
"""So many numbers of prepared points, 4 MB, are read fast enough for one mixture after another."""

_WIDTHS = 2
"""For how many numbers of components a step is worth compiling."""


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
        log_weights=jnp.full(components, -jnp.inf, jnp.float32).at[0].set(0.0),
        offsets=jnp.zeros((components, dimensions)),
        whitening=SHAPES[covariance].unit(components, dimensions),
    )


class Rules(NamedTuple):
    """How mixtures are fitted. `reg` is added to all variances.

    A fit ends when a step changes the mean log-likelihood by less than `tolerance`, or after
    `max_iterations`. A large `reg` can lower the likelihood for a few steps before it rises again, so a fall
    does not end a fit; scikit-learn has the same rule.
    """

    covariance: CovarianceName = "diag"
    reg: float | jax.Array = 1e-2
    tolerance: float | jax.Array = 1e-3
    max_iterations: int | jax.Array = 100


class Problem(NamedTuple):
    """What all sizes have in common: points [n, d] relative to an origin [d] in their middle, and the rules.

    `prepared` are the points as their shape of covariance likes them; `total` is how many are valid [n].
    """

    origin: jax.Array
    points: jax.Array
    valid: jax.Array
    total: jax.Array
    prepared: Any
    rules: Rules

    @property
    def shape(self) -> Shape:
        return SHAPES[self.rules.covariance]


class Progress(NamedTuple):
    """How far the fits of `m` mixtures have come: the last losses, steps taken, and whether they are done.

    A size [m] is not `possible` [m] if the points have fewer distinct values than it has components.
    """

    sizes: jax.Array
    mixtures: Mixture
    loss: jax.Array
    iterations: jax.Array
    done: jax.Array
    possible: jax.Array


def pose(points: jax.Array, valid: jax.Array, rules: Rules) -> Problem:
    """The problem of fitting mixtures to the valid ones of clean points [n, d]."""
    origin = centre(points, valid)
    return _problem(origin, jnp.where(valid[:, None], points - origin, 0.0), valid, rules)


def subset(problem: Problem, index: jax.Array, mask: jax.Array) -> Problem:
    """The same problem for the points at these indices of which the mask is true."""
    points = jnp.where(mask[:, None], problem.points[index], 0.0)
    return _problem(problem.origin, points, mask, problem.rules)


def _problem(origin: jax.Array, points: jax.Array, valid: jax.Array, rules: Rules) -> Problem:
    total = jnp.maximum(jnp.sum(valid), 1)
    return Problem(origin, points, valid, total, SHAPES[rules.covariance].prepare(points), rules)


def begin(
    problem: Problem,
    chain: kmeans.Chain,
    sizes: range,
    previous: tuple[Mixture, jax.Array] | None = None,
) -> Progress:
    """First mixtures of all sizes from one chain of centres, the largest first.

    Every point belongs to its nearest centre, and the means are the centres themselves. `previous` are
    mixtures [m, ...] to start from instead, the smallest first, for those sizes where its mask [m] is true.
    """
    most = sizes[::-1]
    centres, labels = problem.points[chain.indices], kmeans.nearest_labels(chain.distances, sizes[0])
    mixtures = _from_labels(problem, centres, labels[::-1], most)
    if previous is not None:
        old, known = turned(previous)
        mixtures = jax.tree.map(partial(rows_where, known), _moved(old, problem.origin), mixtures)
    components = jnp.array(most)
    possible = components <= chain.distinct
    nothing = jnp.zeros(len(most), jnp.int32)
    return Progress(components, mixtures, jnp.full(len(most), jnp.inf), nothing, ~possible, possible)


def advance(
    problem: Problem,
    progress: Progress,
    wanted: jax.Array,
    *,
    iterations: int | jax.Array,
    sizes: range,
    together: Sequence[int] | None = None,
) -> Progress:
    """Fit those mixtures that are `wanted` [m] until they are done or have taken so many steps in all.

    Each has another one of the `sizes`, the largest first. `together` are the numbers of mixtures that take
    their steps side by side if the points are many, as long as there are so many mixtures.
    """
    groups = problem.shape.group_sizes if together is None else together
    groups = sorted({min(group, len(wanted)) for group in groups}, reverse=True)

    def is_waiting(progress: Progress, above: int) -> jax.Array:
        idle = progress.done | ~wanted | (progress.iterations >= iterations)
        return ~idle & (progress.sizes > above)

    def step(progress: Progress, stage: _Stage) -> Progress:
        """One step of the first mixtures that wait for it."""
        waiting = is_waiting(progress, stage.above)
        if len(stage.widths) == 1:
            # Of one mixture all is written back, since a loop goes on only as long as one is waiting.
            first = jnp.argmax(waiting)
            old = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, first), progress)
            write = partial(lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
            return _stepped(progress, _step(problem, old, stage.widths), write)
        index = jnp.argsort(~waiting, stable=True)[: len(stage.widths)]
        old = jax.tree.map(lambda leaf: leaf[index], progress)
        new = jax.tree.map(partial(rows_where, waiting[index]), _step(problem, old, stage.widths), old)
        return _stepped(progress, new, lambda all_rows, rows: all_rows.at[index].set(rows))

    for stage in _stages(problem, sizes, groups):
        progress = lax.while_loop(
            lambda progress, stage=stage: jnp.sum(is_waiting(progress, stage.above)) >= stage.least,
            partial(step, stage=stage),
            progress,
        )
    return progress


def _stepped(
    progress: Progress, new: Progress, write: Callable[[jax.Array, jax.Array], jax.Array]
) -> Progress:
    """All mixtures, with what a step has changed of some of them."""

    def changed(progress: Progress) -> tuple[jax.Array, ...]:
        mixtures = progress.mixtures
        moved = mixtures.log_weights, mixtures.offsets, mixtures.whitening
        return *moved, progress.loss, progress.iterations, progress.done

    log_weights, offsets, whitening, loss, iterations, done = map(write, changed(progress), changed(new))
    mixtures = progress.mixtures._replace(log_weights=log_weights, offsets=offsets, whitening=whitening)
    return progress._replace(mixtures=mixtures, loss=loss, iterations=iterations, done=done)


def judge(problem: Problem, progress: Progress, most: Sequence[int]) -> Fits:
    """Label the points of the problem, and say how likely they are, by each mixture.

    `most` [m] are the most components that each may have.
    """
    labels, log_likelihood = _judged(problem, progress.mixtures, most)
    ok = progress.possible
    for leaf in (log_likelihood, progress.mixtures.offsets, progress.mixtures.whitening):
        ok &= jnp.isfinite(leaf).reshape(len(ok), -1).all(axis=1)
    return Fits(progress.mixtures, labels, log_likelihood, progress.iterations, ok)


def fit_sizes(
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    *,
    sizes: range,
    rules: Rules,
    previous: tuple[Mixture, jax.Array] | None = None,
) -> Fits:
    """Fit a mixture of each size to the valid ones of clean points [n, d]. Consumes the key."""
    problem = pose(points, valid, rules)
    chain = kmeans.chain(key, problem.points, valid, sizes[-1])
    progress = begin(problem, chain, sizes, previous)
    everything = jnp.ones(len(sizes), bool)
    progress = advance(problem, progress, everything, iterations=rules.max_iterations, sizes=sizes)
    return turned(judge(problem, progress, sizes[::-1]))


def turned(rows: Any) -> Any:
    """Mixtures from the largest to the smallest, or back: the rows of a tree in the opposite order."""
    return jax.tree.map(lambda leaf: leaf[::-1], rows)


def log_density(mixture: Mixture, points: jax.Array, covariance: CovarianceName) -> jax.Array:
    """Logarithm of the density [n] at finite points [n, d]."""
    shape = SHAPES[covariance]
    prepared = shape.prepare(points - mixture.origin)
    joint = shape.log_gaussians(prepared, mixture.offsets, mixture.whitening) + mixture.log_weights[:, None]
    return jax.nn.logsumexp(joint, axis=0)


def count_parameters(size: int, dimensions: int, covariance: CovarianceName) -> int:
    """How many free numbers describe a mixture."""
    return SHAPES[covariance].parameters(size, dimensions) + size * dimensions + size - 1


class _Stage(NamedTuple):
    """Steps of mixtures with more than `above` components, as long as at least so many wait for one.

    As many take a step side by side as there are `widths`, the most components of each.
    """

    widths: Sequence[int]
    above: int
    least: int


def _stages(problem: Problem, sizes: range, groups: Sequence[int]) -> list[_Stage]:
    """One after another, in steps of few widths; or in these groups, if the points are many."""
    most = sizes[::-1]
    if max(groups) > 1 and problem.prepared.size > _CACHED_POINTS:
        return [_Stage(most[:group], 0, 1 if group == groups[-1] else group) for group in groups]
    if problem.shape.group_sizes == (1,):
        return [_Stage(most[:1], 0, 1)]
    widths = most[:: -(-len(most) // _WIDTHS)]
    return [_Stage((width,), above, 1) for width, above in itertools.pairwise([*widths, 0])]


def _step(problem: Problem, progress: Progress, widths: Sequence[int]) -> Progress:
    """One step of EM for each mixture [m, ...]. The losses are those of the mixtures before it."""
    old = _packed(problem, progress.mixtures, widths)
    responsibilities, densities = [], []
    for joint in _log_joints(problem, old, widths):
        highest = jnp.max(joint, axis=0)
        shares = jnp.exp(joint - highest)
        total = jnp.sum(shares, axis=0)
        densities.append(highest + jnp.log(total))
        responsibilities.append(jnp.where(problem.valid, shares / total, 0.0))
    loss = -mean_where(problem.valid, jnp.stack(densities))
    # Written so that a loss that is not a number ends the fit too.
    done = ~(jnp.abs(progress.loss - loss) >= problem.rules.tolerance)
    together = jnp.concatenate(responsibilities)
    new = _maximised(problem, Assigned(together, row_sums(together)), old, widths)
    mixtures = _stacked(problem, new, progress.mixtures, widths)
    return Progress(progress.sizes, mixtures, loss, progress.iterations + 1, done, progress.possible)


def _judged(problem: Problem, mixtures: Mixture, widths: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """The most responsible component of each point [m, n], and the mean log-likelihoods [m]."""
    # All as wide as the widest: done once, this is cheaper than to compile it for each.
    widths = [max(widths)] * len(widths)
    joints = jnp.stack(_log_joints(problem, _packed(problem, mixtures, widths), widths))
    return _first_highest(joints), mean_where(problem.valid, jax.nn.logsumexp(joints, axis=1))


def _first_highest(joints: jax.Array) -> jax.Array:
    """The rows [m, n] of the highest entries of columns [m, k, n]; faster than an `argmax`. 0 if there is
    none."""
    count = joints.shape[1]
    rows = jnp.arange(count, dtype=jnp.int32)[:, None]
    first = jnp.min(jnp.where(joints == jnp.max(joints, axis=1, keepdims=True), rows, count), axis=1)
    return jnp.where(first < count, first, 0)


def _log_joints(problem: Problem, mixtures: Mixture, widths: Sequence[int]) -> list[jax.Array]:
    """For each mixture the logarithm of weight times density [k, n] of its components at all points."""
    shape = problem.shape
    if shape.per_component:
        together = shape.log_gaussians(problem.prepared, mixtures.offsets, mixtures.whitening)
        densities = _cut(together, widths, axis=0)
    else:
        parts = zip(_cut(mixtures.offsets, widths, axis=0), mixtures.whitening)
        densities = [shape.log_gaussians(problem.prepared, *part) for part in parts]
    return [
        density + log_weights[:, None]
        for density, log_weights in zip(densities, _cut(mixtures.log_weights, widths, axis=0))
    ]


def _estimates(problem: Problem, assigned: Assigned, widths: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """Means [c, d] and whitening of packed mixtures."""
    shape, reg = problem.shape, problem.rules.reg
    if shape.per_component:
        return shape.estimate(problem.prepared, assigned, reg)
    columns = _cut(assigned.responsibilities, widths, axis=0), _cut(assigned.counts, widths, axis=0)
    centres = [None] * len(widths) if assigned.centres is None else _cut(assigned.centres, widths, axis=0)
    parts = [shape.estimate(problem.prepared, Assigned(*part), reg) for part in zip(*columns, centres)]
    means, whitening = zip(*parts)
    return jnp.concatenate(means), jnp.stack(whitening)


def _maximised(problem: Problem, assigned: Assigned, old: Mixture, widths: Sequence[int]) -> Mixture:
    """The most likely packed mixtures, given the responsibilities of all their components.

    A component of less than one point keeps its place with almost no weight, and may win points back.
    """
    alive = assigned.counts >= ONE_POINT
    offsets, whitening = _estimates(problem, assigned, widths)
    if problem.shape.per_component:
        whitening = rows_where(alive, whitening, old.whitening)
    return Mixture(
        origin=old.origin,
        log_weights=_log_weights(assigned.counts, problem.total, old.log_weights > -jnp.inf),
        offsets=rows_where(alive, offsets, old.offsets),
        whitening=whitening,
    )


def _from_labels(
    problem: Problem,
    centres: jax.Array,
    labels: jax.Array,
    sizes: Sequence[int],
) -> Mixture:
    """Mixtures [m, ...] around the first centres, each component spread as the points of its label.

    Mixture i has `sizes[i]` components; `labels` are [m, n].
    """
    count, dimensions = centres.shape
    owner, place = _columns(sizes)
    members = (jnp.asarray(place)[:, None] == labels[owner]) & problem.valid
    members = members.astype(problem.points.dtype)
    counts = row_sums(members)
    offsets, whitening = _estimates(problem, Assigned(members, counts, centres[place]), sizes)
    log_weights = _log_weights(counts, problem.total, jnp.ones(len(place), bool))
    blank = empty(count, dimensions, problem.rules.covariance)._replace(log_weights=jnp.full(count, -jnp.inf))
    blanks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sizes), *leaf.shape)), blank)
    origins = jnp.broadcast_to(problem.origin, blanks.origin.shape)
    return _stacked(problem, Mixture(origins, log_weights, offsets, whitening), blanks, sizes)


# Packed mixtures: the components of all of them in one row [c, ...], each with only as many as its width.
# What is the same for every component is then one operation, and not one for each mixture.


def _columns(widths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each component of packed mixtures: its mixture [c], and its place in it [c]."""
    return np.repeat(np.arange(len(widths)), widths), np.concatenate([np.arange(width) for width in widths])


def _packed(problem: Problem, mixtures: Mixture, widths: Sequence[int]) -> Mixture:
    """Mixtures [m, ...] packed; origins, and a whitening that components share, keep their axis [m]."""
    columns = _columns(widths)
    return mixtures._replace(
        **{name: getattr(mixtures, name)[columns] for name in _per_component(problem.rules.covariance)}
    )


def _stacked(problem: Problem, packed: Mixture, full: Mixture, widths: Sequence[int]) -> Mixture:
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
            for name in _per_component(problem.rules.covariance)
        }
    )


def _per_component(covariance: CovarianceName) -> tuple[str, ...]:
    """The fields of a mixture that have an axis of components."""
    own = ("whitening",) if SHAPES[covariance].per_component else ()
    return ("log_weights", "offsets", *own)


def _log_weights(counts: jax.Array, count: jax.Array, present: jax.Array) -> jax.Array:
    weights = jnp.where(counts >= ONE_POINT, jnp.log(counts / count), _LOG_SMALLEST_WEIGHT)
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
