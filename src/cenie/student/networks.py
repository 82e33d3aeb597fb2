"""The student's networks: observation in, action distribution, value and features out."""

import abc
import math
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from cenie.records import Memory, Observation
from cenie.settings import SettingsError
from cenie.spaces import Box, Discrete, Space, numbers_in
from cenie.student.actions import ActionDistribution, Beta, Categorical, DiagonalGaussian
from cenie.student.config import (
    Board,
    Continuous,
    Gru,
    Lstm,
    Memoryless,
    Mlp,
    NetworkConfig,
    Pixels,
    border_of,
    image_and_rest,
)
from cenie.student.convolutions import NUMBERS_AT_ONCE, Convolution, in_blocks, on_cpu
from cenie.student.encoders import Encoder, Spaces, board_and_discrete, flatten, make_encoder, parts_of
from cenie.student.gru import GRU
from cenie.student.layers import Linear, features_first, features_last, orthogonal
from cenie.student.lstm import LSTM
from cenie.student.waves import board_waves


class Decision(eqx.Module):
    """The student's decision at an observation; `features` is its state representation for novelty."""

    policy: ActionDistribution
    value: Float[Array, "*batch"]
    features: Float[Array, "*batch d"]


class Network(eqx.Module):
    """An actor-critic. `start` marks first observations of episodes, before which the memory is zeroed."""

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
        """Observations in the form that `look` reads best, made once for all steps of an update."""
        return observations

    def look(self, film: Observation, places: Int[Array, "n seen"]) -> Decision:
        """Decide at single steps; each step sees the observations at some places of a film.

        Only of use with `lookback`; the last place is the present one.
        """
        seen = jax.tree.map(lambda frames: frames[places], film)
        before, now = (jax.tree.map(lambda leaf, at=at: leaf[:, at], seen) for at in (slice(-1), -1))
        return self.step(before, now, jnp.zeros(places.shape[:1], bool))[1]

    @abc.abstractmethod
    def initial_memory(self, count: int) -> Memory:
        """The memory of `count` students that have seen nothing."""

    @abc.abstractmethod
    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        """Read one observation per level."""

    @abc.abstractmethod
    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        """Read `t` observations per level in order: as `t` calls of `step`, but fast to differentiate."""


class Policy(eqx.Module):
    """From the last numbers of an actor to a distribution over the actions of a space.

    `log_std` belongs to Gaussian actions only.
    """

    log_std: Float[Array, " a"] | None
    distribution: Literal["categorical", "gaussian", "beta"] = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    bounds: tuple[float, float] = eqx.field(static=True)
    """The bounds of beta actions."""

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


class Recurrent(Network):
    """Encoder, memory, and an actor and a critic with one hidden tanh layer each.

    The hidden layers of the two heads lie side by side in one matrix. The features are the hidden state
    *after* reading the observation.
    """

    recurrent: ClassVar[bool] = True

    encoder: Encoder
    core: LSTM | GRU
    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy

    def __init__(self, config: Lstm | Gru, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """Heads orthogonal with gains sqrt(2), the policy's gain, and 1 (value). Consumes the key."""
        encoder_key, key = jax.random.split(key)
        keys = jax.random.split(key, 5)
        width, memory, head = config.encoder.width(spaces), config.memory_size, config.head_size
        self.encoder = make_encoder(config.encoder, spaces, encoder_key)
        if isinstance(config, Lstm):
            self.core = LSTM(width, memory, config.forget_bias, keys[0])
        else:
            self.core = GRU(width, memory, keys[0])
        self.policy = Policy(action_space, config.continuous)
        self.hidden, self.actor, self.critic = _heads(keys[1:], memory, head, self.policy)

    def initial_memory(self, count: int) -> Memory:
        return _transposed(self.core.initial_state(count))

    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        state = self.core.step(_transposed(memory), self.encoder(observation), start)
        return _transposed(state), _decide(self, state[0])

    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        # The loop runs over time, so that levels go last; `_decide` and this transposition undo each other.
        observation = jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), observation)
        outputs = self.core.sequence(_transposed(memory), self.encoder(observation), start.T)
        return jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), _decide(self, outputs))


class WithoutMemory(Network):
    """Encoder, and an actor and a critic with one hidden tanh layer each, as in `Recurrent`.

    The features are the numbers that the encoder makes of an observation.
    """

    recurrent: ClassVar[bool] = False

    encoder: Encoder
    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy

    def __init__(self, config: Memoryless, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """The heads are as in `Recurrent`. Consumes the key."""
        encoder_key, key = jax.random.split(key)
        self.encoder = make_encoder(config.encoder, spaces, encoder_key)
        self.policy = Policy(action_space, config.continuous)
        width = config.encoder.width(spaces)
        keys = jax.random.split(key, 4)
        self.hidden, self.actor, self.critic = _heads(keys, width, config.head_size, self.policy)

    def initial_memory(self, count: int) -> tuple[()]:
        return ()

    def step(
        self, memory: tuple[()], observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[tuple[()], Decision]:
        return (), _decide(self, self.encoder(observation))

    def sequence(self, memory: tuple[()], observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return _decide(self, self.encoder(observation))


def _heads(
    keys: Key[Array, " 4"], inputs: int, head: int, policy: Policy, *, gain: float | None = None
) -> tuple[Linear, Linear, Linear]:
    """The hidden layers of actor and critic side by side, and their outputs. Consumes the keys."""
    halves = [orthogonal(key, inputs, head, math.sqrt(2.0)) for key in keys[:2]]
    hidden = jax.tree.map(lambda *parts: jnp.concatenate(parts), *halves)
    actor = orthogonal(keys[2], head, policy.inputs, policy.gain if gain is None else gain)
    return hidden, actor, orthogonal(keys[3], head, 1, 1.0)


def _decide(network: Recurrent | WithoutMemory, outputs: Float[Array, "h ..."]) -> Decision:
    for_actor, for_critic = jnp.split(jnp.tanh(network.hidden(outputs)), 2)
    policy = network.policy(features_last(network.actor(for_actor)))
    return Decision(policy, network.critic(for_critic)[0], features_last(outputs))


class OnBoard(Network):
    """Actor and critic with one hidden tanh layer each, on waves of what stands on a board.

    The actor says how much of each wave it wants, also straight from what it reads: to like tiles far from a
    thing is linear in its waves. The features are what is read.
    """

    recurrent: ClassVar[bool] = False

    hidden: Linear
    actor: Linear
    critic: Linear
    policy: Policy
    settings: Board = eqx.field(static=True)
    spaces: Spaces = eqx.field(static=True)

    def __init__(self, config: Board, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """The heads are as in `Recurrent`. Consumes the key."""
        self.settings, self.spaces = config, spaces
        self.policy = Policy(action_space, "gaussian")
        keys = jax.random.split(key, 4)
        inputs, head, waves = config.inputs(spaces), config.head_size, config.waves**2
        self.hidden, _, self.critic = _heads(keys, inputs, head, self.policy)
        self.actor = orthogonal(keys[2], head + inputs, waves, self.policy.gain)

    def initial_memory(self, count: int) -> tuple[()]:
        return ()

    def step(
        self, memory: tuple[()], observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[tuple[()], Decision]:
        return (), _decide_on_board(self, observation)

    def sequence(self, memory: tuple[()], observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return _decide_on_board(self, observation)


def _decide_on_board(network: OnBoard, observation: Observation) -> Decision:
    image, _ = image_and_rest(network.spaces)
    border = border_of(image, network.policy.inputs) or 0
    columns, rows = (length - 2 * border for length in image.shape[:2])
    waves = jnp.asarray(board_waves(columns, rows, network.settings.waves), jnp.float32)
    bits, discrete = board_and_discrete(network.spaces, observation, network.settings.codes_of(image), border)
    seen = jnp.einsum("wp,cp...->cw...", waves, bits)
    # Many things, such as walls, are to have waves no larger than those of one; the first counts them.
    seen = seen / jnp.sqrt(jnp.maximum(seen[:, :1], 1.0))
    read = jnp.concatenate([seen.reshape(-1, *seen.shape[2:]), *discrete])
    for_actor, for_critic = jnp.split(jnp.tanh(network.hidden(read)), 2)
    wanted = network.actor(jnp.concatenate([for_actor, read]))
    policy = network.policy(jnp.einsum("wp,w...->...p", waves, wanted))
    return Decision(policy, network.critic(for_critic)[0], features_last(read))


class MLP(Network):
    """Separate actor and critic without memory. The features are the numbers of the observation."""

    recurrent: ClassVar[bool] = False

    actor: list[Linear]
    critic: list[Linear]
    policy: Policy
    spaces: Spaces = eqx.field(static=True)
    activation: Literal["tanh", "relu"] = eqx.field(static=True)

    def __init__(self, config: Mlp, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """Orthogonal, gain sqrt(2); the last layer of the actor has the policy's gain. Consumes the key."""
        self.spaces = spaces
        self.activation = config.activation
        self.policy = Policy(action_space, config.continuous)
        actor_key, critic_key = jax.random.split(key)
        widths = (sum(map(numbers_in, spaces)), *config.hidden_sizes)
        self.actor = _layers(actor_key, (*widths, self.policy.inputs), self.policy.gain)
        self.critic = _layers(critic_key, (*widths, 1), math.sqrt(2.0))

    def initial_memory(self, count: int) -> tuple[()]:
        return ()

    def step(
        self, memory: tuple[()], observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[tuple[()], Decision]:
        return (), self._decide(observation)

    def sequence(self, memory: tuple[()], observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return self._decide(observation)

    def _decide(self, observation: Observation) -> Decision:
        x = flatten(self.spaces, observation)
        policy = self.policy(features_last(self._run(self.actor, x)))
        return Decision(policy, self._run(self.critic, x)[0], features_last(x))

    def _run(self, layers: list[Linear], x: Float[Array, "i ..."]) -> Float[Array, "o ..."]:
        activate = {"tanh": jnp.tanh, "relu": jax.nn.relu}[self.activation]
        for layer in layers[:-1]:
            x = activate(layer(x))
        return layers[-1](x)


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

    def __init__(self, config: Pixels, spaces: Spaces, action_space: Space, key: PRNGKeyArray):
        """Heads orthogonal with gain sqrt(2), and 1 for the value. Consumes the key."""
        (image,) = spaces
        assert isinstance(image, Box)
        self.image, self.frames = image, config.frames
        self.policy = Policy(action_space, config.continuous)
        heads_key, *keys = jax.random.split(key, 1 + len(config.channels))
        shapes = list(config.shapes(image))
        sizes = zip(keys, shapes, config.channels, config.kernels, config.strides)
        self.convolutions = [
            Convolution(key, inputs=shape[2], outputs=channels, size=size, stride=stride)
            for key, shape, channels, size, stride in sizes
        ]
        gain = self.policy.gain if self.policy.distribution == "categorical" else math.sqrt(2.0)
        keys = jax.random.split(heads_key, 4)
        self.hidden, self.actor, self.critic = _heads(
            keys, math.prod(shapes[-1]), config.head_size, self.policy, gain=gain
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
        shown = jax.vmap(lambda film, when: film[when])(film, frames_seen(start, self.lookback))
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


def frames_seen(start: Bool[Array, "n t"], lookback: int) -> Int[Array, "n t frames"]:
    """The frames seen at each step: places in a row of the `lookback` observations of a memory and `t` more.

    Nothing before the start of an episode is seen; its first observation takes the place.
    """
    now = lookback + jnp.arange(start.shape[1])
    first = jax.lax.cummax(jnp.where(start, now, 0), axis=1)
    return jnp.maximum(now[:, None] - jnp.arange(lookback, -1, -1), first[..., None])


def _scaled(image: Box, values: Array) -> Float[Array, "..."]:
    """About -1 to 1; of bytes 0 is -1 and 128 is 0, as in DCD."""
    whole = "int" in image.dtype
    half = (float(image.high) - float(image.low) + whole) / 2.0
    return (values.astype(jnp.float32) - float(image.low)) / half - 1.0


def make_network(
    config: NetworkConfig, observation_space: PyTree[Space], action_space: Space, key: PRNGKeyArray
) -> Network:
    """The network that `config` names, sized for the spaces of a domain. Consumes the key.

    Raises `SettingsError` if it cannot read such observations.
    """
    spaces = parts_of(observation_space)
    misfits = list(config.misfits(spaces, action_space))
    if misfits:
        raise SettingsError(misfits)
    if isinstance(config, Mlp):
        return MLP(config, spaces, action_space, key)
    if isinstance(config, Memoryless):
        return WithoutMemory(config, spaces, action_space, key)
    if isinstance(config, Pixels):
        return FrameStack(config, spaces, action_space, key)
    if isinstance(config, Board):
        return OnBoard(config, spaces, action_space, key)
    return Recurrent(config, spaces, action_space, key)


def _layers(key: PRNGKeyArray, sizes: tuple[int, ...], last_gain: float) -> list[Linear]:
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [math.sqrt(2.0)] * (len(sizes) - 2) + [last_gain]
    return [orthogonal(*parts) for parts in zip(keys, sizes, sizes[1:], gains)]


def _transposed(parts: Memory) -> Memory:
    """Memories have the level axis first, as all that is kept in a rollout."""
    return tuple(part.T for part in parts)
