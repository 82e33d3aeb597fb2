"""`cenie train`: refuses what cannot be trained before anything is compiled."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cenie import settings
from cenie.command.configs import load_run_config, typed
from cenie.command.exit_codes import DIVERGED, OK, complain
from cenie.command.options import NO_OPTIONS, directory_option, let_import
from cenie.command.settings_text import paragraphs, row, settings_text, terminal_width
from cenie.envs.domains import DOMAINS, is_reference
from cenie.experiment.config import MAY_CHANGE_ON_RESUME, Config, config_type, find_domain_and_method
from cenie.experiment.devices import prepare_devices
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS, OWN
from cenie.rundir.evaluations import check_format
from cenie.rundir.files import RunDirectory, RunDirectoryError, differing_settings, free_name
from cenie.rundir.resume import Decay, check_checkpoints, check_unused, updates_done
from cenie.settings import Problem, SettingsError, show
from cenie.system.durable import WriteError
from cenie.system.streams import printable
from cenie.training.preflight import check_start

if TYPE_CHECKING:
    from cenie.envs.base import Domain

USAGE = """\
cenie train DOMAIN METHOD [--preset NAME] [--updates N] [--seed S] [--out DIR]
            [--any.field VALUE ...] [--new-name] [--report]
cenie train --resume DIR [--updates N] [--decay keep|stretch|restart]
            [--domain MODULE:ATTRIBUTE]
cenie train DOMAIN METHOD [GROUP ...] [--preset NAME] --help

trains a student, and writes what it learned and met to a directory
--preset      the starting point, which other options change
--out         the directory (by default runs/DOMAIN-METHOD-PRESET-seedS)
--new-name    the next free name if the directory holds a run already
--report      a report (cenie report) when the run is finished
--resume      go on after a stop, a crash or a kill, or make a run longer;
--decay       what then becomes of a learning rate that has fallen
--help        with a GROUP such as student.ppo: its settings alone
"""

LEGEND = """\
Settings of {method} on {domain} with the preset {preset}.

In brackets: the value that the preset or the method gives a setting, if it gives one; then the setting's own
default, and in parentheses where that default comes from. There, paper is the CENIE paper, original code is
dcd, on which its experiments ran, and ours is a choice of this library.

A list is written 1,2,3 and an empty one []. null leaves a setting out. --a.[no-]x is a switch: --a.x turns it
on, --a.no-x off. A group that becomes another kind begins with the defaults of that kind."""


def train_command(words: list[str], options: dict[str, str]) -> int:
    report = options.pop("report", None) is not None
    if report:
        from cenie.command.report import check_installed

        check_installed()
    domain = words[0] if words else options.get("domain")
    code, path = _resume(words, options) if "resume" in options else _begin(words, options)
    if report and code == OK and os.path.lexists(RunDirectory(path).summary):
        _report(path, domain)
    return code


def _begin(words: list[str], options: dict[str, str]) -> tuple[int, Path]:
    """Begin a run; the exit code and its directory."""
    if len(words) != 2:
        raise SettingsError([Problem("train", "expected DOMAIN METHOD, e.g. `cenie train maze dr`")])
    domain, method = words
    let_import(domain)
    name = options.pop("preset", None)
    out = directory_option(options, "out")
    new_name = options.pop("new_name", None) is not None
    config = preset(domain, method, name, typed(domain, method, options))
    title = f"{domain.replace(':', '-')}-{method}-{config.preset}-seed{config.seed}"
    path = out or Path("runs") / title
    if new_name:
        path = free_name(path)
    elif os.path.lexists(RunDirectory(path).config):
        raise RunDirectoryError(_occupied(path))
    return _start(config, path, resume=False), path


def _report(path: Path, domain: str | None) -> None:
    """Report on a finished run, which stays finished if that fails."""
    from cenie.command.report import ReportRequest, make_report

    try:
        request = ReportRequest(no_pdf=True, domain=domain if is_reference(domain) else None)
        make_report([path], path / "report", request)
    except (RunDirectoryError, WriteError, SettingsError) as error:
        complain(f"the run is finished, and there is no report on it: {error}")


def _occupied(path: Path) -> str:
    finished = os.path.lexists(RunDirectory(path).summary)
    resume = f"cenie train --resume {shlex.quote(str(path))}"
    go_on = "" if finished else f"  go on with it:        {resume}\n"
    return (
        f"{path} already holds a {'finished ' if finished else ''}run, which stays as it is\n{go_on}"
        f"  train it for longer:  {resume} --updates MORE\n"
        "  train another seed:   add --seed N (make train SEED=N)\n"
        "  train the same again: add --out DIR, or --new-name, which appends a number to the name\n"
        "                        (make train ARGS=--new-name), or remove the directory first"
    )


def _resume(words: list[str], options: dict[str, str]) -> tuple[int, Path]:
    """Go on with a run; the exit code and its directory."""
    path = directory_option(options, "resume") or Path()
    decay = _decay(options.pop("decay", None))
    domain = options.pop("domain", None)
    barred = ("preset", "out", "new_name")
    unwanted = [Problem(name, "not allowed with --resume") for name in barred if name in options]
    unwanted += [Problem(name, "the directory says what to train") for name in words]
    if unwanted:
        raise SettingsError(unwanted)
    saved = load_run_config(path, domain)
    config = settings.replace(saved, typed(saved.domain, saved.method, options, saved.entry))
    changed = differing_settings(settings.to_data(saved), settings.to_data(config), MAY_CHANGE_ON_RESUME)
    if changed:
        allowed = ", ".join(MAY_CHANGE_ON_RESUME)
        lines = "\n  ".join(changed)
        raise RunDirectoryError(f"a resumed run may change only {allowed}; differing:\n  {lines}")
    directory = RunDirectory(path)
    check_checkpoints(config, directory)
    done = updates_done(config, directory)
    if done is not None:
        text = f"nothing to do: {path} has had {done} updates; --updates N with a larger N goes on"
        sys.stdout.write(f"{printable(text)}\n")
        return OK, path
    check_format(directory.evaluations)
    return _start(config, path, resume=True, decay=decay), path


def _decay(text: str | None) -> Decay | None:
    for choice in (None, *get_args(Decay)):
        if text == choice:
            return choice
    allowed = ", ".join(get_args(Decay))
    raise SettingsError([Problem("decay", f"must be one of {allowed}, got {show(text)}")])


def _start(config: Config, path: Path, *, resume: bool, decay: Decay | None = None) -> int:
    if config.method == OWN:
        message = f"{show(OWN)} is for a curriculum that is passed from Python (docs/guides/own-method.md)"
        raise SettingsError([Problem("method", message)])
    if not resume:
        check_unused(RunDirectory(path))
    prepare_devices(config)
    check_start(config)
    note = _claim(RunDirectory(path))
    from rich.console import Console

    from cenie.training.api import train_on_console
    from cenie.training.loop import TrainingDiverged

    console = Console()

    def say(line: str) -> None:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    say(f"{config.method} on {config.domain}, preset {config.preset}, seed {config.seed}: {path}")
    try:
        finished = train_on_console(
            config, RunDirectory(path), console, resume=resume, decay=decay, note=note
        )
    except WriteError as error:
        has_any = os.path.isdir(RunDirectory(path).checkpoints)
        kept = f"\nnothing was lost up to the last checkpoint in {path}" if has_any else ""
        raise WriteError(f"{error}{kept}", error.errno) from error
    except TrainingDiverged as error:
        complain(str(error))
        return DIVERGED
    if not finished:
        again = f" --domain {shlex.quote(config.domain)}" if is_reference(config.domain) else ""
        say(f"stopped; go on with: cenie train --resume {shlex.quote(str(path))}{again}")
    return OK


def _claim(directory: RunDirectory) -> str | None:
    """Find out whether the directory can be written to before anything is compiled, which takes long."""
    try:
        with directory.lock() as note:
            return note
    except WriteError:
        raise
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"cannot use {directory.path}: {error}") from error


def help_text(words: list[str], options: dict[str, str]) -> str:
    """All settings of a domain and a method (the first ones unless named), or only the named groups."""
    domain, method = [*words, *(next(iter(DOMAINS)), next(iter(METHODS)))[len(words) :]][:2]
    let_import(domain)
    entry, _ = find_domain_and_method(domain, method)
    config = preset(domain, method, options.get("preset"))
    described = [item for item in settings.describe(config) if item.path not in (*NO_OPTIONS, "preset")]
    only = [name.replace("-", "_").strip("_") for name in words[2:]]
    known = {path for item in described for path in (item.path, item.group)}
    unknown = [
        Problem(name, "no setting and no group of them has this name") for name in only if name not in known
    ]
    if unknown:
        raise SettingsError(unknown)
    width = terminal_width()
    introduction = "" if only else f"{USAGE}\n{_choices(entry, config, width)}\n\n"
    return f"{introduction}{settings_text(described, width, _set_by(config), only)}\n"


def _choices(entry: "Domain", config: Config, width: int) -> str:
    """The names that can be chosen, and how to read the settings below."""
    groups = dict.fromkeys(item.group for item in settings.describe(config) if item.group)
    rows = {
        "domains": ", ".join(DOMAINS),
        "methods": ", ".join(METHODS),
        config.domain: entry.summary,
        "  presets": f"{', '.join(entry.presets)} (the first one unless another is named)",
        "  generators": ", ".join((*entry.generators, *entry.roles)),
        "  suites": ", ".join(entry.suites),
        config.method: METHODS[config.method].summary,
        "  groups": ", ".join(groups),
    }
    listed = "\n".join(row(name, text, width) for name, text in rows.items())
    return f"{listed}\n\n{paragraphs(LEGEND.format(**vars(config)), width)}"


def _set_by(config: Config) -> dict[str, str]:
    """Return what has set each setting that has not its own default: the method, or the preset."""
    bare = config_type(config.entry, config.method)(
        domain=config.domain, method=config.method, preset=config.preset
    )
    of_method, values = settings.to_data(bare), settings.to_data(config)

    def setter(path: str) -> str:
        same = settings.value_at(of_method, path, ...) == settings.value_at(values, path)
        return config.method if same and path.startswith("teacher.") else f"preset {config.preset}"

    return {item.path: setter(item.path) for item in settings.describe(config)}
