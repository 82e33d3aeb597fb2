"""How interesting was a level? One number per level from one rollout. No state.

A score is a mean over the completed episodes of the mean over their steps, so that the order of the
episodes does not matter and a long episode does not outweigh a short one. The steps of an episode that
the end of the rollout cut short are ignored. A level without a completed episode has no score: its entry
is 0 and `completed` says False, and the buffer then keeps the old score or refuses the new level.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.types import Advantages, Rollout


class ScoreInputs(eqx.Module):
    """What a score may look at.

    `max_return` is the highest undiscounted return ever seen on each level, this rollout included: the
    maximum of the stored value (-inf for a new level) and `Outcomes.max_return`. `episodes` says which
    completed episodes count. `novelty` is that of each level under the current model of coverage, if there
    is one.
    """

    rollout: Rollout
    advantages: Advantages
    max_return: Float[Array, " n"]
    gamma: float = eqx.field(static=True)
    episodes: Literal["average", "first", "last"] = eqx.field(static=True, default="average")
    novelty: Float[Array, " n"] | None = None


class Outcomes(eqx.Module):
    """The completed episodes of each level: how many, how many solved, and their returns and lengths.

    Without a completed episode `max_return` is -inf and the means are 0.
    """

    finished: Int[Array, " n"]
    solved: Int[Array, " n"]
    mean_return: Float[Array, " n"]
    max_return: Float[Array, " n"]
    mean_length: Float[Array, " n"]

    @property
    def completed(self) -> Bool[Array, " n"]:
        """At least one episode was completed: the level has a score."""
        return self.finished > 0


class _Episodes(eqx.Module):
    """For each step: the episode it belongs to. `length` is 0 on the unfinished tail."""

    first: Int[Array, "n t"]
    last: Int[Array, "n t"]
    length: Int[Array, "n t"]


def episode_outcomes(rollout: Rollout) -> Outcomes:
    """Count and summarise the completed episodes of each level."""
    done = rollout.done
    finished = done.sum(axis=1)
    returns = _running_return(rollout.reward, _begins(done))
    episodes = jnp.maximum(finished, 1)
    return Outcomes(
        finished=finished,
        solved=(rollout.solved & done).sum(axis=1),
        mean_return=jnp.where(done, returns, 0.0).sum(axis=1) / episodes,
        max_return=jnp.where(done, returns, -jnp.inf).max(axis=1),
        mean_length=(_episodes(done).length > 0).sum(axis=1) / episodes,
    )


def with_ends(rollout: Rollout) -> Rollout:
    """The rollout with an end at its last step where a level has completed no episode, so that it is scored.

    Such an episode counts with what was seen of it: its return so far, not solved. Advantages do not change.
    """
    truncated = rollout.truncated.at[:, -1].max(~rollout.done.any(axis=1))
    return eqx.tree_at(lambda r: r.truncated, rollout, truncated)


def positive_value_loss(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean of max(advantage, 0): the regret estimate of PLR-perp, ACCEL and CENIE."""
    return _episode_mean(inputs, jnp.maximum(inputs.advantages.advantage, 0.0))


def value_l1(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean absolute advantage: the score of the first PLR paper."""
    return _episode_mean(inputs, jnp.abs(inputs.advantages.advantage))


def signed_value_loss(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean advantage."""
    return _episode_mean(inputs, inputs.advantages.advantage)


def max_mc(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean of R_max - value, with R_max the highest return ever seen on the level (MaxMC)."""
    return _episode_mean(inputs, inputs.max_return[:, None] - inputs.rollout.value)


def positive_max_mc(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean of max(R_max - value, 0)."""
    return _episode_mean(inputs, jnp.maximum(inputs.max_return[:, None] - inputs.rollout.value, 0.0))


def start_max_mc(inputs: ScoreInputs) -> Float[Array, " n"]:
    """R_max - value of the first state of each episode: MaxMC for domains with dense rewards."""
    gap = inputs.max_return[:, None] - inputs.rollout.value
    first = _episodes(inputs.rollout.done).first
    return _episode_mean(inputs, jnp.take_along_axis(gap, first, axis=1))


def one_step_td(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean absolute one-step error r_t + gamma V_{t+1} - V_t over all but the last step of an episode.

    An episode of one step counts as 0.
    """
    rollout = inputs.rollout
    following = jnp.roll(rollout.value, -1, axis=1)
    error = jnp.abs(rollout.reward + inputs.gamma * following - rollout.value)
    length = _episodes(rollout.done).length
    without_last = length / jnp.maximum(length - 1, 1)
    return _episode_mean(inputs, jnp.where(rollout.done, 0.0, error * without_last))


def entropy(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean entropy of the policy. Needs a rollout that was collected with entropies."""
    if inputs.rollout.entropy is None:
        raise ValueError("the score 'entropy' needs a rollout with entropies")
    return _episode_mean(inputs, inputs.rollout.entropy)


def learnability(inputs: ScoreInputs) -> Float[Array, " n"]:
    """p (1 - p) with p the share of solved episodes. Always counts every completed episode."""
    outcomes = episode_outcomes(inputs.rollout)
    share = outcomes.solved / jnp.maximum(outcomes.finished, 1)
    return share * (1.0 - share)


def uniform(inputs: ScoreInputs) -> Float[Array, " n"]:
    """1 for every level that completed an episode."""
    return jnp.where(inputs.rollout.done.any(axis=1), 1.0, 0.0)


def novelty(inputs: ScoreInputs) -> Float[Array, " n"]:
    """Mean negative log-likelihood of all steps, the cut-off tail included (CENIE Eq. 3)."""
    if inputs.novelty is None:
        raise ValueError("the score 'novelty' needs a curriculum with a model of coverage")
    return inputs.novelty


SCORES: dict[str, Callable[[ScoreInputs], Float[Array, " n"]]] = {
    "pvl": positive_value_loss,
    "value-l1": value_l1,
    "signed": signed_value_loss,
    "maxmc": max_mc,
    "maxmc-positive": positive_max_mc,
    "maxmc-start": start_max_mc,
    "td": one_step_td,
    "entropy": entropy,
    "learnability": learnability,
    "uniform": uniform,
}
"""The scores by the name that the settings use."""


def _begins(done: Bool[Array, "n t"]) -> Bool[Array, "n t"]:
    """The first step of each episode; a rollout begins with a new episode."""
    return jnp.roll(done, 1, axis=1).at[:, 0].set(True)


def _episodes(done: Bool[Array, "n t"]) -> _Episodes:
    steps = done.shape[1]
    index = jnp.broadcast_to(jnp.arange(steps), done.shape)
    first = lax.cummax(jnp.where(_begins(done), index, 0), axis=1)
    last = lax.cummin(jnp.where(done, index, steps), axis=1, reverse=True)
    return _Episodes(first, last, jnp.where(last < steps, last - first + 1, 0))


def _episode_mean(inputs: ScoreInputs, values: Float[Array, "n t"]) -> Float[Array, " n"]:
    """Mean over completed episodes (or the first or last) of the mean over their steps; 0 without any.

    Every step is weighted by 1 / (length of its episode * number of episodes), which needs no sums per
    episode and so loses no precision to differences of running sums.
    """
    done = inputs.rollout.done
    episodes = _episodes(done)
    counted = episodes.length > 0
    number = jnp.maximum(done.sum(axis=1, keepdims=True), 1)
    if inputs.episodes == "first":
        counted &= episodes.first == 0
        number = jnp.ones_like(number)
    if inputs.episodes == "last":
        counted &= episodes.last == jnp.where(counted, episodes.last, -1).max(axis=1, keepdims=True)
        number = jnp.ones_like(number)
    weighted = values / (jnp.maximum(episodes.length, 1) * number)
    return jnp.where(counted, weighted, 0.0).sum(axis=1)


def _running_return(reward: Float[Array, "n t"], begins: Bool[Array, "n t"]) -> Float[Array, "n t"]:
    """Undiscounted return of the current episode up to and including each step."""

    def join(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.where(right[1], right[0], left[0] + right[0]), left[1] | right[1]

    return jax.lax.associative_scan(join, (reward, begins), axis=1)[0]
