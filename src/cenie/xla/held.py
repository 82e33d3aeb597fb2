"""What keeps XLA on CPU from computing the same arrays several times."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool

Tree = Any


def held(tree: Tree, counts: Array) -> Tree:
    """The same arrays, computed here once, whatever is made of them. `counts` are any that are not negative.

    XLA computes on a CPU what several kernels read again in each of them, and a barrier for its optimisations
    does not keep it from doing so. A branch does, if the compiler does not know which way it always goes.
    What decides is computed once more, so that it should be something that is there anyway.
    """
    always = counts.reshape(-1)[0] >= 0
    return jax.lax.cond(always, lambda tree: tree, lambda tree: jax.tree.map(jnp.zeros_like, tree), tree)


def held_in_batches(array: Array, flags: Bool[Array, "..."]) -> Array:
    """The same in a function of single items, where `vmap` would make a choice of the branch."""
    hold = custom_vmap(lambda array, flags: array)

    @hold.def_vmap
    def hold_all(size: int, is_batched: list[bool], array: Array, flags: Array) -> tuple[Array, bool]:
        # One flag, and then a number: all of them as numbers first would cost a step of racing a quarter.
        return held(array, flags.reshape(-1)[0].astype(jnp.int32)), is_batched[0]

    return hold(array, flags)
