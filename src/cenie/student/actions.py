"""Action distributions, batched over leading axes."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Float, Int, PRNGKeyArray

_LOG_2PI = 1.8378770664093453


class ActionDistribution(eqx.Module):
    """A distribution over actions; independent components of an action vector are summed over."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Array:
        """Draw one action for each batch entry.

        Args:
            key: Consumed.

        Returns:
            Actions: [*batch] if they are discrete, [*batch, a] otherwise.
        """

    @abc.abstractmethod
    def log_prob(self, action: Array) -> Float[Array, "*batch"]:
        """Log-probability (density) of actions.

        Args:
            action: Actions, in the shape of `sample`.

        Returns:
            Log-probabilities [*batch].
        """

    @abc.abstractmethod
    def entropy(self) -> Float[Array, "*batch"]:
        """Entropy in nats.

        Returns:
            Entropies [*batch].
        """


class Categorical(ActionDistribution):
    """One of `a` actions.

    Attributes:
        logits: Unnormalised log-probabilities [*batch, a].
    """

    logits: Float[Array, "*batch a"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*batch"]:
        """Draw one action for each batch entry.

        Args:
            key: Consumed.

        Returns:
            Actions, int32 [*batch].
        """
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log-probability of actions.

        Args:
            action: Whole numbers below `a` [*batch].

        Returns:
            Log-probabilities [*batch].
        """
        # A product with the one-hot action: its gradient is elementwise, where that of a gather is a
        # scatter, which is slow on a CPU.
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=self.logits.dtype)
        return jnp.sum(jax.nn.log_softmax(self.logits) * chosen, axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """Entropy in nats.

        Returns:
            Entropies [*batch].
        """
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


class DiagonalGaussian(ActionDistribution):
    """Independent normal components.

    Attributes:
        mean: The means [*batch, a].
        log_std: The logarithms of the standard deviations [*batch, a].
    """

    mean: Float[Array, "*batch a"]
    log_std: Float[Array, "*batch a"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*batch a"]:
        """Draw one action for each batch entry.

        Args:
            key: Consumed.

        Returns:
            Actions [*batch, a].
        """
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Float[Array, "*batch a"]) -> Float[Array, "*batch"]:
        """Log-density of actions, summed over their components.

        Args:
            action: Actions [*batch, a].

        Returns:
            Log-densities [*batch].
        """
        scaled = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * scaled**2 + self.log_std + 0.5 * _LOG_2PI, axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """Entropy in nats, summed over the components.

        Returns:
            Entropies [*batch].
        """
        return jnp.sum(self.log_std + 0.5 * (1.0 + _LOG_2PI), axis=-1)


class Beta(ActionDistribution):
    """Independent components on [0, 1], or stretched to another interval.

    Both parameters must be at least 1, so that the density has one peak.
    """

    alpha: Float[Array, "*batch a"]
    beta: Float[Array, "*batch a"]
    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=1.0)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*batch a"]:
        first, second = _gamma(key, jnp.stack([self.alpha, self.beta]))
        part = _within(first / (first + second))
        return part if self._is_unit else self.low + (self.high - self.low) * part

    def log_prob(self, action: Float[Array, "*batch a"]) -> Float[Array, "*batch"]:
        if not self._is_unit:
            action = _within((action - self.low) / (self.high - self.low))
        density = (self.alpha - 1.0) * jnp.log(action) + (self.beta - 1.0) * jnp.log1p(-action)
        return jnp.sum(density - betaln(self.alpha, self.beta) - math.log(self.high - self.low), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        total = self.alpha + self.beta
        return jnp.sum(
            betaln(self.alpha, self.beta)
            - (self.alpha - 1.0) * digamma(self.alpha)
            - (self.beta - 1.0) * digamma(self.beta)
            + (total - 2.0) * digamma(total)
            + math.log(self.high - self.low),
            axis=-1,
        )

    @property
    def _is_unit(self) -> bool:
        return (self.low, self.high) == (0.0, 1.0)


_PROPOSALS = 8
"""Proposals at a time. All of them are refused once in 10^10 times, or more rarely."""


def _gamma(key: PRNGKeyArray, shape: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Numbers of gamma distributions whose shapes are at least 1, by the method of Marsaglia and Tsang.

    JAX draws until it accepts. Of levels that are split over devices, all would then wait for the slowest at
    every draw (`docs/design.md`); so a fixed number of proposals is made, and the first good one taken.
    """
    normal_key, uniform_key = jax.random.split(key)
    normal = jax.random.normal(normal_key, (_PROPOSALS, *shape.shape), shape.dtype)
    uniform = jax.random.uniform(uniform_key, normal.shape, shape.dtype)
    scale = shape - 1.0 / 3.0
    cube = (1.0 + normal / jnp.sqrt(9.0 * scale)) ** 3
    positive = jnp.maximum(cube, jnp.finfo(shape.dtype).tiny)
    likely = 0.5 * normal**2 + scale * (1.0 - cube + jnp.log(positive))
    good = (cube > 0) & (jnp.log(uniform) < likely)
    # The last one stands for none; 1 is within all gamma distributions.
    chosen = jnp.where(good[-1], positive[-1], 1.0)
    for proposal in reversed(range(_PROPOSALS - 1)):
        chosen = jnp.where(good[proposal], positive[proposal], chosen)
    return scale * chosen


def _within(part: Array) -> Array:
    """The ends of the interval have an infinite log-density; float32 rounding can reach them."""
    return jnp.clip(part, 1e-6, 1.0 - 1e-6)
