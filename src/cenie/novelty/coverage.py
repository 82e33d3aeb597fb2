"""Coverage: a window over the student's latest experience, a density fitted to it, and novelty (CENIE).

Pure functions over a frozen state of fixed shapes. Settings are static; the rest may be traced. A level is
novel if its trajectory is unlikely under the density, so it must be scored before it is pushed.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from cenie.novelty import distillation, gmm, neighbours, pca
from cenie.novelty.config import CoverageConfig, MixtureConfig
from cenie.novelty.interface import CoverageModel, Fitted
from cenie.novelty.points import chosen, cleaned, drawn
from cenie.xla.devices import on_first_device

LOG_DENSITY_LIMIT = 1e12
"""Log-densities are clamped to this in size, so that the mean over a level is finite. It must not be reached
by points that differ: with a regulariser of 1e-6, a step of 10 in a constant column makes 5e7."""

MODELS: dict[str, CoverageModel] = {
    name: CoverageModel(room.init, room.fit, room.unfitted, room.log_density)
    for name, room in {
        "mixture": gmm,
        "pca": pca,
        "neighbours": neighbours,
        "distillation": distillation,
    }.items()
}


def model_of(config: CoverageConfig) -> CoverageModel:
    """The model that the settings ask for."""
    reduces = isinstance(config, MixtureConfig) and config.pca_dimensions is not None
    return MODELS["pca" if reduces else config.kind]


class CoverageState(NamedTuple):
    """The window Gamma of `w` levels with up to `t` points each, oldest first, and the current model.

    `points` [w, t, d] are zero where not `valid` [w, t]. `fitted` says whether there has been any usable
    fit, and `failed_fits` counts those that were not. `diagnostics` are those of the last fit.
    """

    points: jax.Array
    valid: jax.Array
    model: Any
    fitted: jax.Array
    failed_fits: jax.Array
    diagnostics: dict[str, jax.Array]


def init(config: CoverageConfig, points_per_level: int, dimensions: int) -> CoverageState:
    """An empty window and no fit."""
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
    """Add the points [n, t, d] of `n` levels and drop the oldest beyond the window.

    Points that are not valid [n, t], or not finite, are ignored ever after.
    """
    points, valid = cleaned(features, valid)
    return state._replace(points=_latest(state.points, points), valid=_latest(state.valid, valid))


def is_full(state: CoverageState) -> jax.Array:
    """Whether as many levels were pushed as the window holds, so that the next one drops the oldest."""
    return state.valid[0].any()


def fit(
    config: CoverageConfig,
    state: CoverageState,
    key: jax.Array,
    *,
    due: bool | jax.Array = True,
    mesh: Mesh | None = None,
) -> CoverageState:
    """Fit the model to the window if that is `due`; the old one stays if it fails. Consumes the key.

    Of the devices of a `mesh` the first one does the work, and the others get the result.
    """

    def fit_to(points: jax.Array, valid: jax.Array, model: Any, key: jax.Array) -> Fitted:
        draw_key, fit_key = jax.random.split(key)
        points, valid = points.reshape(-1, points.shape[-1]), valid.reshape(-1)
        count = _points_to_fit(config, valid.size)
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
    config: CoverageConfig,
    state: CoverageState,
    features: jax.Array,
    valid: jax.Array,
    *,
    measure: Literal["mean", "highest"] = "mean",
) -> jax.Array:
    """Mean negative log-density [n] of the points [n, t, d] of each level (CENIE Eq. 3), or the highest one.

    Before the first fit all levels get 0. A level without any valid [n, t] finite point gets the lowest
    novelty of the others.
    """
    points, valid = cleaned(features, valid)
    density = log_density(config, state, points.reshape(-1, points.shape[-1])).reshape(valid.shape)
    counts = jnp.sum(valid, axis=1)
    if measure == "highest":
        found = -jnp.min(jnp.where(valid, density, LOG_DENSITY_LIMIT), axis=1)
    else:
        found = -jnp.sum(jnp.where(valid, density, 0.0), axis=1) / jnp.maximum(counts, 1)
    lowest = jnp.min(jnp.where(counts > 0, found, jnp.inf))
    found = jnp.where(counts > 0, found, jnp.where(jnp.isfinite(lowest), lowest, 0.0))
    return jnp.where(state.fitted, found, 0.0)


def log_density(config: CoverageConfig, state: CoverageState, points: jax.Array) -> jax.Array:
    """Log-density [p] of points [p, d], clamped; a point that is not finite gets the lowest possible."""
    density = model_of(config).log_density(config, state.model, points)
    density = jnp.where(jnp.isfinite(points).all(axis=1) & ~jnp.isnan(density), density, -jnp.inf)
    return jnp.clip(density, -LOG_DENSITY_LIMIT, LOG_DENSITY_LIMIT)


def _latest(old: jax.Array, new: jax.Array) -> jax.Array:
    """The last rows of the new array behind the old one, as many as the old one has."""
    kept = max(0, old.shape[0] - new.shape[0])
    newest = new[new.shape[0] - (old.shape[0] - kept) :]
    return jnp.concatenate([old[old.shape[0] - kept :], newest]) if kept else newest


def _points_to_fit(config: CoverageConfig, available: int) -> int:
    return available if config.max_points is None else min(config.max_points, available)
