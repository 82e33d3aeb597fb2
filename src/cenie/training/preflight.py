"""Preflight checks of a run, and the facts known before it begins."""

from typing import TYPE_CHECKING

from cenie.experiment.config import Config
from cenie.settings import Problem, SettingsError
from cenie.training.sinks import missing_sinks

if TYPE_CHECKING:
    from cenie.experiment.build import Parts


def check_start(config: Config, parts: "Parts | None" = None) -> None:
    """Refuse a config that this machine cannot train: packages or memory are not there.

    A backend of JAX may be started to find out, so XLA must have its flags by now. Nothing is compiled.

    Args:
        config: The settings of the run.
        parts: What is passed from Python in the place of what they name.

    Raises:
        SettingsError: With every problem and the settings that it is about, or the parts do not fit these.
    """
    from cenie.experiment.memory import training_problems  # loads JAX

    problems = [
        Problem("run.sinks", f"'{name}' is not installed; {advice}, or leave it out")
        for name, advice in missing_sinks(config.run.sinks).items()
    ]
    problems = problems or training_problems(config, parts)
    if problems:
        raise SettingsError(problems)


def levels_before_replay(config: Config) -> int:
    """The number of levels the buffer must hold before any is replayed; 0 if that is not in the settings."""
    return 0 if config.replay is None else config.replay.levels_before_replay
