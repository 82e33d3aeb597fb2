"""From a config to the parts it names."""

import importlib

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS
from cenie.run.config import Config
from cenie.teach import recipes
from cenie.teach.cycle import Setup, TrainState
from cenie.teach.methods import METHODS


def build(config: Config) -> tuple[Domain, Setup]:
    """The domain and the fixed parts of the training cycle."""
    module, function = DOMAINS[config.domain].factory.split(":")
    domain = getattr(importlib.import_module(module), function)(config.env)
    recipe = getattr(recipes, METHODS[config.method].recipe)
    setup = Setup(
        environment=domain.environment,
        statistics=domain.statistics,
        student=config.student,
        curriculum=recipe(domain, config.teacher),
        mesh=level_mesh(config),
    )
    return domain, setup


def level_mesh(config: Config) -> Mesh | None:
    """The devices over which the level axis is split: all that divide it, unless the config says less."""
    available = len(jax.devices())
    wanted = config.run.devices or available
    count = max(n for n in range(1, min(wanted, available) + 1) if config.student.num_levels % n == 0)
    return Mesh(np.array(jax.devices()[:count]), ("levels",)) if count > 1 else None


def place(setup: Setup, state: TrainState) -> TrainState:
    """Put a state on every device of the run."""
    if setup.mesh is None:
        return jax.device_put(state, jax.devices()[0])
    return jax.device_put(state, NamedSharding(setup.mesh, PartitionSpec()))
