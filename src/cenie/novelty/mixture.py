"""A Gaussian mixture as arrays: the parameters lambda = {(alpha_k, mu_k, Sigma_k)} of the paper."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cenie.novelty.config import CovarianceName
from cenie.novelty.covariance import SHAPES


class Mixture(NamedTuple):
    """A mixture of up to `k` Gaussians in `d` dimensions.

    Squares can be expanded without losing many digits, because means are relative to a point in the middle
    of the data.

    Attributes:
        origin: A point in the middle of the data [d].
        log_weights: log alpha_k [k]; -inf for components that do not exist.
        offsets: The means relative to the origin [k, d].
        whitening: Sigma_k as its whitening (see `covariance`): [k, d] (diag: 1 / standard deviation) or
            [k, d, d] (full: upper triangular).
    """

    origin: jax.Array
    log_weights: jax.Array
    offsets: jax.Array
    whitening: jax.Array

    @property
    def means(self) -> jax.Array:
        """mu_k [k, d]."""
        return self.origin + self.offsets


def empty(components: int, dimensions: int, covariance: CovarianceName) -> Mixture:
    """One standard Gaussian, in arrays with room for `components`.

    Args:
        components: The room for components k.
        dimensions: The number of columns d of a point.
        covariance: The shape of covariance.

    Returns:
        A mixture whose first component has all the weight.
    """
    return Mixture(
        origin=jnp.zeros(dimensions),
        log_weights=jnp.full(components, -jnp.inf, jnp.float32).at[0].set(0.0),
        offsets=jnp.zeros((components, dimensions)),
        whitening=SHAPES[covariance].unit(components, dimensions),
    )


def count_parameters(components: int, dimensions: int, covariance: CovarianceName) -> int:
    """The number of free parameters of a mixture: weights, means and covariances."""
    means, weights = components * dimensions, components - 1
    return means + weights + SHAPES[covariance].parameters(components, dimensions)
