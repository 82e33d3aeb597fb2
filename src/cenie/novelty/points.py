"""Sets of points with a mask of missing ones: fixed shapes, as compiled programs need them."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def cleaned(points: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Clean points: zero where they are missing or not finite.

    Args:
        points: Points [..., d].
        valid: Which of them are there [...].

    Returns:
        The points [..., d], and the mask of those that are there and finite [...].
    """
    valid = valid & jnp.isfinite(points).all(axis=-1)
    return jnp.where(valid[..., None], points, 0.0), valid


def centre(points: jax.Array, valid: jax.Array) -> jax.Array:
    """The mean of points without outliers.

    It is the origin of coordinates in which squares are expanded, which loses digits in proportion to the
    distance from the origin. One far point must not move it away from all others, so a second mean is
    taken over the points within 3 root mean squares of the first, which are at least 8 of 9.

    Args:
        points: Clean points [n, d].
        valid: Which of them are there [n].

    Returns:
        The mean [d].
    """
    mean = _mean(points, valid)
    distance = jnp.sum(jnp.square(points - mean), axis=-1)
    near = valid & (distance <= 9.0 * _mean(distance, valid))
    return _mean(points, near)


def drawn(key: jax.Array, valid: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Draw points uniformly without replacement.

    Args:
        key: Consumed.
        valid: Which points may be drawn [n].
        count: How many to draw, at most n.

    Returns:
        Indices [count], and a mask [count] that is false where there were no more valid points.
    """
    priority, indices = lax.top_k(jnp.where(valid, jax.random.uniform(key, valid.shape), -1.0), count)
    return indices, priority >= 0.0


def rows_where(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Rows of the new array [m, ...] where the mask [m] is true, and of the old array elsewhere."""
    return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def chosen(condition: jax.Array, new: Any, old: Any) -> Any:
    """The new tree if the condition [] holds, else the old one: like `where` on every array of a tree,
    without a kernel to compile for each."""
    return lax.cond(condition, lambda: new, lambda: old)


def _mean(values: jax.Array, valid: jax.Array) -> jax.Array:
    weight = valid / jnp.maximum(jnp.sum(valid), 1)
    return jnp.tensordot(weight, jnp.where(valid.reshape(-1, *[1] * (values.ndim - 1)), values, 0.0), axes=1)
