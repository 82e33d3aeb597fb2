import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from cenie.student.lstm import LSTM, State

INPUTS, SIZE, COUNT = 3, 4, 5


def textbook(weight: Array, state: State, inputs: Array, start: Array) -> Array:
    """The defining equations, one step after the other, differentiated by JAX."""
    for_input, bias, for_hidden = jnp.split(weight, [len(inputs), len(inputs) + 1], axis=1)

    def step(state: State, at: tuple[Array, Array]) -> tuple[State, Array]:
        x, first = at
        hidden, cell = (jnp.where(first, 0.0, part) for part in state)
        i, f, g, o = jnp.split(for_input @ x + bias + for_hidden @ hidden, 4)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    return jnp.swapaxes(jax.lax.scan(step, state, (jnp.swapaxes(inputs, 0, 1), start))[1], 0, 1)


def case(time: int) -> tuple[LSTM, State, Array, Array]:
    keys = jax.random.split(jax.random.key(time), 6)
    lstm = LSTM(INPUTS, SIZE, 1.0, keys[0])
    state = (jax.random.normal(keys[1], (SIZE, COUNT)), jax.random.normal(keys[2], (SIZE, COUNT)))
    inputs = jax.random.normal(keys[3], (INPUTS, time, COUNT))
    start = jax.random.bernoulli(keys[4], 0.2, (time, COUNT)).at[0, 0].set(True)
    return lstm, state, inputs, start


# 64 steps are two chunks, 7 and 1 are less than one, 37 is prime.
@pytest.mark.parametrize("time", [1, 7, 37, 64])
def test_values_and_gradients_equal_the_textbook(time: int) -> None:
    lstm, state, inputs, start = case(time)
    pull = jax.random.normal(jax.random.key(9), (SIZE, time, COUNT))

    def fast(weight: Array, state: State, inputs: Array) -> Array:
        return jnp.sum(pull * LSTM.sequence(jax.tree.unflatten(shape, [weight]), state, inputs, start))

    def slow(weight: Array, state: State, inputs: Array) -> Array:
        return jnp.sum(pull * textbook(weight, state, inputs, start))

    shape = jax.tree.structure(lstm)
    np.testing.assert_allclose(
        lstm.sequence(state, inputs, start), textbook(lstm.weight, state, inputs, start), atol=1e-5
    )
    arguments = (lstm.weight, state, inputs)
    gradients = [jax.jit(jax.grad(f, argnums=(0, 1, 2)))(*arguments) for f in (fast, slow)]
    for mine, theirs in zip(*map(jax.tree.leaves, gradients)):
        scale = float(jnp.abs(theirs).max())
        np.testing.assert_allclose(mine / scale, theirs / scale, atol=1e-5)


def test_steps_equal_a_sequence() -> None:
    lstm, state, inputs, start = case(7)
    outputs = lstm.sequence(state, inputs, start)
    for now in range(7):
        state = lstm.step(state, inputs[:, now], start[now])
        np.testing.assert_allclose(state[0], outputs[:, now], atol=1e-6)


def test_a_new_episode_knows_nothing_of_the_old_one() -> None:
    lstm, state, inputs, start = case(7)
    start = start.at[3].set(True)
    other = inputs.at[:, :3].add(5.0)
    before, after = (lstm.sequence(state, x, start) for x in (inputs, other))
    assert not np.allclose(before[:, 2], after[:, 2])
    np.testing.assert_array_equal(before[:, 3:], after[:, 3:])


def test_initial_weights_are_orthogonal_and_biases_zero_but_the_forget_gates() -> None:
    weight = np.asarray(LSTM(6, 8, 0.5, jax.random.key(0)).weight)
    for part in (weight[:, :6], weight[:, 7:]):
        np.testing.assert_allclose(part.T @ part, np.eye(part.shape[1]), atol=1e-5)
    np.testing.assert_array_equal(weight[:, 6], np.repeat([0.0, 0.5, 0.0, 0.0], 8))
