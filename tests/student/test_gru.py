import jax
import jax.numpy as jnp
import numpy as np

from cenie.student.gru import GRU

INPUTS, SIZE, COUNT, TIME = 3, 4, 5, 7


def case() -> tuple[GRU, jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 5)
    gru = GRU(INPUTS, SIZE, keys[0])
    # The biases begin at 0; here they must count.
    leaves, shape = jax.tree.flatten(gru)
    noise = jax.random.split(keys[1], len(leaves))
    gru = jax.tree.unflatten(
        shape, [leaf + 0.3 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, noise)]
    )
    hidden = jax.random.normal(keys[2], (SIZE, COUNT))
    inputs = jax.random.normal(keys[3], (INPUTS, TIME, COUNT))
    start = jax.random.bernoulli(keys[4], 0.2, (TIME, COUNT)).at[3, 0].set(True)
    return gru, hidden, inputs, start


def test_a_sequence_equals_the_defining_equations() -> None:
    gru, hidden, inputs, start = case()
    outputs = gru.sequence((hidden,), inputs, start)

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-x))

    parts = (gru.for_input.weight, gru.for_input.bias, gru.for_hidden.weight, gru.for_hidden.bias)
    w, b, u, c = (np.asarray(part, np.float64).reshape(3, SIZE, -1) for part in parts)
    h = np.asarray(hidden, np.float64)
    for now in range(TIME):
        x = np.asarray(inputs[:, now], np.float64)
        h = np.where(np.asarray(start[now]), 0.0, h)
        reset, update = (sigmoid(w[k] @ x + b[k] + u[k] @ h + c[k]) for k in (0, 1))
        candidate = np.tanh(w[2] @ x + b[2] + reset * (u[2] @ h + c[2]))
        h = (1.0 - update) * candidate + update * h
        np.testing.assert_allclose(outputs[:, now], h, atol=1e-5)


def test_steps_equal_a_sequence() -> None:
    gru, hidden, inputs, start = case()
    outputs = gru.sequence((hidden,), inputs, start)
    state = (hidden,)
    for now in range(TIME):
        state = gru.step(state, inputs[:, now], start[now])
        np.testing.assert_allclose(state[0], outputs[:, now], atol=1e-6)


def test_a_new_episode_knows_nothing_of_the_old_one() -> None:
    gru, hidden, inputs, start = case()
    start = start.at[3].set(True)
    other = inputs.at[:, :3].add(5.0)
    before, after = (gru.sequence((hidden,), x, start) for x in (inputs, other))
    assert not np.allclose(before[:, 2], after[:, 2])
    np.testing.assert_array_equal(before[:, 3:], after[:, 3:])


def test_initial_weights_are_orthogonal_and_biases_zero() -> None:
    gru = GRU(6, 8, jax.random.key(0))
    for layer in (gru.for_input, gru.for_hidden):
        weight = np.asarray(layer.weight)
        np.testing.assert_allclose(weight.T @ weight, np.eye(weight.shape[1]), atol=1e-5)
        np.testing.assert_array_equal(layer.bias, jnp.zeros(24))
