"""From a config to the parts it names."""

import functools
import importlib
from collections.abc import Callable

import jax

from cenie import devices
from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS
from cenie.run.config import Config
from cenie.teach.cycle import Counters, Metrics, Setup, TrainState, cycles
from cenie.teach.recipes import curriculum
from cenie.teach.record import Record


def build(config: Config) -> tuple[Domain, Setup]:
    """The domain and the fixed parts of the training cycle."""
    module, function = DOMAINS[config.domain].factory.split(":")
    domain = getattr(importlib.import_module(module), function)(config.env)
    teacher = curriculum(domain, config.teacher)
    setup = Setup(
        environment=domain.environment,
        statistics=domain.statistics,
        students=(config.student,) * teacher.students,
        curriculum=teacher,
        mesh=devices.level_mesh(config.devices_of(jax.device_count())),
        recorded_points=config.run.recorded_points,
    )
    return domain, setup


def compiled_cycles(setup: Setup, count: int) -> Callable[..., tuple[TrainState, Counters, Metrics, Record]]:
    """`cycles` of this setup as a compiled function of a state and the number of updates.

    What it returns is placed as `place` does it: left to itself the compiler may choose another placement,
    and the next call would compile everything again.
    """
    everywhere = devices.everywhere(setup.mesh)
    return jax.jit(functools.partial(cycles, setup, count=count), out_shardings=everywhere)


def place(setup: Setup, state: TrainState) -> TrainState:
    """Put a state on every device of the run."""
    return devices.place(setup.mesh, state)
