"""The config of a run directory, for the commands that go on with a run or look at it."""

from pathlib import Path

from cenie.command.options import let_import
from cenie.envs.domains import find_domain
from cenie.experiment.config import Config
from cenie.methods.table import OWN
from cenie.rundir.config_file import load_config
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.settings import Problem, SettingsError, show


def load_run_config(path: Path, domain: str | None) -> Config:
    """The config of a run; one of a domain of the user's own only if they name it."""
    let_import(domain)
    config = load_config(RunDirectory(path).config, None if domain is None else find_domain(domain))
    if domain not in (None, config.domain):
        message = f"the run is of {show(config.domain)}, got {show(domain)}"
        raise SettingsError([Problem("domain", message)])
    if config.from_python or config.method == OWN:
        parts = ", ".join(config.from_python) or OWN
        raise RunDirectoryError(
            f"{path} was begun in Python, with parts that no file holds ({parts}); go on there: "
            f"cenie.train(..., {str(path)!r}, ..., resume=True) or cenie.load_run({str(path)!r}, ...)"
        )
    return config
