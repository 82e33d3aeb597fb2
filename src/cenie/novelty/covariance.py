"""The four shapes of covariance of a Gaussian mixture, each as the same few functions.

Points are rows, relative to an origin near their mean, and zero where they are missing; responsibilities
are zero there too. Everything expensive is a matrix product over all points at once. What belongs to a
component and a point has the points last, so that sums over components run over whole rows.

A covariance is kept as its whitening W: points of this covariance, times W, have the covariance 1, and W W^T
is its inverse. That needs half as many digits as the covariance itself, whose largest and smallest variances
may differ by more than single precision can tell.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from cenie.novelty.config import CovarianceName
from cenie.novelty.precision import in_double_precision

_LOG_TWO_PI = math.log(2.0 * math.pi)

ONE_POINT = 0.99
"""The fewest points of a component that EM moves. Rounding may leave a little less than one."""


class Assigned(NamedTuple):
    """Points shared out among `k` components: responsibilities [k, n] and their sums [k].

    If there are `centres` [k, d], components lie there and not at the mean of their points.
    """

    responsibilities: jax.Array
    counts: jax.Array
    centres: jax.Array | None = None


class Shape(NamedTuple):
    """What EM needs to know of a shape of covariance, for `k` components in `d` dimensions.

    `prepare(points [n, d])` computes whatever does not change during EM.
    `log_gaussians(prepared, means [k, d], whitening)` are the log-densities [k, n].
    `estimate(prepared, assigned, reg)` are means [k, d] and whitening.
    `unit(k, d)` is the whitening of covariances 1; `per_component` says whether it has an axis of components.
    `covariances(whitening)` are the covariances in the shape of scikit-learn, from and to NumPy.
    `parameters(k, d)` counts the numbers that describe the covariances. `group_sizes` are the
    numbers of mixtures worth computing side by side where points are many, down to 1.
    """

    prepare: Callable[[jax.Array], Any]
    log_gaussians: Callable[[Any, jax.Array, jax.Array], jax.Array]
    estimate: Callable[[Any, Assigned, float | jax.Array], tuple[jax.Array, jax.Array]]
    unit: Callable[[int, int], jax.Array]
    covariances: Callable[[np.ndarray], np.ndarray]
    per_component: bool
    parameters: Callable[[int, int], int]
    group_sizes: tuple[int, ...]


# Diagonal: 1 / standard deviation [k, d]. Squares are expanded: each step is one product with [x, x^2].
#
# An expanded (x - m)^2 / v loses as many digits as m^2 / v has before the point. Where single precision has
# not enough of them, the same is computed in double precision: the centred form would need no more than
# single precision, but it is no product of matrices and takes several times as long.

_LARGEST_LEVERAGE = 3e3
"""The largest sum over columns of m^2 / v for which single precision, of seven digits, keeps three behind the
point. A maze student's states have some hundreds."""


def _with_squares(points: jax.Array) -> jax.Array:
    """Columns and their squares [2 d, n]. Transposed, both products of a step are fast."""
    columns = points.T
    return jnp.concatenate([columns, jnp.square(columns)])


def _double_with_squares(prepared: jax.Array) -> jax.Array:
    """The same in double precision: squares anew, for theirs are rounded."""
    columns = prepared[: len(prepared) // 2]
    return jnp.concatenate([columns, jnp.square(columns)])


def _is_single_enough(means: jax.Array, whitening: jax.Array) -> jax.Array:
    return jnp.max(jnp.sum(jnp.square(means * whitening), axis=1)) <= _LARGEST_LEVERAGE


def _diagonal_log_gaussians(prepared: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    return lax.cond(
        _is_single_enough(means, whitening),
        _expanded_log_gaussians,
        _double_log_gaussians,
        prepared,
        means,
        whitening,
    )


def _expanded_log_gaussians(prepared: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    precisions = jnp.square(whitening)
    factors = jnp.concatenate([means * precisions, -0.5 * precisions], axis=1)
    constant = jnp.sum(jnp.square(means) * precisions - jnp.log(precisions) + _LOG_TWO_PI, axis=1)
    return factors @ prepared - 0.5 * constant[:, None]


@in_double_precision
def _double_log_gaussians(prepared: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    return _expanded_log_gaussians(_double_with_squares(prepared), means, whitening)


def _diagonal_estimate(
    prepared: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    return _variance_estimate(prepared, assigned, reg, lambda variances: variances)


def _variance_estimate(
    prepared: jax.Array,
    assigned: Assigned,
    reg: float | jax.Array,
    shaped: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Means and whitening; the variances [k, d] are brought into shape before."""

    def from_sums(sums: jax.Array, assigned: Assigned, reg: float | jax.Array) -> tuple[jax.Array, jax.Array]:
        average, square = jnp.split(sums / _at_least_one(assigned.counts)[:, None], 2, axis=1)
        # Rounding may leave less than nothing where a column is constant.
        variances = jnp.maximum(square - jnp.square(average), 0.0)
        means = average if assigned.centres is None else assigned.centres
        return means, 1.0 / jnp.sqrt(shaped(variances + jnp.square(average - means)) + reg)

    @in_double_precision
    def again(prepared: jax.Array, assigned: Assigned, reg: float | jax.Array) -> tuple[jax.Array, jax.Array]:
        assigned = assigned._replace(counts=jnp.sum(assigned.responsibilities, axis=1))
        return from_sums(assigned.responsibilities @ _double_with_squares(prepared).T, assigned, reg)

    means, whitening = from_sums(assigned.responsibilities @ prepared.T, assigned, reg)
    return lax.cond(
        _is_single_enough(means, whitening),
        lambda: (means, whitening),
        lambda: again(prepared, assigned, reg),
    )


_DIAGONAL = Shape(
    prepare=_with_squares,
    log_gaussians=_diagonal_log_gaussians,
    estimate=_diagonal_estimate,
    unit=lambda k, d: jnp.ones((k, d)),
    covariances=lambda whitening: whitening**-2.0,
    per_component=True,
    parameters=lambda k, d: k * d,
    group_sizes=(10, 2, 1),
)


# Spherical: a diagonal whose variances [k, d] are equal in each component.


def _spherical_estimate(
    prepared: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    def equal(variances: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.mean(variances, axis=1, keepdims=True), variances.shape)

    return _variance_estimate(prepared, assigned, reg, equal)


_SPHERICAL = _DIAGONAL._replace(
    estimate=_spherical_estimate,
    covariances=lambda whitening: whitening[:, 0] ** -2.0,
    parameters=lambda k, d: k,
)


# Full: whitening [k, d, d]. One component after another, since each needs products of its own.


def _full_log_gaussians(points: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    def of_component(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        mean, whitening = component
        distances = jnp.sum(jnp.square((points - mean) @ whitening), axis=1)
        return _log_gaussian(distances, whitening)

    return lax.map(of_component, (means, whitening))


@in_double_precision
def _full_estimate(
    points: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    share = assigned.responsibilities / _at_least_one(jnp.sum(assigned.responsibilities, axis=1))[:, None]
    means = share @ points if assigned.centres is None else assigned.centres

    def of_component(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        weights, mean = component
        return _whitening(_scatter(points, weights, mean), reg)

    return means, lax.map(of_component, (share, means))


_FULL = Shape(
    prepare=lambda points: points,
    log_gaussians=_full_log_gaussians,
    estimate=_full_estimate,
    unit=lambda k, d: jnp.broadcast_to(jnp.eye(d), (k, d, d)),
    covariances=lambda whitening: _square_of(np.linalg.inv(whitening)),
    per_component=True,
    parameters=lambda k, d: k * d * (d + 1) // 2,
    group_sizes=(1,),
)


# Tied: one whitening [d, d] for all components.


@in_double_precision
def _tied_log_gaussians(points: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    white, centres = points @ whitening, means @ whitening
    distances = (
        jnp.sum(jnp.square(white), axis=1)
        - 2.0 * centres @ white.T
        + jnp.sum(jnp.square(centres), axis=1)[:, None]
    )
    return _log_gaussian(jnp.maximum(distances, 0.0), whitening)


@in_double_precision
def _tied_estimate(
    points: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    counts = jnp.sum(assigned.responsibilities, axis=1)
    average = (assigned.responsibilities / _at_least_one(counts)[:, None]) @ points
    means = average if assigned.centres is None else assigned.centres
    weights = assigned.responsibilities / _at_least_one(jnp.sum(counts))

    def add(total: jax.Array, component: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + _scatter(points, *component), None

    nothing = jnp.zeros((points.shape[1], points.shape[1]), points.dtype)
    return means, _whitening(lax.scan(add, nothing, (weights, means))[0], reg)


_TIED = Shape(
    prepare=lambda points: points,
    log_gaussians=_tied_log_gaussians,
    estimate=_tied_estimate,
    unit=lambda k, d: jnp.eye(d),
    covariances=lambda whitening: _square_of(np.linalg.inv(whitening)),
    per_component=False,
    parameters=lambda k, d: d * (d + 1) // 2,
    group_sizes=(1,),
)


def _scatter(points: jax.Array, weights: jax.Array, mean: jax.Array) -> jax.Array:
    """Weighted products [d, d] of distances from a mean: no direction is negative, however rounded."""
    rows = (points - mean) * jnp.sqrt(weights)[:, None]
    return rows.T @ rows


def _whitening(scatter: jax.Array, reg: float | jax.Array) -> jax.Array:
    """The whitening of a regularised covariance [d, d]; not finite if it is not positive definite."""
    factor = jnp.linalg.cholesky(scatter + reg * jnp.eye(scatter.shape[0], dtype=scatter.dtype))
    return solve_triangular(factor, jnp.eye(scatter.shape[0], dtype=scatter.dtype), lower=True).T


def _log_gaussian(distances: jax.Array, whitening: jax.Array) -> jax.Array:
    """Log-densities from squared distances of white points and a triangular whitening [d, d]."""
    log_precision = 2.0 * jnp.sum(jnp.log(jnp.diagonal(whitening)))
    return -0.5 * (distances - log_precision + whitening.shape[0] * _LOG_TWO_PI)


def _square_of(factors: np.ndarray) -> np.ndarray:
    """F^T F of matrices F [..., d, d]."""
    return factors.swapaxes(-1, -2) @ factors


def _at_least_one(counts: jax.Array) -> jax.Array:
    """EM keeps no component of less than one point, so that this only guards divisions."""
    return jnp.maximum(counts, ONE_POINT)


SHAPES: dict[CovarianceName, Shape] = {
    "diag": _DIAGONAL,
    "full": _FULL,
    "tied": _TIED,
    "spherical": _SPHERICAL,
}
