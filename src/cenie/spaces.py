"""What observations and actions are made of. Shared by the rooms of the library; imports no JAX."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Discrete:
    """Integers 0 .. n-1."""

    n: int
    dtype: str = "int32"
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Box:
    """Arrays of one shape with every entry in [low, high]."""

    shape: tuple[int, ...]
    low: int | float
    high: int | float
    dtype: str = "float32"


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
