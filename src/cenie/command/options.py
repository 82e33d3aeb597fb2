"""Words and options of a command line. Loads no JAX, unless a domain of one's own is imported."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from cenie import settings
from cenie.envs.domains import find_domain, is_reference
from cenie.settings import Problem, SettingsError, show
from cenie.xla.flags import core_count, show_devices

if TYPE_CHECKING:
    from cenie.envs.base import Domain

Request = TypeVar("Request")

SWITCHES = ("new_name", "no_coverage", "no_pdf", "no_pictures", "no_wait", "report", "stratified")
"""Options without a value."""
NO_OPTIONS = ("domain", "method", "from_python")
"""Settings that a config stores, but no option sets: the first two are words of the command."""
_WITH_VALUE = {
    "out": "a directory",
    "resume": "a directory",
    "preset": "a name",
    "domain": "package.module:attribute",
}


def parse(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Split a command line into plain words and `--name value` pairs; every problem is reported."""
    words: list[str] = []
    options: dict[str, str] = {}
    problems: list[Problem] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            options["help"] = ""
            continue
        if not word.startswith("--"):
            if not word.strip():
                problems.append(Problem(show(word), "is empty, where a name or a path is expected"))
            if word.startswith("-"):
                problems.append(Problem(word, "unknown option; names of options begin with --"))
            if not word:
                problems.append(Problem(repr(word), "is an empty word; expected a name or a path"))
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if not name:
            problems.append(Problem(word, "is not the name of an option"))
        if not equals:
            # A name without a value is a switch; one that is not a switch is refused by its type.
            alone = name in SWITCHES or not rest or rest[0].startswith("--")
            value = "true" if alone else rest.pop(0)
            if alone and name in _WITH_VALUE:
                problems.append(Problem(name, f"needs {_WITH_VALUE[name]}"))
        if name and not value.strip():
            needed = _WITH_VALUE.get(name, "a value (an empty list is written [])")
            problems.append(Problem(name, f"needs {needed}, got an empty text"))
        if name in options:
            problems.append(Problem(word, "given twice"))
        options[name] = value
    if problems:
        raise SettingsError(problems)
    return words, options


def plain(text: str, hints: Iterable[Any] = ()) -> Any:
    """The text of an option as plain data: by the types that the setting may have, or by its looks.

    Args:
        text: What was written.
        hints: The types; there are several where several kinds of a group have a setting of this name.

    Returns:
        Plain data; the reader of settings says later whether it is allowed.
    """
    options = [option for hint in hints for option in _options(hint)]
    if is_null(text) and (type(None) in options or not any(map(_is_text, options))):
        return None
    tuples = [option for option in options if get_origin(option) is tuple]
    if tuples and not text.startswith("["):
        # A single value is a list of one.
        items = [item for option in tuples for item in get_args(option) if item is not Ellipsis]
        return [plain(part.strip(), items) for part in text.split(",") if part.strip()]
    if options and all(_is_text(option) for option in options if option is not type(None)):
        return text
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text


def _options(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have."""
    return get_args(hint) if settings.is_union(hint) else (hint,)


def _is_text(option: Any) -> bool:
    """Whether values of this type are texts. A record is chosen by the name of its kind."""
    if get_origin(option) is Literal:
        return all(isinstance(choice, str) for choice in get_args(option))
    return option is str or dataclasses.is_dataclass(option)


def is_null(text: str) -> bool:
    return text.lower() in ("none", "null")


def read_request(request: type[Request], options: dict[str, str]) -> Request:
    """The options of a command as a record of its request. Raises `SettingsError`."""
    return settings.read(request, {name: plain(text) for name, text in options.items()})


def directory_option(options: dict[str, str], name: str) -> Path | None:
    """The directory that an option names; None if it is not given."""
    text = options.pop(name, None)
    return None if text is None else Path(text)


def own_domains(text: str | None) -> dict[str, "Domain"]:
    """The domains of `--domain M:A`, or of several with commas, by their names.

    Their modules are imported. Raises `SettingsError` if there is no such domain.
    """
    if text is None:
        return {}
    names = [name for name in text.split(",") if name]
    if not names:
        raise SettingsError([Problem("domain", f"needs {_WITH_VALUE['domain']}")])
    for name in names:
        let_import(name)
    return {name: find_domain(name) for name in names}


def let_import(domain: Any) -> None:
    """Get ready to import a module that the user has named, if it is one.

    It may be in the present directory. It may start a backend of JAX, which must see the cores before
    that, though it is not known yet how many of them the run will use.
    """
    if is_reference(domain):
        show_devices(core_count())
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
