"""Settings of runs, and students, that a command line names."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cenie import settings
from cenie.command.options import NO_OPTIONS, is_null, let_import, plain
from cenie.envs.domains import find_domain
from cenie.experiment.config import Config, config_type, find_domain_and_method
from cenie.experiment.presets import default_preset
from cenie.methods.table import OWN
from cenie.rundir.documents import load_config
from cenie.rundir.export import Student, is_student, open_student
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.resume import check_checkpoints
from cenie.rundir.run import Run
from cenie.settings import Description, Problem, SettingsError

if TYPE_CHECKING:
    from cenie.envs.base import Domain


def typed(domain: str, method: str, options: dict[str, str], entry: "Domain | None" = None) -> dict[str, Any]:
    """Option values as plain data. Lists are written `a,b`, texts without quotes; `no-` negates a switch."""
    entry, _ = find_domain_and_method(domain, method, entry)
    config = config_type(entry, method)(domain=domain, method=method, preset=default_preset(entry))
    known: dict[str, list[Description]] = {}
    for item in settings.describe(config):
        known.setdefault(item.path, []).append(item)
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, text in options.items():
        group, dot, name = path.rpartition(".")
        switch = group + dot + name.removeprefix("no_")
        inside = next((other for other in known if other.startswith(f"{path}.")), None)
        if path in NO_OPTIONS:
            problems.append(Problem(path, "is not an option: `cenie train DOMAIN METHOD`"))
        elif inside is not None:
            whole = known.get(path) or known[f"{path}.kind"]
            if is_null(text) and whole[0].may_be_null:
                values[path] = None
                continue
            example = f"--{inside} VALUE"
            problems.append(Problem(path, f"is a group of settings; give them one by one, as in {example}"))
        elif switch != path and text == "true" and any(item.hint is bool for item in known.get(switch, ())):
            if switch in options:
                problems.append(Problem(path, f"contradicts --{switch}"))
            values[switch] = False
        else:
            values[path] = plain(text, [item.hint for item in known.get(path, ())])
    if problems:
        raise SettingsError(problems)
    return values


def load_run_config(path: Path, domain: str | None) -> Config:
    """The config of a run; one of a domain of the user's own only if they name it."""
    if is_student(path):
        raise RunDirectoryError(f"{path} is an exported student, and this needs a run")
    let_import(domain)
    entry = None if domain is None else find_domain(domain)
    config = load_config(RunDirectory(path).config, entry, domain)
    if config.from_python or config.method == OWN:
        parts = ", ".join(config.from_python) or OWN
        raise RunDirectoryError(
            f"{path} was begun in Python, with parts that no file holds ({parts}); go on there: "
            f"cenie.train(..., {str(path)!r}, ..., resume=True) or cenie.load_run({str(path)!r}, ...)"
        )
    return config


def open_player(path: Path, domain: str | None, devices: int | None = None) -> Run | Student:
    """A run or an exported student, whose student is to play; the network is read when it is asked for."""
    if not is_student(path):
        return Run(path, entry=load_run_config(path, domain).entry, devices=devices)
    let_import(domain)
    entry = None if domain is None else find_domain(domain)
    return open_student(path, entry, named=domain, devices=devices)


def check_has_student(player: Run | Student) -> None:
    """Raise `RunDirectoryError` if a run has no checkpoint yet."""
    if isinstance(player, Run) and not check_checkpoints(player.config, player.files):
        raise RunDirectoryError(f"{player.path} has no checkpoint yet: there is no student to play with")
