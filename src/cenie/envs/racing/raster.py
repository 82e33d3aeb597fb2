"""Quadrilaterals on a grid of pixels: one after the other, each over those before it, as a painter does.

A pixel belongs to a quadrilateral if its centre lies in one of the triangles of corners 0, 1, 3 and 1, 2, 3,
which is how OpenGL cuts it, crossed ones included. There is no smoothing.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, UInt16

_TRIANGLES = ((0, 1, 3), (1, 2, 3))

Quads = Float[Array, "2 4 m"]
"""x and y of the corners in pixels, right and down from a corner of the grid; its first pixel ends at 1."""


def rasterise(quads: Quads, shape: tuple[int, int], block: int) -> UInt16[Array, "height width"]:
    """The number of the last quadrilateral over each pixel, from 1 on; 0 where there is none.

    On a CPU each one is painted in as many square blocks as it needs, `block` pixels wide, for one grid of a
    batch after the other. Elsewhere every pixel looks at all quadrilaterals.
    """
    if jax.default_backend() != "cpu":
        return on_all_pixels(quads, shape)
    return _one_by_one(shape, min(block, *shape))(quads)


def on_all_pixels(quads: Quads, shape: tuple[int, int]) -> UInt16[Array, "height width"]:
    """Return the result of `rasterise`, without loops whose length depends on the drawing."""
    y, x = (jnp.arange(length) + 0.5 for length in shape)

    def paint(number: Int[Array, ""], grid: UInt16[Array, "h w"]) -> UInt16[Array, "h w"]:
        inside = _inside(quads[:, :, number], x, y[:, None])
        return jnp.where(inside, (number + 1).astype(jnp.uint16), grid)

    return jax.lax.fori_loop(0, quads.shape[-1], paint, jnp.zeros(shape, jnp.uint16))


def _one_by_one(shape: tuple[int, int], block: int):
    """`rasterise` for one grid, which `vmap` turns into a loop over grids."""
    paint_grid = custom_vmap(partial(_in_blocks, shape, block))

    @paint_grid.def_vmap
    def paint_grids(size: int, is_batched: list[bool], quads: Array) -> tuple[Array, bool]:
        return jax.lax.map(paint_grid, quads), True

    return paint_grid


def _in_blocks(shape: tuple[int, int], block: int, quads: Quads) -> UInt16[Array, "height width"]:
    height, width = shape
    # The first and the last row and column with a centre inside of the box around each.
    low = jnp.ceil(jnp.min(quads, axis=1) - 0.5).astype(jnp.int32)
    high = jnp.floor(jnp.max(quads, axis=1) - 0.5).astype(jnp.int32)
    limits = jnp.array([[width], [height]])
    seen = jnp.all((high >= 0) & (low < limits) & (high >= low), axis=0)
    low, high = jnp.maximum(low, 0), jnp.minimum(high, limits - 1)
    blocks = (high - low) // block + 1
    (order,) = jnp.nonzero(seen, size=quads.shape[-1], fill_value=0)

    def paint(step: Int[Array, ""], grid: UInt16[Array, "h w"]) -> UInt16[Array, "h w"]:
        number = order[step]
        corners, first, across = quads[:, :, number], low[:, number], blocks[0, number]

        def paint_block(which: Int[Array, ""], grid: UInt16[Array, "h w"]) -> UInt16[Array, "h w"]:
            left = jnp.minimum(first[0] + which % across * block, width - block)
            top = jnp.minimum(first[1] + which // across * block, height - block)
            old = jax.lax.dynamic_slice(grid, (top, left), (block, block))
            steps = jnp.arange(block) + 0.5
            inside = _inside(corners, left + steps, (top + steps)[:, None])
            new = jnp.where(inside, (number + 1).astype(jnp.uint16), old)
            return jax.lax.dynamic_update_slice(grid, new, (top, left))

        return jax.lax.fori_loop(0, across * blocks[1, number], paint_block, grid)

    return jax.lax.fori_loop(0, jnp.sum(seen), paint, jnp.zeros(shape, jnp.uint16))


def _inside(corners: Float[Array, "2 4"], x: Array, y: Array) -> Bool[Array, "..."]:
    """Whether points lie in either triangle."""
    hit = jnp.zeros((), bool)
    for triangle in _TRIANGLES:
        points = [corners[:, corner] for corner in triangle]
        sides = list(zip(points, points[1:] + points[:1]))
        (ax, ay), (bx, by), (cx, cy) = points
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        within = area != 0.0
        for (fx, fy), (tx, ty) in sides:
            within &= ((tx - fx) * (y - fy) - (ty - fy) * (x - fx)) * jnp.sign(area) >= 0.0
        hit |= within
    return hit
