"""The ground that a walker walks on: a line of points, and boxes that stand on it or line its pits."""

import equinox as eqx
from jaxtyping import Array, Float, Int

POINTS = 200
"""Points of the ground line."""
BOXES = 48
"""More boxes than any level can have."""
STEP = 14 / 30
"""The distance of two points in x, and the unit of all heights and widths of a level."""
BASE = 400 / 30 / 4
"""The height of the ground at the start."""


class Terrain(eqx.Module):
    """Edges join consecutive points. Boxes are sorted by their left side; unused ones stand at the end.

    A box is (left, bottom, right, top). An unused one lies far beyond the course, where nothing touches it.
    """

    x: Float[Array, " 200"]
    y: Float[Array, " 200"]
    boxes: Float[Array, "48 4"]
    num_boxes: Int[Array, ""]
    push: Float[Array, ""]
    """The force in x on the hull in the first step, part of the level."""
