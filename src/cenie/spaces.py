"""Spaces of observations and actions. Shared by the rooms of the library; imports no JAX."""

import contextlib
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Discrete:
    """Integers 0 .. n-1.

    Attributes:
        n: The number of values.
        dtype: The type, as a NumPy type or its name; the name is kept.
        shape: The shape of a value: () for a single number.

    Raises:
        ValueError: `n` or the shape is not made of whole numbers, or the type is not numeric.
    """

    n: int
    dtype: Any = "int32"
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", *_whole("n", (self.n,)))
        object.__setattr__(self, "dtype", _name(self.dtype))
        object.__setattr__(self, "shape", _whole("shape", self.shape))


@dataclass(frozen=True)
class Box:
    """Arrays of one shape with every entry in [low, high].

    Attributes:
        shape: The shape of a value.
        low: The lower bound of all entries. An array of equal entries, as other libraries have them, is kept
            as one number.
        high: The upper bound of all entries, likewise.
        dtype: The type, as a NumPy type or its name; the name is kept.

    Raises:
        ValueError: The shape is none, a bound differs between entries, or the type is not numeric.
    """

    shape: tuple[int, ...]
    low: int | float
    high: int | float
    dtype: Any = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _whole("shape", self.shape))
        for name in ("low", "high"):
            object.__setattr__(self, name, _bound(name, getattr(self, name)))
        object.__setattr__(self, "dtype", _name(self.dtype))


Space = Discrete | Box


@dataclass(frozen=True)
class DesignSpec:
    """The spaces of a design environment, and how many steps a level takes to design."""

    observation_parts: tuple[Space, ...]
    action_space: Space
    steps: int


def numbers_in(space: Space) -> int:
    """The count of numbers that a value of the space is read as: a discrete one has a bit for each of its
    values."""
    each = space.n if isinstance(space, Discrete) else 1
    return each * math.prod(space.shape)


def is_image(space: Space) -> bool:
    """Whether values are rows and columns of channels."""
    return isinstance(space, Box) and len(space.shape) == 3


_USUAL = ("float32", "int32", "uint8")
"""Names that are known without loading NumPy."""


def _name(dtype: Any) -> str:
    """The name of a NumPy type."""
    if isinstance(dtype, str) and dtype in _USUAL:
        return dtype
    import numpy as np

    # NumPy would take None for float64.
    with contextlib.suppress(TypeError):
        found = np.dtype("void" if dtype is None else dtype)
        # NumPy has no numeric kind for bfloat16 and its like, but they have names.
        if found.kind in "biuf" or (found.kind == "V" and not found.name.startswith("void")):
            return found.name
    raise ValueError(f"dtype: must be a NumPy type of numbers or its name, got {dtype!r}")


def _whole(name: str, values: Any) -> tuple[int, ...]:
    """Whole numbers as Python has them."""
    if isinstance(values, Iterable):
        with contextlib.suppress(TypeError):
            return tuple(operator.index(value) for value in values)
    raise ValueError(f"{name}: must be of whole numbers, got {values!r}")


def _bound(name: str, value: Any) -> int | float:
    """The one number of a bound."""
    if isinstance(value, int | float):
        return value
    import numpy as np

    entries = np.asarray(value)
    if entries.dtype.kind not in "iuf" or not entries.size or (entries != entries.flat[0]).any():
        raise ValueError(f"{name}: must be one number for all entries, got {value!r}")
    return entries.flat[0].item()
