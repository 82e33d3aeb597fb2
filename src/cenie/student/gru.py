"""A gated recurrent unit. Features lead and the batch trails, as in the LSTM."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.student.layers import Linear, orthogonal

State = tuple[Float[Array, "h n"]]
"""The hidden state, which is also the output."""


class GRU(eqx.Module):
    """One layer. The state is zeroed where an episode starts, before the input is read.

    The rows of the matrices are the reset gate, the update gate and the candidate of all units. The reset
    gate acts on what the candidate takes of the hidden state, its bias included.
    """

    for_input: Linear
    for_hidden: Linear

    def __init__(self, input_size: int, memory_size: int, key: PRNGKeyArray):
        """Orthogonal with gain 1, biases 0. Consumes the key."""
        input_key, hidden_key = jax.random.split(key)
        self.for_input = orthogonal(input_key, input_size, 3 * memory_size, 1.0)
        self.for_hidden = orthogonal(hidden_key, memory_size, 3 * memory_size, 1.0)

    def initial_state(self, count: int) -> State:
        return (jnp.zeros((self.for_hidden.weight.shape[1], count)),)

    def step(self, state: State, inputs: Float[Array, "d n"], start: Bool[Array, " n"]) -> State:
        """The state after reading one input per column."""
        return (self._next(state[0], self.for_input(inputs), start),)

    def sequence(
        self, state: State, inputs: Float[Array, "d t n"], start: Bool[Array, "t n"]
    ) -> Float[Array, "h t n"]:
        """Hidden states after each of `t` inputs per column."""
        # What does not depend on the past is one large product instead of many small ones.
        read = jnp.swapaxes(self.for_input(inputs), 0, 1)

        def step(
            hidden: Float[Array, "h n"], step_inputs: tuple[Float[Array, "g n"], Bool[Array, " n"]]
        ) -> tuple[Float[Array, "h n"], Float[Array, "h n"]]:
            hidden = self._next(hidden, *step_inputs)
            return hidden, hidden

        _, outputs = jax.lax.scan(step, state[0], (read, start))
        return jnp.swapaxes(outputs, 0, 1)

    def _next(
        self, hidden: Float[Array, "h n"], read: Float[Array, "g n"], start: Bool[Array, " n"]
    ) -> Float[Array, "h n"]:
        hidden = jnp.where(start, 0.0, hidden)
        reset, update, candidate = jnp.split(read, 3)
        for_reset, for_update, for_candidate = jnp.split(self.for_hidden(hidden), 3)
        reset, update = jax.nn.sigmoid(reset + for_reset), jax.nn.sigmoid(update + for_update)
        candidate = jnp.tanh(candidate + reset * for_candidate)
        return (1.0 - update) * candidate + update * hidden
