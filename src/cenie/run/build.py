"""From a config to the parts it names."""

import functools
import importlib
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS
from cenie.run.config import Config
from cenie.teach.cycle import Counters, Metrics, Setup, TrainState, cycles
from cenie.teach.recipes import curriculum


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
        mesh=level_mesh(config),
    )
    return domain, setup


def level_mesh(config: Config) -> Mesh | None:
    """The devices over which the level axis is split; none for a single one."""
    count = config.devices_of(len(jax.devices()))
    return Mesh(np.array(jax.devices()[:count]), ("levels",)) if count > 1 else None


def compiled_cycles(setup: Setup, count: int) -> Callable[..., tuple[TrainState, Counters, Metrics]]:
    """`cycles` of this setup as a compiled function of a state and the number of updates.

    What it returns is placed as `place` does it: left to itself the compiler may choose another placement,
    and the next call would compile everything again.
    """
    return jax.jit(functools.partial(cycles, setup, count=count), out_shardings=_everywhere(setup))


def place(setup: Setup, state: TrainState) -> TrainState:
    """Put a state on every device of the run."""
    return jax.device_put(state, _everywhere(setup))


def _everywhere(setup: Setup) -> Sharding:
    if setup.mesh is None:
        return SingleDeviceSharding(jax.devices()[0])
    return NamedSharding(setup.mesh, PartitionSpec())
