"""Double precision for the few sums in which single precision cancels."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp


def in_double_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of trees of arrays compute in double precision.

    It works inside of compiled programs, and whatever else JAX has been told about precision.

    Args:
        function: Any function of trees of arrays.

    Returns:
        The same function. Its results are rounded to the precision of its first array of floats.
    """

    # Batching rules run later, when the rest of the program has its own precision again.
    @jax.custom_batching.sequential_vmap
    @wraps(function)
    def call(*arguments: Any) -> Any:
        outside = next(jnp.result_type(leaf) for leaf in jax.tree.leaves(arguments) if _is_float(leaf))
        with jax.enable_x64(True):
            result = function(*_cast(arguments, jnp.float64))
            return _cast(result, outside)

    return call


@in_double_precision
def mean_where(mask: jax.Array, values: jax.Array) -> jax.Array:
    """The mean of values [..., n] where the mask [n] is true; 0 if it is nowhere.

    In single precision, thousands of values of some hundreds would keep three digits behind the point.
    """
    return jnp.sum(jnp.where(mask, values, 0.0), axis=-1) / jnp.maximum(jnp.sum(mask), 1)


@in_double_precision
def row_sums(array: jax.Array) -> jax.Array:
    """The sums [c] of an array [c, n]. Thousands of numbers just below 1 would be rounded alike."""
    return jnp.sum(array, axis=1)


def _cast(tree: Any, kind: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, kind) if _is_float(leaf) else leaf, tree)


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
