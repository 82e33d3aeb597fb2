"""Generalised advantage estimation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cenie.records import Advantages, Rollout


def gae(
    rollout: Rollout,
    gamma: float,
    gae_lambda: float,
    bootstrap_at_rollout_end: bool,
    bootstrap_at_timeout: bool,
) -> Advantages:
    """Advantages A_t = delta_t + gamma lambda (1 - d_t) A_{t+1}, delta_t = r_t + gamma V'_t - V_t.

    A_t is the inner sum of CENIE Eq. 1, sum_{k >= t} (gamma lambda)^(k-t) delta_k.

    d_t says that the episode ended at step t, and V'_t, the value of what follows, is V_{t+1} inside an
    episode and 0 after its end. The two options differ from that rule only in what follows the last
    step of an unfinished episode (`last_value` or 0) and a time-out (`final_value` or 0).
    """
    following = jnp.concatenate([rollout.value[:, 1:], rollout.last_value[:, None]], axis=1)
    ended = rollout.done
    if not bootstrap_at_rollout_end:
        ended = ended.at[:, -1].set(True)
    following = jnp.where(ended, 0.0, following)
    if bootstrap_at_timeout:
        if rollout.final_value is None:
            raise ValueError("bootstrap_at_timeout needs a rollout that was collected with final values")
        following = jnp.where(rollout.truncated, rollout.final_value, following)
    delta = rollout.reward + gamma * following - rollout.value
    decay = jnp.where(ended, 0.0, gamma * gae_lambda)

    def accumulate(
        later: Float[Array, " n"], step: tuple[Float[Array, " n"], Float[Array, " n"]]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        delta, decay = step
        advantage = delta + decay * later
        return advantage, advantage

    start = jnp.zeros_like(rollout.last_value)
    _, advantage = jax.lax.scan(accumulate, start, (delta.T, decay.T), reverse=True)
    return Advantages(
        advantage=advantage.T,
        target=advantage.T + rollout.value,
        error=delta,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
