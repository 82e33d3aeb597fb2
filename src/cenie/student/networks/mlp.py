"""Plain networks for the actor and the critic, which share nothing."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.records import Observation
from cenie.settings import Problem, setting
from cenie.spaces import Space, numbers_in
from cenie.student.encoders import Spaces, flatten
from cenie.student.layers import Linear, features_last, orthogonal
from cenie.student.networks import base
from cenie.student.networks.base import Continuous, Decision, MemorylessNetwork, NetworkSettings, Policy


@dataclass(frozen=True)
class Mlp(NetworkSettings):
    """Separate actor and critic without memory, which read all numbers of any observation."""

    kind: Literal["mlp"] = "mlp"
    hidden_sizes: tuple[int, ...] = setting(
        (64, 64),
        minimum=1,
        maximum=65_536,
        help="Units of each hidden layer of the actor, and of the critic.",
        source="original code, walker",
    )
    activation: Literal["tanh", "relu"] = setting(
        "tanh", help="The activation after each hidden layer.", source="original code, walker"
    )
    continuous: Continuous = setting("gaussian", help=base.CONTINUOUS_HELP, source="original code, walker")

    def check(self) -> Iterator[Problem]:
        if not self.hidden_sizes:
            yield Problem("hidden_sizes", "must name at least one layer")

    def make(self, spaces: Spaces, action_space: Space, key: PRNGKeyArray) -> "MLP":
        return MLP(self, spaces, action_space, key)


class MLP(MemorylessNetwork):
    """Separate actor and critic. The features are the numbers of the observation."""

    actor: list[Linear]
    critic: list[Linear]
    policy: Policy
    spaces: Spaces = eqx.field(static=True)
    activation: Literal["tanh", "relu"] = eqx.field(static=True)

    def __init__(self, settings: Mlp, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """Orthogonal, gain sqrt(2); the last layer of the actor has the policy's gain. Consumes the key."""
        self.spaces, self.activation = spaces, settings.activation
        self.policy = Policy(action_space, settings.continuous)
        actor_key, critic_key = jax.random.split(key)
        widths = (sum(map(numbers_in, spaces)), *settings.hidden_sizes)
        self.actor = _layers(actor_key, (*widths, self.policy.inputs), self.policy.gain)
        self.critic = _layers(critic_key, (*widths, 1), math.sqrt(2.0))

    def decide(self, observation: Observation) -> Decision:
        x = flatten(self.spaces, observation)
        policy = self.policy(features_last(self._run(self.actor, x)))
        return Decision(policy, self._run(self.critic, x)[0], features_last(x))

    def _run(self, layers: list[Linear], x: Float[Array, "i ..."]) -> Float[Array, "o ..."]:
        activate = {"tanh": jnp.tanh, "relu": jax.nn.relu}[self.activation]
        for layer in layers[:-1]:
            x = activate(layer(x))
        return layers[-1](x)


def _layers(key: PRNGKeyArray, sizes: tuple[int, ...], last_gain: float) -> list[Linear]:
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [math.sqrt(2.0)] * (len(sizes) - 2) + [last_gain]
    return [orthogonal(*parts) for parts in zip(keys, sizes, sizes[1:], gains)]
