"""`config.json`: the settings of a run. Loads no JAX."""

from pathlib import Path
from typing import TYPE_CHECKING

from cenie.experiment.config import MAX_FILE_BYTES, Config, read_config
from cenie.rundir.files import RunDirectoryError, read_json, write_json
from cenie.settings import Problem, SettingsError, show, to_data


def write_config(path: Path, config: Config) -> None:
    """Write a config whole. Raises `WriteError` if the disk refuses."""
    write_json(path, to_data(config))


if TYPE_CHECKING:
    from cenie.envs.base import Domain


def load_config(path: Path, entry: "Domain | None" = None) -> Config:
    """The config of a run directory; raises `SettingsError` if the file cannot be read."""
    try:
        data = read_json(path, MAX_FILE_BYTES)
    except RunDirectoryError as error:
        raise SettingsError([Problem("config.json", str(error))]) from error
    return read_config(data, entry)


def check_domain(config: Config, domain: str | None) -> None:
    """Raise `SettingsError` if a run is of another domain than the user named; None names none."""
    if domain not in (None, config.domain):
        message = f"the run is of {show(config.domain)}, got {show(domain)}"
        raise SettingsError([Problem("domain", message)])
