"""Words and options of a command line, and what settings they are. Loads no JAX."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from cenie import settings
from cenie.envs.domains import DomainEntry, is_reference
from cenie.run.config import config_type, find_domain_and_method
from cenie.run.devices import core_count, show_devices
from cenie.run.presets import default_preset
from cenie.settings import Problem, SettingsError

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
        if name in options:
            problems.append(Problem(word, "given twice"))
        options[name] = value
    if problems:
        raise SettingsError(problems)
    return words, options


def typed(
    domain: str, method: str, options: dict[str, str], entry: DomainEntry | None = None
) -> dict[str, Any]:
    """Option values as plain data. Lists are written `a,b`, texts without quotes; `no-` negates a switch."""
    entry, _ = find_domain_and_method(domain, method, entry)
    config = config_type(entry, method)(domain=domain, method=method, preset=default_preset(entry))
    defaults = settings.with_all_kinds(config)
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, text in options.items():
        group, dot, name = path.rpartition(".")
        switch, default = group + dot + name.removeprefix("no_"), settings.value_at(defaults, path)
        if path in NO_OPTIONS:
            problems.append(Problem(path, "is not an option: `cenie train DOMAIN METHOD`"))
        elif isinstance(default, dict):
            example = f"--{path}.{_first_setting(default)} VALUE"
            problems.append(Problem(path, f"is a group of settings; give them one by one, as in {example}"))
        elif switch != path and text == "true" and isinstance(settings.value_at(defaults, switch), bool):
            if switch in options:
                problems.append(Problem(path, f"contradicts --{switch}"))
            values[switch] = False
        else:
            values[path] = plain(text, like=default)
    if problems:
        raise SettingsError(problems)
    return values


def _first_setting(group: dict[str, Any]) -> str:
    name, value = next(iter(group.items()))
    return f"{name}.{_first_setting(value)}" if isinstance(value, dict) else name


def plain(text: str, like: Any = None) -> Any:
    if isinstance(like, str):
        return text
    try:
        return json.loads(text.lower() if text in ("True", "False", "None") else text)
    except (ValueError, RecursionError):
        pass
    if text.lower() == "none":
        return None
    return [plain(part) for part in text.split(",") if part] if isinstance(like, list) else text


def directory_option(options: dict[str, str], name: str) -> Path | None:
    text = options.pop(name, None)
    if text == "":  # which `Path` would take for the present directory
        raise SettingsError([Problem(name, f"needs {_WITH_VALUE[name]}")])
    return None if text is None else Path(text)


def let_import(domain: Any) -> None:
    """Get ready to import a module that the user has named, if it is one.

    It may be in the present directory. It loads JAX, which must see the cores before that, though it is not
    known yet how many of them the run will use.
    """
    if is_reference(domain):
        show_devices(core_count())
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
