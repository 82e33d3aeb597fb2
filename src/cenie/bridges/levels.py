"""Other people's levels as rows of bytes, which the level buffer stores and compares exactly."""

from typing import Any

import jax
import numpy as np


class LevelCodec:
    """Turns levels of one kind into rows of bytes and back, without losing a bit.

    A level is a NumPy array or a number, or nested dicts, lists and tuples of these; all levels have the
    structure, shapes and types of the first one. JAX would silently cut 64-bit numbers to 32 bits, and
    bytes do not have that problem.
    """

    def __init__(self, example: Any):
        leaves, self._structure = jax.tree.flatten(example)
        self._leaves = [_plain(leaf) for leaf in leaves]
        self.size = sum(leaf.nbytes for leaf in self._leaves)
        if not self.size:
            raise ValueError("a level must hold at least one number")

    def encode(self, level: Any) -> np.ndarray:
        """uint8[size]; raises `ValueError` if the level is not like the first one."""
        leaves, structure = jax.tree.flatten(level)
        if structure != self._structure:
            raise ValueError(f"all levels must have the structure {self._structure}, got {structure}")
        arrays = [_plain(leaf) for leaf in leaves]
        for expected, array in zip(self._leaves, arrays):
            if (expected.shape, expected.dtype) != (array.shape, array.dtype):
                raise ValueError(
                    "all levels must have the same shapes and types: "
                    f"the first one has {_describe(expected)} where this one has {_describe(array)}"
                )
        return np.concatenate([np.frombuffer(array.tobytes(), np.uint8) for array in arrays])

    def decode(self, row: np.ndarray) -> Any:
        """The level of a row of bytes; numbers come back as NumPy numbers."""
        ends = np.cumsum([leaf.nbytes for leaf in self._leaves])
        pieces = np.split(np.asarray(row, np.uint8), ends[:-1])
        leaves = [
            np.frombuffer(piece.tobytes(), leaf.dtype).reshape(leaf.shape).copy()[()]
            for piece, leaf in zip(pieces, self._leaves)
        ]
        return jax.tree.unflatten(self._structure, leaves)

    def description(self) -> str:
        """The kind of level, in words; equal for codecs that understand each other's rows."""
        return f"{self._structure} of {', '.join(map(_describe, self._leaves))}"


def _plain(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biufc":
        raise ValueError(f"a level is made of numbers, got {leaf!r}; encode texts and objects as numbers")
    return array


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
