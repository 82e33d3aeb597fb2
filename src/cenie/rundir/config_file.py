"""The file `config.json` of a run directory."""

from pathlib import Path
from typing import TYPE_CHECKING

from cenie.experiment.config import MAX_FILE_BYTES, Config, read_config
from cenie.rundir.files import RunDirectoryError, read_json
from cenie.settings import Problem, SettingsError

if TYPE_CHECKING:
    from cenie.envs.base import Domain


def load_config(path: Path, entry: "Domain | None" = None) -> Config:
    """The config of a run directory; raises `SettingsError` if the file cannot be read."""
    try:
        data = read_json(path, MAX_FILE_BYTES)
    except RunDirectoryError as error:
        raise SettingsError([Problem("config.json", str(error))]) from error
    return read_config(data, entry)
