"""Held-out tracks and the named suites made of them: circuits, gym's classic tracks and new Bezier tracks."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from cenie.envs.base import Suite, SuiteEntry, stack_same_shapes
from cenie.envs.racing.centre_line import read_centre_line
from cenie.envs.racing.circuits import (
    DCD_LIMITS,
    LIMITS,
    VANILLA_LIMIT,
    f1_circuit,
    stack_circuits,
    user_circuit,
    user_limit,
    vanilla_circuit,
)
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.dynamics import LAP_REWARD, STEP_COST, Racing
from cenie.envs.racing.generate import continuous_level
from cenie.envs.racing.level import RacingLevel
from cenie.envs.racing.track import Circuit
from cenie.envs.suite_files import file_suite_name

F1 = tuple(LIMITS)
MONITOR = ("Italy", "Singapore", "Germany")
"""The circuits that are played during training, with a classic track."""
BEZIER_TRACKS = 10
_SEEDS = 2**31


def suites(config: RacingConfig) -> dict[str, Callable[[], Suite]]:
    """Every named suite, built when called. All are played without shaping."""
    environment = Racing(config, evaluation=True)

    def made(name: str, entries: Callable[[], Iterable[SuiteEntry]]) -> Callable[[], Suite]:
        return lambda: Suite(name, list(entries()), environment)

    return {
        "f1": made("f1", lambda: (_f1_entry(config, name) for name in F1)),
        "f1-monitor": made(
            "f1-monitor", lambda: [*(_f1_entry(config, name) for name in MONITOR), _vanilla_entry()]
        ),
        "vanilla": made("vanilla", lambda: [_vanilla_entry()]),
        "bezier": made("bezier", lambda: _bezier_entries(config)),
    }


def suite_of_file(config: RacingConfig, name: str, text: str) -> Suite:
    """A suite of the circuit in a file of this name and content. Raises `ValueError` with the reason.

    Its name says that it is a file: one that is called like a built-in suite is not taken for that.
    """
    line = read_centre_line(name, text)
    limit = user_limit(line.length)
    circuit = user_circuit(line, config.circuit_tiles, limit)
    entry = SuiteEntry(line.name, "file", lambda rng: circuit, bounds(limit))
    return Suite(file_suite_name(name, text), [entry], Racing(config, evaluation=True))


def bounds(limit: int) -> tuple[float, float]:
    """The returns of a car that stands still until the time is over, and of one that also drives a lap."""
    return -STEP_COST * limit, LAP_REWARD - STEP_COST * limit


def stack(levels: Sequence[Any]) -> Any:
    """Levels along a new leading axis: control points, or circuits of any lengths."""
    if isinstance(levels[0], Circuit):
        return stack_circuits(levels)
    return stack_same_shapes(levels)


def _f1_entry(config: RacingConfig, name: str) -> SuiteEntry:
    limit = (LIMITS if config.limits == "paper" else DCD_LIMITS)[name]
    circuit = f1_circuit(name, config.circuit_tiles, limit)
    return SuiteEntry(name, "circuit", lambda rng: circuit, bounds(limit))


def _vanilla_entry() -> SuiteEntry:
    return SuiteEntry("Vanilla", "fresh", vanilla_circuit, bounds(VANILLA_LIMIT))


def _bezier_entries(config: RacingConfig) -> list[SuiteEntry]:
    """Ten tracks that are the same in every evaluation."""
    return [
        SuiteEntry(f"Bezier{number}", "fixed", partial(_bezier, number), bounds(config.time_limit))
        for number in range(BEZIER_TRACKS)
    ]


def _bezier(number: int, rng: np.random.Generator) -> RacingLevel:
    # Not a key that a run could have, as those are all derived from seeds.
    return jax.device_get(_continuous(jax.random.fold_in(jax.random.key(_SEEDS), number)))


_continuous = jax.jit(continuous_level)
