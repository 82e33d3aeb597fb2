"""A network for actions that choose a tile of an image, such as a designer's."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.records import Observation
from cenie.settings import Problem, setting
from cenie.spaces import Box, Discrete, Space, numbers_in
from cenie.student.encoders import Bits, Spaces, bits_of, image_and_rest, read_image_and_rest
from cenie.student.layers import Linear, features_first, features_last, orthogonal
from cenie.student.networks import base
from cenie.student.networks.base import Decision, MemorylessNetwork, NetworkSettings, Policy


@dataclass(frozen=True)
class Board(NetworkSettings):
    """For actions that choose a tile of an image, such as a designer's: smooth over the board, no memory.

    The things on the board are read as cosine waves along both axes, and as many waves give the preferences.
    A rule such as "far from the goal" is then a few weights, which noisy rewards can teach, where other
    networks learn every pair of tiles for itself. Tiles are numbered along the first axis first; a border of
    the image that cannot be chosen is not read. Beside the image only discrete parts are read: noise has
    nothing to say to a designer whose choices are drawn at random anyway.
    """

    kind: Literal["board"] = "board"
    waves: int = setting(
        4,
        minimum=1,
        maximum=128,
        help="Waves along each axis: the first is flat, the second has its crest and its trough at the ends.",
        source="ours",
    )
    codes: tuple[int, ...] = setting(
        (),
        help="Codes in the first channel of the image that are told apart; all of its space if none "
        "is named.",
        source="ours",
    )
    head_size: int = setting(32, minimum=1, maximum=65_536, help=base.HEAD_SIZE_HELP, source="ours")

    def codes_of(self, image: Box) -> tuple[int, ...]:
        """The codes that are told apart."""
        return Bits(codes=self.codes).codes_of(image)

    def misfits(self, spaces: Spaces, action_space: Space) -> Iterator[Problem]:
        problems = list(Bits(codes=self.codes).misfits(spaces))
        yield from (Problem(problem.path, problem.message.replace("bits", "board")) for problem in problems)
        if problems:
            return
        image, _ = image_and_rest(spaces)
        if not isinstance(action_space, Discrete) or border_of(image, action_space.n) is None:
            size = " x ".join(map(str, image.shape[:2]))
            yield Problem(
                "kind", f"board needs one action for each tile of its image ({size}, or less a border)"
            )

    def make(self, spaces: Spaces, action_space: Space, key: PRNGKeyArray) -> "OnBoard":
        return OnBoard(self, spaces, action_space, key)


class OnBoard(MemorylessNetwork):
    """Actor and critic with one hidden tanh layer each, on waves of what stands on a board.

    The actor says how much of each wave it wants, also straight from what it reads: to like tiles far from a
    thing is linear in its waves. The features are what is read.
    """

    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy
    settings: Board = eqx.field(static=True)
    spaces: Spaces = eqx.field(static=True)

    def __init__(self, settings: Board, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        self.settings, self.spaces = settings, spaces
        self.policy = Policy(action_space, "gaussian")
        image, rest = image_and_rest(spaces)
        waves = settings.waves**2
        inputs = len(settings.codes_of(image)) * waves + sum(
            numbers_in(space) for space in rest if isinstance(space, Discrete)
        )
        keys = jax.random.split(key, 4)
        self.hidden, _, self.critic = base.make_heads(keys, inputs, settings.head_size, self.policy)
        self.actor = orthogonal(keys[2], settings.head_size + inputs, waves, self.policy.gain)

    def decide(self, observation: Observation) -> Decision:
        image, _ = image_and_rest(self.spaces)
        border = border_of(image, self.policy.inputs) or 0
        columns, rows = (length - 2 * border for length in image.shape[:2])
        waves = jnp.asarray(board_waves(columns, rows, self.settings.waves), jnp.float32)
        bits, discrete = board_and_discrete(self.spaces, observation, self.settings.codes_of(image), border)
        seen = jnp.einsum("wp,cp...->cw...", waves, bits)
        # Many things, such as walls, are to have waves no larger than those of one; the first counts them.
        seen = seen / jnp.sqrt(jnp.maximum(seen[:, :1], 1.0))
        read = jnp.concatenate([seen.reshape(-1, *seen.shape[2:]), *discrete])
        for_actor, for_critic = jnp.split(jnp.tanh(self.hidden(read)), 2)
        wanted = self.actor(jnp.concatenate([for_actor, read]))
        policy = self.policy(jnp.einsum("wp,w...->...p", waves, wanted))
        return Decision(policy, self.critic(for_critic)[0], features_last(read))


def board_and_discrete(
    spaces: Spaces, observation: Observation, codes: tuple[int, ...], border: int
) -> tuple[Float[Array, "c p ..."], list[Array]]:
    """Where inside the border of the image each code stands, numbered along its first axis first, and the
    bits of the discrete parts."""
    image, rest = read_image_and_rest(spaces, observation)
    _, rest_spaces = image_and_rest(spaces)
    discrete = [values for part, values in zip(rest_spaces, rest) if isinstance(part, Discrete)]
    inside = slice(border, -border or None)
    return bits_of(features_first(image[..., inside, inside, 0].swapaxes(-1, -2), 2), codes), discrete


def board_waves(columns: int, rows: int, count: int) -> np.ndarray:
    """Cosine waves [waves, tiles] along each axis, of mean square 1; the first of all is 1 everywhere.

    Tiles are numbered along the first axis (columns) first.
    """
    across, down = _waves(columns, count), _waves(rows, count)
    return np.einsum("kx,ly->klyx", across, down).reshape(count * count, rows * columns)


def _waves(length: int, count: int) -> np.ndarray:
    places, number = np.arange(length) + 0.5, np.arange(count)[:, None]
    return np.where(number > 0, math.sqrt(2.0), 1.0) * np.cos(math.pi * number * places / length)


def border_of(image: Box, tiles: int) -> int | None:
    """The width of the border that leaves this number of tiles of the image; None if no border does."""
    rows, columns = image.shape[:2]
    wide = range((min(rows, columns) + 1) // 2)
    return next((b for b in wide if (rows - 2 * b) * (columns - 2 * b) == tiles), None)
