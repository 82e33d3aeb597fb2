"""Networks that remember: a long short-term memory, or a gated recurrent unit."""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.records import Memory, Observation
from cenie.settings import Problem, setting
from cenie.spaces import Space
from cenie.student import encoders
from cenie.student.encoders import Encoder, EncoderConfig, Flat, Spaces
from cenie.student.gru import GRU
from cenie.student.layers import Linear
from cenie.student.lstm import LSTM
from cenie.student.networks import base
from cenie.student.networks.base import Continuous, Decision, Network, NetworkSettings, Policy

_MEMORY_SIZE = "Units of the memory."


class RecurrentSettings(NetworkSettings):
    """The common part of both networks, which differ in their memory only."""

    encoder: EncoderConfig
    memory_size: int
    head_size: int
    continuous: Continuous

    recurrent: ClassVar[bool] = True

    def misfits(self, spaces: Spaces, action_space: Space) -> Iterator[Problem]:
        return encoders.misfits_of(self.encoder, spaces)

    def make(self, spaces: Spaces, action_space: Space, key: PRNGKeyArray) -> "Recurrent":
        return Recurrent(self, spaces, action_space, key)

    @abc.abstractmethod
    def memory(self, inputs: int, key: PRNGKeyArray) -> LSTM | GRU:
        """The memory, for this number of inputs. Consumes the key."""


@dataclass(frozen=True)
class Lstm(RecurrentSettings):
    """Encoder, long short-term memory, and an actor and a critic with one hidden layer each."""

    kind: Literal["lstm"] = "lstm"
    encoder: EncoderConfig = setting(factory=Flat, help=encoders.ENCODER_HELP, source=encoders.ENCODER_SOURCE)
    memory_size: int = setting(
        256, minimum=1, maximum=65_536, help=_MEMORY_SIZE, source="original code, mazes"
    )
    # The original code names (32, 32), but its builder makes one hidden layer.
    head_size: int = setting(
        32, minimum=1, maximum=65_536, help=base.HEAD_SIZE_HELP, source="original code, mazes"
    )
    forget_bias: float = setting(
        0.0,
        help="The initial biases of the forget gates: 1 remembers for longer at first.",
        source="original code, mazes",
    )
    continuous: Continuous = setting("gaussian", help=base.CONTINUOUS_HELP, source="ours")

    def memory(self, inputs: int, key: PRNGKeyArray) -> LSTM:
        return LSTM(inputs, self.memory_size, self.forget_bias, key)


@dataclass(frozen=True)
class Gru(RecurrentSettings):
    """Encoder, gated recurrent unit, and an actor and a critic with one hidden layer each."""

    kind: Literal["gru"] = "gru"
    encoder: EncoderConfig = setting(factory=Flat, help=encoders.ENCODER_HELP, source=encoders.ENCODER_SOURCE)
    memory_size: int = setting(256, minimum=1, maximum=65_536, help=_MEMORY_SIZE, source="ours")
    head_size: int = setting(32, minimum=1, maximum=65_536, help=base.HEAD_SIZE_HELP, source="ours")
    continuous: Continuous = setting("gaussian", help=base.CONTINUOUS_HELP, source="ours")

    def memory(self, inputs: int, key: PRNGKeyArray) -> GRU:
        return GRU(inputs, self.memory_size, key)


class Recurrent(Network):
    """Encoder, memory, and an actor and a critic with one hidden tanh layer each.

    The features are the hidden state *after* reading the observation.
    """

    recurrent: ClassVar[bool] = True

    encoder: Encoder
    core: LSTM | GRU
    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy

    def __init__(self, settings: RecurrentSettings, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        encoder_key, key = jax.random.split(key)
        keys = jax.random.split(key, 5)
        self.encoder = settings.encoder.make(spaces, encoder_key)
        self.core = settings.memory(encoders.width_of(self.encoder, spaces), keys[0])
        self.policy = Policy(action_space, settings.continuous)
        self.hidden, self.actor, self.critic = base.make_heads(
            keys[1:], settings.memory_size, settings.head_size, self.policy
        )

    def initial_memory(self, count: int) -> Memory:
        return _transposed(self.core.initial_state(count))

    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        state = self.core.step(_transposed(memory), self.encoder(observation), start)
        return _transposed(state), self._decide(state[0])

    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        # The loop runs over time, so that levels go last; `_decide` and this transposition undo each other.
        observation = jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), observation)
        outputs = self.core.sequence(_transposed(memory), self.encoder(observation), start.T)
        return jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), self._decide(outputs))

    def _decide(self, outputs: Float[Array, "h ..."]) -> Decision:
        return base.decide_by_heads(self.hidden, self.actor, self.critic, self.policy, outputs)


def _transposed(parts: Memory) -> Memory:
    """Memories have the level axis first, as all that is kept in a rollout."""
    return tuple(part.T for part in parts)
