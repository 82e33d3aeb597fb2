"""The runs of a report: opened, as far as they can be read, put into groups of repetitions, and named by what
tells them apart.

What is damaged is named with the reason and left out, never fatal: a report over many runs must not fail
because one of them was killed.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cenie.envs.domains import DOMAINS
from cenie.methods.table import METHODS
from cenie.rundir.again import preset_settings
from cenie.rundir.files import RunDirectoryError, flat
from cenie.rundir.run import Run, open_run
from cenie.settings import SettingsError

_NOT_GROUPED_BY = ("seed", "run")
"""Settings that may differ within a group: which repetition it is, and what is written how often."""
_BUDGET = "run.env_steps"
"""The one setting among them that decides what a student learns."""
FOLLOWS = {"student.ppo.decay_updates": "updates"}
"""Settings that differ whenever another does, and need not be named then."""
_NAMED_SETTINGS = 3


@dataclass(frozen=True, eq=False)
class Group:
    """Repetitions of one experiment: runs of a domain and a method that differ in their seeds only.

    Attributes:
        domain: The name of the domain.
        method: The name of the method.
        label: The method, and the settings by which the group differs from others of the method.
        runs: The runs, ordered by their seeds.
        number: The place among the groups of the method, so that it looks the same in every figure.
    """

    domain: str
    method: str
    label: str
    runs: tuple[Run, ...]
    number: int = 0

    @property
    def counted(self) -> tuple[Run, ...]:
        """The finished runs, or all if none is."""
        return tuple(run for run in self.runs if run.summary is not None) or self.runs


@dataclass(frozen=True)
class RunList:
    """The runs that can be read, and a sentence for each directory that cannot."""

    runs: tuple[Run, ...]
    skipped: tuple[str, ...]


def open_runs(paths: Iterable[Path]) -> RunList:
    """Open run directories; in the place of one may be a directory that holds some.

    Args:
        paths: The directories.

    Returns:
        The runs, and a sentence for each directory that cannot be read.
    """
    runs, skipped = [], []
    for path in dict.fromkeys(each for given in paths for each in _run_directories(Path(given))):
        try:
            runs.append(open_run(path))
        except RunDirectoryError as error:
            skipped.append(f"{path} is left out: {error}")
    return RunList(tuple(runs), tuple(skipped))


def _run_directories(path: Path) -> list[Path]:
    if (path / "config.json").exists() or not path.is_dir():
        return [path]
    return sorted(config.parent for config in path.glob("*/config.json")) or [path]


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Put runs into groups: by domain and method, and by settings where these differ.

    The label of a group is its method, followed by the settings in which it differs from other groups of the
    method; those that are as in the preset are left out, if that does not make two labels the same.

    Args:
        runs: The runs, in any order.

    Returns:
        The groups, ordered by domain and method.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(json.dumps(_identity(run), sort_keys=True), []).append(run)
    kinds: dict[tuple[str, str], list[list[Run]]] = {}
    for members in found.values():
        ordered = sorted(members, key=lambda run: (run.seed, str(run.path)))
        kinds.setdefault((ordered[0].domain_name, ordered[0].method), []).append(ordered)
    order = list(METHODS)
    result: list[Group] = []
    for domain, method in sorted(
        kinds, key=lambda kind: (kind[0], order.index(kind[1]) if kind[1] in order else len(order), kind[1])
    ):
        members = kinds[domain, method]
        labels = _labels([each[0] for each in members])
        named = sorted(zip(labels, members), key=lambda pair: (len(pair[0]), pair[0]))
        result += [
            Group(domain, method, label, tuple(each), number) for number, (label, each) in enumerate(named)
        ]
    return result


def _identity(run: Run) -> dict[str, Any]:
    return {
        path: value
        for path, value in flat(run.settings)
        if path == _BUDGET or path.split(".", 1)[0] not in _NOT_GROUPED_BY
    }


def _labels(runs: Sequence[Run]) -> list[str]:
    """A label for each group of one method, given by its first run; no two are the same."""
    every = [_identity(run) for run in runs]
    usual = _usual(runs[0])
    differing = [
        [path for path in own if any(other.get(path) != own[path] for other in every)] for own in every
    ]
    short = [
        _label(runs[0].method, own, [path for path in paths if own[path] != usual.get(path)])
        for own, paths in zip(every, differing)
    ]
    if len(set(short)) == len(short):
        return short
    long = [_label(runs[0].method, own, paths) for own, paths in zip(every, differing)]
    return [
        f"{label} ({long[:at].count(label) + 1})" if long.count(label) > 1 else label
        for at, label in enumerate(long)
    ]


def _usual(run: Run) -> dict[str, Any]:
    """The settings of the run's preset; none of a domain that is not ours, or of a preset that is gone."""
    name = run.settings.get("preset")
    if run.domain_name not in DOMAINS or not isinstance(name, str | None):
        return {}
    try:
        return preset_settings(run.domain_name, run.method, name)
    except SettingsError:
        return {}


def _label(method: str, own: dict[str, Any], differing: Sequence[str]) -> str:
    """The method, and what tells the group from others of the method."""
    named = [path for path in differing if FOLLOWS.get(path) not in differing]
    # The kind of a group of settings says more than the settings that only this kind has.
    named.sort(key=lambda path: not path.endswith(".kind"))
    parts = [_part(path, own[path]) for path in named[:_NAMED_SETTINGS] if own[path] != []]
    more = [f"and {len(named) - _NAMED_SETTINGS} more"] if len(named) > _NAMED_SETTINGS else []
    return ", ".join([method, *parts, *more])


def _part(path: str, value: Any) -> str:
    """A setting; parts that were passed from Python say themselves what they are."""
    return shown(value) if path == "from_python" else f"{_short(path)}={shown(value)}"


def _short(path: str) -> str:
    """The last part of a dotted path, with the one before if it says nothing alone."""
    *before, name = path.split(".")
    return f"{before[-1]}.{name}" if before and name in ("kind", "value", "size") else name


def shown(value: Any) -> str:
    """The value of a setting as a label shows it."""
    if isinstance(value, list):
        return "+".join(map(shown, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
