"""Novelty in a curriculum: when experience enters the window, when it is fitted, and how much novelty counts.

The order in a cycle matters: levels are scored under the model of earlier experience, and only then enter
the window themselves.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.novelty import coverage
from cenie.teach import priority
from cenie.teach.buffer import BufferState
from cenie.teach.config import AlphaConfig, PriorityConfig
from cenie.teach.curriculum import Novelty, NoveltyState

Points = tuple[Float[Array, "n t d"], Bool[Array, "n t"]]
"""State-action pairs of each level, and which of them exist."""

_ALPHA_RANGE = (0.05, 0.95)
"""The adaptive weight stays inside, so that it can always learn that the other ranking is better."""


def init(novelty: Novelty, steps: int, size: int) -> NoveltyState:
    """Nothing seen yet; levels will have up to `steps` points of `size` numbers."""
    start = jnp.clip(novelty.alpha.start, *_ALPHA_RANGE)
    return NoveltyState(
        coverage=coverage.init(novelty.coverage, steps, size),
        pushes=jnp.zeros((), jnp.int32),
        replays=jnp.zeros((), jnp.int32),
        log_odds=jnp.log(start / (1.0 - start)),
    )


def alpha(config: AlphaConfig, state: NoveltyState) -> Float[Array, ""]:
    """The present weight of novelty (alpha of CENIE Eq. 5)."""
    if config.kind == "adaptive":
        return jax.nn.sigmoid(state.log_odds)
    if config.kind == "linear":
        passed = jnp.minimum(state.replays / config.replays, 1.0)
        return config.start + (config.end - config.start) * passed
    return jnp.float32(config.start)


def score(novelty: Novelty, state: NoveltyState, points: Points) -> Float[Array, " n"]:
    """How unlikely each level's trajectory is under the present model; 0 before the first fit."""
    return coverage.novelty(novelty.coverage, state.coverage, *points)


def learn(
    novelty: Novelty,
    state: NoveltyState,
    points: Points,
    enters: Bool[Array, ""],
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> NoveltyState:
    """Let a batch into the window if it `enters`, and fit again if that is due. Consumes the key.

    With a `mesh` its devices share the work of the fit.
    """

    def push() -> NoveltyState:
        window = coverage.push(state.coverage, *points)
        due = (state.pushes % novelty.refit_every) == 0
        fitted = jax.lax.cond(due, lambda: coverage.fit(novelty.coverage, window, key, mesh), lambda: window)
        return eqx.tree_at(lambda s: (s.coverage, s.pushes), state, (fitted, state.pushes + 1))

    return jax.lax.cond(enters, push, lambda: state)


def adapt(
    config: AlphaConfig,
    priorities: PriorityConfig,
    state: NoveltyState,
    buffer: BufferState,
    replayed: Bool[Array, ""],
    slots: Int[Array, " n"],
    change: Float[Array, " n"],
) -> NoveltyState:
    """After a replay: move the adaptive weight towards the ranking that chose levels of more `change`.

    Each ranking gets the change of the drawn levels, weighted by how much likelier it alone would have
    drawn them than the mixture did (as if it had drawn the batch itself), and the log-odds move by the
    normalised difference. `buffer` is the one from which the batch was drawn.
    """
    replays = state.replays + replayed
    log_odds = state.log_odds
    if config.kind == "adaptive":
        regret, novel = (
            priority.transformed(
                column, priority.ranks(column, buffer.ids, buffer.mask, priorities), buffer.mask, priorities
            )[slots]
            for column in buffer.scores.T
        )
        weight = jax.nn.sigmoid(log_odds)
        mixture = jnp.maximum(weight * novel + (1.0 - weight) * regret, jnp.finfo(jnp.float32).tiny)
        for_novelty, for_regret = (jnp.sum(change * part / mixture) for part in (novel, regret))
        total = for_novelty + for_regret
        moved = log_odds + config.rate * (for_novelty - for_regret) / jnp.where(total > 0, total, 1.0)
        low, high = (jnp.log(edge / (1.0 - edge)) for edge in _ALPHA_RANGE)
        log_odds = jnp.where(replayed & jnp.isfinite(moved), jnp.clip(moved, low, high), log_odds)
    return eqx.tree_at(lambda s: (s.replays, s.log_odds), state, (replays, log_odds))


def most_novel(score: Float[Array, " n"], children: int) -> Bool[Array, " n"]:
    """The most novel of each `children` neighbours; of equal ones the first."""
    families = score.reshape(-1, children)
    best = jnp.argmax(families, axis=1)
    return (jnp.arange(children) == best[:, None]).reshape(-1)


def metrics(novelty: Novelty, state: NoveltyState, buffer: BufferState) -> dict[str, Array]:
    """What explains the choice of levels: the fit, the weight, and how novelty and regret go together."""
    window = state.coverage
    found = {
        "alpha": alpha(novelty.alpha, state),
        "fitted": window.fitted,
        "failed_fits": window.failed_fits,
        "novelty_regret_correlation": _rank_correlation(buffer),
    }
    for name, value in window.diagnostics.items():
        if value.ndim == 0:
            found[f"fit/{name}"] = value
        else:
            sizes = range(novelty.coverage.components[0], novelty.coverage.components[1] + 1)
            found |= {f"fit/{name}/{size}": value[index] for index, size in enumerate(sizes)}
    return found


def _rank_correlation(buffer: BufferState) -> Float[Array, ""]:
    """Spearman's correlation of the two scores over the stored levels; NaN below two levels."""
    config = PriorityConfig(ties="average")
    first, second = (
        jnp.where(buffer.mask, priority.ranks(column, buffer.ids, buffer.mask, config), 0) / 2.0
        for column in buffer.scores.T
    )
    middle = (buffer.size + 1) / 2.0
    first, second = (jnp.where(buffer.mask, ranks - middle, 0.0) for ranks in (first, second))
    spread = jnp.sqrt(jnp.sum(first**2) * jnp.sum(second**2))
    return jnp.where(spread > 0, jnp.sum(first * second) / jnp.where(spread > 0, spread, 1.0), jnp.nan)
