"""Tables of the library for the site: methods, domains, settings, help texts."""

import dataclasses
import html
import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cenie import novelty, settings
from cenie.command import cli
from cenie.command.settings_text import bounds_of, type_text, value_text
from cenie.envs.domains import DOMAINS, find_domain
from cenie.experiment.config import config_type
from cenie.methods.table import METHODS, ROWS
from cenie.settings import Description

ROOT = Path(__file__).resolve().parents[2]

_ABSENT = object()

PAGES = {
    "cenie": "cenie",
    "diplr": "diplr",
    "poet_novelty": "poet-novelty",
    "epoet_novelty": "epoet-novelty",
    "alp_gmm": "alp-gmm",
}
"""Pages of methods whose name is not the one of their file."""

MOST_NAMES = 3
"""More names do not fit into a heading."""


def page_of(method: str) -> str:
    """The page about a method, in docs/methods."""
    if method in ("minimax", "paired", "repaired"):
        return method
    return PAGES.get(ROWS[method].file, ROWS[method].file)


def methods(_: str | None = None) -> str:
    """Each method with its page, in a line."""
    rows = [f"| [`{name}`]({page_of(name)}.md) | {row.summary} |" for name, row in ROWS.items()]
    return "\n".join(["| method | what it does |", "|---|---|", *rows])


def domains(_: str | None = None) -> str:
    """The generators, suites and presets of each domain."""
    rows = [
        f"| [`{name}`]({name}.md) | {summary} | {_names(find_domain(name).presets)} |"
        for name, summary in DOMAINS.items()
    ]
    return "\n".join(["| domain | what it is | presets |", "|---|---|---|", *rows])


def domain(name: str | None) -> str:
    """The names of one domain: presets, generators, suites."""
    found = find_domain(name)
    rows = {
        "presets": _names(found.presets),
        "generators": _names((*found.generators, *found.roles)),
        "suites": _names(found.suites),
    }
    body = [f"| {title} | {text} |" for title, text in rows.items()]
    return "\n".join(["| | names |", "|---|---|", *body])


def run_settings(_: str | None = None) -> str:
    """The settings that every run has, whatever its domain and method."""
    described = _described("maze", "dr")
    return _tables(item for item in described if not item.path.startswith(("env.", "teacher.")))


def domain_settings(_: str | None = None) -> str:
    """The settings `env` of each domain."""
    parts = []
    for name in DOMAINS:
        described = [item for item in _described(name, "dr") if item.path.startswith("env.")]
        parts.append(f"### {name}\n\n{_table(described)}")
    return "\n\n".join(parts)


def teacher_settings(_: str | None = None) -> str:
    """The settings `teacher` of each family of methods, once; others of the family differ in values alone."""
    families: dict[type, list[str]] = {}
    for name in METHODS:
        families.setdefault(type(METHODS[name].settings), []).append(name)
    parts = []
    for names in families.values():
        described = [item for item in _described("maze", names[0]) if item.path.startswith("teacher.")]
        if described:
            many = len(names) > MOST_NAMES
            parts.append(f"### {'Methods with level replay' if many else ', '.join(names)}")
            parts += [_names(names)] * many + [_tables(described, "#### ")]
    return "\n\n".join(parts)


def coverage_settings(kind: str | None) -> str:
    """The settings of a model of coverage."""
    return _table(
        settings.describe(novelty.MixtureConfig() if kind == "mixture" else novelty.NeighboursConfig())
    )


def method_defaults(_: str | None = None) -> str:
    """The settings by which a method differs from the one that it changes."""
    rows = []
    for name in METHODS:
        method = METHODS[name]
        if not isinstance(method.base, str):
            continue
        own, base = _values(method.settings), _values(METHODS[method.base].settings)
        changed = [path for path, value in own.items() if base.get(path, _ABSENT) != value]
        # A group that is another kind, or that was left out before, is named as a whole.
        groups = {path.rpartition(".")[0] for path in changed if path.endswith(".kind")}
        shown = [
            f"`teacher.{path}={value_text(own[path])}`"
            for path in changed
            if path.endswith(".kind") or not any(path.startswith(f"{group}.") for group in groups)
        ]
        rows.append(f"| `{name}` | `{method.base}` | {', '.join(shown)} |")
    return "\n".join(["| method | changes | in |", "|---|---|---|", *rows])


def _values(record: Any) -> dict[str, Any]:
    """All settings of a record by their paths."""
    return _flat(settings.to_data(record))


def _flat(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            found |= {f"{name}.{path}": inner for path, inner in _flat(value).items()}
        else:
            found[name] = value
    return found


def commands(_: str | None = None) -> str:
    """The help text of every command."""
    usages = {name: _usage(name) for name in cli.COMMANDS}
    return "\n\n".join(
        f"## cenie {name}\n\n```text\n{usage.strip()}\n```"
        for name, usage in usages.items()
        if usage != cli.USAGE
    )


def _usage(command: str) -> str:
    """The help text of a command, by the rule of `cli.COMMANDS`."""
    module = importlib.import_module(cli.COMMANDS[command].partition(":")[0])
    return getattr(module, f"{command.upper()}_USAGE", None) or getattr(module, "USAGE", cli.USAGE)


def contributing(_: str | None = None) -> str:
    """CONTRIBUTING.md without its title; links are as from docs/."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n")[2]
    return re.sub(r"\]\((?!https?:)([^)\s]+)\)", lambda found: f"]({_from_docs(found[1])})", text)


def _from_docs(target: str) -> str:
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def _described(domain: str, method: str) -> list[Description]:
    config = config_type(find_domain(domain), method)(domain=domain, method=method, preset="none")
    left_out = ("domain", "method", "preset", "from_python", "version")
    return [item for item in settings.describe(config) if item.path not in left_out]


def _tables(described: Iterable[Description], rank: str = "### ") -> str:
    """A table for each group of settings."""
    groups: dict[str, list[Description]] = {}
    for item in described:
        groups.setdefault(item.group, []).append(item)
    parts = []
    for group, items in groups.items():
        if all(item.is_group for item in items):
            continue
        about = next((item.help for item in items if item.is_group and item.help), "")
        parts += [f"{rank}{group or 'general'}", *filter(None, [_text(about)]), _table(items)]
    return "\n\n".join(parts)


def _table(items: Iterable[Description]) -> str:
    rows = [
        f"| `{item.path}` | {_only_if(item)}{_text(item.help)}{_kinds(item)} | {_allowed(item)} "
        f"| {_default(item)} |"
        for item in items
        if not item.is_group
    ]
    return "\n".join(["| setting | meaning | values | default and its source |", "|---|---|---|---|", *rows])


def _only_if(item: Description) -> str:
    """The kinds of records that have this setting, if not all have it."""
    return "".join(f"*If `{path}` is {' or '.join(kinds)}:* " for path, kinds in item.when[-1:])


def _kinds(item: Description) -> str:
    return "".join(f"<br>`{kind}`: {_text(text)}" for kind, text in item.kinds if text)


def _allowed(item: Description) -> str:
    kind = type_text(item).strip("{}").replace("{", "").replace("}", "")
    bounds = ", ".join(bounds_of(item))
    words = ", ".join(f"`{word}`" for word in kind.split(",") if word != "...")
    return f"{words}{'; ' if bounds else ''}{bounds}".replace("|", " or ")


def _default(item: Description) -> str:
    if item.default is dataclasses.MISSING:
        return "must be given"
    value = item.default
    shown = type(value).__name__ if dataclasses.is_dataclass(value) else value_text(value)
    return f"`{shown}`{f' ({_text(item.source)})' if item.source else ''}"


def _text(text: str) -> str:
    """A help text in a cell of a table; the pages that it names become links."""
    escaped = html.escape(" ".join(text.split()), quote=False).replace("|", "&#124;").replace("*", "\\*")
    return re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", escaped)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PARTS: dict[str, Callable[[str | None], str]] = {
    "methods": methods,
    "domains": domains,
    "domain": domain,
    "run-settings": run_settings,
    "domain-settings": domain_settings,
    "teacher-settings": teacher_settings,
    "coverage-settings": coverage_settings,
    "method-defaults": method_defaults,
    "commands": commands,
    "contributing": contributing,
}
"""The generated parts by the names that pages use."""
