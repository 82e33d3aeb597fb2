"""The racing level: where the control points of its track are."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float

from cenie.envs.racing.config import POINTS
from cenie.records import AnyArray

PLAYFIELD = 2000 / 6
"""Control points lie in a square of this side; the field around the track is twice as wide."""


class RacingLevel(eqx.Module):
    """Twelve control points, in any order: the track goes round their centre, through all of them.

    Nothing else is random. A point that is there twice counts once.
    """

    points: Float[AnyArray, "*n 12 2"]


def make_level(points: Sequence[Sequence[int | float]] | np.ndarray) -> RacingLevel:
    """A level of host arrays. Raises `ValueError` with every reason if it is not valid."""
    values = np.asarray(points, np.float32)
    if values.shape != (POINTS, 2):
        raise ValueError(f"a level has {POINTS} control points of two coordinates, got {values.shape}")
    problems = []
    side = np.float32(PLAYFIELD)
    if not np.all((values >= 0) & (values <= side)):
        wrong = np.flatnonzero(~np.all((values >= 0) & (values <= side), axis=1)).tolist()
        problems.append(f"coordinates must lie in 0 .. {side:.7g}; not so in the points {wrong}")
    if len(np.unique(values, axis=0)) < 3:
        problems.append("at least three control points must differ")
    if problems:
        raise ValueError("not a valid racing level: " + "; ".join(problems))
    return RacingLevel(values)
