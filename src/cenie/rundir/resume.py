"""Going on with a run: what its checkpoints say of themselves, whether they belong to its config, and whether
anything is left to do. All of this is answered before a backend is started.
"""

import os
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cenie import settings
from cenie.experiment.config import MAY_CHANGE_ON_RESUME, Config, EvaluationRequest, read_config
from cenie.rundir import manifest as manifests
from cenie.rundir.documents import read_settings, read_summary
from cenie.rundir.files import RunDirectory, RunDirectoryError, differing_settings
from cenie.rundir.manifest import Unusable
from cenie.settings import SettingsError
from cenie.system.durable import WriteError

Decay = Literal["keep", "stretch", "restart"]
"""The fall of the learning rate when a run is made longer: it stays as it was, it reaches its end with the
new end of the run, or it begins once more where the run is."""

_WHOLE_FILE = 2**30
_SHOWN = 20
_PLAIN = {str, int, float, bool, type(None)}


@dataclass(frozen=True)
class CheckpointFacts:
    """The facts of a checkpoint about the run it is from, besides the arrays.

    `settings` is the whole config at that time, `rows` how many rows each table had.
    `deviations` says in words why the run is not bit for bit the one that its config describes; it is
    handed on from checkpoint to checkpoint.
    """

    version: str
    updates: int
    env_steps: int
    settings: dict[str, Any]
    environment: dict[str, Any]
    rows: dict[str, int]
    bit_exact: bool
    deviations: list[str]

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def read_facts(data: Mapping[str, Any]) -> CheckpointFacts:
    """The facts of a manifest; raises `Unusable` if one is missing or is not what it should be."""
    kinds = {field.name: typing.get_origin(field.type) or field.type for field in fields(CheckpointFacts)}
    wrong = [name for name, kind in kinds.items() if type(data.get(name)) is not kind]
    if not wrong:
        options = [value for value in data["environment"].values() if type(value) is dict]
        plain = {
            "environment": _are(_PLAIN | {dict}, data["environment"].values())
            and all(_are(_PLAIN, option.values()) for option in options),
            "rows": _are({int}, data["rows"].values()),
            "deviations": _are({str}, data["deviations"]),
        }
        wrong = [name for name, right in plain.items() if not right]
    if wrong:
        raise Unusable(f"its facts lack {', '.join(wrong)}: not written by this version of cenie")
    return CheckpointFacts(**{name: data[name] for name in kinds})


def _are(kinds: set[type], values: Iterable[Any]) -> bool:
    return all(type(value) in kinds for value in values)


def check_belongs(config: Config, path: Path, data: Mapping[str, Any]) -> None:
    """Raise `RunDirectoryError`, with every setting that differs, if the checkpoint is of another run.

    A config.json that was edited and a checkpoint that was put there look the same, and going on would
    continue one experiment under the name of another.
    """
    facts = read_facts(data)
    differing = _differing(facts.settings, config)
    if differing:
        raise RunDirectoryError(
            f"{path} was not made with the settings of config.json:\n  {_listed(differing)}\n"
            "put back the config.json, or the checkpoints, that belong together"
        )


def _differing(saved: Any, config: Config) -> list[str]:
    """A line for each setting that makes another experiment of saved settings, or why they are none."""
    try:
        # Read like a config, so that settings which are newer than the saved ones have their defaults.
        same_domain = isinstance(saved, dict) and saved.get("domain") == config.domain
        before = settings.to_data(read_config(saved, config.entry if same_domain else None))
        return differing_settings(before, settings.to_data(config), MAY_CHANGE_ON_RESUME)
    except SettingsError as error:
        return [str(problem) for problem in error.problems]
    except RecursionError:
        return ["settings: nested too deeply"]


def _listed(lines: list[str]) -> str:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n  ".join([line[:200] for line in lines[:_SHOWN]] + more)


def check_unused(directory: RunDirectory) -> None:
    """Refuse to begin a run where there is one, or among the files of somebody. Touches nothing."""
    if os.path.lexists(directory.config):
        raise RunDirectoryError(f"{directory.path} holds a run: a new run needs a directory of its own")
    directory.check_free()


def check_own(config: Config, directory: RunDirectory) -> None:
    """Refuse to go on in a directory whose config.json is of another run, also before its first checkpoint.

    A directory without a config.json must be free: a run would begin there. Touches nothing.
    """
    if not os.path.lexists(directory.config):
        directory.check_free()
    elif differing := _differing(read_settings(directory.config), config):
        raise RunDirectoryError(
            f"{directory.path} holds a run of other settings; a run needs a directory of its own:\n"
            f"  {_listed(differing)}"
        )


def check_checkpoints(config: Config, directory: RunDirectory) -> int:
    """Refuse a directory with a checkpoint of another run, whether it would be used or not.

    Returns how many checkpoints there are.
    """
    found = manifests.newest_first(directory.checkpoints)
    for path in found:
        try:
            check_belongs(config, path, manifests.read(path)["facts"])
        except Unusable:
            continue  # Said, with the reason, when the checkpoints are loaded.
    return len(found)


def updates_done(config: Config, directory: RunDirectory) -> int | None:
    """The updates of a run that is finished, checkpoint and summary included; None if there is work left."""
    for path in manifests.newest_first(directory.checkpoints)[:1]:
        try:
            manifest = manifests.read(path)
            facts = read_facts(manifest["facts"])
            if not config.is_over(facts.updates, facts.env_steps):
                return None
            manifests.read_arrays(path / manifests.ARRAYS, manifest["arrays"], _WHOLE_FILE)
            summary = read_summary(directory.summary) or {}
        except (Unusable, RunDirectoryError):
            return None
        counted = [summary.get(name) for name in ("cycles", "updates")]
        return facts.updates if counted == [manifest["step"], facts.updates] else None
    return None


def with_decay(config: Config, decay: Decay, updates: int) -> Config:
    """The config of a run that goes on after `updates` updates, with the schedule that was asked for."""
    ppo = config.student.ppo
    restarted = ppo.decay_from and ppo.decay_from + (ppo.decay_updates or 0) == config.updates
    # The same command is given again after a kill, and must not raise the learning rate each time.
    if decay == "keep" or not decays(config) or (decay == "restart" and restarted):
        return config
    begin = 0 if decay == "stretch" else updates
    length = max(config.updates - begin, 1)
    return settings.replace(config, {"student.ppo.decay_from": begin, "student.ppo.decay_updates": length})


def decays(config: Config) -> bool:
    """Whether the learning rate falls at all."""
    return config.student.ppo.final_learning_rate_fraction < 1.0


def decay_note(config: Config) -> str | None:
    """A note on the learning rate of a run that was made longer; None if it falls until the end."""
    ppo = config.student.ppo
    end = ppo.decay_from + (ppo.decay_updates or config.updates)
    if not decays(config) or end >= config.updates:
        return None
    floor = ppo.learning_rate * ppo.final_learning_rate_fraction
    return (
        f"the learning rate falls until update {end}, as first planned, and stays at {floor:g} from there to "
        f"update {config.updates}; --decay stretch lets it fall over the whole run, --decay restart once "
        "more from its full value over the updates that are left, and --decay keep leaves it as it is"
    )


def check_evaluation(config: Config, directory: RunDirectory, request: EvaluationRequest) -> None:
    """Raise what stands in the way of an evaluation, before anything is compiled for it."""
    from cenie.experiment.memory import evaluation_problems  # loads JAX

    if not check_checkpoints(config, directory):
        raise RunDirectoryError(f"{directory.path} has no checkpoint to evaluate")
    check_writable(directory.path)
    problems = evaluation_problems(config, request.episodes)
    if problems:
        raise SettingsError(problems)


def check_writable(path: Path) -> None:
    """Raise `WriteError` if the table of an evaluation cannot be written to a directory."""
    if not os.access(path, os.W_OK):
        raise WriteError(f"cannot write in {path}, where the table of this evaluation would go")
