"""Gaussians N(x; mu_k, Sigma_k): the two shapes of covariance of a mixture, each as the same few functions.

Points are rows, relative to an origin near their mean, and zero where they are missing; responsibilities
are zero there too. Everything expensive is a matrix product over all points at once. Arrays over components
and points have the points last, so that sums over components run over whole rows.

A covariance Sigma is kept as its whitening W, with W W^T the inverse of Sigma: points of this covariance,
times W, have covariance 1. W needs half as many digits as Sigma, whose largest and smallest variances may
differ by more than single precision can tell.
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
    """Points shared out among `k` components.

    Attributes:
        responsibilities: The share of each component in each point [k, n].
        counts: Their sums [k].
        centres: Where the components lie [k, d]; None: at the mean of their points.
    """

    responsibilities: jax.Array
    counts: jax.Array
    centres: jax.Array | None = None


class Shape(NamedTuple):
    """The functions of a shape of covariance that EM needs, for `k` components in `d` dimensions.

    Attributes:
        prepare: `prepare(points [n, d])` computes whatever does not change during EM.
        log_gaussians: `log_gaussians(prepared, means [k, d], whitening)` gives log N(x; mu, Sigma) [k, n].
        estimate: `estimate(prepared, assigned, reg)` gives means [k, d] and whitening.
        unit: `unit(k, d)` gives the whitening of covariances 1.
        covariances: `covariances(whitening)` gives the covariances in the shape of scikit-learn, from and
            to NumPy.
        parameters: `parameters(k, d)` counts the numbers that describe the covariances.
        group_sizes: How many mixtures are worth computing side by side where points are many, down to 1.
        widths: For how many numbers of components a step of one mixture is worth compiling.
    """

    prepare: Callable[[jax.Array], Any]
    log_gaussians: Callable[[Any, jax.Array, jax.Array], jax.Array]
    estimate: Callable[[Any, Assigned, float | jax.Array], tuple[jax.Array, jax.Array]]
    unit: Callable[[int, int], jax.Array]
    covariances: Callable[[np.ndarray], np.ndarray]
    parameters: Callable[[int, int], int]
    group_sizes: tuple[int, ...]
    widths: int


# Diagonal: W = 1 / standard deviation [k, d].

_LARGEST_LEVERAGE = 3e3
"""The largest sum over columns of m^2 / v for which single precision, of seven digits, keeps three behind the
point. A maze student's states have some hundreds."""


def _with_squares(points: jax.Array) -> jax.Array:
    """Columns and their squares [2 d, n]. Transposed, both products of a step are fast."""
    columns = points.T
    return jnp.concatenate([columns, jnp.square(columns)])


def _double_with_squares(prepared: jax.Array) -> jax.Array:
    """The same in double precision. Squares are computed anew, because the given ones are rounded."""
    columns = prepared[: len(prepared) // 2]
    return jnp.concatenate([columns, jnp.square(columns)])


def _is_single_enough(means: jax.Array, whitening: jax.Array) -> jax.Array:
    """Whether squares may be expanded in single precision.

    An expanded (x - m)^2 / v loses as many digits as m^2 / v has before the point. The centred form would
    lose none, but it is no product of matrices and takes several times as long as double precision.
    """
    return jnp.max(jnp.sum(jnp.square(means * whitening), axis=1)) <= _LARGEST_LEVERAGE


def _diagonal_log_gaussians(prepared: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    """Gaussians, log N(x; m, v) [k, n] of independent columns, in single precision where that is enough."""
    return lax.cond(
        _is_single_enough(means, whitening),
        _expanded_log_gaussians,
        _double_log_gaussians,
        prepared,
        means,
        whitening,
    )


def _expanded_log_gaussians(prepared: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    """log N(x; m, v) = -1/2 sum_j [(x_j - m_j)^2 / v_j + log v_j + log 2 pi], with the square expanded.

    So all points and components are one product of matrices, [m / v, -1/2 v] times [x, x^2].
    """
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
    """Means and whitening [k, d] by weighted sums of points and of their squares."""

    def from_sums(sums: jax.Array, assigned: Assigned, reg: float | jax.Array) -> tuple[jax.Array, jax.Array]:
        average, square = jnp.split(sums / _at_least_one(assigned.counts)[:, None], 2, axis=1)
        # Rounding may leave less than nothing where a column is constant.
        variances = jnp.maximum(square - jnp.square(average), 0.0)
        means = average if assigned.centres is None else assigned.centres
        return means, 1.0 / jnp.sqrt(variances + jnp.square(average - means) + reg)

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
    parameters=lambda k, d: k * d,
    group_sizes=(10, 2, 1),
    widths=2,
)


# Full: W is a triangular matrix for each component [k, d, d].


def _full_log_gaussians(points: jax.Array, means: jax.Array, whitening: jax.Array) -> jax.Array:
    """log N(x; m, S) = -1/2 [|(x - m) W|^2 - 2 log det W + d log 2 pi], for one component after another."""

    def of_component(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        mean, whitening = component
        distances = jnp.sum(jnp.square((points - mean) @ whitening), axis=1)
        log_precision = 2.0 * jnp.sum(jnp.log(jnp.diagonal(whitening)))
        return -0.5 * (distances - log_precision + whitening.shape[0] * _LOG_TWO_PI)

    return lax.map(of_component, (means, whitening))


@in_double_precision
def _full_estimate(
    points: jax.Array, assigned: Assigned, reg: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Means [k, d] and whitening [k, d, d]; not finite where a covariance is not positive definite."""
    share = assigned.responsibilities / _at_least_one(jnp.sum(assigned.responsibilities, axis=1))[:, None]
    means = share @ points if assigned.centres is None else assigned.centres

    def of_component(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        weights, mean = component
        # Products of weighted rows with themselves: no direction is negative, however rounded.
        rows = (points - mean) * jnp.sqrt(weights)[:, None]
        scatter = rows.T @ rows
        identity = jnp.eye(scatter.shape[0], dtype=scatter.dtype)
        return solve_triangular(jnp.linalg.cholesky(scatter + reg * identity), identity, lower=True).T

    return means, lax.map(of_component, (share, means))


def _full_covariances(whitening: np.ndarray) -> np.ndarray:
    """F^T F with F the inverse of W."""
    factors = np.linalg.inv(whitening)
    return factors.swapaxes(-1, -2) @ factors


_FULL = Shape(
    prepare=lambda points: points,
    log_gaussians=_full_log_gaussians,
    estimate=_full_estimate,
    unit=lambda k, d: jnp.broadcast_to(jnp.eye(d), (k, d, d)),
    covariances=_full_covariances,
    parameters=lambda k, d: k * d * (d + 1) // 2,
    group_sizes=(1,),
    widths=1,
)


def _at_least_one(counts: jax.Array) -> jax.Array:
    """EM keeps no component of less than one point, so that this only guards divisions."""
    return jnp.maximum(counts, ONE_POINT)


SHAPES: dict[CovarianceName, Shape] = {"diag": _DIAGONAL, "full": _FULL}
