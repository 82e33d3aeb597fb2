"""A long short-term memory whose pass over a sequence is fast on a CPU, forwards and backwards.

Three choices make it so; each was measured. Features lead and the batch trails, because the product of a
large weight matrix with a narrow batch is much faster that way round. The loop works on flat arrays,
because XLA vectorises a loop over a short last axis badly. And the derivative is written by hand: the loop
carries only what is truly sequential, and the weight gradient is one large product per chunk of steps
instead of a small one added at every step.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.xla.tricks import materialised

_CHUNK = 32
"""Steps whose weight gradients are computed together: many enough for speed, few enough for the cache."""

State = tuple[Float[Array, "h n"], Float[Array, "h n"]]
"""Hidden state (the output) and cell."""


class LSTM(eqx.Module):
    """One layer. The state is zeroed where an episode starts, before the input is read.

    The rows of the matrix are the input, forget, candidate and output gates of all units, its columns the
    input, a constant 1 (the bias) and the hidden state.
    """

    weight: Float[Array, "g k"]

    def __init__(self, input_size: int, memory_size: int, forget_bias: float, key: PRNGKeyArray):
        """Input and memory parts orthogonal with gain 1, biases 0 but the forget gate's. Consumes the key."""
        input_key, memory_key = jax.random.split(key)
        orthogonal = jax.nn.initializers.orthogonal()
        rows = 4 * memory_size
        bias = jnp.zeros((rows, 1)).at[memory_size : 2 * memory_size].set(forget_bias)
        inputs, memory = (
            orthogonal(k, (rows, size)) for k, size in ((input_key, input_size), (memory_key, memory_size))
        )
        self.weight = jnp.concatenate([inputs, bias, memory], axis=1)

    def initial_state(self, count: int) -> State:
        zeros = jnp.zeros((self.weight.shape[0] // 4, count))
        return zeros, zeros

    def step(self, state: State, inputs: Float[Array, "d n"], start: Bool[Array, " n"]) -> State:
        """The state after reading one input per column."""
        hidden, cell = (jnp.where(start, 0.0, part) for part in state)
        z = self.weight @ jnp.concatenate([_with_one(inputs), hidden])
        i, f, g, o = _activate(z.reshape(-1)).reshape(4, *hidden.shape)
        cell = f * cell + i * g
        return o * jnp.tanh(cell), cell

    def sequence(
        self, state: State, inputs: Float[Array, "d t n"], start: Bool[Array, "t n"]
    ) -> Float[Array, "h t n"]:
        """Hidden states after each of `t` inputs per column."""
        by_time = jnp.swapaxes(_with_one(inputs), 0, 1)
        return jnp.swapaxes(_sequence(self.weight, *state, by_time, start), 0, 1)


def _with_one(inputs: Float[Array, "d ..."]) -> Float[Array, "d1 ..."]:
    return jnp.concatenate([inputs, jnp.ones((1, *inputs.shape[1:]), inputs.dtype)])


def _activate(z: Float[Array, " gn"]) -> Float[Array, " gn"]:
    """Sigmoid of three quarters and tanh of the third one, as one function in one vectorised loop."""
    candidate = jnp.arange(z.size) // (z.size // 4) == 2
    scale = jnp.where(candidate, 1.0, 0.5)  # sigmoid(x) = (1 + tanh(x / 2)) / 2
    return jnp.tanh(z * scale) * scale + (1.0 - scale)


@jax.custom_vjp
def _sequence(
    weight: Float[Array, "g k"],
    hidden: Float[Array, "h n"],
    cell: Float[Array, "h n"],
    inputs: Float[Array, "t d n"],
    start: Bool[Array, "t n"],
) -> Float[Array, "t h n"]:
    return _forward(weight, hidden, cell, inputs, start)[0]


def _forward(weight, hidden, cell, inputs, start):
    time, _, count = inputs.shape
    fresh = jnp.broadcast_to(start[:, None], (time, *hidden.shape)).reshape(time, -1)
    gate = jnp.arange(4)[:, None]

    def step(state, step_inputs):
        inputs, fresh = step_inputs
        hidden, cell = (jnp.where(fresh, 0.0, part) for part in state)
        read = jnp.concatenate([inputs, hidden])
        gates = _activate((weight @ read.reshape(-1, count)).reshape(-1)).reshape(4, -1)
        i, f, g, o = gates
        next_cell = f * cell + i * g
        squashed = jnp.tanh(next_cell)
        hidden = o * squashed
        # Derivatives of the next cell by the four sums, but the output gate's: of the hidden state.
        partner = jnp.select([gate == 0, gate == 1, gate == 2], [g, cell, i], squashed)
        slope = partner * jnp.where(gate == 2, 1.0 - gates**2, gates * (1.0 - gates))
        return (hidden, next_cell), (hidden, read, slope, f, o * (1.0 - squashed**2))

    state = (hidden.reshape(-1), cell.reshape(-1))
    _, (outputs, *saved) = jax.lax.scan(step, state, (inputs.reshape(time, -1), fresh))
    return outputs.reshape(time, *hidden.shape), (weight, fresh, *saved)


def _backward(saved, d_outputs):
    weight, fresh, read, *rest = saved
    time, size, count = d_outputs.shape
    split = (weight.shape[1] - size) * count
    transposed = weight.T
    is_output = (jnp.arange(4) == 3)[:, None]

    def step(d_state, step_saved):
        d_output, fresh, slope, f, cell_by_hidden = step_saved
        d_hidden, d_cell = d_state
        d_hidden = d_hidden + d_output
        d_cell = d_cell + d_hidden * cell_by_hidden
        dz = (slope * jnp.where(is_output, d_hidden, d_cell)).reshape(-1, count)
        d_read = (transposed @ dz).reshape(-1)
        d_before = tuple(jnp.where(fresh, 0.0, part) for part in (d_read[split:], d_cell * f))
        return d_before, (dz, d_read[:split])

    def chunk(carry, chunk_saved):
        d_state, d_weight = carry
        read, *rest = chunk_saved
        d_state, (dz, d_inputs) = jax.lax.scan(step, d_state, tuple(rest), reverse=True)
        steps = dz.shape[0]
        dz, read = materialised(
            tuple(
                jnp.swapaxes(part.reshape(steps, -1, count), 0, 1).reshape(-1, steps * count)
                for part in (dz, read)
            )
        )
        return (d_state, d_weight + dz @ read.T), d_inputs

    zeros = jnp.zeros(size * count)
    arrays = (read, d_outputs.reshape(time, -1), fresh, *rest)
    (d_state, d_weight), d_inputs = jax.lax.scan(
        chunk, ((zeros, zeros), jnp.zeros_like(weight)), tuple(map(_in_chunks, arrays)), reverse=True
    )
    return (
        d_weight,
        *(part.reshape(size, count) for part in d_state),
        d_inputs.reshape(time, -1, count),
        None,
    )


_sequence.defvjp(_forward, _backward)


def _in_chunks(values: Array) -> Array:
    """[t, ...] as [chunks, steps, ...], with the largest number of steps up to `_CHUNK` that divides t."""
    time = values.shape[0]
    steps = max(size for size in range(1, _CHUNK + 1) if time % size == 0)
    return values.reshape(time // steps, steps, *values.shape[1:])
