"""What must be in order, and what is known, before a run begins."""

from typing import TYPE_CHECKING

from cenie.experiment.config import Config
from cenie.settings import Problem
from cenie.training.sinks import missing_sinks

if TYPE_CHECKING:
    from cenie.experiment.build import Parts


def start_problems(config: Config, parts: "Parts | None" = None) -> list[Problem]:
    """Why this machine cannot train a config: packages or memory that are not there.

    A backend of JAX may be started to find out, so XLA must have its flags by now. Nothing is compiled.

    Args:
        config: The settings of the run.
        parts: What is passed from Python in the place of what they name.

    Returns:
        The problems, each with the settings that it is about.

    Raises:
        SettingsError: The parts do not fit the settings.
    """
    from cenie.experiment.memory import training_problems  # loads JAX

    problems = [
        Problem("run.sinks", f"'{name}' is not installed; {advice}, or leave it out")
        for name, advice in missing_sinks(config.run.sinks).items()
    ]
    return problems or training_problems(config, parts)


def levels_before_replay(config: Config) -> int:
    """How many levels the buffer must hold before any is replayed; 0 if that is not in the settings."""
    return 0 if config.replay is None else config.replay.levels_before_replay
