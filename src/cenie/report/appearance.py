"""How methods look in every figure and on the page: the same name and the same colour everywhere."""

import colorsys
from collections.abc import Sequence

from cenie.report.runs import Group

_LOOKS = {
    "dr": ("DR", "#7f7f7f"),
    "minimax": ("Minimax", "#8c564b"),
    "paired": ("PAIRED", "#e377c2"),
    "repaired": ("REPAIRED", "#9b4f96"),
    "alp-gmm": ("ALP-GMM", "#6b8e23"),
    "sfl": ("SFL", "#17a2b8"),
    "plr": ("PLR", "#56b4e9"),
    "plr-robust": ("PLR⊥", "#0072b2"),
    "plr-cenie": ("PLR-CENIE", "#d55e00"),
    "plr-cenie-dagger": ("PLR-CENIE†", "#f2a65a"),
    "accel": ("ACCEL", "#009e73"),
    "accel-cenie": ("ACCEL-CENIE", "#b5179e"),
    "accel-cenie-dagger": ("ACCEL-CENIE†", "#e39bd6"),
    "diplr": ("DIPLR", "#c9a100"),
    "diplr-dagger": ("DIPLR†", "#e6d27a"),
    "accel-diplr": ("ACCEL-DIPLR", "#8a6d00"),
    "accel-diplr-dagger": ("ACCEL-DIPLR†", "#bfae6b"),
    "poet": ("POET", "#7b2cbf"),
    "plr-poet": ("PLR-POET", "#5e60ce"),
    "accel-poet": ("ACCEL-POET", "#3a0ca3"),
    "plr-epoet": ("PLR-EPOET", "#90a0f0"),
    "accel-epoet": ("ACCEL-EPOET", "#4361ee"),
    "plr-learnability": ("PLR⊥ (learnability)", "#2a9d8f"),
    "traced": ("TRACED", "#c1121f"),
    "own": ("own method", "#222222"),
}
_UNKNOWN = "#444444"
_SHADES = ((0.55, 1.0), (1.6, 0.9), (0.9, 0.35), (1.35, 0.5), (0.35, 0.8))
"""By what lightness and saturation of the other groups of a method are multiplied, one after the other."""


def method_title(method: str) -> str:
    """The name of a method as papers write it."""
    return _LOOKS.get(method, (method,))[0]


def group_title(group: Group) -> str:
    """The label of a group with its method as papers write it."""
    return method_title(group.method) + group.label.removeprefix(group.method)


def colours(groups: Sequence[Group]) -> dict[str, str]:
    """A colour (`#rrggbb`) for each label; groups of one method have shades of the same colour."""
    return {
        group.label: _shade(_LOOKS.get(group.method, ("", _UNKNOWN))[1], group.number) for group in groups
    }


def _shade(colour: str, number: int) -> str:
    """The colour itself for the first group of a method, and darker, lighter and duller ones for others."""
    if number == 0:
        return colour
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    lighter, fuller = _SHADES[(number - 1) % len(_SHADES)]
    parts = colorsys.hls_to_rgb(hue, min(max(lightness * lighter, 0.15), 0.8), min(saturation * fuller, 1.0))
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
