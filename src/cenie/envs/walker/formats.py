"""Levels as JSON, read strictly: whatever is malformed is refused with a reason."""

from typing import Any

import numpy as np

from cenie.envs import level_json
from cenie.envs.walker.level import NUM_SEEDS, PARAMETERS, WalkerLevel, make_level

MAX_TIME_LIMIT = 10_000_000
_FIELDS = (*PARAMETERS, "seed", "hardcore", "time_limit")


def to_json(level: WalkerLevel) -> dict[str, Any]:
    """A level as plain JSON values: the parameters by their names, and what else there is."""
    return {name: float(value) for name, value in zip(PARAMETERS, np.asarray(level.parameters))} | {
        "seed": int(level.seed),
        "hardcore": bool(level.hardcore),
        "time_limit": int(level.time_limit),
    }


def from_json(data: Any) -> WalkerLevel:
    """The level of plain JSON values; every field is required and no other is allowed."""
    level_json.check_names(data, _FIELDS)
    return make_level(
        level_json.whole(data["seed"], "seed", NUM_SEEDS - 1),
        hardcore=level_json.flag(data["hardcore"], "hardcore"),
        time_limit=level_json.whole(data["time_limit"], "time_limit", MAX_TIME_LIMIT),
        **{name: level_json.number(data[name], name) for name in PARAMETERS},
    )
