"""What must be in order, and what is known, before a run begins. Imports no JAX."""

import os
from collections.abc import Iterable

from cenie.durable import WriteError
from cenie.experiment.config import Config, EvaluationRequest
from cenie.experiment.memory import Need, evaluation_needs, memory_problems, training_needs
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.resume import check_checkpoints
from cenie.settings import Problem, SettingsError
from cenie.train.sinks import missing_sinks


def start_problems(config: Config) -> list[Problem]:
    """Why this machine cannot train a config: programs or memory that are not there."""
    problems = [
        Problem("run.sinks", f"'{name}' is not installed; {advice}, or leave it out")
        for name, advice in missing_sinks(config.run.sinks).items()
    ]
    return problems + _too_large(config, training_needs(config))


def check_evaluation(config: Config, directory: RunDirectory, request: EvaluationRequest) -> None:
    """Raise what stands in the way of an evaluation, before anything is compiled for it."""
    problems = _too_large(config, evaluation_needs(config, request.episodes))
    if problems:
        raise SettingsError(problems)
    if not check_checkpoints(config, directory):
        raise RunDirectoryError(f"{directory.path} has no checkpoint to evaluate")
    if not os.access(directory.path, os.W_OK):
        raise WriteError(f"cannot write in {directory.path}, where the table of this evaluation would go")


def _too_large(config: Config, needs: Iterable[Need]) -> list[Problem]:
    # How large a network from elsewhere is cannot be told from the settings.
    if any(part.startswith("network ") for part in config.from_python):
        return []
    return memory_problems(needs)


def levels_before_replay(config: Config) -> int:
    """How many levels the buffer must hold before any is replayed; 0 if that is not in the settings."""
    return 0 if config.replay is None else config.replay.levels_before_replay
