"""Coverage: a window over the student's latest experience, a density fitted to it, and novelty (Eq. 3).

Pure functions over a frozen state of fixed shapes. Settings are static; the rest may be traced. A level is
novel if its trajectory is unlikely under the density, so it must be scored before it is pushed.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from cenie.novelty import gmm, neighbours, pca
from cenie.novelty.config import MixtureConfig
from cenie.novelty.interface import AnyCoverage, CoverageModel, Fitted, OwnCoverage
from cenie.novelty.points import chosen, cleaned, drawn
from cenie.xla.devices import on_first_device

LOG_DENSITY_LIMIT = 1e12
"""Log-densities are clamped to this in size, so that the mean over a level is finite. It must not be reached
by points that differ: with a regulariser of 1e-6, a step of 10 in a constant column makes 5e7."""

MODELS: dict[str, CoverageModel] = {
    "mixture": CoverageModel(gmm.init, gmm.fit, gmm.unfitted, gmm.log_likelihood),
    "pca": CoverageModel(pca.init, pca.fit, pca.unfitted, pca.log_likelihood),
    "neighbours": CoverageModel(neighbours.init, neighbours.fit, neighbours.unfitted, neighbours.log_density),
}


def model_of(config: AnyCoverage) -> CoverageModel:
    """The model of these settings; a record of your own names its model itself."""
    if isinstance(config, OwnCoverage):
        return config.model
    reduces = isinstance(config, MixtureConfig) and config.pca_dimensions is not None
    return MODELS["pca" if reduces else config.kind]


class CoverageState(NamedTuple):
    """The window Gamma of `w` levels with up to `t` points each, oldest first, and the current model.

    Attributes:
        points: The points [w, t, d], zero where they are not valid.
        valid: Which points are there [w, t].
        model: What the last successful fit has found.
        fitted: Whether any fit has succeeded [].
        failed_fits: How many fits have not [].
        diagnostics: The numbers that describe the last fit.
    """

    points: jax.Array
    valid: jax.Array
    model: Any
    fitted: jax.Array
    failed_fits: jax.Array
    diagnostics: dict[str, jax.Array]


def init(config: AnyCoverage, points_per_level: int, dimensions: int) -> CoverageState:
    """An empty window and no fit.

    Args:
        config: The settings; static.
        points_per_level: The most points t of a level.
        dimensions: The numbers d of a point.

    Returns:
        The state with which coverage begins.
    """
    model = model_of(config)
    points = jnp.zeros((config.window, points_per_level, dimensions))
    valid = jnp.zeros((config.window, points_per_level), bool)
    return CoverageState(
        points=points,
        valid=valid,
        model=model.init(config, dimensions),
        fitted=jnp.zeros((), bool),
        failed_fits=jnp.zeros((), jnp.int32),
        diagnostics=model.unfitted(config),
    )


def push(state: CoverageState, features: jax.Array, valid: jax.Array) -> CoverageState:
    """Add the points of `n` levels to the window; the oldest levels leave it.

    Args:
        state: The window.
        features: The points [n, t, d]. Points that are not finite are ignored ever after.
        valid: Which points are there [n, t].

    Returns:
        The state with another window and the same model.
    """
    points, valid = cleaned(features, valid)
    return state._replace(points=_latest(state.points, points), valid=_latest(state.valid, valid))


def is_full(state: CoverageState) -> jax.Array:
    """Whether the window holds as many levels as it can, so that the next one drops the oldest []."""
    return state.valid[0].any()


def fit(
    config: AnyCoverage,
    state: CoverageState,
    key: jax.Array,
    *,
    due: bool | jax.Array = True,
    mesh: Mesh | None = None,
) -> CoverageState:
    """Fit the model to the window; the old model stays if that fails.

    Args:
        config: The settings; static.
        state: The window and the old model.
        key: Draws whatever the fit draws; consumed.
        due: Whether to fit at all [].
        mesh: The devices of the program. The first one does the work, and the others get the result.

    Returns:
        The state with the new model and its diagnostics.
    """

    def fit_to(points: jax.Array, valid: jax.Array, model: Any, key: jax.Array) -> Fitted:
        draw_key, fit_key = jax.random.split(key)
        points, valid = points.reshape(-1, points.shape[-1]), valid.reshape(-1)
        count = min(config.max_points or valid.size, valid.size)
        if count < valid.size:
            index, valid = drawn(draw_key, valid, count)
            points = jnp.where(valid[:, None], points[index], 0.0)
        return model_of(config).fit(config, fit_key, points, valid=valid, previous=model)

    due = jnp.asarray(due)
    new = on_first_device(mesh, due, fit_to, state.points, state.valid, state.model, key)
    return state._replace(
        model=chosen(new.ok, new.model, state.model),
        fitted=state.fitted | new.ok,
        failed_fits=state.failed_fits + (due & ~new.ok),
        diagnostics=chosen(due, new.diagnostics, state.diagnostics),
    )


def novelty(
    config: AnyCoverage,
    state: CoverageState,
    features: jax.Array,
    valid: jax.Array,
    *,
    measure: Literal["mean", "highest"] = "mean",
) -> jax.Array:
    """The novelty of levels: the negative mean log-likelihood of the student's points there (CENIE Eq. 3).

    Novelty = - 1/|X| sum_t log p(x_t | lambda), with X = (x_1, ..., x_T) the points of a level and lambda the
    model of the window; for mixtures, p is Eq. 2 (`gmm.log_likelihood`).

    Args:
        config: The settings; static.
        state: The model.
        features: The points x_t of the levels [n, t, d].
        valid: Which points are there [n, t]. Points that are not finite do not count.
        measure: "mean" is Eq. 3; "highest" takes the least likely point alone.

    Returns:
        The novelties [n]. Before the first fit all are 0. A level without any point gets the lowest novelty
        of the others.
    """
    points, valid = cleaned(features, valid)
    every = points.reshape(-1, points.shape[-1])
    density = _clamped(every, model_of(config).log_density(config, state.model, every)).reshape(valid.shape)
    counts = jnp.sum(valid, axis=1)
    if measure == "highest":
        found = -jnp.min(jnp.where(valid, density, LOG_DENSITY_LIMIT), axis=1)
    else:
        found = -jnp.sum(jnp.where(valid, density, 0.0), axis=1) / jnp.maximum(counts, 1)
    lowest = jnp.min(jnp.where(counts > 0, found, jnp.inf))
    found = jnp.where(counts > 0, found, jnp.where(jnp.isfinite(lowest), lowest, 0.0))
    return jnp.where(state.fitted, found, 0.0)


def log_density(config: AnyCoverage, state: CoverageState, points: jax.Array) -> jax.Array:
    """log p(x | lambda) under the model of the window, whichever it is.

    Args:
        config: The settings; static.
        state: The model.
        points: The points x [p, d].

    Returns:
        Log-densities [p] within +-`LOG_DENSITY_LIMIT`. A point that is not finite gets the lowest.
    """
    return _clamped(points, model_of(config).log_density(config, state.model, points))


def _clamped(points: jax.Array, density: jax.Array) -> jax.Array:
    """Log-densities [p] without odd ones."""
    density = jnp.where(jnp.isfinite(points).all(axis=1) & ~jnp.isnan(density), density, -jnp.inf)
    return jnp.clip(density, -LOG_DENSITY_LIMIT, LOG_DENSITY_LIMIT)


def _latest(old: jax.Array, new: jax.Array) -> jax.Array:
    """As many rows as the old array has: its last rows, then the rows of the new array."""
    kept = max(0, old.shape[0] - new.shape[0])
    newest = new[new.shape[0] - (old.shape[0] - kept) :]
    return jnp.concatenate([old[old.shape[0] - kept :], newest]) if kept else newest
