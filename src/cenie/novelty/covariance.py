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

_LOG_TWO_PI = math.log(2.0 * math.pi)


class Shape(NamedTuple):
    """What EM needs to know of a shape of covariance, for `k` components in `d` dimensions.

    `prepare(points [n, d])` computes whatever does not change during EM.
    `log_gaussians(prepared, means [k, d], covariances)` are the log-densities [n, k].
    `estimate(prepared, responsibilities [n, k], counts [k], centres, reg)` are means [k, d] and
    covariances; given `centres` [k, d], they are taken as the means. `counts` sum up responsibilities.
    `unit(k, d)` are covariances 1; `per_component` says whether their leading axis is that of components.
    `parameters(k, d)` counts the numbers that describe the covariances. `abreast` are the numbers of
    mixtures worth computing side by side, down to 1.
    """

    prepare: Callable[[jax.Array], Any]
    log_gaussians: Callable[[Any, jax.Array, jax.Array], jax.Array]
    estimate: Callable[
        [Any, jax.Array, jax.Array, jax.Array | None, float | jax.Array], tuple[jax.Array, jax.Array]
    ]
    unit: Callable[[int, int], jax.Array]
    per_component: bool
    parameters: Callable[[int, int], int]
    abreast: tuple[int, ...]


# Diagonal: variances [k, d]. Squares are expanded, so that each step is one product with [x, x^2].


def _with_squares(points: jax.Array) -> tuple[jax.Array, jax.Array]:
    both = jnp.concatenate([points, jnp.square(points)], axis=1)
    # A transposed copy makes the estimate a fast product. XLA would undo this, and the order of the
    # factors, were it not for barriers here and after the product.
    return both, lax.optimization_barrier(both.T)


def _diagonal_log_gaussians(
    prepared: tuple[jax.Array, jax.Array], means: jax.Array, variances: jax.Array
) -> jax.Array:
    precisions = 1.0 / variances
    factors = jnp.concatenate([means * precisions, -0.5 * precisions], axis=1)
    constant = jnp.sum(jnp.square(means) * precisions + jnp.log(variances) + _LOG_TWO_PI, axis=1)
    return prepared[0] @ factors.T - 0.5 * constant


def _diagonal_estimate(
    prepared: tuple[jax.Array, jax.Array],
    responsibilities: jax.Array,
    counts: jax.Array,
    centres: jax.Array | None,
    reg: float | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    sums = lax.optimization_barrier(prepared[1] @ responsibilities)
    average, square = jnp.split(sums.T / _at_least_one(counts)[:, None], 2, axis=1)
    # Rounding may leave less than nothing where a column is constant.
    variances = jnp.maximum(square - jnp.square(average), 0.0)
    if centres is None:
        return average, variances + reg
    return centres, variances + jnp.square(average - centres) + reg


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
    prepared: tuple[jax.Array, jax.Array],
    responsibilities: jax.Array,
    counts: jax.Array,
    centres: jax.Array | None,
    reg: float | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    means, variances = _diagonal_estimate(prepared, responsibilities, counts, centres, reg)
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
    points: jax.Array,
    responsibilities: jax.Array,
    counts: jax.Array,
    centres: jax.Array | None,
    reg: float | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    dimensions = points.shape[1]
    share = responsibilities / _at_least_one(counts)
    means = share.T @ points if centres is None else centres

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
    points: jax.Array,
    responsibilities: jax.Array,
    counts: jax.Array,
    centres: jax.Array | None,
    reg: float | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    means, covariances = _full_estimate(points, responsibilities, counts, centres, reg)
    weights = counts / _at_least_one(jnp.sum(counts))
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
