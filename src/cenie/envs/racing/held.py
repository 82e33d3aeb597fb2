"""What keeps XLA on CPU from computing the same array several times."""

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool


def held(array: Array, flags: Bool[Array, "..."]) -> Array:
    """The same array, computed once for all that is made of it.

    XLA on CPU would compute for every pixel anew which tiles the car touches, pixels for each of their
    colours, and contacts for each of their consequences. A branch keeps it from that, if the compiler does
    not know which way it always goes. It is decided by any `flags` that are there anyway: what decides is
    computed once more.
    """
    hold = custom_vmap(lambda array, flags: array)

    @hold.def_vmap
    def hold_all(size: int, is_batched: list[bool], array: Array, flags: Array) -> tuple[Array, bool]:
        always = flags.reshape(-1)[0].astype(jnp.int32) >= 0
        return jax.lax.cond(always, lambda array: array, jnp.zeros_like, array), is_batched[0]

    return hold(array, flags)
