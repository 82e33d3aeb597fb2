"""Gaussian mixtures as a model of coverage: Eq. 2, and a fit of every size that keeps the best one.

The best size is chosen by the silhouette, as in the paper, or by AIC or BIC.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cenie.novelty import em, kmeans
from cenie.novelty.config import MixtureConfig
from cenie.novelty.covariance import SHAPES
from cenie.novelty.em import Dataset, FitProgress, Fits
from cenie.novelty.interface import Fitted
from cenie.novelty.mixture import Mixture, count_parameters, empty
from cenie.novelty.points import drawn, rows_where
from cenie.novelty.silhouette import rough_silhouettes, silhouettes


class MixtureModel(NamedTuple):
    """The state of a mixture model after a fit.

    Attributes:
        chosen: The mixture in use.
        starts: With warm starts, the last usable mixtures of every size [m, ...], and which exist [m].
    """

    chosen: Mixture
    starts: tuple[Mixture, jax.Array] | None


def log_likelihood(config: MixtureConfig, model: MixtureModel, points: jax.Array) -> jax.Array:
    """The log-likelihood of each point under the mixture in use (CENIE Eq. 2).

    log p(x_j | lambda) = log sum_k alpha_k N(x_j; mu_k, Sigma_k)

    The paper's likelihood of the window, P(Gamma | lambda) = prod_j p(x_j | lambda), is the product over its
    points.

    Args:
        config: The settings; static.
        model: The mixture lambda = {(alpha_k, mu_k, Sigma_k)}.
        points: Finite points x [n, d].

    Returns:
        log p(x_j | lambda) [n].
    """
    gaussians, mixture = SHAPES[config.covariance], model.chosen
    prepared = gaussians.prepare(points - mixture.origin)
    log_gaussians = gaussians.log_gaussians(prepared, mixture.offsets, mixture.whitening)
    return jax.nn.logsumexp(log_gaussians + mixture.log_weights[:, None], axis=0)


def sizes_of(config: MixtureConfig) -> range:
    """The numbers of components to try."""
    return range(config.components[0], config.components[1] + 1)


def init(config: MixtureConfig, dimensions: int) -> MixtureModel:
    """A model before any fit: one standard Gaussian in `dimensions` columns."""
    sizes = sizes_of(config)
    nothing = empty(sizes[-1], dimensions, config.covariance)
    if not config.warm_start:
        return MixtureModel(nothing, None)
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sizes), *leaf.shape)), nothing)
    return MixtureModel(nothing, (stacked, jnp.zeros(len(sizes), bool)))


def fit(
    config: MixtureConfig,
    key: jax.Array,
    points: jax.Array,
    *,
    valid: jax.Array,
    previous: MixtureModel,
) -> Fitted:
    """Fit a mixture of every size and choose one.

    Args:
        config: The settings; static.
        key: Draws first centres and the rows of silhouettes; consumed.
        points: Clean points [n, d].
        valid: Which of them count [n].
        previous: The last model, which only a warm start looks at.

    Returns:
        The new model. It is `ok` if any size could be fitted. Diagnostics: `components` (the chosen size),
        `at_lowest` and `at_highest` (1 if that is an end of the range), `failed` (how many sizes could not
        be fitted), and for each size [m] `scores` (NaN where the fit failed), `iterations` and
        `log_likelihood`. For sizes that the screening dropped, the values are from the screening.
    """
    fit_key, score_key, draw_key = jax.random.split(key, 3)
    sizes = sizes_of(config)
    rules = em.Rules(config.covariance, config.reg, config.tolerance, config.max_iterations)
    data = em.dataset(points, valid, rules)
    chain = kmeans.chain(fit_key, data.points, valid, sizes[-1])
    progress = em.begin(data, chain, sizes, previous.starts)
    if _screens(config):
        judged = _screened(config, draw_key, score_key, data, progress)
    else:
        everything = jnp.ones(len(sizes), bool)
        progress = em.advance(data, progress, everything, iterations=rules.max_iterations, sizes=sizes)
        fits = em.reverse_rows(em.judge(data, progress, sizes[::-1]))
        judged = _Judged(fits, _scores(config, score_key, data, fits, sizes), fits.ok)
    fits = judged.fits
    best = jnp.argmax(jnp.where(judged.eligible, judged.scores, -jnp.inf))
    chosen = jax.tree.map(lambda leaf: leaf[best], fits.mixtures)
    diagnostics = {
        "components": sizes[0] + best,
        "at_lowest": (best == 0).astype(jnp.int32),
        "at_highest": (best == len(sizes) - 1).astype(jnp.int32),
        "scores": jnp.where(fits.ok, judged.scores, jnp.nan),
        "iterations": fits.iterations,
        "log_likelihood": fits.log_likelihood,
        "failed": jnp.sum(~fits.ok),
    }
    model = MixtureModel(chosen, _next_starts(previous, fits))
    return Fitted(model, jnp.any(judged.eligible), diagnostics)


def unfitted(config: MixtureConfig) -> dict[str, jax.Array]:
    """The diagnostics before any fit."""
    count = len(sizes_of(config))
    return {
        "components": jnp.zeros((), jnp.int32),
        "at_lowest": jnp.zeros((), jnp.int32),
        "at_highest": jnp.zeros((), jnp.int32),
        "scores": jnp.zeros(count),
        "iterations": jnp.zeros(count, jnp.int32),
        "log_likelihood": jnp.zeros(count),
        "failed": jnp.zeros((), jnp.int32),
    }


class _Judged(NamedTuple):
    """Fits of all sizes [m], their scores [m], higher being better, and which may be chosen [m]."""

    fits: Fits
    scores: jax.Array
    eligible: jax.Array


def _screens(config: MixtureConfig) -> bool:
    """Whether sizes are compared after a few steps, and only some go on."""
    fewer = len(sizes_of(config)) > config.screening_candidates
    return config.selection == "silhouette" and config.screening_steps is not None and fewer


def _screened(
    config: MixtureConfig,
    draw_key: jax.Array,
    score_key: jax.Array,
    data: Dataset,
    progress: FitProgress,
) -> _Judged:
    """Let all sizes take a few steps, and then only the sizes with the best rough silhouettes go on."""
    sizes, steps = sizes_of(config), config.screening_steps
    assert steps is not None
    most, everything = sizes[::-1], jnp.ones(len(sizes), bool)
    # Every group is a loop to be compiled: all sizes take the same steps, and finalists are few.
    groups = data.shape.group_sizes
    progress = em.advance(data, progress, everything, iterations=steps, sizes=sizes, together=groups[:1])
    count = min(config.screening_points, len(data.points))
    sample = em.subset(data, *drawn(draw_key, data.valid, count))
    rough, progress = em.reverse_rows((em.judge(sample, progress, most), progress))
    rough_scores = rough_silhouettes(sample.points, rough.labels, sizes, sample.valid)
    rough_scores = jnp.where(rough.ok, rough_scores, -jnp.inf)
    # The best few, in the order of their sizes from the largest: so the most components of each are known.
    few = most[: config.screening_candidates]
    index = jnp.sort(jax.lax.top_k(rough_scores, len(few))[1], descending=True)
    wanted = rough.ok[index] & (rough_scores[index] >= jnp.max(rough_scores) - config.screening_margin)
    finalists = jax.tree.map(lambda leaf: leaf[index], progress)
    finalists = em.advance(
        data, finalists, wanted, iterations=config.max_iterations, sizes=sizes, together=groups[-2:]
    )
    fits = em.judge(data, finalists, few)
    scores = _scores(config, score_key, data, fits, few)
    eligible = fits.ok & wanted

    def put_back(all_sizes: jax.Array, finalists: jax.Array) -> jax.Array:
        return all_sizes.at[index].set(rows_where(eligible, finalists, all_sizes[index]))

    known = rough.mixtures, rough.log_likelihood, rough.iterations, rough.ok, rough_scores
    final = fits.mixtures, fits.log_likelihood, fits.iterations, fits.ok, scores
    mixtures, log_likelihood, iterations, ok, scores = jax.tree.map(put_back, known, final)
    fits = Fits(mixtures, rough.labels, log_likelihood, iterations, ok)
    return _Judged(fits, scores, jnp.zeros(len(sizes), bool).at[index].set(eligible))


def _scores(
    config: MixtureConfig,
    key: jax.Array,
    data: Dataset,
    fits: Fits,
    sizes: Sequence[int],
) -> jax.Array:
    """Higher is better [m]; of equal scores the smaller size wins."""
    if config.selection == "silhouette":
        how = {"valid": data.valid, "key": key, "rows": config.silhouette_rows}
        return silhouettes(data.points, fits.labels, sizes, **how)
    dimensions = data.points.shape[1]
    parameters = jnp.array([count_parameters(k, dimensions, config.covariance) for k in sizes])
    price = 2.0 if config.selection == "aic" else jnp.log(data.total)
    return 2.0 * fits.log_likelihood * data.total - price * parameters


def _next_starts(previous: MixtureModel, fits: Fits) -> tuple[Mixture, jax.Array] | None:
    """The mixtures of every size from which the next warm start begins, and which exist."""
    if previous.starts is None:
        return None
    old, known = previous.starts
    return jax.tree.map(partial(rows_where, fits.ok), fits.mixtures, old), known | fits.ok
