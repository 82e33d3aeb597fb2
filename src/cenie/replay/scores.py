"""Scores of levels: one number per level from one rollout. No state.

A score is a mean over the completed episodes of the mean over their steps, so that the order of the
episodes does not matter and a long episode does not outweigh a short one. The steps of an episode that
the end of the rollout cut short are ignored. A level without a completed episode has no score: its entry
is 0 and `completed` says False, and the buffer then keeps the old score or refuses the new level.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.replay.outcomes import episodes_of
from cenie.replay.play import Play


@dataclass(frozen=True)
class Score:
    """A score of levels by how a student fared on them.

    Attributes:
        name: The name in logs, tables and the page.
        compute: From a `Play` on n levels to a number for each level [n].
        needs: The optional parts of a rollout that it reads: `entropy`, or `solved`, which only an
            environment (or a loop) that can tell sets.
        papers: Keys of `report/references.bib`, each with what it is cited for.
    """

    name: str
    compute: Callable[[Play], Float[Array, " n"]]
    needs: tuple[Literal["entropy", "solved"], ...] = ()
    papers: Mapping[str, str] = field(default_factory=dict, hash=False)


def positive_value_loss(play: Play) -> Float[Array, " n"]:
    """Mean of max(advantage, 0): the regret estimate of PLR-perp, ACCEL and CENIE (PVL, CENIE Eq. 1).

    PVL = 1/T sum_t max(sum_{k >= t} (gamma lambda)^(k-t) delta_k, 0). The inner sum is the advantage of
    step t (`advantage.gae`), and T the length of an episode.
    """
    return episode_mean(play, jnp.maximum(play.advantages.advantage, 0.0))


def value_l1(play: Play) -> Float[Array, " n"]:
    """Mean absolute advantage: the score of the first PLR paper."""
    return episode_mean(play, jnp.abs(play.advantages.advantage))


def signed_value_loss(play: Play) -> Float[Array, " n"]:
    """Mean advantage."""
    return episode_mean(play, play.advantages.advantage)


def max_mc(play: Play) -> Float[Array, " n"]:
    """Mean of R_max - value, with R_max the highest return ever seen on the level (MaxMC)."""
    return episode_mean(play, _gap_to_best(play))


def positive_max_mc(play: Play) -> Float[Array, " n"]:
    """Mean of max(R_max - value, 0)."""
    return episode_mean(play, jnp.maximum(_gap_to_best(play), 0.0))


def start_max_mc(play: Play) -> Float[Array, " n"]:
    """R_max - value of the first state of each episode: MaxMC for domains with dense rewards."""
    return episode_mean(play, _gap_at_start(play))


def positive_start_max_mc(play: Play) -> Float[Array, " n"]:
    """max(R_max - value of the first state, 0) of each episode: the score of REPAIRED's cars."""
    return episode_mean(play, jnp.maximum(_gap_at_start(play), 0.0))


def _gap_to_best(play: Play) -> Float[Array, "n t"]:
    """R_max - value at each step, in the unit of the values, which may be learned from scaled rewards."""
    unit, best = play.advantages.unit, play.best_return
    return (best if unit is None else best / unit)[:, None] - play.rollout.value


def _gap_at_start(play: Play) -> Float[Array, "n t"]:
    """R_max - value of the first state of the episode that a step belongs to."""
    first = episodes_of(play.rollout.done).first
    return jnp.take_along_axis(_gap_to_best(play), first, axis=1)


def one_step_td(play: Play) -> Float[Array, " n"]:
    """Mean absolute one-step error r_t + gamma V_{t+1} - V_t over all but the last step of an episode.

    An episode of one step counts as 0.
    """
    return transition_mean(play, jnp.abs(play.advantages.error))


def maximised_negative_advantage(play: Play) -> Float[Array, " n"]:
    """Mean of how far the return falls short of the highest value on the way, on levels solved before (MNA).

    With sums of one-step errors that are cut at 0 in every step, c_i = min(c_{i-1} + gamma^i delta_{t+i}, 0),
    the shortfall at step t is minus their lambda-weighted mean up to the end of the episode (Mead et al.,
    2026). A level counts as solved if a return on it was ever above 0, as in the original code.
    """
    return episode_mean(play, _shortfall(play)) * (play.best_return > 0.0)


def summed_negative_advantage(play: Play) -> Float[Array, " n"]:
    """MNA as its original code adds it up: over the steps of the rollout, here of its completed episodes.

    A long episode counts more than a short one, by its length; of one that fills the rollout both are equal.
    """
    counted, _ = _counted(play)
    total = jnp.where(counted, _shortfall(play), 0.0).sum(axis=1)
    return total / play.rollout.done.shape[1] * (play.best_return > 0.0)


def _shortfall(play: Play) -> Float[Array, "n t"]:
    """The shortfall of the return from each step on, against the highest value on the way."""
    done, errors = play.rollout.done, play.advantages.error
    gamma, gae_lambda = play.advantages.gamma, play.advantages.gae_lambda
    starts, last = jnp.arange(done.shape[1]), episodes_of(done).last

    def extend(
        carry: tuple[Array, Array], step: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        """One more step for the sums of all starts in the same episode."""
        sums, mean = carry
        time, error, ends = step
        horizon = jnp.maximum(time - starts, 0)
        reached = (starts <= time) & (time <= last)
        sums = jnp.where(reached, jnp.minimum(sums + gamma**horizon * error[:, None], 0.0), sums)
        # The last sum stands for all that would follow.
        weight = gae_lambda**horizon * jnp.where(ends[:, None], 1.0, 1.0 - gae_lambda)
        return (sums, mean + jnp.where(reached, weight * sums, 0.0)), None

    nothing = jnp.zeros_like(errors)
    (_, mean), _ = lax.scan(extend, (nothing, nothing), (starts, errors.T, done.T))
    return -mean


def entropy(play: Play) -> Float[Array, " n"]:
    """Mean entropy of the policy. Needs a rollout that was collected with entropies."""
    if play.rollout.entropy is None:
        raise ValueError("the score 'entropy' needs a rollout with entropies")
    return episode_mean(play, play.rollout.entropy)


def learnability(play: Play) -> Float[Array, " n"]:
    """p (1 - p) with p the rate of solved episodes. Always counts every completed episode."""
    return solved_variance(play.outcomes.solved, play.outcomes.finished)


def solved_variance(solved: Int[Array, " n"], finished: Int[Array, " n"]) -> Float[Array, " n"]:
    """p (1 - p) with p the rate of solved episodes, 0 without any: the learnability of SFL."""
    solved_rate = solved / jnp.maximum(finished, 1)
    return solved_rate * (1.0 - solved_rate)


def generalised_learnability(play: Play) -> Float[Array, " n"]:
    """The deviation of the returns on a level, weighted by how common its mean return is in the batch.

    What learnability becomes where success is not the score (Monette et al., 2025). Always counts every
    completed episode; a level with a single one scores 0, as it does by p (1 - p).
    """
    outcomes = play.outcomes
    mean, known = outcomes.mean_return, outcomes.completed
    count = jnp.maximum(known.sum(), 1)
    centre = jnp.where(known, mean, 0.0).sum() / count
    variance = jnp.where(known, jnp.square(mean - centre), 0.0).sum() / count
    return common_spread(jnp.sqrt(outcomes.return_variance), mean, centre, variance)


def common_spread(
    spread: Float[Array, " n"],
    mean: Float[Array, " n"],
    centre: Float[Array, ""],
    variance: Float[Array, ""],
) -> Float[Array, " n"]:
    """The spread of each level, weighted by the density of its mean under a normal distribution.

    The density is divided by its highest value: a constant among levels that are compared. Without it, levels
    of several batches would be measured in the deviations of their batches, and by 0 where all are equal.

    Args:
        spread: The deviation of what is achieved on each level.
        mean: The mean of it.
        centre: The mean over all levels of their means.
        variance: The variance of these.

    Returns:
        At most the spread of each level; the spread itself where the variance is 0.
    """
    distance = jnp.square(mean - centre) / jnp.where(variance > 0.0, variance, 1.0)
    return spread * jnp.where(variance > 0.0, jnp.exp(-0.5 * distance), 1.0)


def uniform(play: Play) -> Float[Array, " n"]:
    """1 for every level that completed an episode."""
    return jnp.where(play.rollout.done.any(axis=1), 1.0, 0.0)


_MNA = {"mead2025improving": "the score MNA"}
_LEARNABILITY = {"rutherford2024no": "the score p(1-p)"}
_GENERALISED = {"monette2025optimisation": "the score: generalised learnability"}

SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        Score("pvl", positive_value_loss),
        Score("value-l1", value_l1),
        Score("signed", signed_value_loss),
        Score("maxmc", max_mc),
        Score("maxmc-positive", positive_max_mc),
        Score("maxmc-start", start_max_mc),
        Score("maxmc-start-positive", positive_start_max_mc),
        Score("td", one_step_td),
        Score("mna", maximised_negative_advantage, papers=_MNA),
        Score("mna-sum", summed_negative_advantage, papers=_MNA),
        Score("entropy", entropy, needs=("entropy",)),
        Score("learnability", learnability, needs=("solved",), papers=_LEARNABILITY),
        Score("generalised-learnability", generalised_learnability, papers=_GENERALISED),
        Score("uniform", uniform),
    )
}
"""The scores by the name that the settings use."""

if TYPE_CHECKING:
    ScoreName = str
else:
    ScoreName = Literal[tuple(SCORES)]
"""The type of a setting that names a score: one of the names above."""


def episode_mean(play: Play, values: Float[Array, "n t"]) -> Float[Array, " n"]:
    """Mean over completed episodes (or the first or last) of the mean over their steps.

    Every step is weighted by 1 / (length of its episode * number of episodes), which needs no sums per
    episode and so loses no precision to differences of running sums.

    Args:
        play: The play of n levels with t steps each; it says which of the episodes count.
        values: A number for each step [n, t].

    Returns:
        The means [n]; 0 for a level without a completed episode.
    """
    counted, episode_count = _counted(play)
    length = episodes_of(play.rollout.done).length
    weighted = values / (jnp.maximum(length, 1) * episode_count)
    return jnp.where(counted, weighted, 0.0).sum(axis=1)


def _counted(play: Play) -> tuple[Bool[Array, "n t"], Int[Array, "n 1"]]:
    """The steps of the episodes that count, and how many of these there are, at least 1."""
    done = play.rollout.done
    episodes = episodes_of(done)
    counted = episodes.length > 0
    episode_count = jnp.maximum(done.sum(axis=1, keepdims=True), 1)
    if play.episodes == "first":
        counted &= episodes.first == 0
        episode_count = jnp.ones_like(episode_count)
    if play.episodes == "last":
        counted &= episodes.last == jnp.where(counted, episodes.last, -1).max(axis=1, keepdims=True)
        episode_count = jnp.ones_like(episode_count)
    return counted, episode_count


def transition_mean(play: Play, values: Float[Array, "n t"]) -> Float[Array, " n"]:
    """The same without the last step of each episode, after which there is no next one."""
    done = play.rollout.done
    length = episodes_of(done).length
    scale = length / jnp.maximum(length - 1, 1)
    return episode_mean(play, jnp.where(done, 0.0, values * scale))
