"""The command that trains a run again, read off its config."""

import functools
import json
import shlex
from typing import Any

from cenie import settings
from cenie.envs.domains import is_reference
from cenie.experiment.config import read_config
from cenie.experiment.presets import preset
from cenie.rundir.files import flat
from cenie.settings import SettingsError

_NAMED = ("domain", "method", "preset", "seed", "updates", "from_python")


def train_command(config: dict[str, Any]) -> str | None:
    """`cenie train ...` with every setting that is not the preset's; None if no command could do it."""
    if config.get("from_python") or is_reference(config.get("domain")):
        return None
    try:
        made = read_config(config)
        usual = preset_settings(made.domain, made.method, made.preset, made.updates)
    except SettingsError:
        return None
    words = ["cenie", "train", made.domain, made.method, "--preset", made.preset]
    words += ["--seed", str(made.seed), "--updates", str(made.updates)]
    for path, value in flat(settings.to_data(made)):
        if path not in _NAMED and value != usual.get(path, ...):
            words += [f"--{path}", _text(value)]
    return shlex.join(words)


@functools.lru_cache(maxsize=256)
def preset_settings(domain: str, method: str, name: str | None, updates: int | None = None) -> dict[str, Any]:
    """The settings of a preset by their paths: the same for all of the many seeds of a report."""
    changes = {} if updates is None else {"updates": updates}
    return dict(flat(settings.to_data(preset(domain, method, name, changes))))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)
