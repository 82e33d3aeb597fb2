"""The look of methods in every figure and on the page: the same name and the same colour everywhere."""

import colorsys
from collections.abc import Sequence

from cenie.methods.table import find_method
from cenie.report.runs import Group

_UNKNOWN = "#444444"
_SHADES = ((0.55, 1.0), (1.6, 0.9), (0.9, 0.35), (1.35, 0.5), (0.35, 0.8))
"""By what lightness and saturation of the other groups of a method are multiplied, one after the other."""


def method_title(method: str) -> str:
    """The name of a method as papers write it: it stands in the method's own file."""
    found = find_method(method)
    return method if found is None else found.title


def group_title(group: Group) -> str:
    """The label of a group with its method as papers write it."""
    return method_title(group.method) + group.label.removeprefix(group.method)


def colours(groups: Sequence[Group]) -> dict[str, str]:
    """A colour (`#rrggbb`) for each label; groups of one method have shades of the same colour."""
    return {group.label: _shade(_colour(group.method), group.number) for group in groups}


def _colour(method: str) -> str:
    """The colour of a method: it stands in the method's own file."""
    found = find_method(method)
    return _UNKNOWN if found is None else found.colour


def _shade(colour: str, number: int) -> str:
    """The colour itself for the first group of a method, and darker, lighter and duller ones for others."""
    if number == 0:
        return colour
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    lighter, fuller = _SHADES[(number - 1) % len(_SHADES)]
    parts = colorsys.hls_to_rgb(hue, min(max(lightness * lighter, 0.15), 0.8), min(saturation * fuller, 1.0))
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
