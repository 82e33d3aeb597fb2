"""Training from Python: what the command line does, for domains and parts of one's own."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from cenie.envs.base import Domain
from cenie.envs.loading import checked
from cenie.experiment import presets
from cenie.experiment.build import Parts
from cenie.experiment.config import Config
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.resume import Decay, check_checkpoints, check_own, updates_done
from cenie.rundir.run import Run
from cenie.training.loop import train as run_training
from cenie.training.preflight import check_start, levels_before_replay
from cenie.training.progress import Progress


def preset(
    domain: str | Domain, method: str, name: str | None = None, overrides: dict[str, Any] | None = None
) -> Config:
    """The config of a preset (by default the domain's first), with dotted-path overrides.

    Args:
        domain: a name (`cenie domains` lists them), `module:attribute` of your own, or a `Domain`; with the
            first two, the command line can go on with the run.
        method: a name (`cenie methods`), or "own" for a `Curriculum` of your own.
        name: of the preset; by default the domain's first.
        overrides: values by the dotted paths of settings.

    Returns:
        The config, which `train` takes.

    Raises:
        SettingsError: with every problem.
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
    """Train until the config's number of updates, and open the result. Call it on the main thread.

    An interrupt (Ctrl-C) ends the training after a checkpoint.

    Args:
        config: of the run, as from `preset`.
        out: the directory of the run.
        parts: parts of your own, in the place of those that the config names.
        resume: continue an existing run; a new one is started if there is none. The config and the parts must
            be those that it was begun with.
        decay: what becomes of the fall of the learning rate of a run that is made longer.
        quiet: print nothing.

    Returns:
        The run, finished or, after an interrupt, not.

    Raises:
        SettingsError: the config cannot be trained here, or the parts do not fit it.
        RunDirectoryError: `out` holds another run or something else; nothing is touched then.
        WriteError: the disk refuses what must be kept.
    """
    directory, parts = RunDirectory(Path(out)), parts or Parts()
    config = _with_parts(config, parts)
    check_start(config, parts)
    if not resume and os.path.lexists(directory.config):
        raise RunDirectoryError(f"{out} already holds a run; resume=True goes on with it")
    if resume:
        check_own(config, directory)
        check_checkpoints(config, directory)
    if not resume or updates_done(config, directory) is None:
        train_on_console(config, directory, Console(quiet=quiet), resume=resume, decay=decay, parts=parts)
    return Run(directory.path, parts, config.entry)


def train_on_console(
    config: Config,
    directory: RunDirectory,
    console: Console,
    *,
    resume: bool,
    decay: Decay | None = None,
    parts: Parts | None = None,
    note: str | None = None,
) -> bool:
    """Train a config that was found good, with its progress on a console; `note` is said first.

    Returns whether it got to its end; see `cenie.training.loop.train`.
    """
    with Progress(console, config.updates, levels_before_replay(config), config.run.env_steps) as progress:
        if note:
            progress.note(note)
        return run_training(config, directory, progress, resume=resume, decay=decay, parts=parts)


def _with_parts(config: Config, parts: Parts) -> Config:
    passed = [part for part in config.from_python if part.startswith("domain ")]
    return replace(config, from_python=(*passed, *parts.names))
