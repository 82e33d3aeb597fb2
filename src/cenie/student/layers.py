"""Linear layers. Features lead and the batch trails, here and in all that is built of them: the LSTM is
fastest that way, and nothing has to be transposed on the way to it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Linear(eqx.Module):
    """A matrix and a bias."""

    weight: Float[Array, "o i"]
    bias: Float[Array, " o"]

    def __call__(self, x: Float[Array, "i ..."]) -> Float[Array, "o ..."]:
        product = jnp.tensordot(self.weight, x, axes=1)
        return product + self.bias.reshape(-1, *(1,) * (x.ndim - 1))


def orthogonal(key: PRNGKeyArray, inputs: int, outputs: int, gain: float) -> Linear:
    """An orthogonal matrix times the gain, with bias 0. Consumes the key."""
    weight = jax.nn.initializers.orthogonal(gain)(key, (outputs, inputs))
    return Linear(weight, jnp.zeros(outputs))


def uniform(key: PRNGKeyArray, inputs: int, outputs: int) -> Linear:
    """Weights and biases uniform in +-1/sqrt(inputs). Consumes the key."""
    bound = 1.0 / math.sqrt(inputs)
    weight = jax.random.uniform(key, (outputs, inputs + 1), minval=-bound, maxval=bound)
    return Linear(weight[:, :-1], weight[:, -1])


def features_first(values: Array, axes: int) -> Array:
    """The last `axes` axes flattened into one and moved to the front."""
    flat = values.reshape(*values.shape[: values.ndim - axes], -1)
    return jnp.moveaxis(flat, -1, 0)


def features_last(values: Float[Array, "o ..."]) -> Float[Array, "... o"]:
    return jnp.moveaxis(values, 0, -1)
