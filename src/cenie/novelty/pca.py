"""Mixtures after a reduction of dimensions: the leading principal axes carry the mixture.

All remaining directions are modelled as noise of equal variance, so that a point which leaves the subspace is
unlikely as well.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cenie.novelty import gmm
from cenie.novelty.config import MixtureConfig
from cenie.novelty.interface import Fitted
from cenie.novelty.points import centre


class PcaModel(NamedTuple):
    """A mixture of q principal axes.

    Attributes:
        origin: A point in the middle of the data [d].
        axes: The orthonormal axes [d, q].
        noise: The variance in each direction off the axes [].
        inner: The mixture on the axes.
    """

    origin: jax.Array
    axes: jax.Array
    noise: jax.Array
    inner: gmm.MixtureModel


def init(config: MixtureConfig, dimensions: int) -> PcaModel:
    """A model before any fit: one standard Gaussian in `dimensions` columns."""
    kept = _kept(config, dimensions)
    return PcaModel(
        origin=jnp.zeros(dimensions),
        axes=jnp.eye(dimensions, kept),
        noise=jnp.ones(()),
        inner=gmm.init(config, kept),
    )


def fit(
    config: MixtureConfig,
    key: jax.Array,
    points: jax.Array,
    *,
    valid: jax.Array,
    previous: PcaModel,
) -> Fitted:
    """Turn points to their principal axes and fit mixtures there.

    Args:
        config: The settings; static.
        key: Consumed by the fit of mixtures.
        points: Clean points [n, d].
        valid: Which of them count [n].
        previous: The last model.

    Returns:
        The new model, and the diagnostics of `gmm.fit` with the share of the variance that is on the axes
        (`explained`).
    """
    dimensions = points.shape[1]
    kept = _kept(config, dimensions)
    origin = centre(points, valid)
    inside = jnp.where(valid[:, None], points - origin, 0.0)
    variances, directions = jnp.linalg.eigh(inside.T @ inside / jnp.maximum(jnp.sum(valid), 1))
    axes = _signed(directions[:, ::-1][:, :kept])
    variances = jnp.maximum(variances[::-1], 0.0)
    noise = config.reg + jnp.sum(variances[kept:]) / max(dimensions - kept, 1)
    inner = gmm.fit(config, key, inside @ axes, valid=valid, previous=previous.inner)
    explained = jnp.sum(variances[:kept]) / jnp.maximum(jnp.sum(variances), jnp.finfo(jnp.float32).tiny)
    return Fitted(
        model=PcaModel(origin, axes, noise, inner.model),
        ok=inner.ok & jnp.isfinite(axes).all() & jnp.isfinite(noise),
        diagnostics={**inner.diagnostics, "explained": explained},
    )


def unfitted(config: MixtureConfig) -> dict[str, jax.Array]:
    """The diagnostics before any fit."""
    return {**gmm.unfitted(config), "explained": jnp.zeros(())}


def log_likelihood(config: MixtureConfig, model: PcaModel, points: jax.Array) -> jax.Array:
    """The log-likelihood of each point: Eq. 2 on the axes, and Gaussian noise off them.

    Args:
        config: The settings; static.
        model: The mixture and its axes.
        points: Finite points [n, d].

    Returns:
        Log-densities [n].
    """
    inside = points - model.origin
    on_axes = inside @ model.axes
    off_axes = jnp.sum(jnp.square(inside - on_axes @ model.axes.T), axis=1)
    others = model.axes.shape[0] - model.axes.shape[1]
    noise = -0.5 * (off_axes / model.noise + others * jnp.log(2.0 * math.pi * model.noise))
    density = gmm.log_likelihood(config, model.inner, on_axes)
    return density + noise if others else density


def _kept(config: MixtureConfig, dimensions: int) -> int:
    return dimensions if config.pca_dimensions is None else min(config.pca_dimensions, dimensions)


def _signed(axes: jax.Array) -> jax.Array:
    """Axes whose largest entry is positive: the sign of an eigenvector is arbitrary."""
    largest = jnp.take_along_axis(axes, jnp.argmax(jnp.abs(axes), axis=0)[None], axis=0)
    return axes * jnp.where(largest < 0.0, -1.0, 1.0)
