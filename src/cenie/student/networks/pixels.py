"""A network that looks at the last few images."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.records import Memory, Observation
from cenie.settings import Problem, setting
from cenie.spaces import Box, Space, is_image, numbers_in
from cenie.student.convolutions import NUMBERS_AT_ONCE, Convolution, in_blocks, on_cpu
from cenie.student.encoders import Spaces
from cenie.student.layers import Linear, features_first, features_last
from cenie.student.networks import base
from cenie.student.networks.base import Continuous, Decision, Network, NetworkSettings, Policy


@dataclass(frozen=True)
class Pixels(NetworkSettings):
    """Convolutions over the last few images, and an actor and a critic with one hidden layer each.

    The defaults are the student of DCD's car, for images of 96 x 96; smaller ones need fewer layers, or
    smaller strides. The images of a step, oldest first, lie side by side as channels.
    """

    kind: Literal["pixels"] = "pixels"
    frames: int = setting(
        4,
        minimum=1,
        maximum=64,
        help="Images that a decision looks at; the first of an episode stands for those before it.",
        source="original code, racing",
    )
    channels: tuple[int, ...] = setting(
        (8, 16, 32, 64, 128, 256),
        minimum=1,
        maximum=65_536,
        help="Channels of each convolution.",
        source="original code, racing",
    )
    kernels: tuple[int, ...] = setting(
        (4, 3, 3, 3, 3, 3),
        minimum=1,
        maximum=64,
        help="Rows, and columns, that each convolution looks at together: one number for each layer.",
        source="original code, racing",
    )
    strides: tuple[int, ...] = setting(
        (2, 2, 2, 2, 1, 1),
        minimum=1,
        maximum=64,
        help="The stride of each convolution: one number for each layer.",
        source="original code, racing",
    )
    head_size: int = setting(
        100, minimum=1, maximum=65_536, help=base.HEAD_SIZE_HELP, source="original code, racing"
    )
    continuous: Continuous = setting("beta", help=base.CONTINUOUS_HELP, source="original code, racing")

    def check(self) -> Iterator[Problem]:
        if not self.channels:
            yield Problem("channels", "must name at least one layer")
        for name in ("kernels", "strides"):
            if len(getattr(self, name)) != len(self.channels):
                number = f"{len(self.channels)} as channels, got {len(getattr(self, name))}"
                yield Problem(name, f"must have one number for each layer, {number}")

    def shapes(self, image: Space) -> Iterator[tuple[int, int, int]]:
        """Rows, columns and channels of what goes into the first layer and comes out of each."""
        rows, columns, depth = image.shape
        yield rows, columns, depth * self.frames
        for channels, kernel, stride in zip(self.channels, self.kernels, self.strides):
            rows, columns = ((length - kernel) // stride + 1 for length in (rows, columns))
            yield rows, columns, channels

    def misfits(self, spaces: Spaces, action_space: Space) -> Iterator[Problem]:
        if len(spaces) != 1 or not is_image(spaces[0]):
            what = "observations of one image, a part with three axes, and nothing else"
            yield Problem("kind", f"pixels reads {what}; flat reads any observation")
            return
        before = list(self.shapes(spaces[0]))[:-1]
        for number, ((rows, columns, _), kernel) in enumerate(zip(before, self.kernels)):
            if kernel > min(rows, columns):
                size = " x ".join(map(str, spaces[0].shape[:2]))
                left = f"{max(rows, 0)} x {max(columns, 0)} that the layers before leave of {size} pixels"
                yield Problem(
                    "kernels", f"layer {number + 1} looks at {kernel} x {kernel}, more than the {left}"
                )
                return

    def make(self, spaces: Spaces, action_space: Space, key: PRNGKeyArray) -> "FrameStack":
        return FrameStack(self, spaces, action_space, key)


class FrameStack(Network):
    """Convolutions over the last few images, and an actor and a critic with one hidden ReLU layer each.

    The features are the numbers that the last convolution makes of the images.
    """

    recurrent: ClassVar[bool] = False

    convolutions: list[Convolution]
    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy
    image: Box = eqx.field(static=True)
    frames: int = eqx.field(static=True)

    def __init__(self, settings: Pixels, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """Heads orthogonal with gain sqrt(2), and 1 for the value. Consumes the key."""
        (image,) = spaces
        assert isinstance(image, Box)
        self.image, self.frames = image, settings.frames
        self.policy = Policy(action_space, settings.continuous)
        heads_key, *keys = jax.random.split(key, 1 + len(settings.channels))
        shapes = list(settings.shapes(image))
        sizes = zip(keys, shapes, settings.channels, settings.kernels, settings.strides)
        self.convolutions = [
            Convolution(key, inputs=shape[2], outputs=channels, size=size, stride=stride)
            for key, shape, channels, size, stride in sizes
        ]
        gain = self.policy.gain if self.policy.distribution == "categorical" else math.sqrt(2.0)
        keys = jax.random.split(heads_key, 4)
        self.hidden, self.actor, self.critic = base.make_heads(
            keys, math.prod(shapes[-1]), settings.head_size, self.policy, gain=gain
        )

    @property
    def lookback(self) -> int:
        return self.frames - 1

    @property
    def rows_at_once(self) -> int | None:
        return max(NUMBERS_AT_ONCE // (self.frames * numbers_in(self.image)), 1) if on_cpu() else None

    def film(self, observations: Observation) -> Observation:
        (images,) = jax.tree.leaves(observations)
        first = self.convolutions[0]
        return in_blocks(images, first.stride) if first.likes_blocks else images

    def look(self, film: Observation, places: Int[Array, "n seen"]) -> Decision:
        seen = [film[places[:, number]] for number in range(self.frames)]
        if not self.convolutions[0].likes_blocks:
            return self._decide(jnp.stack(seen, axis=1))
        parts = [_scaled(self.image, blocks) for blocks in seen]
        return self._judge(self.convolutions[0].of_blocks(parts))

    def initial_memory(self, count: int) -> Memory:
        return jnp.zeros((count, self.lookback, *self.image.shape), self.image.dtype)

    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        (now,) = jax.tree.leaves(observation)
        before = jnp.where(start.reshape(-1, 1, 1, 1, 1), now[:, None], memory)
        seen = jnp.concatenate([before, now[:, None]], axis=1)
        return seen[:, 1:], self._decide(seen)

    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        (images,) = jax.tree.leaves(observation)
        film = jnp.concatenate([memory, images], axis=1)
        shown = jax.vmap(lambda film, when: film[when])(film, base.frames_seen(start, self.lookback))
        count, steps = start.shape
        decision = self._decide(shown.reshape(count * steps, *shown.shape[2:]))
        return jax.tree.map(lambda leaf: leaf.reshape(count, steps, *leaf.shape[1:]), decision)

    def _decide(self, seen: Array) -> Decision:
        """From the images [n, frames, rows, columns, channels], oldest first."""
        side_by_side = jnp.moveaxis(seen, 1, 3)
        side_by_side = side_by_side.reshape(*side_by_side.shape[:3], -1)
        return self._judge(self.convolutions[0](_scaled(self.image, side_by_side)))

    def _judge(self, x: Float[Array, "n _ _ _"]) -> Decision:
        """From the numbers that the first convolution makes."""
        for convolution in self.convolutions[1:]:
            x = convolution(x)
        outputs = features_first(x, 3)
        for_actor, for_critic = jnp.split(jax.nn.relu(self.hidden(outputs)), 2)
        policy = self.policy(features_last(self.actor(for_actor)))
        return Decision(policy, self.critic(for_critic)[0], features_last(outputs))


def _scaled(image: Box, values: Array) -> Float[Array, "..."]:
    """About -1 to 1; of bytes 0 is -1 and 128 is 0, as in DCD."""
    whole = "int" in image.dtype
    half = (float(image.high) - float(image.low) + whole) / 2.0
    return (values.astype(jnp.float32) - float(image.low)) / half - 1.0
