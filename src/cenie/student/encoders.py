"""From an observation to the numbers that a network works on. What they mean is said by the spaces."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cenie.records import Observation
from cenie.spaces import Box, Discrete, Space, is_image, numbers_in
from cenie.student import config
from cenie.student.config import KERNEL, image_and_rest
from cenie.student.layers import Linear, features_first, orthogonal, uniform

Spaces = tuple[Space, ...]
"""The leaves of the tree of an observation's spaces."""


_DENSE_VIEWS = 8
"""Views of at most this many times the size of a kernel are multiplied with a dense matrix."""


class ConvEncoder(eqx.Module):
    """A 3x3 convolution with ReLU over the scaled image, beside a linear map of the rest.

    On a small view the convolution is one product with the equivalent dense matrix, which is as fast as any
    other way forwards, and far faster backwards than the gradient of a convolution on a CPU. On a larger one,
    where most of that matrix is 0, it is a product of the kernel with all patches of the image.
    """

    kernel: Float[Array, "c k"]
    bias: Float[Array, " c"]
    rest: Linear | None
    spaces: Spaces = eqx.field(static=True)
    settings: config.Conv = eqx.field(static=True)

    def __init__(self, settings: config.Conv, spaces: Spaces, key: PRNGKeyArray):
        """Xavier-uniform kernel with bias 0. Consumes the key."""
        kernel_key, rest_key = jax.random.split(key)
        image, rest = image_and_rest(spaces)
        taps, depth, channels = KERNEL * KERNEL, image.shape[2], settings.channels
        bound = math.sqrt(6.0 / (taps * (depth + channels)))
        self.kernel = jax.random.uniform(kernel_key, (channels, taps * depth), minval=-bound, maxval=bound)
        self.bias = jnp.zeros(channels)
        mapped, _ = settings.mapped_and_not(rest)
        self.rest = uniform(rest_key, sum(map(numbers_in, mapped)), settings.rest_size) if mapped else None
        self.spaces = spaces
        self.settings = settings

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        image, rest = _image_and_rest(self.spaces, observation)
        space, rest_spaces = image_and_rest(self.spaces)
        pixels = features_first(image, 3).astype(jnp.float32) / _largest(space)
        read = [jax.nn.relu(self._convolved(pixels, space.shape))]
        mapped = [values for part, values in zip(rest_spaces, rest) if self.settings.maps(part)]
        if self.rest is not None:
            read.append(self.rest(_side_by_side(mapped)))
        read += [values for part, values in zip(rest_spaces, rest) if not self.settings.maps(part)]
        return _side_by_side(read)

    def _convolved(self, pixels: Float[Array, "x ..."], view: tuple[int, ...]) -> Float[Array, "cp ..."]:
        if math.prod(view) > _DENSE_VIEWS * self.kernel.shape[1]:
            seen = Linear(self.kernel, self.bias)(_patches(pixels, view))
            return seen.reshape(-1, *pixels.shape[1:])
        dense = jnp.einsum("ck,xpk->cpx", self.kernel, _placement(view))
        layer = Linear(dense.reshape(-1, pixels.shape[0]), jnp.repeat(self.bias, dense.shape[1]))
        return layer(pixels)


class BitsEncoder(eqx.Module):
    """A linear layer with ReLU on the bits of an image's codes and on the rest."""

    layer: Linear
    codes: tuple[int, ...] = eqx.field(static=True)
    spaces: Spaces = eqx.field(static=True)

    def __init__(self, settings: config.Bits, spaces: Spaces, key: PRNGKeyArray):
        """Orthogonal with gain sqrt(2). Consumes the key."""
        self.layer = orthogonal(key, settings.inputs(spaces), settings.size, math.sqrt(2.0))
        self.codes = settings.codes_of(image_and_rest(spaces)[0])
        self.spaces = spaces

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        image, rest = _image_and_rest(self.spaces, observation)
        bits = _bits(features_first(image[..., 0], 2), self.codes)
        bits = bits.reshape(-1, *bits.shape[2:])
        # Two products: on a CPU, setting bits of different kinds side by side costs more than the layer.
        for_bits, for_rest = jnp.split(self.layer.weight, [len(bits)], axis=1)
        seen = Linear(for_bits, self.layer.bias)(bits)
        return jax.nn.relu(seen + jnp.tensordot(for_rest, _side_by_side(rest), axes=1) if rest else seen)


class FlatEncoder(eqx.Module):
    """A linear layer with ReLU on all numbers of an observation."""

    layer: Linear
    spaces: Spaces = eqx.field(static=True)

    def __init__(self, settings: config.Flat, spaces: Spaces, key: PRNGKeyArray):
        """Orthogonal with gain sqrt(2). Consumes the key."""
        self.layer = orthogonal(key, sum(map(numbers_in, spaces)), settings.size, math.sqrt(2.0))
        self.spaces = spaces

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        return jax.nn.relu(self.layer(flatten(self.spaces, observation)))


Encoder = ConvEncoder | BitsEncoder | FlatEncoder


def make_encoder(settings: config.Encoder, spaces: Spaces, key: PRNGKeyArray) -> Encoder:
    """The encoder that the settings name. Consumes the key."""
    if isinstance(settings, config.Conv):
        return ConvEncoder(settings, spaces, key)
    if isinstance(settings, config.Bits):
        return BitsEncoder(settings, spaces, key)
    return FlatEncoder(settings, spaces, key)


def parts_of(observation_space: PyTree[Space]) -> Spaces:
    """The spaces of the parts of an observation, in the order in which the parts are read."""
    return tuple(jax.tree.leaves(observation_space))


def flatten(spaces: Spaces, observation: Observation) -> Float[Array, "d ..."]:
    """All numbers of an observation: a bit for each value of a discrete part, the others as they are.

    Whole numbers that are not discrete (codes, pixels) are divided by the largest of their space.
    """
    return _side_by_side([_numbers(*part) for part in zip(spaces, jax.tree.leaves(observation), strict=True)])


def board_and_discrete(
    spaces: Spaces, observation: Observation, codes: tuple[int, ...], border: int
) -> tuple[Float[Array, "c p ..."], list[Array]]:
    """Where inside the border of the image each code stands, numbered along its first axis first, and the
    bits of the discrete parts."""
    image, rest = _image_and_rest(spaces, observation)
    _, rest_spaces = image_and_rest(spaces)
    discrete = [values for part, values in zip(rest_spaces, rest) if isinstance(part, Discrete)]
    inside = slice(border, -border or None)
    return _bits(features_first(image[..., inside, inside, 0].swapaxes(-1, -2), 2), codes), discrete


def _bits(objects: Array, codes: tuple[int, ...]) -> Float[Array, "c p ..."]:
    """1 where each of the codes stands."""
    kinds = jnp.array(codes, objects.dtype).reshape(-1, *(1,) * objects.ndim)
    return (objects == kinds).astype(jnp.float32)


def _image_and_rest(spaces: Spaces, observation: Observation) -> tuple[Array, list[Array]]:
    """The image as it is, and the numbers of the other parts."""
    parts = list(zip(spaces, jax.tree.leaves(observation), strict=True))
    (image,) = (values for space, values in parts if is_image(space))
    return image, [_numbers(space, values) for space, values in parts if not is_image(space)]


def _side_by_side(parts: Sequence[Array]) -> Float[Array, "d ..."]:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _numbers(space: Space, values: Array) -> Float[Array, "d ..."]:
    flat = features_first(values, len(space.shape))
    if isinstance(space, Discrete):
        bits = jax.nn.one_hot(flat, space.n, axis=1)
        return bits.reshape(-1, *flat.shape[1:])
    scaled = "int" in space.dtype
    return flat.astype(jnp.float32) / (_largest(space) if scaled else 1.0)


def _largest(space: Box) -> float:
    """The largest magnitude in a space, to divide by; 1 if there is none."""
    largest = float(max(abs(space.low), abs(space.high)))
    return largest if 0.0 < largest < math.inf else 1.0


def _placement(view: tuple[int, ...]) -> np.ndarray:
    """[pixels, positions, taps]: 1 where a kernel entry meets an input entry at an output position."""
    pixels = np.arange(math.prod(view)).reshape(view)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (KERNEL, KERNEL, view[2]))
    covered = windows.reshape(-1, KERNEL * KERNEL * view[2])
    return (np.arange(pixels.size)[:, None, None] == covered).astype(np.float32)


def _patches(pixels: Float[Array, "x ..."], view: tuple[int, ...]) -> Float[Array, "k p ..."]:
    """The inputs of each kernel entry at each output position."""
    rows, columns = (length - KERNEL + 1 for length in view[:2])
    grid = pixels.reshape(*view, *pixels.shape[1:])
    shifted = [
        jnp.moveaxis(grid[row : row + rows, column : column + columns], 2, 0)
        for row in range(KERNEL)
        for column in range(KERNEL)
    ]
    return jnp.concatenate(shifted).reshape(len(shifted) * view[2], rows * columns, *pixels.shape[1:])
