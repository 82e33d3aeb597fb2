"""What is written in a roundabout way because of the compiler, under honest names.

XLA keeps the meaning of a program and nothing else: it computes what several kernels read again in each of
them, merges roundings, reorders what does not depend on each other, and compiles a kernel for every
operation. Where that costs much, or costs bits, the functions of this module tell it less than we know, or
the same in another way. The values are those of the plain formula.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Tree = Any


class Several(eqx.Module):
    """Scalars that stay together in one array until they are on the host.

    In a compiled program each number that is taken out of an array is one more kernel to compile. Among
    metrics the name of the whole is what the names of its numbers begin with.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[Array, "... k"]


def after_this(counts: Array, tree: Tree) -> Tree:
    """The same arrays, which are not there before `counts` is: any numbers that are not negative.

    Work that exchanges data in a loop, such as learning, is not ordered by XLA on CPU against other
    exchanges, unless one needs the result of the other: two devices may then wait for each other in different
    exchanges. So the arrays get a question that only the end of the loop can answer, and whose answer is
    always no. (A barrier is dropped before anything is ordered.)
    """
    never = counts.reshape(-1)[0] < 0
    return jax.tree.map(lambda leaf: jnp.where(never, jnp.zeros_like(leaf), leaf), tree)


def write_rows(tree: Tree, slots: Int[Array, " n"], rows: Tree) -> Tree:
    """Write rows into the slots of arrays, one after another.

    One loop for all arrays: XLA on CPU compiles a loop for every scatter.

    Args:
        tree: Arrays [c, ...].
        slots: Where each row goes; -1 is nowhere.
        rows: A tree like the first one, of arrays [n, ...].

    Returns:
        The tree with the rows in their slots, the last one where several have the same slot.
    """

    def visit(stored: Tree, row: tuple[Array, Tree]) -> tuple[Tree, None]:
        slot, new = row
        place = jnp.maximum(slot, 0)

        def write(leaf: Array, value: Array) -> Array:
            old = lax.dynamic_index_in_dim(leaf, place, keepdims=False)
            value = jnp.where(slot >= 0, value.astype(leaf.dtype), old)
            return lax.dynamic_update_index_in_dim(leaf, value, place, 0)

        return jax.tree.map(write, stored, new), None

    return lax.scan(visit, tree, (slots, rows))[0]
