"""What observations and actions are made of. Shared by the rooms of the library; imports no JAX."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Discrete:
    """Integers 0 .. n-1. `dtype` may be given as a NumPy type or its name; the name is kept."""

    n: int
    dtype: Any = "int32"
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _name(self.dtype))


@dataclass(frozen=True)
class Box:
    """Arrays of one shape with every entry in [low, high].

    `dtype` may be given as a NumPy type or its name; the name is kept.
    """

    shape: tuple[int, ...]
    low: int | float
    high: int | float
    dtype: Any = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _name(self.dtype))


Space = Discrete | Box


@dataclass(frozen=True)
class DesignSpec:
    """The spaces of a design environment, and how many steps a level takes to design."""

    observation_parts: tuple[Space, ...]
    action_space: Space
    steps: int


def numbers_in(space: Space) -> int:
    """How many numbers a value of the space is read as: a discrete one has a bit for each of its values."""
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

    try:
        return np.dtype(dtype).name
    except TypeError:
        raise ValueError(f"dtype: must be a NumPy type or its name, got {dtype!r}") from None
