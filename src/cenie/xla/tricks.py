"""Roundabout forms that the compiler makes necessary: five tricks, a loop and a record.

XLA keeps the meaning of a program and nothing else. On CPUs it computes what several kernels read once in
each of them, merges the rounding of a product into that of a sum, orders collectives in its own way, and
compiles a kernel for every operation. `lax.optimization_barrier` is dropped before most of this is decided.
So the functions here ask the compiler a question whose answer we know and it does not, or give it the same
work in another form. All of them return the values of the plain formula. They keep XLA from

- `computed_once`: computing arrays again in each kernel that reads them (a physics step of racing with its
  frame took 164 us in the place of 285);
- `looks_costly`: the same, inside of the long chains of small steps of the walker's solver (without it a
  step of 64 walkers takes 1.4 times the CPU time, and is rounded differently);
- `after_this`: running collectives of two loops at a time, where two devices waited for each other for ever;
- `rounded`: rounding a product and a sum as one, because a weight of 0 has to leave every bit as it is;
- `materialised`: moving single numbers in the place of rows, in the backward pass of the LSTM.

`write_rows` is one loop where each scatter would be compiled as one. `Several` keeps scalars together that
would each be a kernel.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, Shaped

Tree = Any


def computed_once(tree: Tree, counts: Array) -> Tree:
    """The same arrays, computed here once, whatever is made of them.

    A branch does it, if the compiler does not know which way it always goes. `counts` are any numbers that
    are not negative. They are evaluated again for the predicate, so pass something already in memory.
    """
    always = counts.reshape(-1)[0] >= 0
    return jax.lax.cond(always, lambda tree: tree, lambda tree: jax.tree.map(jnp.zeros_like, tree), tree)


def computed_once_in_batches(array: Array, flags: Bool[Array, "..."]) -> Array:
    """`computed_once` in a function of single items, where `vmap` would make a choice of the branch."""
    once = custom_vmap(lambda array, flags: array)

    @once.def_vmap
    def all_at_once(size: int, is_batched: list[bool], array: Array, flags: Array) -> tuple[Array, bool]:
        # One flag, and then a number: all of them as numbers first would cost a step of racing a quarter.
        return computed_once(array, flags.reshape(-1)[0].astype(jnp.int32)), is_batched[0]

    return once(array, flags)


def looks_costly(tree: Tree, numbers: Float[Array, "*a"]) -> Tree:
    """The same arrays, divided by ones that the compiler does not know to be ones.

    XLA computes what several kernels read again in each of them, unless it thinks that it is expensive, as
    divisions are. Of a long chain of small steps hundreds of copies would be made. `numbers` are any that are
    finite. They have the shape of the arrays, because XLA multiplies by the inverse of what it has to
    broadcast; pass something that is there long before the arrays, or these wait for it.
    """
    ones = unknown_ones(numbers)
    return jax.tree.map(lambda array: array / ones, tree)


def unknown_ones(numbers: Float[Array, "*a"]) -> Float[Array, "*a"]:
    """Ones of this shape that the compiler does not know to be ones. The numbers must be finite."""
    return jnp.where(jnp.abs(numbers) < jnp.inf, 1.0, 0.5)


def after_this(counts: Array, tree: Tree) -> Tree:
    """Make the arrays depend on `counts`, any numbers that are not negative.

    XLA on CPU does not order the collectives of a loop, such as learning, against other collectives, unless
    one needs the result of the other. Two devices may then wait for each other in different collectives. So
    the arrays are selected by `counts < 0`, which is never true but unknown to XLA before the loop ends. (A
    barrier is dropped before anything is ordered.)
    """
    never = counts.reshape(-1)[0] < 0
    return jax.tree.map(lambda leaf: jnp.where(never, jnp.zeros_like(leaf), leaf), tree)


def rounded(values: Float[Array, " c"]) -> Float[Array, " c"]:
    """The same values (none negative), kept from being merged unrounded into a later addition.

    Compilers turn a product and a sum into one operation with one rounding, and which product they pick
    depends on the rest of the program. The bits of a number that is not negative are a whole number that
    is not negative either, so that the maximum changes nothing, which a compiler cannot know.
    """
    bits = lax.bitcast_convert_type(values, jnp.int32)
    return lax.bitcast_convert_type(jnp.maximum(bits, 0), jnp.float32)


def materialised(tree: Tree) -> Tree:
    """The same arrays, laid out as they are written here: XLA then copies whole rows, not single numbers."""
    return lax.optimization_barrier(tree)


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


class Several(eqx.Module):
    """Scalars that stay together in one array until they are on the host.

    In a compiled program each number that is taken out of an array is one more kernel to compile. Among
    metrics the name of the whole is what the names of its numbers begin with.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Shaped[Array | np.ndarray, "... k"]
