"""Reading levels from JSON strictly: whatever is malformed is refused with a reason."""

import math
from collections.abc import Sequence
from typing import Any


def check_names(data: Any, names: Sequence[str]) -> None:
    """Every field is required and no other is allowed."""
    if not isinstance(data, dict):
        raise ValueError(f"a level is an object with the fields {', '.join(names)}, got {kind_of(data)}")
    missing = [name for name in names if name not in data]
    unknown = [str(name)[:40] for name in data if name not in names]
    if missing or unknown:
        parts = [f"missing {', '.join(missing)}"] * bool(missing)
        parts += [f"unknown {', '.join(unknown[:5])}"] * bool(unknown)
        raise ValueError(f"a level has the fields {', '.join(names)}: " + "; ".join(parts))


def whole(value: Any, name: str, most: int) -> int:
    # bool is a subclass of int, and a text or a fraction is not a whole number.
    if type(value) is not int:
        raise ValueError(f"'{name}' must be a whole number, got {kind_of(value)}")
    if not 0 <= value <= most:
        raise ValueError(f"'{name}' must lie in 0 .. {most}")
    return value


def number(value: Any, name: str) -> float:
    # Whole numbers of thousands of digits are numbers too, but no floats.
    if type(value) not in (int, float) or abs(value) > 1e30 or math.isnan(value):
        raise ValueError(f"'{name}' must be a finite number, got {kind_of(value)}")
    return float(value)


def flag(value: Any, name: str) -> bool:
    if type(value) is not bool:
        raise ValueError(f"'{name}' must be true or false, got {kind_of(value)}")
    return value


def kind_of(value: Any) -> str:
    """The kind of a JSON value, in words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
