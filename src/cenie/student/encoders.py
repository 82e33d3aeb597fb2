"""From an observation to the numbers that a network works on. What they mean is said by the spaces.

An encoder stands here with its settings. It is the first layer of most networks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cenie.records import Observation
from cenie.settings import Problem, setting
from cenie.spaces import Box, Discrete, Space, is_image, numbers_in
from cenie.student.layers import Linear, features_first, orthogonal, uniform

Spaces = tuple[Space, ...]
"""The leaves of the tree of an observation's spaces: the parts of an observation."""

ENCODER_HELP = "The first layer for observations."
ENCODER_SOURCE = "ours; a student begins with conv, as in the original code for mazes"

_KERNEL = 3
"""Rows and columns that a convolution looks at together."""

_DENSE_VIEWS = 8
"""Views of at most this many times the size of a kernel are multiplied with a dense matrix."""


@dataclass(frozen=True)
class Conv:
    """A 3x3 convolution with ReLU over an image, beside a linear map of the rest of the observation.

    The entries of the image are divided by the largest number of their space.
    """

    kind: Literal["conv"] = "conv"
    channels: int = setting(
        16, minimum=1, maximum=65_536, help="Channels of the convolution.", source="original code, mazes"
    )
    rest_size: int = setting(
        5,
        minimum=1,
        maximum=65_536,
        help="Numbers to which the rest of the observation is mapped.",
        source="original code, mazes",
    )
    mapped: Literal["rest", "discrete"] = setting(
        "rest",
        help="The input of the linear map: all of the rest, or its discrete parts only; the others stay as "
        "they are.",
        source="original code, mazes",
    )

    def maps(self, part: Space) -> bool:
        """Whether the linear map reads this part of the rest."""
        return self.mapped == "rest" or isinstance(part, Discrete)

    def misfits(self, spaces: Spaces) -> Iterator[Problem]:
        """Why such observations cannot be read."""
        yield from _image_misfits("conv", spaces, _KERNEL)

    def make(self, spaces: Spaces, key: PRNGKeyArray) -> "ConvEncoder":
        """The encoder. Consumes the key."""
        return ConvEncoder(self, spaces, key)


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
    settings: Conv = eqx.field(static=True)

    def __init__(self, settings: Conv, spaces: Spaces, key: PRNGKeyArray):
        """Xavier-uniform kernel with bias 0."""
        self.spaces, self.settings = spaces, settings
        kernel_key, rest_key = jax.random.split(key)
        image, rest = image_and_rest(spaces)
        taps, depth, channels = _KERNEL * _KERNEL, image.shape[2], settings.channels
        bound = math.sqrt(6.0 / (taps * (depth + channels)))
        self.kernel = jax.random.uniform(kernel_key, (channels, taps * depth), minval=-bound, maxval=bound)
        self.bias = jnp.zeros(channels)
        mapped = sum(numbers_in(part) for part in rest if settings.maps(part))
        self.rest = uniform(rest_key, mapped, settings.rest_size) if mapped else None

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        image, rest = read_image_and_rest(self.spaces, observation)
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


@dataclass(frozen=True)
class Bits:
    """A linear layer with ReLU on bits, much cheaper than a convolution.

    The bits say where in the first channel of an image each of the `codes` stands; the rest of the
    observation lies beside them.
    """

    kind: Literal["bits"] = "bits"
    size: int = setting(64, minimum=1, maximum=65_536, help="Units of the layer.", source="ours")
    codes: tuple[int, ...] = setting(
        (),
        help="The codes that are told apart; all whole numbers of the image's space if none is named.",
        source="ours",
    )

    def codes_of(self, image: Box) -> tuple[int, ...]:
        """The codes that are told apart."""
        return self.codes or tuple(range(int(image.low), int(image.high) + 1))

    def misfits(self, spaces: Spaces) -> Iterator[Problem]:
        """Why such observations cannot be read."""
        yield from _image_misfits("bits", spaces, 1)
        for image in filter(is_image, spaces):
            assert isinstance(image, Box)
            few_whole_numbers = "int" in image.dtype and image.high - image.low < 256
            if not self.codes and not few_whole_numbers:
                yield Problem("codes", "must be named for an image of other than 1 to 256 whole numbers")

    def make(self, spaces: Spaces, key: PRNGKeyArray) -> "BitsEncoder":
        """The encoder. Consumes the key."""
        return BitsEncoder(self, spaces, key)


class BitsEncoder(eqx.Module):
    """A linear layer with ReLU on the bits of an image's codes and on the rest."""

    layer: Linear
    codes: tuple[int, ...] = eqx.field(static=True)
    spaces: Spaces = eqx.field(static=True)

    def __init__(self, settings: Bits, spaces: Spaces, key: PRNGKeyArray):
        """Orthogonal with gain sqrt(2)."""
        image, rest = image_and_rest(spaces)
        self.codes, self.spaces = settings.codes_of(image), spaces
        inputs = len(self.codes) * math.prod(image.shape[:2]) + sum(map(numbers_in, rest))
        self.layer = orthogonal(key, inputs, settings.size, math.sqrt(2.0))

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        image, rest = read_image_and_rest(self.spaces, observation)
        bits = bits_of(features_first(image[..., 0], 2), self.codes)
        bits = bits.reshape(-1, *bits.shape[2:])
        # Two products: on a CPU, setting bits of different kinds side by side costs more than the layer.
        for_bits, for_rest = jnp.split(self.layer.weight, [len(bits)], axis=1)
        seen = Linear(for_bits, self.layer.bias)(bits)
        return jax.nn.relu(seen + jnp.tensordot(for_rest, _side_by_side(rest), axes=1) if rest else seen)


@dataclass(frozen=True)
class Flat:
    """A linear layer with ReLU on all numbers of any observation; discrete parts are bits, one per value."""

    kind: Literal["flat"] = "flat"
    size: int = setting(64, minimum=1, maximum=65_536, help="Units of the layer.", source="ours")

    def misfits(self, spaces: Spaces) -> Iterator[Problem]:
        """Why such observations cannot be read: all can be."""
        yield from ()

    def make(self, spaces: Spaces, key: PRNGKeyArray) -> "FlatEncoder":
        """The encoder. Consumes the key."""
        return FlatEncoder(self, spaces, key)


class FlatEncoder(eqx.Module):
    """A linear layer with ReLU on all numbers of an observation."""

    layer: Linear
    spaces: Spaces = eqx.field(static=True)

    def __init__(self, settings: Flat, spaces: Spaces, key: PRNGKeyArray):
        """Orthogonal with gain sqrt(2)."""
        self.layer = orthogonal(key, sum(map(numbers_in, spaces)), settings.size, math.sqrt(2.0))
        self.spaces = spaces

    def __call__(self, observation: Observation) -> Float[Array, "e ..."]:
        return jax.nn.relu(self.layer(flatten(self.spaces, observation)))


EncoderConfig = Conv | Bits | Flat
"""The encoder of an observation, before it is remembered."""

Encoder = ConvEncoder | BitsEncoder | FlatEncoder


def width_of(encoder: Encoder, spaces: Spaces) -> int:
    """The number of outputs of an encoder."""
    seen = tuple(jax.ShapeDtypeStruct((1, *space.shape), space.dtype) for space in spaces)
    return jax.eval_shape(encoder, seen).shape[0]


def misfits_of(encoder: EncoderConfig, spaces: Spaces) -> Iterator[Problem]:
    """Why a network with this encoder cannot read such observations."""
    for problem in encoder.misfits(spaces):
        yield Problem(f"encoder.{problem.path}", problem.message)


def parts_of(observation_space: PyTree[Space]) -> Spaces:
    """The spaces of the parts of an observation, in the order in which the parts are read."""
    return tuple(jax.tree.leaves(observation_space))


def image_and_rest(spaces: Spaces) -> tuple[Box, Spaces]:
    """The image of an observation that has just one, and its other parts."""
    (image,) = (part for part in spaces if is_image(part))
    assert isinstance(image, Box)
    return image, tuple(part for part in spaces if not is_image(part))


def read_image_and_rest(spaces: Spaces, observation: Observation) -> tuple[Array, list[Array]]:
    """The image as it is, and the numbers of the other parts."""
    parts = list(zip(spaces, jax.tree.leaves(observation), strict=True))
    (image,) = (values for space, values in parts if is_image(space))
    return image, [_numbers(space, values) for space, values in parts if not is_image(space)]


def flatten(spaces: Spaces, observation: Observation) -> Float[Array, "d ..."]:
    """All numbers of an observation: a bit for each value of a discrete part, the others as they are.

    Whole numbers that are not discrete (codes, pixels) are divided by the largest of their space.
    """
    return _side_by_side([_numbers(*part) for part in zip(spaces, jax.tree.leaves(observation), strict=True)])


def bits_of(objects: Array, codes: tuple[int, ...]) -> Float[Array, "c p ..."]:
    """1 where each of the codes stands."""
    kinds = jnp.array(codes, objects.dtype).reshape(-1, *(1,) * objects.ndim)
    return (objects == kinds).astype(jnp.float32)


def _image_misfits(kind: str, spaces: Spaces, smallest: int) -> Iterator[Problem]:
    images = [part for part in spaces if is_image(part)]
    if len(images) != 1:
        what = "one part of an observation with three axes, an image"
        yield Problem("kind", f"{kind} needs {what}, got {len(images)}; flat reads any observation")
    elif min(images[0].shape[:2]) < smallest:
        size = " x ".join(map(str, images[0].shape[:2]))
        yield Problem("kind", f"{kind} needs an image of at least {smallest} x {smallest}, got {size}")


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
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (_KERNEL, _KERNEL, view[2]))
    covered = windows.reshape(-1, _KERNEL * _KERNEL * view[2])
    return (np.arange(pixels.size)[:, None, None] == covered).astype(np.float32)


def _patches(pixels: Float[Array, "x ..."], view: tuple[int, ...]) -> Float[Array, "k p ..."]:
    """The inputs of each kernel entry at each output position."""
    rows, columns = (length - _KERNEL + 1 for length in view[:2])
    grid = pixels.reshape(*view, *pixels.shape[1:])
    shifted = [
        jnp.moveaxis(grid[row : row + rows, column : column + columns], 2, 0)
        for row in range(_KERNEL)
        for column in range(_KERNEL)
    ]
    return jnp.concatenate(shifted).reshape(len(shifted) * view[2], rows * columns, *pixels.shape[1:])
