"""What observations and actions are made of. Shared by the rooms of the library; imports no JAX."""

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
