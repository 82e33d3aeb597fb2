"""Held-out test levels and the named suites made of them. NumPy, on the host.

The parameters of an entry are fixed (but for `extreme`); the terrain is drawn for each episode.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from cenie.envs.base import Suite, SuiteEntry
from cenie.envs.walker.level import NUM_SEEDS, WalkerLevel, make_level

BOUNDS = (0.0, 300.0)
"""Between these returns the paper normalises."""

WALKER6: dict[str, dict[str, Any]] = {
    "BipedalWalker": {"roughness": 1, "time_limit": 1600},  # gym's flat task
    "Hardcore": {"roughness": 1, "hardcore": True},
    "Stair": {"stair_low": 2, "stair_high": 2, "stair_steps": 5},
    "PitGap": {"pit_low": 5, "pit_high": 5},
    "Stump": {"stump_low": 2, "stump_high": 2},
    "Roughness": {"roughness": 5},
}
"""The six test environments of the paper; what is not named is absent, and the ground is flat."""

_HIGH: dict[str, dict[str, Any]] = {
    "StairHigh": {"stair_low": 5, "stair_high": 5, "stair_steps": 9},
    "PitGapHigh": {"pit_low": 10, "pit_high": 10},
    "StumpHigh": {"stump_low": 5, "stump_high": 5},
    "RoughnessHigh": {"roughness": 9},
}
HIGH = _HIGH | {"Insane": {name: value for level in _HIGH.values() for name, value in level.items()}}
"""Harder ones of the original code, alone and all together."""

_ROSES = {  # roughness, stump low and high, pit low and high
    "1a": (5.6, 2.4, 2.82, 4.48, 6.4),
    "1b": (5.44, 1.8, 2.82, 4.48, 6.72),
    "2a": (7.2, 1.98, 2.82, 5.6, 7.2),
    "2b": (5.76, 2.16, 2.76, 1.6, 7.2),
    "3a": (5.28, 1.98, 2.76, 4.8, 7.2),
    "3b": (4.8, 2.4, 2.76, 4.8, 4.48),
}
_ROSE_PARAMETERS = ("roughness", "stump_low", "stump_high", "pit_low", "pit_high")
POET_ROSES = {
    f"Rose{name}": dict(zip(_ROSE_PARAMETERS, values, strict=True)) for name, values in _ROSES.items()
}
"""Levels that POET solved, published as rose plots."""


def suites() -> dict[str, Callable[[], Suite]]:
    """Every named suite, built when called."""
    named = {"walker6": WALKER6, "poet-roses": POET_ROSES, "high": HIGH}
    built: dict[str, Callable[[], Suite]] = {
        name: partial(walker_suite, name, levels) for name, levels in named.items()
    }
    built["extreme"] = lambda: Suite("extreme", [SuiteEntry("Extreme", "fresh", _extreme, BOUNDS)])
    return built


def walker_suite(name: str, levels: Mapping[str, Mapping[str, Any]]) -> Suite:
    """A suite of one entry for each level, given by its parameters and its time limit."""
    return Suite(
        name, [SuiteEntry(level, "fresh", partial(_draw, values), BOUNDS) for level, values in levels.items()]
    )


def _draw(values: Mapping[str, Any], rng: np.random.Generator) -> WalkerLevel:
    return make_level(int(rng.integers(NUM_SEEDS)), **values)


def _extreme(rng: np.random.Generator) -> WalkerLevel:
    """The original code's "extremely challenging" levels: without stairs, three parameters drawn."""
    drawn = {"roughness": (4.5, 8.0), "stump_high": (2.4, 3.0), "pit_high": (6.0, 8.0)}
    return _draw({name: rng.uniform(*bounds) for name, bounds in drawn.items()}, rng)
