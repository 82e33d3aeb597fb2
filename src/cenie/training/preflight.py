"""What must be in order, and what is known, before a run begins. Imports no JAX."""

from cenie.experiment.config import Config
from cenie.experiment.memory import too_large, training_needs
from cenie.settings import Problem
from cenie.training.sinks import missing_sinks


def start_problems(config: Config) -> list[Problem]:
    """Why this machine cannot train a config: programs or memory that are not there."""
    problems = [
        Problem("run.sinks", f"'{name}' is not installed; {advice}, or leave it out")
        for name, advice in missing_sinks(config.run.sinks).items()
    ]
    return problems + too_large(config, training_needs(config))


def levels_before_replay(config: Config) -> int:
    """How many levels the buffer must hold before any is replayed; 0 if that is not in the settings."""
    return 0 if config.replay is None else config.replay.levels_before_replay
