"""The four shapes of covariance of a Gaussian mixture, each as the same few functions.

Points are rows, relative to an origin near their mean, and zero where they are missing; responsibilities
are zero there too. Everything expensive is a matrix product over all points at once.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from cenie.novelty.config import CovarianceName
from cenie.novelty.precision import in_double_precision

_LOG_TWO_PI = math.log(2.0 * math.pi)


class Assigned(NamedTuple):
    """Points shared out among `k` components: responsibilities [n, k] and their sums [k].

    If there are `centres` [k, d], components lie there and not at the mean of their points.
    """

    responsibilities: jax.Array
    counts: jax.Array
    centres: jax.Array | None = None


class Shape(NamedTuple):
    """What EM needs to know of a shape of covariance, for `k` components in `d` dimensions.

    `prepare(points [n, d])` computes whatever does not change during EM.
    `log_gaussians(prepared, means [k, d], covariances)` are the log-densities [n, k].
    `estimate(prepared, assigned, reg)` are means [k, d] and covariances.
    `unit(k, d)` are covariances 1; `per_component` says whether their leading axis is that of components.
    `parameters(k, d)` counts the numbers that describe the covariances. `abreast` are the numbers of
    mixtures worth computing side by side, down to 1.
    """

    prepare: Callable[[jax.Array], Any]
    log_gaussians: Callable[[Any, jax.Array, jax.Array], jax.Array]
    estimate: Callable[[Any, Assigned, float | jax.Array], tuple[jax.Array, jax.Array]]
    unit: Callable[[int, int], jax.Array]
    per_component: bool
    parameters: Callable[[int, int], int]
    abreast: tuple[int, ...]


# Diagonal: variances [k, d]. Squares are expanded, so that each step is one product with [x, x^2].
#
# An expanded (x - m)^2 / v loses as many digits as m^2 / v has before the point. Where single precision has
# not enough of them, the same is computed in double precision: the centred form would need no more than
# single precision, but it is no product of matrices and takes several times as long.

_LARGEST_LEVERAGE = 3e3
"""The largest sum over columns of m^2 / v for which single precision, of seven digits, keeps three behind the
point. A maze student's states have some hundreds."""


def _with_squares(points: jax.Array) -> tuple[jax.Array, jax.Array]:
    both = _beside_squares(points)
    # A transposed copy makes the estimate a fast product. XLA would undo this, and the order of the
    # factors, were it not for barriers here and after the product.
    return both, lax.optimization_barrier(both.T)


def _beside_squares(points: jax.Array) -> jax.Array:
    return jnp.concatenate([points, jnp.square(points)], axis=1)


def _is_single_enough(means: jax.Array, variances: jax.Array) -> jax.Array:
    return jnp.max(jnp.sum(jnp.square(means) / variances, axis=1)) <= _LARGEST_LEVERAGE


def _diagonal_log_gaussians(
    prepared: tuple[jax.Array, jax.Array], means: jax.Array, variances: jax.Array
) -> jax.Array:
    return lax.cond(
        _is_single_enough(means, variances),
        lambda: _expanded_log_gaussians(prepared[0], means, variances),
        lambda: _double_log_gaussians(prepared[0][:, : means.shape[1]], means, variances),
    )


def _expanded_log_gaussians(both: jax.Array, means: jax.Array, variances: jax.Array) -> jax.Array:
    precisions = 1.0 / variances
    factors = jnp.concatenate([means * precisions, -0.5 * precisions], axis=1)
    constant = jnp.sum(jnp.square(means) * precisions + jnp.log(variances) + _LOG_TWO_PI, axis=1)
    return both @ factors.T - 0.5 * constant


@in_double_precision
def _double_log_gaussians(points: jax.Array, means: jax.Array, variances: jax.Array) -> jax.Array:
    return _expanded_log_gaussians(_beside_squares(points), means, variances)


def _diagonal_estimate(
    prepared: tuple[jax.Array, jax.Array], assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    sums = lax.optimization_barrier(prepared[1] @ assigned.responsibilities)
    means, variances = _from_sums(sums, assigned, reg)
    return lax.cond(
        _is_single_enough(means, variances),
        lambda: (means, variances),
        lambda: _double_estimate(prepared[0][:, : means.shape[1]], assigned, reg),
    )


@in_double_precision
def _double_estimate(
    points: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    assigned = assigned._replace(counts=jnp.sum(assigned.responsibilities, axis=0))
    return _from_sums(_beside_squares(points).T @ assigned.responsibilities, assigned, reg)


def _from_sums(sums: jax.Array, assigned: Assigned, reg: float | jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means and variances from the sums [2 d, k] of points and squares."""
    average, square = jnp.split(sums.T / _at_least_one(assigned.counts)[:, None], 2, axis=1)
    # Rounding may leave less than nothing where a column is constant.
    variances = jnp.maximum(square - jnp.square(average), 0.0)
    if assigned.centres is None:
        return average, variances + reg
    return assigned.centres, variances + jnp.square(average - assigned.centres) + reg


_DIAGONAL = Shape(
    prepare=_with_squares,
    log_gaussians=_diagonal_log_gaussians,
    estimate=_diagonal_estimate,
    unit=lambda k, d: jnp.ones((k, d)),
    per_component=True,
    parameters=lambda k, d: k * d,
    abreast=(10, 2, 1),
)


# Spherical: a diagonal whose variances [k, d] are equal in each component.


def _spherical_estimate(
    prepared: tuple[jax.Array, jax.Array], assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    means, variances = _diagonal_estimate(prepared, assigned, reg)
    return means, jnp.broadcast_to(jnp.mean(variances, axis=1, keepdims=True), variances.shape)


_SPHERICAL = _DIAGONAL._replace(estimate=_spherical_estimate, parameters=lambda k, d: k)


# Full: covariances [k, d, d]. One component after another, since each needs products of its own.


def _full_log_gaussians(points: jax.Array, means: jax.Array, covariances: jax.Array) -> jax.Array:
    def one(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        mean, covariance = component
        whitening, log_determinant = _whitening(covariance)
        distances = jnp.sum(jnp.square((points - mean) @ whitening), axis=1)
        return -0.5 * (distances + log_determinant + mean.size * _LOG_TWO_PI)

    return lax.map(one, (means, covariances)).T


def _full_estimate(
    points: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    dimensions = points.shape[1]
    share = assigned.responsibilities / _at_least_one(assigned.counts)
    means = share.T @ points if assigned.centres is None else assigned.centres

    def spread(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        weights, mean = component
        # The product of a matrix with itself has no negative direction, however it is rounded.
        rows = (points - mean) * jnp.sqrt(weights)[:, None]
        return rows.T @ rows

    return means, lax.map(spread, (share.T, means)) + reg * jnp.eye(dimensions)


_FULL = Shape(
    prepare=lambda points: points,
    log_gaussians=_full_log_gaussians,
    estimate=_full_estimate,
    unit=lambda k, d: jnp.broadcast_to(jnp.eye(d), (k, d, d)),
    per_component=True,
    parameters=lambda k, d: k * d * (d + 1) // 2,
    abreast=(1,),
)


# Tied: one covariance [d, d] for all components.


def _tied_log_gaussians(points: jax.Array, means: jax.Array, covariance: jax.Array) -> jax.Array:
    whitening, log_determinant = _whitening(covariance)
    white, centres = points @ whitening, means @ whitening
    distances = (
        jnp.sum(jnp.square(white), axis=1)[:, None]
        - 2.0 * white @ centres.T
        + jnp.sum(jnp.square(centres), axis=1)
    )
    return -0.5 * (jnp.maximum(distances, 0.0) + log_determinant + means.shape[1] * _LOG_TWO_PI)


def _tied_estimate(
    points: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    means, covariances = _full_estimate(points, assigned, reg)
    weights = assigned.counts / _at_least_one(jnp.sum(assigned.counts))
    return means, jnp.tensordot(weights, covariances, axes=1)


_TIED = Shape(
    prepare=lambda points: points,
    log_gaussians=_tied_log_gaussians,
    estimate=_tied_estimate,
    unit=lambda k, d: jnp.eye(d),
    per_component=False,
    parameters=lambda k, d: d * (d + 1) // 2,
    abreast=(1,),
)


def _whitening(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The matrix that gives points of this covariance the covariance 1, and the log-determinant.

    Not finite if the covariance is not positive definite.
    """
    factor = jnp.linalg.cholesky(covariance)
    whitening = solve_triangular(factor, jnp.eye(covariance.shape[0]), lower=True).T
    return whitening, 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def _at_least_one(counts: jax.Array) -> jax.Array:
    """EM keeps no component of less than one point, so that this only guards divisions."""
    return jnp.maximum(counts, 1.0)


SHAPES: dict[CovarianceName, Shape] = {
    "diag": _DIAGONAL,
    "full": _FULL,
    "tied": _TIED,
    "spherical": _SPHERICAL,
}
