"""The interface of a network: observation in, action distribution, value and features out."""

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from cenie.records import Memory, Observation
from cenie.settings import Problem
from cenie.spaces import Box, Discrete, Space, numbers_in
from cenie.student.actions import ActionDistribution, Beta, Categorical, DiagonalGaussian
from cenie.student.encoders import Spaces
from cenie.student.layers import Linear, features_last, orthogonal

Continuous = Literal["gaussian", "beta"]
"""Distributions of continuous actions: `gaussian` for the walker, `beta` on [0, 1] for the car."""

HEAD_SIZE_HELP = "Units of the one hidden layer of the actor, and of the critic's."
CONTINUOUS_HELP = "The distribution of continuous actions: gaussian, or beta on the range from 0 to 1."


class Decision(eqx.Module):
    """The student's decision at an observation.

    Attributes:
        policy: The distribution over actions, with the batch axes of the observation.
        value: The critic's estimate of the return [*batch].
        features: The representation of the state for novelty [*batch, d].
    """

    policy: ActionDistribution
    value: Float[Array, "*batch"]
    features: Float[Array, "*batch d"]


class Network(eqx.Module):
    """An actor-critic, for `n` levels at once. Arrays of numbers in it are learned."""

    recurrent: ClassVar[bool]
    """Whether minibatches must keep whole sequences, because decisions depend on the past."""

    @property
    def lookback(self) -> int:
        """The number of past observations the network sees. If positive, `memory` holds exactly these, oldest
        first.

        The first observation of an episode stands for those before it. Such a memory is not stored: it is
        read from the observations of a rollout wherever a step is learned from, so that minibatches may be of
        single steps. Each leaf is an observation's, with an axis of this length after the axis of levels.
        """
        return 0

    @property
    def rows_at_once(self) -> int | None:
        """For how many steps a gradient is best computed at a time; None for all of a minibatch.

        Only of use without `recurrent`. What is learned is the same.
        """
        return None

    def film(self, observations: Observation) -> Observation:
        """Bring observations into the form that `look` reads best, once for all steps of an update.

        Args:
            observations: Observations with a leading axis of frames.

        Returns:
            The film, with the same leading axis.
        """
        return observations

    def look(self, film: Observation, places: Int[Array, "n seen"]) -> Decision:
        """Decide at single steps; each step sees the observations at some places of a film. Only of use with
        `lookback`.

        Args:
            film: The observations, as `film` returns them.
            places: The places that each step sees [n, seen]; the last one is the present.

        Returns:
            The decisions, with the batch axis [n].
        """
        seen = jax.tree.map(lambda frames: frames[places], film)
        before, now = (jax.tree.map(lambda leaf, at=at: leaf[:, at], seen) for at in (slice(-1), -1))
        return self.step(before, now, jnp.zeros(places.shape[:1], bool))[1]

    @abc.abstractmethod
    def initial_memory(self, count: int) -> Memory:
        """The memory of students that have seen nothing.

        Args:
            count: The number of students.

        Returns:
            A tree of arrays [count, ...], or ().
        """

    @abc.abstractmethod
    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        """Read one observation for each level.

        Args:
            memory: The memory before the step, a tree of arrays [n, ...].
            observation: Observations, a tree of arrays [n, ...].
            start: Where an episode begins with this observation [n]; the memory is reset there, before it is
                read.

        Returns:
            The memory after the step, and the decisions with the batch axis [n].
        """

    @abc.abstractmethod
    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        """Read `t` observations for each level in order: as `t` calls of `step`, but fast to differentiate.

        Args:
            memory: The memory before the first step, a tree of arrays [n, ...].
            observation: Observations, a tree of arrays [n, t, ...].
            start: Where an episode begins [n, t].

        Returns:
            The decisions, with the batch axes [n, t].
        """


def frames_seen(start: Bool[Array, "n t"], lookback: int) -> Int[Array, "n t frames"]:
    """The frames seen at each step: places in a row of the `lookback` observations of a memory and `t` more.

    Nothing before the start of an episode is seen; its first observation takes the place.
    """
    now = lookback + jnp.arange(start.shape[1])
    first = jax.lax.cummax(jnp.where(start, now, 0), axis=1)
    return jnp.maximum(now[:, None] - jnp.arange(lookback, -1, -1), first[..., None])


class MemorylessNetwork(Network):
    """A network whose decision follows from the present observation alone."""

    recurrent: ClassVar[bool] = False

    @abc.abstractmethod
    def decide(self, observation: Observation) -> Decision:
        """Decide at observations along any leading axes."""

    def initial_memory(self, count: int) -> tuple[()]:
        return ()

    def step(
        self, memory: tuple[()], observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[tuple[()], Decision]:
        return (), self.decide(observation)

    def sequence(self, memory: tuple[()], observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return self.decide(observation)


@dataclass(frozen=True)
class NetworkSettings(abc.ABC):
    """The settings of a network. Those of each network derive from it, and name it by their `kind`."""

    recurrent: ClassVar[bool] = False
    """The value of `Network.recurrent` of the network."""

    def misfits(self, spaces: Spaces, action_space: Space) -> Iterator[Problem]:
        """Why the network cannot read such observations, or choose such actions."""
        yield from ()

    @abc.abstractmethod
    def make(self, spaces: Spaces, action_space: Space, key: PRNGKeyArray) -> Network:
        """The network, sized for the spaces of a domain, which it fits. Consumes the key."""


class Policy(eqx.Module):
    """From the last numbers of an actor to a distribution over the actions of a space.

    `log_std` belongs to Gaussian actions only, `bounds` to beta actions.
    """

    log_std: Float[Array, " a"] | None
    distribution: Literal["categorical", "gaussian", "beta"] = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    bounds: tuple[float, float] = eqx.field(static=True)

    def __init__(self, action_space: Space, continuous: Continuous):
        discrete = isinstance(action_space, Discrete)
        if len(action_space.shape) != (0 if discrete else 1):
            raise ValueError(f"actions must be one discrete choice or a row of numbers, not {action_space}")
        self.distribution = "categorical" if discrete else continuous
        actions = numbers_in(action_space)
        self.inputs = 2 * actions if self.distribution == "beta" else actions
        self.log_std = jnp.zeros(actions) if self.distribution == "gaussian" else None
        self.bounds = (0.0, 1.0)
        if self.distribution == "beta":
            assert isinstance(action_space, Box)
            self.bounds = float(action_space.low), float(action_space.high)
            if not -math.inf < self.bounds[0] < self.bounds[1] < math.inf:
                raise ValueError(f"beta actions need a space with bounds, not {action_space}; try gaussian")

    @property
    def gain(self) -> float:
        """The gain of the initial weights of the layer before: all discrete actions begin almost equally
        likely."""
        return 0.01 if self.distribution == "categorical" else 1.0

    def __call__(self, outputs: Float[Array, "... o"]) -> ActionDistribution:
        if self.log_std is not None:
            return DiagonalGaussian(outputs, jnp.broadcast_to(self.log_std, outputs.shape))
        if self.distribution == "beta":
            alpha, beta = jnp.split(1.0 + jax.nn.softplus(outputs), 2, axis=-1)
            return Beta(alpha, beta, *self.bounds)
        return Categorical(outputs)


def make_heads(
    keys: Key[Array, " 4"], inputs: int, size: int, policy: Policy, *, gain: float | None = None
) -> tuple[Linear, Linear, Linear]:
    """The layers of an actor and a critic with one hidden layer each. Consumes the keys.

    They are orthogonal, with gains sqrt(2), the policy's gain (or another one), and 1 for the value.

    Returns:
        The hidden layers of both side by side in one matrix; the output of the actor; and of the critic.
    """
    halves = [orthogonal(key, inputs, size, math.sqrt(2.0)) for key in keys[:2]]
    hidden = jax.tree.map(lambda *parts: jnp.concatenate(parts), *halves)
    actor = orthogonal(keys[2], size, policy.inputs, policy.gain if gain is None else gain)
    return hidden, actor, orthogonal(keys[3], size, 1, 1.0)


def decide_by_heads(
    hidden: Linear, actor: Linear, critic: Linear, policy: Policy, features: Float[Array, "h ..."]
) -> Decision:
    """The decision of heads with tanh, for features that lead."""
    for_actor, for_critic = jnp.split(jnp.tanh(hidden(features)), 2)
    outputs = features_last(actor(for_actor))
    return Decision(policy(outputs), critic(for_critic)[0], features_last(features))
