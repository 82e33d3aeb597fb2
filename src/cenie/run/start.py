"""What must be in order, and what is known, before a run begins. Imports no JAX."""

from cenie.run.config import Config
from cenie.run.memory import memory_problems, training_needs
from cenie.run.sinks import missing_sinks
from cenie.settings import Problem
from cenie.teach.methods import ReplayTeacher


def start_problems(config: Config) -> list[Problem]:
    """Why this machine cannot train a config: programs or memory that are not there."""
    problems = [
        Problem("run.sinks", f"'{name}' is not installed; {advice}, or leave it out")
        for name, advice in missing_sinks(config.run.sinks).items()
    ]
    # How large a network from elsewhere is cannot be told from the settings.
    if not any(part.startswith("network ") for part in config.from_python):
        problems += memory_problems(training_needs(config))
    return problems


def levels_before_replay(config: Config) -> int:
    """How many levels the buffer must hold before any is replayed; 0 if that is not in the settings."""
    if not isinstance(config.teacher, ReplayTeacher):
        return 0
    return config.teacher.replay.levels_before_replay
