"""Checks before a run begins. Loads no JAX."""

from cenie.experiment.config import Config
from cenie.experiment.memory import too_large, training_needs
from cenie.settings import Problem, SettingsError
from cenie.training.sinks import missing_sinks


def check_start(config: Config) -> None:
    """Raise `SettingsError` if this machine cannot train a config: programs or memory that are not there."""
    problems = [
        Problem("run.sinks", f"'{name}' is not installed; {advice}, or leave it out")
        for name, advice in missing_sinks(config.run.sinks).items()
    ]
    problems += too_large(config, training_needs(config))
    if problems:
        raise SettingsError(problems)


def levels_before_replay(config: Config) -> int:
    """How many levels the buffer must hold before any is replayed; 0 if that is not in the settings."""
    return 0 if config.replay is None else config.replay.levels_before_replay
