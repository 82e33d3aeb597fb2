"""Levels as JSON, read strictly: whatever is malformed is refused with a reason."""

from typing import Any

import numpy as np

from cenie.envs import level_json
from cenie.envs.racing.level import RacingLevel, make_level


def to_json(level: RacingLevel) -> dict[str, Any]:
    """A level as plain JSON values: the coordinates of its control points."""
    return {"points": np.asarray(level.points).tolist()}


def from_json(data: Any) -> RacingLevel:
    """The level of plain JSON values; every field is required and no other is allowed."""
    level_json.check_names(data, ("points",))
    points = data["points"]
    if not isinstance(points, list):
        raise ValueError(f"'points' must be a list, got {level_json.kind_of(points)}")
    if not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise ValueError("'points' must be a list of pairs [x, y]")
    return make_level([[level_json.number(value, "points") for value in point] for point in points])
