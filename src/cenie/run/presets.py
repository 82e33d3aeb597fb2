"""Named starting points of a run. Imports no JAX. What they say stands in the folder of each domain."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cenie import settings
from cenie.envs.domains import DOMAINS
from cenie.run.config import Config, check_names, config_type
from cenie.settings import Problem, SettingsError, Where, show

_ABSENT: Any = object()


def preset(domain: str, method: str, name: str, overrides: dict[str, Any] | None = None) -> Config:
    """The config of a preset, with dotted-path overrides; raises `SettingsError` with every problem."""
    check_names(domain, method)
    presets = DOMAINS[domain].presets
    if name not in presets:
        raise SettingsError([Problem("preset", f"must be one of {', '.join(presets)}, got {show(name)}")])
    config = config_type(domain, method)(domain=domain, method=method, preset=name)
    data = settings.to_data(config)
    chosen = _chosen(data, presets[name])
    return _with_decay(settings.replace(settings.replace(config, chosen), overrides or {}))


def _chosen(data: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset says of this method: presets are written for all methods of a domain."""
    chosen = {}
    for path, value in values.items():
        if isinstance(value, Where):
            if _at(data, value.path) in (None, _ABSENT):
                continue
            value = value.value
        if not path.startswith("teacher.") or _at(data, path) is not _ABSENT:
            chosen[path] = value
    return chosen


def _at(data: Any, path: str) -> Any:
    """The value at a dotted path; `_ABSENT` if there is no such setting."""
    for name in path.split("."):
        if not isinstance(data, dict) or name not in data:
            return _ABSENT
        data = data[name]
    return data


def _with_decay(config: Config) -> Config:
    """Let the learning rate reach its final value at the end of the run, unless told otherwise."""
    if config.student.ppo.decay_updates is not None:
        return config
    ppo = replace(config.student.ppo, decay_updates=max(config.updates, 1))
    return replace(config, student=replace(config.student, ppo=ppo))
