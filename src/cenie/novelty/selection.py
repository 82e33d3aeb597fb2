"""Mixtures as a model of coverage: fit every size, keep the best by the silhouette (or AIC, BIC)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cenie.novelty import mixture
from cenie.novelty.config import CoverageConfig
from cenie.novelty.interface import Fitted
from cenie.novelty.mixture import Fits, Mixture
from cenie.novelty.silhouette import silhouettes


class MixtureModel(NamedTuple):
    """The chosen mixture; and with warm starts the last usable ones of every size, and which exist."""

    chosen: Mixture
    starts: tuple[Mixture, jax.Array] | None


def sizes_of(config: CoverageConfig) -> range:
    """The numbers of components to try."""
    return range(config.components[0], config.components[1] + 1)


def init(config: CoverageConfig, dimensions: int) -> MixtureModel:
    sizes = sizes_of(config)
    nothing = mixture.empty(sizes[-1], dimensions, config.covariance)
    if not config.warm_start:
        return MixtureModel(nothing, None)
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sizes), *leaf.shape)), nothing)
    return MixtureModel(nothing, (stacked, jnp.zeros(len(sizes), bool)))


def fit(
    config: CoverageConfig, key: jax.Array, points: jax.Array, valid: jax.Array, previous: MixtureModel
) -> Fitted:
    """Fit every size to the valid ones of clean points [n, d] and choose one. Consumes the key.

    Diagnostics: `components` (the chosen size), and per size [m] `scores` (NaN where the fit failed),
    `iterations`, `log_likelihood`; `failed` counts the sizes that could not be fitted.
    """
    fit_key, score_key = jax.random.split(key)
    sizes = sizes_of(config)
    fits = mixture.fit_sizes(
        fit_key,
        points,
        valid,
        sizes,
        config.covariance,
        config.reg,
        config.tolerance,
        config.max_iterations,
        previous.starts,
    )
    scores = _scores(config, score_key, points, valid, fits)
    best = jnp.argmax(jnp.where(fits.ok, scores, -jnp.inf))
    chosen = jax.tree.map(lambda leaf: leaf[best], fits.mixtures)
    diagnostics = {
        "components": sizes[0] + best,
        "scores": jnp.where(fits.ok, scores, jnp.nan),
        "iterations": fits.iterations,
        "log_likelihood": fits.log_likelihood,
        "failed": jnp.sum(~fits.ok),
    }
    return Fitted(MixtureModel(chosen, _next_starts(previous, fits)), jnp.any(fits.ok), diagnostics)


def log_density(config: CoverageConfig, model: MixtureModel, points: jax.Array) -> jax.Array:
    """Logarithm of the density [n] at points [n, d]."""
    return mixture.log_density(model.chosen, points, config.covariance)


def _scores(
    config: CoverageConfig, key: jax.Array, points: jax.Array, valid: jax.Array, fits: Fits
) -> jax.Array:
    """Higher is better [m]; of equal scores the smaller size wins."""
    sizes, dimensions = sizes_of(config), points.shape[1]
    if config.selection == "silhouette":
        return silhouettes(points, fits.labels, sizes, valid, key, config.silhouette_rows)
    count = jnp.sum(valid)
    parameters = jnp.array([mixture.count_parameters(k, dimensions, config.covariance) for k in sizes])
    price = 2.0 if config.selection == "aic" else jnp.log(jnp.maximum(count, 1))
    return 2.0 * fits.log_likelihood * count - price * parameters


def _next_starts(previous: MixtureModel, fits: Fits) -> tuple[Mixture, jax.Array] | None:
    if previous.starts is None:
        return None
    old, known = previous.starts

    def newest(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(fits.ok.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(newest, fits.mixtures, old), known | fits.ok
