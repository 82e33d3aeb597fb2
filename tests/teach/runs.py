"""Tiny runs, cycle by cycle, that several tests look at."""

import functools

import numpy as np

from cenie.experiment.build import place
from cenie.teach.cycle import init
from tests.kept import programs
from tests.teach.compilation import AS_USERS_COMPILE_IT
from tests.tiny import tiny

CYCLES = 14


@functools.cache
def run(method, cycles=CYCLES, optimised=False, **overrides):
    """The setup, and the states before and after each cycle."""
    setup, advance = programs(tiny(method, **overrides), AS_USERS_COMPILE_IT if optimised else None)
    states, rows = [place(setup, init(setup, 3))], []
    for _ in range(cycles):
        state, _, metrics, _ = advance(states[-1], updates=1000)
        states.append(state)
        rows.append({name: np.asarray(value)[0] for name, value in metrics.items()})
    return setup, states, rows
