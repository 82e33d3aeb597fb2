"""A long short-term memory whose pass over a sequence is fast on a CPU, forwards and backwards."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

_CHUNK = 16
"""Steps whose input products are computed together: few enough to stay in the cache."""

State = tuple[Float[Array, "n h"], Float[Array, "n h"]]
"""Hidden state (the output) and cell."""


class LSTM(eqx.Module):
    """One layer, with the gates (input, forget, candidate, output) side by side in one matrix.

    The state is zeroed where an episode starts, before the input is read.
    """

    input_weight: Float[Array, "d g"]
    memory_weight: Float[Array, "h g"]
    bias: Float[Array, " g"]

    def __init__(self, input_size: int, memory_size: int, forget_bias: float, key: PRNGKeyArray):
        """Each stacked matrix orthogonal with gain 1, biases 0 but the forget gate's. Consumes the key."""
        input_key, memory_key = jax.random.split(key)
        orthogonal = jax.nn.initializers.orthogonal()
        self.input_weight = orthogonal(input_key, (input_size, 4 * memory_size))
        self.memory_weight = orthogonal(memory_key, (memory_size, 4 * memory_size))
        self.bias = jnp.zeros(4 * memory_size).at[memory_size : 2 * memory_size].set(forget_bias)

    def initial_state(self, count: int) -> State:
        zeros = jnp.zeros((count, self.memory_weight.shape[0]))
        return zeros, zeros

    def step(self, state: State, inputs: Float[Array, "n d"], start: Bool[Array, " n"]) -> State:
        """The state after reading one input per row."""
        hidden, cell = (jnp.where(start[:, None], 0.0, part) for part in state)
        return _advance(inputs @ self.input_weight + hidden @ self.memory_weight + self.bias, cell)

    def sequence(
        self, state: State, inputs: Float[Array, "t n d"], start: Bool[Array, "t n"]
    ) -> Float[Array, "t n h"]:
        """Hidden states after each of `t` inputs. Time leads, because the loop runs over it."""
        return _sequence(self.input_weight, self.memory_weight, self.bias, state, inputs, start)


def _activate(z: Float[Array, "n g"]) -> Float[Array, "n g"]:
    size = z.shape[-1] // 4
    # sigmoid(x) = (1 + tanh(x / 2)) / 2: one function for all columns makes one vectorised loop.
    candidate = (jnp.arange(4 * size) // size) == 2
    scale = jnp.where(candidate, 1.0, 0.5)
    return jnp.tanh(z * scale) * scale + (1.0 - scale)


def _advance(z: Float[Array, "n g"], cell: Float[Array, "n h"]) -> State:
    i, f, g, o = jnp.split(_activate(z), 4, axis=-1)
    cell = f * cell + i * g
    return o * jnp.tanh(cell), cell


# The derivative of a sequence is written by hand. Differentiating the loop would add a small product to
# the weight gradients at every step; here the loops carry only what is truly sequential, and the input
# products and weight gradients are large matrix products over a chunk of steps.
@jax.custom_vjp
def _sequence(
    input_weight: Float[Array, "d g"],
    memory_weight: Float[Array, "h g"],
    bias: Float[Array, " g"],
    state: State,
    inputs: Float[Array, "t n d"],
    start: Bool[Array, "t n"],
) -> Float[Array, "t n h"]:
    return _forward(input_weight, memory_weight, bias, state, inputs, start)[0]


def _forward(input_weight, memory_weight, bias, state, inputs, start):
    def step(state, at):
        z, start = at
        hidden, cell = (jnp.where(start[:, None], 0.0, part) for part in state)
        gates = _activate(z + hidden @ memory_weight)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        cell = f * cell + i * g
        hidden = o * jnp.tanh(cell)
        return (hidden, cell), (hidden, cell, gates)

    def chunk(state, at):
        inputs, start = at
        return jax.lax.scan(step, state, (inputs @ input_weight + bias, start))

    _, saved = jax.lax.scan(chunk, state, (_in_chunks(inputs), _in_chunks(start)))
    hidden, cell, gates = map(_joined, saved)
    return hidden, (input_weight, memory_weight, state, inputs, start, hidden, cell, gates)


def _backward(saved, d_output):
    input_weight, memory_weight, state, inputs, start, hidden, cell, gates = saved
    before = [
        jnp.where(start[..., None], 0.0, jnp.concatenate([first[None], later[:-1]]))
        for first, later in zip(state, (hidden, cell))
    ]
    memory_weight_t = memory_weight.T
    input_weight_t = input_weight.T

    def step(later, at):
        d_output, start, cell_before, cell, gates = at
        d_hidden, d_cell = later
        d_hidden = d_hidden + d_output
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        squashed = jnp.tanh(cell)
        d_cell = d_cell + d_hidden * o * (1.0 - squashed**2)
        dz = jnp.concatenate(
            [
                d_cell * g * i * (1.0 - i),
                d_cell * cell_before * f * (1.0 - f),
                d_cell * i * (1.0 - g**2),
                d_hidden * squashed * o * (1.0 - o),
            ],
            axis=-1,
        )
        earlier = (dz @ memory_weight_t, d_cell * f)
        return tuple(jnp.where(start[:, None], 0.0, part) for part in earlier), dz

    def chunk(carry, at):
        later, d_input_weight, d_memory_weight, d_bias = carry
        inputs, hidden_before, *rest = at
        later, dz = jax.lax.scan(step, later, tuple(rest), reverse=True)
        d_input_weight += jnp.einsum("tnd,tnh->dh", inputs, dz)
        d_memory_weight += jnp.einsum("tnd,tnh->dh", hidden_before, dz)
        d_bias += jnp.sum(dz, axis=(0, 1))
        return (later, d_input_weight, d_memory_weight, d_bias), dz @ input_weight_t

    zeros = jax.tree.map(jnp.zeros_like, (state, input_weight, memory_weight, input_weight[0]))
    pieces = (inputs, before[0], d_output, start, before[1], cell, gates)
    (d_state, *d_weights), d_inputs = jax.lax.scan(chunk, zeros, tuple(map(_in_chunks, pieces)), reverse=True)
    return *d_weights, d_state, _joined(d_inputs), None


_sequence.defvjp(_forward, _backward)


def _in_chunks(values: Array) -> Array:
    """[t, ...] as [chunks, steps, ...], with the largest number of steps up to `_CHUNK` that divides t."""
    time = values.shape[0]
    steps = max(size for size in range(1, _CHUNK + 1) if time % size == 0)
    return values.reshape(time // steps, steps, *values.shape[1:])


def _joined(values: Array) -> Array:
    return values.reshape(-1, *values.shape[2:])
