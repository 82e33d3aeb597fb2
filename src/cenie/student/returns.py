"""Running scale of discounted returns, by which the rewards of dense-reward domains are divided."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_LIMIT = 10.0
_EPSILON = 1e-8


class ReturnScale(eqx.Module):
    """Count, mean and variance of all discounted returns seen so far."""

    count: Float[Array, "*t"]
    mean: Float[Array, "*t"]
    variance: Float[Array, "*t"]

    @property
    def deviation(self) -> Float[Array, "*t"]:
        """The number that rewards are divided by."""
        return jnp.sqrt(self.variance + _EPSILON)


def initial_scale() -> ReturnScale:
    """Mean 0 and variance 1, with so small a count that the first batch replaces them."""
    return ReturnScale(jnp.array(1e-4), jnp.array(0.0), jnp.array(1.0))


def scale_rewards(
    scale: ReturnScale, reward: Float[Array, "n t"], done: Bool[Array, "n t"], gamma: float
) -> tuple[ReturnScale, Float[Array, "n t"]]:
    """Rewards over the running standard deviation of the discounted return, clipped to [-10, 10].

    The discounted return starts at 0 with the rollout and with every episode. Each step adds its `n`
    returns to the statistics before its own rewards are divided.
    """

    def discount(
        total: Float[Array, " n"], step: tuple[Float[Array, " n"], Bool[Array, " n"]]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        reward, done = step
        total = gamma * total + reward
        return jnp.where(done, 0.0, total), total

    _, totals = jax.lax.scan(discount, jnp.zeros_like(reward[:, 0]), (reward.T, done.T))
    batch = ReturnScale(
        jnp.full(totals.shape[:1], float(totals.shape[1])),
        jnp.mean(totals, axis=1),
        jnp.var(totals, axis=1),
    )

    def include(seen: ReturnScale, new: ReturnScale) -> tuple[ReturnScale, ReturnScale]:
        merged = _merge(seen, new)
        # Huge rewards overflow their squares; such a step must not spoil the statistics for good.
        usable = jnp.isfinite(merged.mean) & jnp.isfinite(merged.variance)
        merged = jax.tree.map(lambda after, before: jnp.where(usable, after, before), merged, seen)
        return merged, merged

    scale, history = jax.lax.scan(include, scale, batch)
    return scale, jnp.clip(reward / history.deviation, -_LIMIT, _LIMIT)


def _merge(seen: ReturnScale, new: ReturnScale) -> ReturnScale:
    """Statistics of two sets together (Chan's parallel form of Welford's method)."""
    count = seen.count + new.count
    difference = new.mean - seen.mean
    mean = seen.mean + difference * new.count / count
    within = seen.variance * seen.count + new.variance * new.count
    squares = within + difference**2 * seen.count * new.count / count
    return ReturnScale(count, mean, squares / count)
