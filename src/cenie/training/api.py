"""Training from Python: what the command line does, for domains and parts of one's own."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from cenie.envs.base import Domain
from cenie.envs.domains import find_domain
from cenie.envs.loading import checked
from cenie.experiment import presets
from cenie.experiment.build import Parts
from cenie.experiment.config import Config
from cenie.rundir.config_file import load_config
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.resume import Decay, check_checkpoints, check_own, updates_done
from cenie.rundir.run import Run
from cenie.settings import Problem, SettingsError, show
from cenie.training.loop import train as run_training
from cenie.training.preflight import levels_before_replay, start_problems
from cenie.training.progress import Progress


def preset(
    domain: str | Domain, method: str, name: str | None = None, overrides: dict[str, Any] | None = None
) -> Config:
    """The config of a preset (by default the domain's first), with dotted-path overrides.

    `domain` is a name (`cenie domains` lists them), `module:attribute` of your own, or a `Domain`; with the
    first two, the command line can go on with the run. `method` is a name (`cenie methods`), or "own" for a
    `Curriculum` of your own. Raises `SettingsError` with every problem.
    """
    if isinstance(domain, str):
        return presets.preset(domain, method, name, overrides)
    config = presets.preset(domain.name, method, name, overrides, checked(domain))
    return replace(config, from_python=(f"domain {domain.name}",))


def train(
    config: Config,
    out: str | Path,
    parts: Parts | None = None,
    *,
    resume: bool = False,
    decay: Decay | None = None,
    quiet: bool = False,
) -> Run:
    """Train into the directory `out` until the config's number of updates, and open the result.

    `parts` are of your own, in the place of those that the config names. With `resume` a run that is there is
    gone on with, and begun otherwise; the config and the parts must be those that it was begun with. An
    interrupt (Ctrl-C) ends the training after a checkpoint. Call it on the main thread.

    Raises `RunDirectoryError`, before anything is touched, if `out` holds another run or something else.
    """
    directory, parts = RunDirectory(Path(out)), parts or Parts()
    config = _with_parts(config, parts)
    problems = start_problems(config, parts)
    if problems:
        raise SettingsError(problems)
    if not resume and os.path.lexists(directory.config):
        raise RunDirectoryError(f"{out} already holds a run; resume=True goes on with it")
    if resume:
        check_own(config, directory)
        check_checkpoints(config, directory)
    if not resume or updates_done(config, directory) is None:
        with Progress(
            Console(quiet=quiet), config.updates, levels_before_replay(config), config.run.env_steps
        ) as progress:
            run_training(config, directory, progress, resume=resume, decay=decay, parts=parts)
    return Run(directory.path, load_config(directory.config, config.entry), parts)


def load_run(path: str | Path, parts: Parts | None = None, *, domain: str | Domain | None = None) -> Run:
    """Open a run directory, finished or not: config, domain, students, level buffer, tables.

    `parts` and `domain` are what the run was begun with in Python, if anything. A domain of your own that the
    config names as `module:attribute` must be named here too, since no code is run because a file says so.
    Raises `SettingsError` if the config cannot be read or does not fit; what else is damaged, `Run` says.
    """
    directory, parts = RunDirectory(Path(path)), parts or Parts()
    config = load_config(directory.config, None if domain is None else _entry(domain))
    if domain is not None:
        name = domain if isinstance(domain, str) else domain.name
        if name != config.domain:
            message = f"the run is of {show(config.domain)}, got {show(name)}"
            raise SettingsError([Problem("domain", message)])
    begun_with = tuple(part for part in config.from_python if not part.startswith("domain "))
    if begun_with != parts.names:
        wanted, given = (", ".join(names) or "none" for names in (begun_with, parts.names))
        raise SettingsError([Problem("parts", f"the run was begun with {wanted}, got {given}")])
    return Run(directory.path, config, parts)


def _entry(domain: str | Domain) -> Domain:
    return find_domain(domain) if isinstance(domain, str) else checked(domain)


def _with_parts(config: Config, parts: Parts) -> Config:
    passed = [part for part in config.from_python if part.startswith("domain ")]
    return replace(config, from_python=(*passed, *parts.names))
