"""Named starting points of a run. What they say stands in the folder of each domain."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cenie import settings
from cenie.experiment.config import Config, config_type, find_domain_and_method
from cenie.settings import Problem, SettingsError, Where, show

if TYPE_CHECKING:
    from cenie.envs.base import Domain

_ABSENT: Any = object()


def preset(
    domain: str,
    method: str,
    name: str | None = None,
    overrides: dict[str, Any] | None = None,
    entry: "Domain | None" = None,
) -> Config:
    """The config of a preset (by default the domain's first), with dotted-path overrides.

    `domain` is a name of the table or `module:attribute`; with `entry` it is only a name. Raises
    `SettingsError` with every problem.
    """
    entry, method = find_domain_and_method(domain, method, entry)
    name = default_preset(entry) if name is None else name
    presets = entry.presets
    if name not in presets:
        raise SettingsError([Problem("preset", f"must be one of {', '.join(presets)}, got {show(name)}")])
    config = config_type(entry, method)(domain=domain, method=method, preset=name)
    data = settings.to_data(config)
    chosen = _chosen(data, presets[name])
    default_suite = {"run.suite": next(iter(entry.suites))}
    return _with_decay_to_the_end(
        settings.replace(settings.replace(config, default_suite | chosen), overrides or {})
    )


def default_preset(entry: "Domain") -> str:
    """The preset that is taken unless another one is named."""
    return next(iter(entry.presets))


def _chosen(data: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a preset that concerns this method: presets are written for all methods of a domain."""
    chosen = {}
    for path, value in values.items():
        if isinstance(value, Where):
            if (fitting := _first_that_fits(data, value)) is None:
                continue
            value = fitting.value
        if not path.startswith("teacher.") or settings.value_at(data, path, _ABSENT) is not _ABSENT:
            chosen[path] = value
    return chosen


def _first_that_fits(data: Any, value: Where) -> Where | None:
    """It, or what counts otherwise."""
    found = settings.value_at(data, value.path)
    wanted = value.equals if isinstance(value.equals, tuple) else (value.equals,)
    if found not in (None, value.unless) and (value.equals is None or found in wanted):
        return value
    return None if value.otherwise is None else _first_that_fits(data, value.otherwise)


def _with_decay_to_the_end(config: Config) -> Config:
    """Let the learning rate reach its final value at the end of the run, unless told otherwise."""
    if config.student.ppo.decay_updates is not None:
        return config
    ppo = replace(config.student.ppo, decay_updates=max(config.updates, 1))
    return replace(config, student=replace(config.student, ppo=ppo))
