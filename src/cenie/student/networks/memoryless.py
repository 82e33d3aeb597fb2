"""A network with an encoder and without memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import PRNGKeyArray

from cenie.records import Observation
from cenie.settings import Problem, setting
from cenie.spaces import Space
from cenie.student import encoders
from cenie.student.encoders import Encoder, EncoderConfig, Flat, Spaces
from cenie.student.layers import Linear
from cenie.student.networks import base
from cenie.student.networks.base import Continuous, Decision, MemorylessNetwork, NetworkSettings, Policy


@dataclass(frozen=True)
class Memoryless(NetworkSettings):
    """Encoder, and an actor and a critic with one hidden layer each, without memory."""

    kind: Literal["memoryless"] = "memoryless"
    encoder: EncoderConfig = setting(factory=Flat, help=encoders.ENCODER_HELP, source=encoders.ENCODER_SOURCE)
    head_size: int = setting(
        32,
        minimum=1,
        maximum=65_536,
        help=base.HEAD_SIZE_HELP,
        source="original code, mazes: the designers of Minimax and REPAIRED",
    )
    continuous: Continuous = setting("gaussian", help=base.CONTINUOUS_HELP, source="ours")

    def misfits(self, spaces: Spaces, action_space: Space) -> Iterator[Problem]:
        return encoders.misfits_of(self.encoder, spaces)

    def make(self, spaces: Spaces, action_space: Space, key: PRNGKeyArray) -> "Feedforward":
        return Feedforward(self, spaces, action_space, key)


class Feedforward(MemorylessNetwork):
    """Encoder, and an actor and a critic with one hidden tanh layer each, as in `Recurrent`.

    The features are the numbers that the encoder makes of an observation.
    """

    encoder: Encoder
    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy

    def __init__(self, settings: Memoryless, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        encoder_key, key = jax.random.split(key)
        self.encoder = settings.encoder.make(spaces, encoder_key)
        self.policy = Policy(action_space, settings.continuous)
        keys, width = jax.random.split(key, 4), encoders.width_of(self.encoder, spaces)
        self.hidden, self.actor, self.critic = base.make_heads(keys, width, settings.head_size, self.policy)

    def decide(self, observation: Observation) -> Decision:
        features = self.encoder(observation)
        return base.decide_by_heads(self.hidden, self.actor, self.critic, self.policy, features)
