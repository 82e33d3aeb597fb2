"""From `module:attribute` to a domain, with every reason why there may be none."""

import dataclasses
import functools
import importlib
import inspect
import traceback
import typing
from collections.abc import Callable
from typing import Any

from cenie.envs.base import Domain, NoSettings, parts_of
from cenie.settings import Problem, SettingsError, show
from cenie.spaces import Box, Discrete


@functools.lru_cache(maxsize=16)
def load(reference: str) -> Domain:
    """The domain of `module:attribute`, whose module is imported.

    The attribute is a `Domain`, or a function that returns one. A function takes nothing, or its settings: a
    frozen dataclass with a default for every field. It must be annotated `-> Domain`, so that no other
    function is ever called because of its name in a file.

    Args:
        reference: `package.module:attribute`.

    Returns:
        The domain, with the defaults of its settings if it has any.

    Raises:
        SettingsError: There is no such domain, or it cannot be made; the message says why.
    """
    value = _attribute(reference)
    if isinstance(value, Domain):
        return checked(value)
    if not _returns_domain(value):
        raise _refusal(
            f"{reference} is {show(value)}; it must be a cenie.Domain, or a function that is annotated to "
            "return one (-> Domain)"
        )
    return _maker(reference, value)(_settings_type(reference, value)())


def checked(domain: Domain) -> Domain:
    """The domain, if it has what every domain needs.

    Raises:
        SettingsError: It has no generators or no suites, or spaces that nothing here can read.
    """
    for what, parts in (("generators", domain.generators), ("suites", domain.suites)):
        if not parts:
            raise _refusal(f"{domain.name} has no {what}; it needs at least one")
    spaces = (*parts_of(domain.environment), domain.environment.action_space)
    wrong = [space for space in spaces if not isinstance(space, Discrete | Box)]
    if wrong:
        raise _refusal(f"the spaces of {domain.name} must be made of Discrete and Box, got {show(wrong[0])}")
    return domain


def _maker(reference: str, function: Callable[..., Domain]) -> Callable[[Any], Domain]:
    """The function of settings, such that what it makes can be made again with others."""

    @functools.lru_cache(maxsize=8)
    def make(settings: Any) -> Domain:
        domain = _called(reference, function, settings)
        return checked(dataclasses.replace(domain, settings=settings, make=make))

    return make


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
    return isinstance(value, Domain) or _returns_domain(value)


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


def _called(reference: str, function: Callable[..., Domain], settings: Any) -> Domain:
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
    """Say which error was raised, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    first = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {''.join(first)} ({frames[-1].filename}, line {frames[-1].lineno})"


def _refusal(message: str) -> SettingsError:
    return SettingsError([Problem("domain", message)])
