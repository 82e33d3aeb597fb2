"""Convolutions over batches of images, in the form that is fast on the backend at hand.

On a CPU, XLA has two traps: the gradient of a convolution with respect to its kernel becomes a convolution
with a window as large as the image, and inside of a loop, where PPO has its gradient steps, a gradient takes
15 to 40 times as long as outside. So it is written as matrix products and convolutions of stride 1 there,
which loops do not slow down. Accelerators get plain convolutions.
"""

import math
from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

NUMBERS_AT_ONCE = 10 * 96 * 96 * 12
"""Numbers of images for which a gradient is computed at a time on a CPU, so that its arrays stay in the
cache: ten steps at the size of the original code."""

_FEW_PLACES = 32
"""Where the kernel goes to so few places of an image, all patches in one matrix are fastest."""

Images = Float[Array, "b _ _ _"]
Kernel = Float[Array, "k k _ _"]
Patches = Float[Array, "b y x p"]


class Convolution(eqx.Module):
    """A convolution without padding, a bias, and ReLU."""

    kernel: Kernel
    bias: Float[Array, " o"]
    stride: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, *, inputs: int, outputs: int, size: int, stride: int):
        """Xavier-uniform with gain sqrt(2), and bias 0.1. Consumes the key."""
        bound = math.sqrt(2.0) * math.sqrt(6.0 / (size * size * (inputs + outputs)))
        self.kernel = jax.random.uniform(key, (size, size, inputs, outputs), minval=-bound, maxval=bound)
        self.bias = jnp.full(outputs, 0.1)
        self.stride = stride

    def __call__(self, images: Images) -> Images:
        convolve = _loop_safe if on_cpu() else plain
        return jax.nn.relu(convolve(images, self.kernel, self.stride) + self.bias)

    @property
    def likes_blocks(self) -> bool:
        """Whether `of_blocks` is faster: if the kernel moves on by its own size, and meets nothing twice."""
        return on_cpu() and self.stride == self.kernel.shape[0]

    def of_blocks(self, parts: Sequence[Patches]) -> Images:
        """The same, of images that lie side by side in their depth, each in the form of `in_blocks`."""
        kernels = jnp.split(self.kernel, len(parts), axis=2)
        return jax.nn.relu(sum(map(_product, parts, kernels), start=self.bias))


def in_blocks(images: Shaped[Array, "b _ _ _"], size: int) -> Shaped[Array, "b y x p"]:
    """The inputs of a kernel that moves on by its own size, in the order of its entries."""
    batch, depth = images.shape[0], images.shape[3]
    rows, columns = (length // size for length in images.shape[1:3])
    whole = images[:, : rows * size, : columns * size]
    blocks = whole.reshape(batch, rows, size, columns, size * depth)
    return jnp.swapaxes(blocks, 2, 3).reshape(batch, rows, columns, size * size * depth)


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def plain(images: Images, kernel: Kernel, stride: int) -> Images:
    """As XLA does it."""
    return _convolved(images, kernel, stride, ((0, 0), (0, 0)))


def _loop_safe(images: Images, kernel: Kernel, stride: int) -> Images:
    """As fast in a loop as outside."""
    rows, columns = (_places(length, kernel, stride) for length in images.shape[1:3])
    if rows * columns > _FEW_PLACES:
        return _with_own_gradient(stride, images, kernel)
    return jnp.tensordot(_patches(images, kernel, stride), kernel.reshape(-1, kernel.shape[-1]), axes=1)


@jax.custom_vjp
def _product(patches: Patches, kernel: Kernel) -> Images:
    return jnp.tensordot(patches, kernel.reshape(-1, kernel.shape[-1]), axes=1)


def _product_forwards(patches: Patches, kernel: Kernel) -> tuple[Images, tuple[Patches, Kernel]]:
    return _product(patches, kernel), (patches, kernel)


def _product_backwards(kept: tuple[Patches, Kernel], gradient: Images) -> tuple[Patches, Kernel]:
    patches, kernel = kept
    by_patches = jnp.tensordot(gradient, kernel.reshape(-1, kernel.shape[-1]), axes=([3], [1]))
    # A product for each image, and their sum: all in one takes XLA on CPU four times as long.
    by_kernel = jnp.einsum("byxo,byxp->bop", gradient, patches).sum(0).T
    return by_patches, by_kernel.reshape(kernel.shape)


_product.defvjp(_product_forwards, _product_backwards)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _with_own_gradient(stride: int, images: Images, kernel: Kernel) -> Images:
    return plain(images, kernel, stride)


def _forwards(stride: int, images: Images, kernel: Kernel) -> tuple[Images, tuple[Images, Kernel]]:
    return plain(images, kernel, stride), (images, kernel)


def _backwards(stride: int, kept: tuple[Images, Kernel], gradient: Images) -> tuple[Images, Kernel]:
    images, kernel = kept
    by_images = _gradient_by_images(images, kernel, stride, gradient)
    # If strides cut the image and the kernel into whole blocks, far fewer numbers have to be copied.
    in_blocks = all(length % stride == 0 for length in (*images.shape[1:3], kernel.shape[0]))
    by_kernel = _gradient_by_blocks if in_blocks and stride > 1 else _gradient_by_patches
    return by_images, by_kernel(images, kernel, stride, gradient)


_with_own_gradient.defvjp(_forwards, _backwards)


def _gradient_by_images(images: Images, kernel: Kernel, stride: int, gradient: Images) -> Images:
    """A convolution of stride 1 for every phase: for pixels at equal distances from a block's corner."""
    batch, rows, columns, depth = images.shape
    blocks = [-(-length // stride) for length in (rows, columns)]
    phases = []
    for row in range(stride):
        for column in range(stride):
            part = kernel[row::stride, column::stride]
            if part.size == 0:
                phases.append(jnp.zeros((batch, *blocks, depth)))
                continue
            flipped = jnp.swapaxes(part[::-1, ::-1], 2, 3)
            padding = [
                (size - 1, number - length)
                for size, number, length in zip(part.shape, blocks, gradient.shape[1:3])
            ]
            phases.append(_convolved(gradient, flipped, 1, padding))
    if stride == 1:
        return phases[0]
    grid = jnp.stack(phases).reshape(stride, stride, batch, *blocks, depth)
    whole = jnp.einsum("rcbyxd->byrxcd", grid).reshape(batch, stride * blocks[0], stride * blocks[1], depth)
    return whole[:, :rows, :columns]


def _gradient_by_patches(images: Images, kernel: Kernel, stride: int, gradient: Images) -> Kernel:
    patches = _patches(images, kernel, stride)
    return jnp.tensordot(patches, gradient, axes=([0, 1, 2], [0, 1, 2])).reshape(kernel.shape)


def _gradient_by_blocks(images: Images, kernel: Kernel, stride: int, gradient: Images) -> Kernel:
    """Blocks of pixels stay where they are, and copies of the gradient are shifted in their place."""
    batch, rows, columns, depth = images.shape
    blocks, taps = (rows // stride, columns // stride), kernel.shape[0] // stride
    pixels = images.reshape(batch, blocks[0], stride, blocks[1], stride * depth)
    shifted = [
        jnp.pad(
            gradient,
            (
                (0, 0),
                (down, blocks[0] - gradient.shape[1] - down),
                (right, blocks[1] - gradient.shape[2] - right),
                (0, 0),
            ),
        )
        for down in range(taps)
        for right in range(taps)
    ]
    pulls = jnp.concatenate(shifted, axis=-1)
    lines = [
        jnp.tensordot(pixels[:, :, row], pulls, axes=([0, 1, 2], [0, 1, 2])).reshape(
            stride, depth, taps, taps, -1
        )
        for row in range(stride)
    ]
    return jnp.einsum("rcdijo->irjcdo", jnp.stack(lines)).reshape(kernel.shape)


def _patches(images: Images, kernel: Kernel, stride: int) -> Patches:
    """The inputs of the kernel at every place, in the order of its entries."""
    rows, columns = (_places(length, kernel, stride) for length in images.shape[1:3])
    met = [
        images[
            :,
            row : row + stride * (rows - 1) + 1 : stride,
            column : column + stride * (columns - 1) + 1 : stride,
        ]
        for row in range(kernel.shape[0])
        for column in range(kernel.shape[1])
    ]
    return jnp.concatenate(met, axis=-1)


def _places(length: int, kernel: Kernel, stride: int) -> int:
    return (length - kernel.shape[0]) // stride + 1


def _convolved(
    images: Images, kernel: Float[Array, "_ _ _ _"], stride: int, padding: list[tuple[int, int]] | tuple
) -> Images:
    return lax.conv_general_dilated(
        images, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
