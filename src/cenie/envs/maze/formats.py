"""Levels as text and as JSON, read strictly: whatever is malformed is refused with a reason."""

from typing import Any

import numpy as np

from cenie.envs import level_json
from cenie.envs.maze.level import MazeLevel, make_level

MAX_SIDE = 128
MAX_CHARACTERS = 100_000
MAX_TIME_LIMIT = 10_000_000
_ARROWS = ">v<^"
_FIELDS = ("walls", "goal", "start", "direction", "time_limit", "occluded")


def to_text(level: MazeLevel) -> str:
    """Rows of `#` wall, `.` empty, `G` goal and `>` `v` `<` `^` start, below a header."""
    tiles = np.where(np.asarray(level.wall_map), "#", ".")
    tiles[level.goal[1], level.goal[0]] = "G"
    tiles[level.start[1], level.start[0]] = _ARROWS[int(level.direction)]
    header = [f"time_limit: {int(level.time_limit)}", f"occluded: {str(bool(level.occluded)).lower()}"]
    return "\n".join(header + ["".join(row) for row in tiles]) + "\n"


def from_text(text: str, *, time_limit: int = 250) -> MazeLevel:
    """The level of a text. The header lines may be left out; then the view is open and H is `time_limit`."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"a level has at most {MAX_CHARACTERS} characters, this has {len(text)}")
    lines = [line.strip() for line in text.strip().splitlines()]
    header: dict[str, Any] = {}
    while lines and ":" in lines[0]:
        name, value = (part.strip() for part in lines.pop(0).split(":", 1))
        if name in header:
            raise ValueError(f"the header names {name!r} twice")
        header[name] = _header_value(name, value)
    tiles = _rectangle(lines, "#.G" + _ARROWS)
    goal = _only(tiles == "G", "goal 'G'")
    start = _only(np.isin(tiles, list(_ARROWS)), f"start, one of '{_ARROWS}'")
    direction = _ARROWS.index(tiles[start[1], start[0]])
    return make_level(tiles == "#", goal, start, direction=direction, **{"time_limit": time_limit, **header})


def to_json(level: MazeLevel) -> dict[str, Any]:
    """A level as plain JSON values; walls are rows of `0` and `1`."""
    return {
        "walls": ["".join("01"[int(cell)] for cell in row) for row in np.asarray(level.wall_map)],
        "goal": [int(value) for value in level.goal],
        "start": [int(value) for value in level.start],
        "direction": int(level.direction),
        "time_limit": int(level.time_limit),
        "occluded": bool(level.occluded),
    }


def from_json(data: Any) -> MazeLevel:
    """The level of plain JSON values; every field is required and no other is allowed."""
    level_json.check_names(data, _FIELDS)
    if not isinstance(data["walls"], list):
        raise ValueError(f"'walls' must be a list of rows, got {level_json.kind_of(data['walls'])}")
    return make_level(
        _rectangle(data["walls"], "01") == "1",
        _place(data["goal"], "goal"),
        _place(data["start"], "start"),
        direction=level_json.whole(data["direction"], "direction", 3),
        time_limit=level_json.whole(data["time_limit"], "time_limit", MAX_TIME_LIMIT),
        occluded=level_json.flag(data["occluded"], "occluded"),
    )


def _rectangle(rows: list[Any], alphabet: str) -> np.ndarray:
    """Rows of characters as an array, after checks of sizes and characters."""
    if not 1 <= len(rows) <= MAX_SIDE:
        raise ValueError(f"a maze has 1 to {MAX_SIDE} rows, got {len(rows)}")
    for number, row in enumerate(rows):
        if not isinstance(row, str):
            raise ValueError(f"row {number} must be a text, got {level_json.kind_of(row)}")
        if not 1 <= len(row) <= MAX_SIDE:
            raise ValueError(f"row {number} must have 1 to {MAX_SIDE} tiles, has {len(row)}")
        if len(row) != len(rows[0]):
            raise ValueError(
                f"all rows must be equally long: row 0 has {len(rows[0])}, row {number} {len(row)}"
            )
        unknown = set(row) - set(alphabet)
        if unknown:
            raise ValueError(f"row {number} has {sorted(unknown)[0]!r}; allowed are '{alphabet}'")
    return np.array([list(row) for row in rows])


def _only(mask: np.ndarray, what: str) -> tuple[int, int]:
    places = np.argwhere(mask)
    if len(places) != 1:
        raise ValueError(f"a maze has exactly one {what}, this has {len(places)}")
    y, x = places[0]
    return int(x), int(y)


def _header_value(name: str, value: str) -> int | bool:
    if name == "occluded" and value in ("true", "false"):
        return value == "true"
    if name == "time_limit" and value.isascii() and value.isdigit() and len(value) <= 8:
        return level_json.whole(int(value), name, MAX_TIME_LIMIT)
    raise ValueError(
        "the header may have 'time_limit: <number>' and 'occluded: true' or 'false', "
        f"not '{name[:40]}: {value[:40]}'"
    )


def _place(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"'{name}' must be a list [x, y], got {level_json.kind_of(value)}")
    return [level_json.whole(item, name, MAX_SIDE) for item in value]
