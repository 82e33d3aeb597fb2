"""The student's networks: observation in, action distribution, value and features out."""

import abc
import math
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.student.actions import ActionDistribution, Beta, Categorical, DiagonalGaussian
from cenie.student.config import NetworkConfig
from cenie.student.lstm import LSTM
from cenie.types import Memory, Observation

_WALL, _GOAL = 2, 8
"""Object codes of the maze view, in the first channel."""
_CODE_SCALE = 10.0
_KERNEL = 3
_DIRECTIONS = 4


class Decision(eqx.Module):
    """What the student makes of an observation; `features` is its state representation for novelty."""

    policy: ActionDistribution
    value: Float[Array, "*batch"]
    features: Float[Array, "*batch d"]


class Network(eqx.Module):
    """An actor-critic. `start` marks first observations of episodes, before which the memory is zeroed."""

    recurrent: ClassVar[bool]
    """Whether minibatches must keep whole sequences, because decisions depend on the past."""

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


class Linear(eqx.Module):
    """A matrix and a bias. Features lead and the batch trails, here and in all that follows: the LSTM is
    fastest that way, and nothing has to be transposed on the way to it."""

    weight: Float[Array, "o i"]
    bias: Float[Array, " o"]

    def __call__(self, x: Float[Array, "i ..."]) -> Float[Array, "o ..."]:
        product = jnp.tensordot(self.weight, x, axes=1)
        return product + self.bias.reshape(-1, *(1,) * (x.ndim - 1))


def _orthogonal(key: PRNGKeyArray, inputs: int, outputs: int, gain: float) -> Linear:
    weight = jax.nn.initializers.orthogonal(gain)(key, (outputs, inputs))
    return Linear(weight, jnp.zeros(outputs))


def _uniform(key: PRNGKeyArray, inputs: int, outputs: int) -> Linear:
    """Weights and biases uniform in +-1/sqrt(inputs)."""
    bound = 1.0 / math.sqrt(inputs)
    weight = jax.random.uniform(key, (outputs, inputs + 1), minval=-bound, maxval=bound)
    return Linear(weight[:, :-1], weight[:, -1])


class ConvEncoder(eqx.Module):
    """A 3x3 convolution with ReLU over the scaled codes, beside a linear map of the direction to 5 numbers.

    The convolution is one product with the equivalent dense matrix: with so small a view that is as fast
    as any other way forwards, and far faster backwards than the gradient of a convolution on a CPU.
    """

    kernel: Float[Array, "c k"]
    bias: Float[Array, " c"]
    direction: Linear
    view: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, view: tuple[int, int, int], channels: int, key: PRNGKeyArray):
        """Xavier-uniform kernel with bias 0. Consumes the key."""
        kernel_key, direction_key = jax.random.split(key)
        taps = _KERNEL * _KERNEL
        bound = math.sqrt(6.0 / (taps * (view[2] + channels)))
        self.kernel = jax.random.uniform(kernel_key, (channels, taps * view[2]), minval=-bound, maxval=bound)
        self.bias = jnp.zeros(channels)
        self.direction = _uniform(direction_key, _DIRECTIONS, 5)
        self.view = view

    @property
    def size(self) -> int:
        rows, columns, _ = self.view
        return (rows - _KERNEL + 1) * (columns - _KERNEL + 1) * self.bias.shape[0] + 5

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        pixels = _features_first(observation.image, 3).astype(jnp.float32) / _CODE_SCALE
        dense = jnp.einsum("ck,xpk->cpx", self.kernel, _placement(self.view))
        layer = Linear(dense.reshape(-1, pixels.shape[0]), jnp.repeat(self.bias, dense.shape[1]))
        return jnp.concatenate([jax.nn.relu(layer(pixels)), self.direction(_direction_bits(observation))])


class BitsEncoder(eqx.Module):
    """A linear layer with ReLU on the wall bits and goal bits of the view and the direction bits."""

    layer: Linear

    def __init__(self, view: tuple[int, int, int], size: int, key: PRNGKeyArray):
        """Orthogonal with gain sqrt(2). Consumes the key."""
        self.layer = _orthogonal(key, 2 * view[0] * view[1] + _DIRECTIONS, size, math.sqrt(2.0))

    @property
    def size(self) -> int:
        return self.layer.bias.shape[0]

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        objects = _features_first(observation.image[..., 0], 2)
        kinds = jnp.array([_WALL, _GOAL], objects.dtype).reshape(2, *(1,) * objects.ndim)
        view_bits = (objects == kinds).astype(jnp.float32).reshape(-1, *objects.shape[1:])
        # Two products: on a CPU, setting bits of different kinds side by side costs more than the layer.
        for_view, for_direction = jnp.split(self.layer.weight, [len(view_bits)], axis=1)
        from_view = Linear(for_view, self.layer.bias)(view_bits)
        return jax.nn.relu(from_view + jnp.tensordot(for_direction, _direction_bits(observation), axes=1))


class MazeLSTM(Network):
    """The maze student: encoder, LSTM, and an actor and a critic with one hidden tanh layer each.

    The hidden layers of the two heads lie side by side in one matrix. The features are the hidden state
    *after* reading the observation.
    """

    recurrent: ClassVar[bool] = True

    encoder: ConvEncoder | BitsEncoder
    lstm: LSTM
    hidden: Linear
    actor: Linear
    critic: Linear

    def __init__(
        self, encoder: ConvEncoder | BitsEncoder, config: NetworkConfig, actions: int, key: PRNGKeyArray
    ):
        """Heads orthogonal with gains sqrt(2), 0.01 (policy) and 1 (value). Consumes the key."""
        keys = jax.random.split(key, 5)
        self.encoder = encoder
        self.lstm = LSTM(encoder.size, config.memory_size, config.forget_bias, keys[0])
        halves = [
            _orthogonal(k, config.memory_size, config.head_size, math.sqrt(2.0)) for k in (keys[1], keys[2])
        ]
        self.hidden = jax.tree.map(lambda *parts: jnp.concatenate(parts), *halves)
        self.actor = _orthogonal(keys[3], config.head_size, actions, 0.01)
        self.critic = _orthogonal(keys[4], config.head_size, 1, 1.0)

    def initial_memory(self, count: int) -> tuple[Float[Array, "n h"], Float[Array, "n h"]]:
        hidden, cell = self.lstm.initial_state(count)
        return hidden.T, cell.T

    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        hidden, cell = self.lstm.step((memory[0].T, memory[1].T), self.encoder(observation), start)
        return (hidden.T, cell.T), self._decide(hidden)

    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        # The loop runs over time, so that levels go last; `_decide` and this transposition undo each other.
        observation = jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), observation)
        outputs = self.lstm.sequence((memory[0].T, memory[1].T), self.encoder(observation), start.T)
        return jax.tree.map(lambda values: jnp.swapaxes(values, 0, 1), self._decide(outputs))

    def _decide(self, outputs: Float[Array, "h ..."]) -> Decision:
        for_actor, for_critic = jnp.split(jnp.tanh(self.hidden(outputs)), 2)
        logits = _features_last(self.actor(for_actor))
        return Decision(Categorical(logits), self.critic(for_critic)[0], _features_last(outputs))


class MLP(Network):
    """Separate actor and critic without memory, for observations that are one array of numbers.

    The features are the raw observation. `log_std` belongs to Gaussian actions only.
    """

    recurrent: ClassVar[bool] = False

    actor: list[Linear]
    critic: list[Linear]
    log_std: Float[Array, " a"] | None
    distribution: Literal["categorical", "gaussian", "beta"] = eqx.field(static=True)
    activation: Literal["tanh", "relu"] = eqx.field(static=True)

    def __init__(self, inputs: int, action_space: Any, config: NetworkConfig, key: PRNGKeyArray):
        """Orthogonal, gain sqrt(2); the policy's last layer 0.01 (categorical) or 1. Consumes the key."""
        discrete = hasattr(action_space, "n")
        actions = action_space.n if discrete else math.prod(action_space.shape)
        self.distribution = "categorical" if discrete else config.continuous
        self.activation = config.activation
        outputs = 2 * actions if self.distribution == "beta" else actions
        actor_key, critic_key = jax.random.split(key)
        gain = 0.01 if discrete else 1.0
        self.actor = _layers(actor_key, (inputs, *config.hidden_sizes, outputs), gain)
        self.critic = _layers(critic_key, (inputs, *config.hidden_sizes, 1), math.sqrt(2.0))
        self.log_std = jnp.zeros(actions) if self.distribution == "gaussian" else None

    def initial_memory(self, count: int) -> tuple[()]:
        return ()

    def step(
        self, memory: tuple[()], observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[tuple[()], Decision]:
        return (), self._decide(observation, start.ndim)

    def sequence(self, memory: tuple[()], observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return self._decide(observation, start.ndim)

    def _decide(self, observation: Array, batch_axes: int) -> Decision:
        x = _features_first(observation, observation.ndim - batch_axes).astype(jnp.float32)
        policy = self._policy(_features_last(self._run(self.actor, x)))
        return Decision(policy, self._run(self.critic, x)[0], _features_last(x))

    def _run(self, layers: list[Linear], x: Float[Array, "i ..."]) -> Float[Array, "o ..."]:
        activate = {"tanh": jnp.tanh, "relu": jax.nn.relu}[self.activation]
        for layer in layers[:-1]:
            x = activate(layer(x))
        return layers[-1](x)

    def _policy(self, outputs: Float[Array, "... o"]) -> ActionDistribution:
        if self.log_std is not None:
            return DiagonalGaussian(outputs, jnp.broadcast_to(self.log_std, outputs.shape))
        if self.distribution == "beta":
            alpha, beta = jnp.split(1.0 + jax.nn.softplus(outputs), 2, axis=-1)
            return Beta(alpha, beta)
        return Categorical(outputs)


def make_network(
    config: NetworkConfig, observation_space: Any, action_space: Any, key: PRNGKeyArray
) -> Network:
    """The network that `config` names, sized for the spaces of a domain. Consumes the key."""
    if config.kind == "mlp":
        return MLP(math.prod(observation_space.shape), action_space, config, key)
    encoder_key, key = jax.random.split(key)
    view = observation_space.image.shape
    if config.encoder == "conv":
        encoder = ConvEncoder(view, config.conv_channels, encoder_key)
    else:
        encoder = BitsEncoder(view, config.encoder_size, encoder_key)
    return MazeLSTM(encoder, config, action_space.n, key)


def _layers(key: PRNGKeyArray, sizes: tuple[int, ...], last_gain: float) -> list[Linear]:
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [math.sqrt(2.0)] * (len(sizes) - 2) + [last_gain]
    return [_orthogonal(*parts) for parts in zip(keys, sizes, sizes[1:], gains)]


def _features_first(values: Array, axes: int) -> Array:
    """The last `axes` axes flattened into one and moved to the front."""
    flat = values.reshape(*values.shape[: values.ndim - axes], -1)
    return jnp.moveaxis(flat, -1, 0)


def _features_last(values: Float[Array, "o ..."]) -> Float[Array, "... o"]:
    return jnp.moveaxis(values, 0, -1)


def _direction_bits(observation: Observation) -> Float[Array, "4 ..."]:
    return jax.nn.one_hot(observation.direction, _DIRECTIONS, axis=0)


def _placement(view: tuple[int, int, int]) -> np.ndarray:
    """[pixels, positions, taps]: 1 where a kernel entry meets an input entry at an output position."""
    pixels = np.arange(math.prod(view)).reshape(view)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (_KERNEL, _KERNEL, view[2]))
    met = windows.reshape(-1, _KERNEL * _KERNEL * view[2])
    return (np.arange(pixels.size)[:, None, None] == met).astype(np.float32)
