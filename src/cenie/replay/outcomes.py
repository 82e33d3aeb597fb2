"""The episodes of a rollout: their outcomes, and the state-action points of their steps."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.records import Rollout


class Points(eqx.Module):
    """State-action pairs of each level, which of them exist, and which are of the level's first episode."""

    values: Float[Array, "n t d"]
    valid: Bool[Array, "n t"]
    first_episode: Bool[Array, "n t"] | None = None


def evenly_spread(points: Points, count: int) -> Float[Array, "n k d"]:
    """Choose `k` points of each level, in equal distances among the existing ones; NaN where there is
    none."""
    existing_first = jnp.argsort(~points.valid, axis=1, stable=True)
    available = points.valid.sum(axis=1, keepdims=True)
    places = ((jnp.arange(count) + 0.5) * available / count).astype(jnp.int32)
    index = jnp.take_along_axis(existing_first, places, axis=1)
    kept = jnp.take_along_axis(points.values, index[:, :, None], axis=1)
    return jnp.where((available > 0)[:, :, None], kept, jnp.nan)


class Outcomes(eqx.Module):
    """The completed episodes of each of `n` levels.

    Attributes:
        finished: The number of episodes [n].
        solved: The number of solved ones [n].
        mean_return: The mean of their returns [n]; 0 without any.
        max_return: The highest of their returns [n]; -inf without any.
        mean_length: The mean of their lengths [n]; 0 without any.
        return_variance: The variance of the returns of these episodes among themselves [n]; 0 for a single
            one.
    """

    finished: Int[Array, " n"]
    solved: Int[Array, " n"]
    mean_return: Float[Array, " n"]
    max_return: Float[Array, " n"]
    mean_length: Float[Array, " n"]
    return_variance: Float[Array, " n"]

    @property
    def completed(self) -> Bool[Array, " n"]:
        """At least one episode was completed: the level has a score."""
        return self.finished > 0


class Episodes(eqx.Module):
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
    mean_return = jnp.where(done, returns, 0.0).sum(axis=1) / episodes
    squares = jnp.square(returns - mean_return[:, None])
    return Outcomes(
        finished=finished,
        solved=(rollout.solved & done).sum(axis=1),
        mean_return=mean_return,
        max_return=jnp.where(done, returns, -jnp.inf).max(axis=1),
        mean_length=(episodes_of(done).length > 0).sum(axis=1) / episodes,
        return_variance=jnp.where(done, squares, 0.0).sum(axis=1) / episodes,
    )


def with_ends(rollout: Rollout) -> Rollout:
    """The rollout with an end at its last step where a level has completed no episode, so that it is scored.

    Such an episode counts with what was seen of it: its return so far, not solved. Advantages do not change.
    """
    truncated = rollout.truncated.at[:, -1].max(~rollout.done.any(axis=1))
    return eqx.tree_at(lambda r: r.truncated, rollout, truncated)


def in_first_episode(done: Bool[Array, "n t"]) -> Bool[Array, "n t"]:
    """The steps of the first episode of each level, its last one included."""
    return jnp.cumsum(done, axis=1) - done == 0


def _begins(done: Bool[Array, "n t"]) -> Bool[Array, "n t"]:
    """The first step of each episode; a rollout begins with a new episode."""
    return jnp.roll(done, 1, axis=1).at[:, 0].set(True)


def episodes_of(done: Bool[Array, "n t"]) -> Episodes:
    """The episode of each step, from the flags at the ends of episodes."""
    steps = done.shape[1]
    index = jnp.broadcast_to(jnp.arange(steps), done.shape)
    first = lax.cummax(jnp.where(_begins(done), index, 0), axis=1)
    last = lax.cummin(jnp.where(done, index, steps), axis=1, reverse=True)
    return Episodes(first, last, jnp.where(last < steps, last - first + 1, 0))


def _running_return(reward: Float[Array, "n t"], begins: Bool[Array, "n t"]) -> Float[Array, "n t"]:
    """Undiscounted return of the current episode up to and including each step."""

    # A plain loop over steps of all levels: a tree of sums is hundreds of operations to compile.
    def add(total: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, begins = step
        total = jnp.where(begins, reward, total + reward)
        return total, total

    return lax.scan(add, jnp.zeros_like(reward[:, 0]), (reward.T, begins.T))[1].T
