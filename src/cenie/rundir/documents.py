"""The JSON files of a run that are written whole: `config.json`, `summary.json` and `diverged.json`.

Each has its writer and its reader here; what diverged is for people, and no program reads it. Loads no JAX.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cenie.experiment.config import MAX_FILE_BYTES, Config, read_config
from cenie.rundir.files import FORMAT, RunDirectory, RunDirectoryError, read_json, writable, write_json
from cenie.settings import Problem, SettingsError, show, to_data

if TYPE_CHECKING:
    from cenie.envs.base import Domain


def write_config(path: Path, config: Config) -> None:
    """Write a config whole. Raises `WriteError` if the disk refuses."""
    write_json(path, to_data(config))


def read_settings(path: Path) -> Any:
    """The content of a `config.json` as it stands. Raises `RunDirectoryError` if it cannot be read."""
    return writable(read_json(path, MAX_FILE_BYTES))


def load_config(path: Path, entry: "Domain | None" = None, named: "str | Domain | None" = None) -> Config:
    """The config of a run directory, whose domain is `entry` if it is one of the user's own.

    Raises `SettingsError` if the file cannot be read, or is of another domain than the user named.
    """
    try:
        data = read_settings(path)
    except RunDirectoryError as error:
        raise SettingsError([Problem("config.json", str(error))]) from error
    check_domain(data, named)
    return read_config(data, entry)


def check_domain(data: Any, named: "str | Domain | None") -> None:
    """Raise `SettingsError` if the settings of a run are of another domain than the user named, if any."""
    found = data.get("domain") if isinstance(data, dict) else None
    name = named if named is None or isinstance(named, str) else named.name
    if name not in (None, found):
        raise SettingsError([Problem("domain", f"the run is of {show(found)}, got {show(name)}")])


def write_summary(path: Path, content: dict[str, Any]) -> None:
    """Write the summary whole, with the number of its format. Raises `WriteError` if the disk refuses."""
    write_json(path, {"format": FORMAT, **content})


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary; None if there is none. Raises `RunDirectoryError` with the reason if it is damaged."""
    if not os.path.lexists(path):
        return None
    found = writable(read_json(path))
    if not isinstance(found, dict):
        raise RunDirectoryError(f"{path} is no summary of a run")
    return found


def write_divergence(directory: RunDirectory, cycle: int, updates: int, skipped: int) -> Path:
    """Say when training was given up because too many updates in a row were not finite; returns the file."""
    path = directory.path / "diverged.json"
    write_json(path, {"cycle": cycle, "updates": updates, "skipped_in_a_row": skipped})
    return path
