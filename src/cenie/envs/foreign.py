"""Domains from outside of the library: found by `module:attribute`, or passed as they are."""

import dataclasses
import functools
import importlib
import inspect
import math
import traceback
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from cenie.envs.base import Domain, Environment, cannot_edit
from cenie.envs.domains import DomainEntry, DomainSpec
from cenie.envs.shared_presets import LEARNABLE_RETURNS
from cenie.settings import Problem, SettingsError, show
from cenie.spaces import Box, DesignSpec, Discrete, Space

_ANY_DOMAIN: Mapping[str, Any] = {
    "updates": 300,
    "student.num_levels": 32,
    "student.num_steps": 256,
    "student.network.kind": "lstm",
    "student.network.encoder.kind": "flat",  # reads any observation
    "student.network.encoder.size": 64,
    "student.network.memory_size": 64,
    "student.network.forget_bias": 1.0,
    "student.ppo.learning_rate": 5e-4,
    "student.ppo.epochs": 4,
    "student.ppo.minibatches": 4,
    "student.ppo.entropy_coef": 0.005,
    "student.ppo.normalise_returns": True,  # rewards may be of any size
    "teacher.score": LEARNABLE_RETURNS,  # nothing may ever be solved, or success may not be the score
    "teacher.replay.capacity": 1000,
    "teacher.replay.priority.temperature": 1.0,
    "teacher.designer.network.memory_size": 64,
    "teacher.designer.ppo.learning_rate": 5e-4,
    "teacher.designer.ppo.normalise_returns": True,
}
"""The preset of a domain that brings none: small, and nothing in it depends on the domain."""


@dataclass(frozen=True)
class NoSettings:
    """The settings of a domain that has none."""


@functools.lru_cache(maxsize=16)
def entry_of(domain: Domain) -> DomainEntry:
    """The row of a domain that is there already, and has no settings."""
    return _entry(domain, NoSettings, lambda settings: domain)


@functools.lru_cache(maxsize=16)
def load(reference: str) -> DomainEntry:
    """The row of `module:attribute`: a `Domain`, a function that returns one, or a `DomainEntry`.

    A function takes nothing, or its settings: a frozen dataclass with a default for every field. It must be
    annotated `-> Domain`, so that no other function is ever called because of its name in a file.
    """
    value = _attribute(reference)
    if isinstance(value, DomainEntry):
        for name in ("generators", "suites", "presets"):
            _require(reference, name, getattr(value, name))
        return value
    if isinstance(value, Domain):
        return entry_of(value)
    if not _returns_domain(value):
        raise _refusal(
            f"{reference} is {show(value)}; it must be a cenie.Domain, a function that is annotated to "
            "return one (-> Domain), or a cenie.DomainEntry"
        )
    settings = _settings_type(reference, value)
    build = functools.lru_cache(maxsize=8)(functools.partial(_build, reference, value))
    return _entry(build(settings()), settings, build)


def _entry(domain: Domain, settings: type, build: Callable[[Any], Domain]) -> DomainEntry:
    _require(domain.name, "generators", domain.generators)
    _require(domain.name, "suites", domain.suites)
    return DomainEntry(
        summary=domain.summary,
        settings=settings,
        factory=build,
        generators=tuple(domain.generators),
        roles=domain.roles,
        suites=tuple(domain.suites),
        presets=domain.presets or {"default": _ANY_DOMAIN},
        edits=domain.edit is not cannot_edit,
        tasks=domain.tasks is not None,
        suite_file=domain.suite_of_file,
        spec=lambda settings: domain_spec(build(settings)),
        design=None
        if domain.design is None
        else lambda settings, generator: design_spec(build(settings), generator),
    )


def _require(name: str, what: str, parts: Collection[str]) -> None:
    if not parts:
        raise _refusal(f"{name} has no {what}; it needs at least one")


def domain_spec(domain: Domain) -> DomainSpec:
    """The spec of a domain, from its spaces and the shapes of a level; nothing is played."""
    environment = domain.environment
    parts = _observation_parts(domain.name, environment)
    level = jax.eval_shape(next(iter(domain.generators.values())), jax.random.key(0))
    return DomainSpec(
        observation_parts=parts,
        action_space=environment.action_space,
        level_bytes=_bytes(jax.tree.leaves(level)),
        observation_bytes=_bytes(parts),
    )


def design_spec(domain: Domain, generator: str) -> DesignSpec:
    """The spec of the design environment in the place of a generator."""
    environment = domain.design_for(generator).environment
    parts = _observation_parts(f"the design of {domain.name}", environment)
    return DesignSpec(parts, environment.action_space, environment.max_steps)


def _observation_parts(name: str, environment: Environment) -> tuple[Space, ...]:
    parts = tuple(jax.tree.leaves(environment.observation_space))
    wrong = [space for space in (*parts, environment.action_space) if not isinstance(space, Discrete | Box)]
    if wrong:
        raise _refusal(f"the spaces of {name} must be made of Discrete and Box, got {show(wrong[0])}")
    return parts


def _bytes(arrays: Any) -> int:
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays)


def _attribute(reference: str) -> Any:
    name, _, attribute = reference.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), attribute)):
        raise _refusal(f"{show(reference)} is not of the form package.module:attribute")
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the module raises, `SystemExit` too, is the finding
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            where = "in the present directory or among the installed packages"
            raise _refusal(f"there is no module {error.name!r} {where}") from error
        raise _refusal(f"{name!r} cannot be imported: {_finding(error)}") from error
    if not hasattr(module, attribute):
        fits = [key for key, value in vars(module).items() if _fits(value) and not key.startswith("_")]
        found = f"; it has {', '.join(fits)}" if fits else ", nor any other domain"
        raise _refusal(f"module {name!r} has no {attribute!r}{found}")
    return getattr(module, attribute)


def _fits(value: Any) -> bool:
    return isinstance(value, Domain | DomainEntry) or _returns_domain(value)


def _returns_domain(value: Any) -> bool:
    try:
        return inspect.isfunction(value) and typing.get_type_hints(value).get("return") is Domain
    except Exception:  # an annotation that names nothing
        return False


def _settings_type(reference: str, function: Callable[..., Any]) -> type:
    """The type of the settings that a function takes; all of them need defaults."""
    names = list(inspect.signature(function).parameters)
    if not names:
        return NoSettings
    kind: Any = typing.get_type_hints(function).get(names[0])
    if len(names) > 1 or not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise _refusal(f"{reference} must take nothing, or its settings as one annotated dataclass")
    missing = dataclasses.MISSING
    bare = [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
    if bare or not getattr(kind, "__dataclass_params__").frozen:  # noqa: B009 (unknown to type checkers)
        raise _refusal(f"{kind.__name__} must be frozen, with a default for every field ({', '.join(bare)})")
    return kind


def _build(reference: str, function: Callable[..., Domain], settings: Any) -> Domain:
    try:
        domain = function() if isinstance(settings, NoSettings) else function(settings)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the function raises is the finding
        raise _refusal(f"{reference} raised {_finding(error)}") from error
    if not isinstance(domain, Domain):
        raise _refusal(f"{reference} returned {show(domain)} instead of a cenie.Domain")
    return domain


def _finding(error: BaseException) -> str:
    """What was raised, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    first = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {''.join(first)} ({frames[-1].filename}, line {frames[-1].lineno})"


def _refusal(message: str) -> SettingsError:
    return SettingsError([Problem("domain", message)])
