"""Closed smooth lines through given points, cut into pieces of equal length. NumPy alone, on the host."""

import numpy as np
from jaxtyping import Float

_MOST_SPLINED = 400
"""With more points than this a line is as smooth as they are, and it is not worth while to solve for it."""
_FINE = 64
"""Points between two given ones, from which lengths are measured."""


def closed_line(points: Float[np.ndarray, "p 2"], pieces: int) -> Float[np.ndarray, "2 n"]:
    """Return nodes at equal distances along the closed line through the points, from the first of them.

    The line is a periodic cubic spline whose parameter grows by the square root of each distance, which keeps
    it from overshooting where points lie close together.
    """
    fine = points if len(points) > _MOST_SPLINED else _fine_spline(points)
    closed = np.concatenate([fine, fine[:1]])
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(closed, axis=0).T))])
    wanted = np.arange(pieces) * (length[-1] / pieces)
    return np.stack([np.interp(wanted, length, values) for values in closed.T])


def _fine_spline(points: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, "q 2"]:
    following = np.roll(points, -1, axis=0)
    step = np.sqrt(np.hypot(*(following - points).T))[:, None]
    bend = _second_derivatives(points, step)
    bend_after = np.roll(bend, -1, axis=0)
    part = (np.arange(_FINE) / _FINE)[:, None, None]
    rest = 1 - part
    curve = rest * points + part * following
    curve += ((rest**3 - rest) * bend + (part**3 - part) * bend_after) * step**2 / 6
    return curve.swapaxes(0, 1).reshape(-1, 2)


def _second_derivatives(
    points: Float[np.ndarray, "p 2"], step: Float[np.ndarray, "p 1"]
) -> Float[np.ndarray, "p 2"]:
    """Second derivatives of the spline at the points: first derivatives must agree on both sides of each."""
    number, count = np.arange(len(points)), len(points)
    before = np.roll(step, 1, axis=0)
    matrix = np.zeros((count, count))
    # Added, as with two points both neighbours are the same.
    np.add.at(matrix, (number, number), 2 * (before + step)[:, 0])
    np.add.at(matrix, (number, (number + 1) % count), step[:, 0])
    np.add.at(matrix, (number, (number - 1) % count), before[:, 0])
    slope = (np.roll(points, -1, axis=0) - points) / step
    return np.linalg.solve(matrix, 6 * (slope - np.roll(slope, 1, axis=0)))
