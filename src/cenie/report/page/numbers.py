"""Arrays as short JSON: a page holds many numbers, and a reader sees no more than a few digits of each."""

from typing import Any

import numpy as np

DIGITS = 4


def short(values: Any) -> list[Any]:
    """Numbers with few digits; those that are not finite, which JSON does not have, become None.

    Where all are whole, as counts are, they keep their digits.
    """
    array = np.asarray(values)
    if array.dtype.kind in "biu":
        return array.astype(int).tolist()
    known = np.isfinite(array)
    if np.all(np.abs(array[known]) < 2**53) and np.all(array[known] == np.round(array[known])):
        return [int(value) if is_known else None for value, is_known in zip(array.tolist(), known.tolist())]
    return [one(value) for value in array.tolist()]


def one(value: float | int | None) -> float | int | None:
    """A number with few digits."""
    if value is None or not np.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
