"""Mixtures as a model of coverage: fit every size, keep the best by the silhouette (or AIC, BIC)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cenie.devices import Devices
from cenie.novelty import mixture
from cenie.novelty.config import MixtureConfig
from cenie.novelty.interface import Fitted
from cenie.novelty.mixture import Fits, Mixture
from cenie.novelty.points import drawn, rows_where
from cenie.novelty.silhouette import rough_silhouettes, silhouettes


class MixtureModel(NamedTuple):
    """The chosen mixture; and with warm starts the last usable ones of every size, and which exist."""

    chosen: Mixture
    starts: tuple[Mixture, jax.Array] | None


def sizes_of(config: MixtureConfig) -> range:
    """The numbers of components to try."""
    return range(config.components[0], config.components[1] + 1)


def init(config: MixtureConfig, dimensions: int) -> MixtureModel:
    sizes = sizes_of(config)
    nothing = mixture.empty(sizes[-1], dimensions, config.covariance)
    if not config.warm_start:
        return MixtureModel(nothing, None)
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sizes), *leaf.shape)), nothing)
    return MixtureModel(nothing, (stacked, jnp.zeros(len(sizes), bool)))


def fit(
    config: MixtureConfig,
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    previous: MixtureModel,
    devices: Devices | None = None,
) -> Fitted:
    """Fit every size to the valid ones of clean points [n, d] and choose one. Consumes the key.

    Diagnostics: `components` (the chosen size), and per size [m] `scores` (NaN where the fit failed),
    `iterations`, `log_likelihood`; `failed` counts the sizes that could not be fitted. Of sizes that were
    screened out, these are those of the screening.
    """
    fit_key, score_key, draw_key = jax.random.split(key, 3)
    sizes = sizes_of(config)
    start = mixture.begin(
        fit_key,
        points,
        valid,
        sizes,
        config.covariance,
        config.reg,
        config.tolerance,
        previous.starts,
        devices,
    )
    fit_sizes = partial(mixture.fit_from, start, max_iterations=config.max_iterations, devices=devices)
    everything = jnp.ones(len(sizes), bool)
    if not _screens(config, points):
        fits = fit_sizes(everything)
        scores, candidates = _scores(config, score_key, points, valid, fits, devices), fits.ok
    else:
        assert config.screening_points is not None
        rough = fit_sizes(everything, subset=drawn(draw_key, valid, config.screening_points))
        rough_scores = rough_silhouettes(points, rough.labels, sizes, valid, devices)
        best = jnp.max(jnp.where(rough.ok, rough_scores, -jnp.inf))
        thorough = fit_sizes(rough.ok & (rough_scores >= best - config.screening_margin))
        candidates = thorough.ok
        scores = _scores(config, score_key, points, valid, thorough, devices)
        scores = jnp.where(candidates, scores, rough_scores)
        fits = jax.tree.map(partial(rows_where, candidates), thorough, rough)
        fits = fits._replace(iterations=rough.iterations + thorough.iterations)
    best = jnp.argmax(jnp.where(candidates, scores, -jnp.inf))
    chosen = jax.tree.map(lambda leaf: leaf[best], fits.mixtures)
    diagnostics = {
        "components": sizes[0] + best,
        "scores": jnp.where(fits.ok, scores, jnp.nan),
        "iterations": fits.iterations,
        "log_likelihood": fits.log_likelihood,
        "failed": jnp.sum(~fits.ok),
    }
    return Fitted(MixtureModel(chosen, _next_starts(previous, fits)), jnp.any(candidates), diagnostics)


def log_density(config: MixtureConfig, model: MixtureModel, points: jax.Array) -> jax.Array:
    """Logarithm of the density [n] at points [n, d]."""
    return mixture.log_density(model.chosen, points, config.covariance)


def _scores(
    config: MixtureConfig,
    key: jax.Array,
    points: jax.Array,
    valid: jax.Array,
    fits: Fits,
    devices: Devices | None,
) -> jax.Array:
    """Higher is better [m]; of equal scores the smaller size wins."""
    sizes, dimensions = sizes_of(config), points.shape[1]
    if config.selection == "silhouette":
        return silhouettes(points, fits.labels, sizes, valid, key, config.silhouette_rows, devices)
    count = jnp.sum(valid)
    parameters = jnp.array([mixture.count_parameters(k, dimensions, config.covariance) for k in sizes])
    price = 2.0 if config.selection == "aic" else jnp.log(jnp.maximum(count, 1))
    return 2.0 * fits.log_likelihood * count - price * parameters


def _screens(config: MixtureConfig, points: jax.Array) -> bool:
    """Whether sizes are compared by fits to a part of the points before any is fitted to all."""
    few = config.screening_points
    return config.selection == "silhouette" and few is not None and few < len(points)


def _next_starts(previous: MixtureModel, fits: Fits) -> tuple[Mixture, jax.Array] | None:
    if previous.starts is None:
        return None
    old, known = previous.starts
    return jax.tree.map(partial(rows_where, fits.ok), fits.mixtures, old), known | fits.ok
