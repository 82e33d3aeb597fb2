"""A board of tiles as cosine waves along both of its axes."""

import math

import numpy as np


def board_waves(columns: int, rows: int, count: int) -> np.ndarray:
    """Cosine waves [waves, tiles] along each axis, of mean square 1; the first of all is 1 everywhere.

    Tiles are numbered along the first axis (columns) first.
    """
    across, down = _waves(columns, count), _waves(rows, count)
    return np.einsum("kx,ly->klyx", across, down).reshape(count * count, rows * columns)


def _waves(length: int, count: int) -> np.ndarray:
    places, number = np.arange(length) + 0.5, np.arange(count)[:, None]
    return np.where(number > 0, math.sqrt(2.0), 1.0) * np.cos(math.pi * number * places / length)
