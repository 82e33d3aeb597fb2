"""Expectation maximisation (EM): Gaussian mixtures of many sizes, fitted in one compiled call.

`fit_sizes` is a whole fit: `dataset`, `begin`, `advance`, `judge`. One step is `_e_step` and `_m_step`.
Mixtures are ordered from the largest to the smallest until `fit_sizes` returns. Which of them take a step
together, and how they are packed for it, is the business of `em_schedule`, for speed only;
`tests/novelty/plain_em.py` is the same in plain NumPy.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cenie.novelty import em_schedule, kmeans
from cenie.novelty.config import CovarianceName
from cenie.novelty.covariance import ONE_POINT, SHAPES, Assigned, Shape
from cenie.novelty.mixture import Mixture, empty
from cenie.novelty.points import centre, rows_where
from cenie.novelty.precision import mean_where, row_sums

_LOG_SMALLEST_WEIGHT = -8.0 * 2.302585
"""Logarithm of 1e-8: the weight of a component that has lost its points."""


class Rules(NamedTuple):
    """The rules of fitting mixtures.

    A fall of the likelihood does not end a fit, because a large `reg` can lower it for a few steps before it
    rises again; scikit-learn has the same rule.

    Attributes:
        covariance: The shape of covariance.
        reg: What is added to all variances.
        tolerance: A fit ends when a step changes the mean log-likelihood of a point by less than this.
        max_iterations: The most steps of a fit.
    """

    covariance: CovarianceName = "diag"
    reg: float | jax.Array = 1e-2
    tolerance: float | jax.Array = 1e-3
    max_iterations: int | jax.Array = 100


class Dataset(NamedTuple):
    """The points to fit, and the rules, which are the same for all sizes.

    Attributes:
        origin: A point in the middle of the data [d].
        points: The points relative to the origin [n, d], zero where they are not valid.
        valid: Which points are there [n].
        total: How many points are valid, at least 1.
        prepared: The points as their shape of covariance needs them.
        rules: How mixtures are fitted.
    """

    origin: jax.Array
    points: jax.Array
    valid: jax.Array
    total: jax.Array
    prepared: Any
    rules: Rules

    @property
    def shape(self) -> Shape:
        """The functions of the shape of covariance."""
        return SHAPES[self.rules.covariance]


class FitProgress(NamedTuple):
    """The progress of the fits of `m` mixtures.

    Attributes:
        sizes: Their numbers of components [m].
        mixtures: The mixtures [m, ...].
        loss: The negative mean log-likelihoods before the last step [m].
        iterations: The steps taken [m].
        done: Which fits have ended [m].
        possible: Whether the points have at least as many distinct values as components [m].
    """

    sizes: jax.Array
    mixtures: Mixture
    loss: jax.Array
    iterations: jax.Array
    done: jax.Array
    possible: jax.Array


class Fits(NamedTuple):
    """Fitted mixtures of `m` sizes, stacked along a leading axis.

    Attributes:
        mixtures: The mixtures [m, ...].
        labels: The component of highest responsibility of each point [m, n].
        log_likelihood: The mean log-likelihood of a point [m].
        iterations: The EM steps taken [m].
        ok: Which fits are usable [m]. One is not if the points have fewer distinct values than it has
            components, or if a number of it is not finite.
    """

    mixtures: Mixture
    labels: jax.Array
    log_likelihood: jax.Array
    iterations: jax.Array
    ok: jax.Array


def fit_sizes(
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    *,
    sizes: range,
    rules: Rules,
    previous: tuple[Mixture, jax.Array] | None = None,
) -> Fits:
    """Fit a mixture of each size.

    Args:
        key: Draws the first centres; consumed.
        points: Finite points [n, d].
        valid: Which of them count [n].
        sizes: The numbers of components to fit.
        rules: How mixtures are fitted.
        previous: Mixtures [m, ...] to start from instead, smallest first, and which of them exist [m].

    Returns:
        The fits of all sizes, smallest first.
    """
    data = dataset(points, valid, rules)
    chain = kmeans.chain(key, data.points, valid, sizes[-1])
    progress = begin(data, chain, sizes, previous)
    everything = jnp.ones(len(sizes), bool)
    progress = advance(data, progress, everything, iterations=rules.max_iterations, sizes=sizes)
    return reverse_rows(judge(data, progress, sizes[::-1]))


def dataset(points: jax.Array, valid: jax.Array, rules: Rules) -> Dataset:
    """The data of a fit to the valid [n] ones of clean points [n, d]."""
    origin = centre(points, valid)
    return _dataset(origin, jnp.where(valid[:, None], points - origin, 0.0), valid, rules)


def subset(data: Dataset, index: jax.Array, mask: jax.Array) -> Dataset:
    """The points at these indices [c] where the mask [c] is true, around the same origin."""
    points = jnp.where(mask[:, None], data.points[index], 0.0)
    return _dataset(data.origin, points, mask, data.rules)


def _dataset(origin: jax.Array, points: jax.Array, valid: jax.Array, rules: Rules) -> Dataset:
    total = jnp.maximum(jnp.sum(valid), 1)
    return Dataset(origin, points, valid, total, SHAPES[rules.covariance].prepare(points), rules)


def begin(
    data: Dataset,
    chain: kmeans.Chain,
    sizes: range,
    previous: tuple[Mixture, jax.Array] | None = None,
) -> FitProgress:
    """The first mixtures of all sizes, largest first, from one chain of centres.

    Every point belongs to its nearest centre, and the means are the centres themselves.

    Args:
        data: The points and the rules.
        chain: Centres for the largest size; its first j are centres for j components.
        sizes: The numbers of components to fit.
        previous: Mixtures [m, ...] to start from instead, smallest first, and which of them exist [m].

    Returns:
        The fits before their first step.
    """
    most = sizes[::-1]
    centres, labels = data.points[chain.indices], kmeans.nearest_labels(chain.distances, sizes[0])
    mixtures = _from_labels(data, centres, labels[::-1], most)
    if previous is not None:
        old, known = reverse_rows(previous)
        mixtures = jax.tree.map(partial(rows_where, known), _moved(old, data.origin), mixtures)
    components = jnp.array(most)
    possible = components <= chain.distinct
    nothing = jnp.zeros(len(most), jnp.int32)
    return FitProgress(components, mixtures, jnp.full(len(most), jnp.inf), nothing, ~possible, possible)


def advance(
    data: Dataset,
    progress: FitProgress,
    wanted: jax.Array,
    *,
    iterations: int | jax.Array,
    sizes: range,
    together: Sequence[int] | None = None,
) -> FitProgress:
    """Take EM steps until every wanted fit has ended.

    Args:
        data: The points and the rules.
        progress: The fits [m], largest first.
        wanted: Which fits go on [m].
        iterations: A fit stops after this many steps, those taken before included.
        sizes: The numbers of components that the fits may have.
        together: How many mixtures step side by side where points are many; None: as their shape likes.

    Returns:
        The fits after these steps.
    """
    groups = data.shape.group_sizes if together is None else together
    groups = sorted({min(group, len(wanted)) for group in groups}, reverse=True)

    def is_waiting(progress: FitProgress, above: int) -> jax.Array:
        idle = progress.done | ~wanted | (progress.iterations >= iterations)
        return ~idle & (progress.sizes > above)

    def step(progress: FitProgress, stage: em_schedule.Stage) -> FitProgress:
        waiting = is_waiting(progress, stage.above)
        old, write, really = em_schedule.first_waiting(progress, waiting, len(stage.widths))
        new = _em_step(data, old, stage.widths)
        if len(stage.widths) > 1:
            new = jax.tree.map(partial(rows_where, really), new, old)
        return _with_rows(progress, new, write)

    for stage in em_schedule.stages(data.prepared.size, sizes, groups, data.shape.widths):
        progress = lax.while_loop(
            lambda progress, stage=stage: jnp.sum(is_waiting(progress, stage.above)) >= stage.least,
            partial(step, stage=stage),
            progress,
        )
    return progress


def judge(data: Dataset, progress: FitProgress, most: Sequence[int]) -> Fits:
    """Label the points, and say how likely they are under each mixture.

    Args:
        data: The points to label; they may differ from the fitted ones.
        progress: The fits [m].
        most: The most components that each may have [m].

    Returns:
        The fits in the same order.
    """
    # All as wide as the widest: done once, this is cheaper than to compile it for each.
    widths = [max(most)] * len(most)
    joints = jnp.stack(_log_joints(data, em_schedule.pack(progress.mixtures, widths), widths))
    labels, log_likelihood = _first_highest(joints), mean_where(data.valid, jax.nn.logsumexp(joints, axis=1))
    ok = progress.possible
    for leaf in (log_likelihood, progress.mixtures.offsets, progress.mixtures.whitening):
        ok &= jnp.isfinite(leaf).reshape(len(ok), -1).all(axis=1)
    return Fits(progress.mixtures, labels, log_likelihood, progress.iterations, ok)


def reverse_rows(tree: Any) -> Any:
    """The rows of all arrays of a tree in the opposite order: largest first to smallest first, or back."""
    return jax.tree.map(lambda leaf: leaf[::-1], tree)


def _em_step(data: Dataset, progress: FitProgress, widths: Sequence[int]) -> FitProgress:
    """One step of EM for each mixture [m, ...]. The losses belong to the mixtures before it."""
    old = em_schedule.pack(progress.mixtures, widths)
    responsibilities, log_likelihoods = _e_step(data, old, widths)
    loss = -mean_where(data.valid, log_likelihoods)
    # Written so that a loss that is not a number ends the fit too.
    done = ~(jnp.abs(progress.loss - loss) >= data.rules.tolerance)
    new = _m_step(data, Assigned(responsibilities, row_sums(responsibilities)), old)
    mixtures = em_schedule.unpack(new, progress.mixtures, widths)
    return FitProgress(progress.sizes, mixtures, loss, progress.iterations + 1, done, progress.possible)


def _e_step(data: Dataset, packed: Mixture, widths: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """E-step: responsibilities [c, n] of packed components, and the log-likelihoods [m, n] of the points.

    r_kj = alpha_k N(x_j; mu_k, Sigma_k) / sum_i alpha_i N(x_j; mu_i, Sigma_i)
    """
    responsibilities, log_likelihoods = [], []
    for joint in _log_joints(data, packed, widths):
        highest = jnp.max(joint, axis=0)
        shares = jnp.exp(joint - highest)
        total = jnp.sum(shares, axis=0)
        log_likelihoods.append(highest + jnp.log(total))
        responsibilities.append(jnp.where(data.valid, shares / total, 0.0))
    return jnp.concatenate(responsibilities), jnp.stack(log_likelihoods)


def _m_step(data: Dataset, assigned: Assigned, old: Mixture) -> Mixture:
    """M-step: the most likely packed mixtures, given the responsibilities of all their components.

    alpha_k = sum_j r_kj / n, mu_k and Sigma_k are mean and covariance of the points with weights r_kj; `reg`
    is added to variances. A component of less than one point keeps its place with almost no weight, and may
    win points back.
    """
    alive = assigned.counts >= ONE_POINT
    offsets, whitening = data.shape.estimate(data.prepared, assigned, data.rules.reg)
    return Mixture(
        origin=old.origin,
        log_weights=_log_weights(assigned.counts, data.total, old.log_weights > -jnp.inf),
        offsets=rows_where(alive, offsets, old.offsets),
        whitening=rows_where(alive, whitening, old.whitening),
    )


def _log_joints(data: Dataset, packed: Mixture, widths: Sequence[int]) -> list[jax.Array]:
    """log [alpha_k N(x_j; mu_k, Sigma_k)] [k, n] for each of the packed mixtures."""
    densities = data.shape.log_gaussians(data.prepared, packed.offsets, packed.whitening)
    parts = zip(em_schedule.split(densities, widths), em_schedule.split(packed.log_weights, widths))
    return [density + log_weights[:, None] for density, log_weights in parts]


def _from_labels(data: Dataset, centres: jax.Array, labels: jax.Array, sizes: Sequence[int]) -> Mixture:
    """Mixtures [m, ...] around the first centres [k, d], each component spread as the points of its label.

    Mixture i has `sizes[i]` components; `labels` are [m, n].
    """
    count, dimensions = centres.shape
    owner, place = em_schedule.columns(sizes)
    members = (jnp.asarray(place)[:, None] == labels[owner]) & data.valid
    members = members.astype(data.points.dtype)
    counts = row_sums(members)
    assigned = Assigned(members, counts, centres[place])
    offsets, whitening = data.shape.estimate(data.prepared, assigned, data.rules.reg)
    log_weights = _log_weights(counts, data.total, jnp.ones(len(place), bool))
    blank = empty(count, dimensions, data.rules.covariance)._replace(log_weights=jnp.full(count, -jnp.inf))
    blanks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sizes), *leaf.shape)), blank)
    origins = jnp.broadcast_to(data.origin, blanks.origin.shape)
    return em_schedule.unpack(Mixture(origins, log_weights, offsets, whitening), blanks, sizes)


def _with_rows(
    progress: FitProgress, rows: FitProgress, write: Callable[[jax.Array, jax.Array], jax.Array]
) -> FitProgress:
    """All fits, with what a step has changed of some of them."""

    def changed(progress: FitProgress) -> tuple[jax.Array, ...]:
        return *progress.mixtures[1:], progress.loss, progress.iterations, progress.done

    *mixture, loss, iterations, done = map(write, changed(progress), changed(rows))
    mixtures = Mixture(progress.mixtures.origin, *mixture)
    return progress._replace(mixtures=mixtures, loss=loss, iterations=iterations, done=done)


def _first_highest(joints: jax.Array) -> jax.Array:
    """The rows [m, n] of the highest entries of columns [m, k, n], 0 if there is none; faster than an
    `argmax`."""
    count = joints.shape[1]
    rows = jnp.arange(count, dtype=jnp.int32)[:, None]
    first = jnp.min(jnp.where(joints == jnp.max(joints, axis=1, keepdims=True), rows, count), axis=1)
    return jnp.where(first < count, first, 0)


def _log_weights(counts: jax.Array, total: jax.Array, present: jax.Array) -> jax.Array:
    weights = jnp.where(counts >= ONE_POINT, jnp.log(counts / total), _LOG_SMALLEST_WEIGHT)
    return jnp.where(present, weights, -jnp.inf)


def _moved(mixtures: Mixture, origin: jax.Array) -> Mixture:
    """The same mixtures [m, ...] in coordinates around another origin."""
    shift = mixtures.origin - origin
    return mixtures._replace(
        origin=jnp.broadcast_to(origin, mixtures.origin.shape), offsets=mixtures.offsets + shift[:, None]
    )
