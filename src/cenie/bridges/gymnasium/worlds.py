"""The worlds of the registered environments: what is played, and where its levels come from."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import PRNGKeyArray

from cenie import settings
from cenie.bridges.gymnasium.spaces import gymnasium_space, unstacked
from cenie.envs.base import Domain, Environment, Renderer
from cenie.envs.domains import find_domain
from cenie.records import Level


@dataclass(frozen=True, eq=False)
class World:
    """The parts of an environment of gymnasium.

    `draw` makes a fresh level from a key. `read` makes a level of what a user gives: a level, or its JSON
    value; it raises `ValueError` with the reason. `seconds` is how long an action lasts, for videos.
    """

    environment: Environment
    draw: Callable[[PRNGKeyArray], Level]
    read: Callable[[Any], Level]
    render: Renderer | None
    observation_space: spaces.Space
    action_space: spaces.Space
    seconds: float
    xla_flags: tuple[str, ...] = ()


def world_of(domain: Domain, generator: str = "random", *, seconds: float = 0.1) -> World:
    """A domain to be played in gymnasium, with levels of one of its generators.

    Raises:
        ValueError: The domain has no such generator.
    """
    if domain.roles.get(generator, generator) not in domain.generators:
        known = ", ".join([*domain.generators, *domain.roles])
        raise ValueError(f"generator: {domain.name} has {known}; got {generator!r}")
    draw = domain.generator(generator)
    return World(
        environment=domain.environment,
        draw=draw,
        read=partial(_read, domain, jax.eval_shape(draw, _key_shape())),
        render=domain.render,
        observation_space=gymnasium_space(domain.environment.observation_space),
        action_space=gymnasium_space(domain.environment.action_space),
        seconds=seconds,
        xla_flags=domain.xla_flags,
    )


def walker(changes: Mapping[str, Any]) -> World:
    """Terrains of eight random parameters."""
    return _with_gym_bounds(world_of(_domain("walker", changes), seconds=1 / 50))


def bipedal_walker(changes: Mapping[str, Any], *, hardcore: bool = False) -> World:
    """The terrains of gymnasium's BipedalWalker, or of its hardcore variant."""
    from cenie.envs.walker.generate import random_seed
    from cenie.envs.walker.level import make_level
    from cenie.envs.walker.suites import WALKER6

    fixed = make_level(0, **WALKER6["Hardcore" if hardcore else "BipedalWalker"])

    def draw(key: PRNGKeyArray) -> Level:
        level = jax.tree.map(jnp.asarray, fixed)
        return dataclasses.replace(level, seed=random_seed(key))

    return dataclasses.replace(walker(changes), draw=draw)


def racing(changes: Mapping[str, Any]) -> World:
    """Closed tracks through twelve random control points."""
    domain = _domain("racing", changes)
    return world_of(domain, "continuous", seconds=domain.settings.action_repeat / 50)


def f1(changes: Mapping[str, Any]) -> World:
    """The twenty circuits of the paper, one drawn for each episode; a level may be given by its name."""
    domain = _domain("racing", changes)
    suite = domain.suites["f1"]()
    assert suite.environment is not None
    circuits = {entry.level: entry.draw(np.random.default_rng(0)) for entry in suite.entries}
    stacked = domain.stack(list(circuits.values()))
    as_stacked = dict(zip(circuits, unstacked(stacked, range(len(circuits))), strict=True))

    def draw(key: PRNGKeyArray) -> Level:
        number = jax.random.randint(key, (), 0, len(circuits))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[number], stacked)

    def read(value: Any) -> Level:
        if not isinstance(value, str) or value not in as_stacked:
            raise ValueError(f"level: must be one of {', '.join(as_stacked)}, got {settings.show(value)}")
        return as_stacked[value]

    world = world_of(domain, seconds=domain.settings.action_repeat / 50)
    return dataclasses.replace(world, environment=suite.environment, draw=draw, read=read)


def maze(changes: Mapping[str, Any]) -> World:
    """13x13 mazes with up to 60 walls."""
    return world_of(_domain("maze", changes), seconds=0.1)


WORLDS: dict[str, Callable[[Mapping[str, Any]], World]] = {
    "BipedalWalker-v0": bipedal_walker,
    "BipedalWalkerHardcore-v0": partial(bipedal_walker, hardcore=True),
    "Walker-v0": walker,
    "CarRacing-v0": racing,
    "F1-v0": f1,
    "Maze-v0": maze,
}
"""The registered environments by their names, and how each is made from settings of its domain."""


def _domain(name: str, changes: Mapping[str, Any]) -> Domain:
    """A domain of ours, with some of its settings changed."""
    domain = find_domain(name)
    return domain.build(settings.replace(domain.settings, changes)) if changes else domain


def _key_shape() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _read(domain: Domain, example: Any, value: Any) -> Level:
    """A level of a domain from a user's hands. Raises `ValueError` if it is none."""
    if jax.tree.structure(value) != jax.tree.structure(example):
        if domain.from_json is None:
            raise ValueError(f"level: must be a level of {domain.name}, got {type(value).__name__}")
        try:
            return domain.from_json(value)
        except Exception as error:  # a domain of one's own may raise anything
            shown = settings.show(value)
            raise ValueError(f"level: {shown} is no level of {domain.name}: {error}") from error
    for given, wanted in zip(jax.tree.leaves(value), jax.tree.leaves(example)):
        if np.shape(given) != wanted.shape:
            raise ValueError(
                f"level: an array has the shape {np.shape(given)}, and should have {wanted.shape}"
            )
    return jax.tree.map(lambda given, wanted: np.asarray(given, wanted.dtype), value, example)


_GYM_WALKER_HIGH: Sequence[float] = (
    *(math.pi, 5.0, 5.0, 5.0),
    *(math.pi, 5.0, math.pi, 5.0, 5.0) * 2,
    *(1.0,) * 10,
)
"""The upper bounds that gymnasium declares of an observation of BipedalWalker. Its lower bounds are their
negatives, but contacts begin at 0. Neither simulator clips to these bounds."""


def _with_gym_bounds(world: World) -> World:
    high = np.array(_GYM_WALKER_HIGH, np.float32)
    low = -high
    low[[8, 13]] = 0.0
    return dataclasses.replace(world, observation_space=spaces.Box(low, high))
