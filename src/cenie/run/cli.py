"""The command line. Loads JAX only after the arguments and the config have been found good."""

import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, get_args

from cenie import settings
from cenie.envs.domains import DOMAINS, DomainEntry, find_domain, is_reference
from cenie.run.config import (
    MAY_CHANGE_ON_RESUME,
    Config,
    config_type,
    evaluation_request,
    find_domain_and_method,
    load_config,
)
from cenie.run.continuation import Decay, check_checkpoints, check_unused, updates_done
from cenie.run.devices import core_count, prepare_devices, show_devices
from cenie.run.directory import RunDirectory, RunDirectoryError, differing_settings, free_name
from cenie.run.durable import WriteError
from cenie.run.metrics import check_format
from cenie.run.output import printable
from cenie.run.presets import default_preset, preset
from cenie.run.start import check_evaluation, levels_before_replay, start_problems
from cenie.settings import Problem, SettingsError, show
from cenie.teach.methods import METHODS, OWN

OK, BAD_INPUT, REFUSED, CANNOT_WRITE, DIVERGED = 0, 2, 3, 4, 5

USAGE = f"""\
cenie: Unsupervised Environment Design in JAX

  cenie train DOMAIN METHOD [--preset NAME] [--updates N] [--seed S] [--out DIR]
              [--any.field VALUE ...]       train a student; --help lists every field
              [--new-name]                  take the next free name if the directory holds a run already
  cenie train --resume DIR [--updates N] [--decay keep|stretch|restart]
                                            go on after a stop, a crash or a kill, or make a run longer
  cenie evaluate DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]
                                            play held-out levels with the last student(s) of a run
  cenie methods                             the methods that can be trained
  cenie domains [DOMAIN]                    the domains, their generators, suites and presets

DOMAIN is one of those below, or package.module:attribute of your own (docs/own-environment.md); to go on
with, or evaluate, a run of your own domain, name it again: --domain package.module:attribute

domains: {", ".join(DOMAINS)}
methods: {", ".join(METHODS)}
presets: {"; ".join(f"{name}: {', '.join(entry.presets)}" for name, entry in DOMAINS.items())}
"""

EVALUATE = """\
cenie evaluate DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]

plays held-out levels with the last student of a run and writes one row per episode to DIR;
with --checkpoints N: with the last N students, and prints the mean of their scores
"""

_SWITCHES = ("new_name",)
_NO_OPTIONS = ("domain", "method", "from_python")
"""Settings that a config stores, but no option sets: the first two are words of the command."""
_WITH_VALUE = {
    "out": "a directory",
    "resume": "a directory",
    "preset": "a name",
    "domain": "package.module:attribute",
}


def main() -> None:
    """`python -m cenie.run.cli`; the `cenie` command begins at `cenie.run.entry`, which is lighter."""
    from cenie.run import entry

    entry.main()


def run(arguments: list[str]) -> int:
    """Carry out a command line; returns the exit code and never shows a traceback for bad input."""
    commands = {"train": _train, "evaluate": _evaluate, "methods": _methods, "domains": _domains}
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return OK
    name, *rest = arguments
    try:
        if name not in commands:
            raise SettingsError([Problem(name, f"unknown command; known: {', '.join(commands)}")])
        return commands[name](rest)
    except SettingsError as error:
        sys.stderr.write("".join(f"error: {printable(str(problem))}\n" for problem in error.problems))
        return BAD_INPUT
    except RunDirectoryError as error:
        _complain(str(error))
        return REFUSED
    except WriteError as error:
        _complain(str(error))
        return CANNOT_WRITE


def _complain(message: str) -> None:
    """Say what is wrong, on as many lines as the message has."""
    sys.stderr.write("error: " + "\n".join(map(printable, message.split("\n"))) + "\n")


def _train(arguments: list[str]) -> int:
    names, options = parse(arguments)
    if "help" in options:
        return _train_help(names, options)
    if "resume" in options:
        return _resume(names, options)
    if len(names) != 2:
        raise SettingsError([Problem("train", "expected DOMAIN METHOD, e.g. `cenie train maze dr`")])
    domain, method = names
    _let_import(domain)
    name = options.pop("preset", None)
    out = _directory(options, "out")
    new_name = options.pop("new_name", None) is not None
    config = preset(domain, method, name, typed(domain, method, options))
    title = f"{domain.replace(':', '-')}-{method}-{config.preset}-seed{config.seed}"
    path = out or Path("runs") / title
    if new_name:
        path = free_name(path)
    elif os.path.lexists(RunDirectory(path).config):
        raise RunDirectoryError(_occupied(path))
    return _start(config, path, resume=False)


def _directory(options: dict[str, str], name: str) -> Path | None:
    text = options.pop(name, None)
    if text == "":  # which `Path` would take for the present directory
        raise SettingsError([Problem(name, f"needs {_WITH_VALUE[name]}")])
    return None if text is None else Path(text)


def _occupied(path: Path) -> str:
    finished = RunDirectory(path).summary.exists()
    resume = f"cenie train --resume {shlex.quote(str(path))}"
    go_on = "" if finished else f"  go on with it:        {resume}\n"
    return (
        f"{path} already holds a {'finished ' if finished else ''}run, which stays as it is\n{go_on}"
        f"  train it for longer:  {resume} --updates MORE\n"
        "  train another seed:   add --seed N (make train SEED=N)\n"
        "  train the same again: add --out DIR, or --new-name, which appends a number to the name\n"
        "                        (make train ARGS=--new-name), or remove the directory first"
    )


def _resume(names: list[str], options: dict[str, str]) -> int:
    path = _directory(options, "resume") or Path()
    decay = _decay(options.pop("decay", None))
    domain = options.pop("domain", None)
    barred = ("preset", "out", *_SWITCHES)
    unwanted = [Problem(name, "not allowed with --resume") for name in barred if name in options]
    unwanted += [Problem(name, "the directory says what to train") for name in names]
    if unwanted:
        raise SettingsError(unwanted)
    saved = _load_config(path, domain)
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
        return OK
    check_format(directory.evaluations)
    return _start(config, path, resume=True, decay=decay)


def _decay(text: str | None) -> Decay | None:
    for choice in get_args(Decay):
        if text == choice:
            return choice
    if text is not None:
        allowed = ", ".join(get_args(Decay))
        raise SettingsError([Problem("decay", f"must be one of {allowed}, got {show(text)}")])
    return None


def _let_import(domain: Any) -> None:
    """Get ready to import a module that the user has named, if it is one.

    It may be in the present directory. It loads JAX, which must see the cores before that, though it is not
    known yet how many of them the run will use.
    """
    if is_reference(domain):
        show_devices(core_count())
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())


def _load_config(path: Path, domain: str | None) -> Config:
    """The config of a run; one of a domain of the user's own only if they name it."""
    _let_import(domain)
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


def _start(config: Config, path: Path, *, resume: bool, decay: Decay | None = None) -> int:
    if config.method == OWN:
        message = f"{show(OWN)} is for a curriculum that is passed from Python (docs/own-method.md)"
        raise SettingsError([Problem("method", message)])
    problems = start_problems(config)
    if problems:
        raise SettingsError(problems)
    note = _claim(RunDirectory(path))
    if not resume:
        check_unused(RunDirectory(path))
    prepare_devices(config)
    from rich.console import Console

    from cenie.run.progress import Progress
    from cenie.run.train import TrainingDiverged, train

    console = Console()

    def say(line: str) -> None:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    say(f"{config.method} on {config.domain}, preset {config.preset}, seed {config.seed}: {path}")
    try:
        with Progress(console, config.updates, levels_before_replay(config)) as progress:
            if note:
                progress.note(note)
            finished = train(config, RunDirectory(path), progress, resume=resume, decay=decay)
    except WriteError as error:
        has_any = RunDirectory(path).checkpoints.is_dir()
        kept = f"\nnothing was lost up to the last checkpoint in {path}" if has_any else ""
        raise WriteError(f"{error}{kept}", error.errno) from error
    except TrainingDiverged as error:
        _complain(str(error))
        return DIVERGED
    if not finished:
        again = f" --domain {shlex.quote(config.domain)}" if is_reference(config.domain) else ""
        say(f"stopped; go on with: cenie train --resume {shlex.quote(str(path))}{again}")
    return OK


def _claim(directory: RunDirectory) -> str | None:
    """Find out whether the directory can be written to before JAX is loaded, which takes long."""
    try:
        with directory.lock() as note:
            return note
    except WriteError:
        raise
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"cannot use {directory.path}: {error}") from error


def _evaluate(arguments: list[str]) -> int:
    names, options = parse(arguments)
    if "help" in options:
        sys.stdout.write(EVALUATE)
        return OK
    if len(names) != 1:
        expected = EVALUATE.splitlines()[0].removeprefix("cenie evaluate ")
        raise SettingsError([Problem("evaluate", f"expected {expected}")])
    directory = RunDirectory(Path(names[0]))
    config = _load_config(directory.path, options.pop("domain", None))
    request = evaluation_request(config, {key: _plain(value) for key, value in options.items()})
    check_evaluation(config, directory, request)
    prepare_devices(config)
    from cenie.run.evaluate_run import evaluate_run

    evaluate_run(config, directory, request)
    return OK


def _methods(arguments: list[str]) -> int:
    if _asks_for_help("methods", arguments):
        return OK
    width = max(map(len, METHODS))
    sys.stdout.write("".join(f"{name:{width}}  {method.summary}\n" for name, method in METHODS.items()))
    return OK


def _domains(arguments: list[str]) -> int:
    if _asks_for_help("domains", arguments, most=1):
        return OK
    for name in arguments or DOMAINS:
        _let_import(name)
        entry = find_domain(name)
        sys.stdout.write(
            f"{name:14} {entry.summary}\n{'':14} generators: {', '.join(entry.generators)}\n"
            f"{'':14} suites: {', '.join(entry.suites)}\n{'':14} presets: {', '.join(entry.presets)}\n"
        )
    return OK


def _asks_for_help(command: str, arguments: list[str], most: int = 0) -> bool:
    """Print the usage if asked to; a command refuses more than so many arguments."""
    words, options = parse(arguments)
    if "help" in options:
        sys.stdout.write(USAGE)
    elif len(words) > most or options:
        surplus = arguments[-1] if most else arguments[0]
        allowed = f"at most {most} argument" if most else "no arguments"
        raise SettingsError([Problem(command, f"takes {allowed}, got {show(surplus)}")])
    return "help" in options


def _train_help(names: list[str], options: dict[str, str]) -> int:
    """All fields with their defaults, for a domain and a method (the first ones unless named)."""
    import tyro

    domain, method = [*names, *(next(iter(DOMAINS)), next(iter(METHODS)))[len(names) :]][:2]
    _let_import(domain)
    entry, _ = find_domain_and_method(domain, method)
    sys.stdout.write(USAGE)
    default = preset(domain, method, options.get("preset"))
    hidden = [(name, tyro.conf.Suppress[Any]) for name in _NO_OPTIONS]
    shown = dataclasses.make_dataclass("Config", hidden, bases=(config_type(entry, method),), frozen=True)
    try:
        tyro.cli(
            shown,
            default=shown(**vars(default)),
            args=["--help"],
            prog="cenie train",
            # All settings of the chosen kinds; a list of kinds alone would hide them.
            config=(tyro.conf.AvoidSubcommands,),
        )
    except SystemExit:
        return OK
    return OK


def parse(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Split a command line into plain words and `--name value` pairs; every problem is reported."""
    words: list[str] = []
    options: dict[str, str] = {}
    problems: list[Problem] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            options["help"] = ""
            continue
        if not word.startswith("--"):
            if word.startswith("-"):
                problems.append(Problem(word, "unknown option; names of options begin with --"))
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if not name:
            problems.append(Problem(word, "is not the name of an option"))
        if not equals:
            # A name without a value is a switch; one that is not a switch is refused by its type.
            alone = name in _SWITCHES or not rest or rest[0].startswith("--")
            value = "true" if alone else rest.pop(0)
            if alone and name in _WITH_VALUE:
                problems.append(Problem(name, f"needs {_WITH_VALUE[name]}"))
        if name in options:
            problems.append(Problem(word, "given twice"))
        options[name] = value
    if problems:
        raise SettingsError(problems)
    return words, options


def typed(
    domain: str, method: str, options: dict[str, str], entry: DomainEntry | None = None
) -> dict[str, Any]:
    """Option values as plain data. Lists are written `a,b`, texts without quotes; `no-` negates a switch."""
    entry, _ = find_domain_and_method(domain, method, entry)
    config = config_type(entry, method)(domain=domain, method=method, preset=default_preset(entry))
    defaults = settings.with_all_kinds(config)
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, text in options.items():
        group, dot, name = path.rpartition(".")
        switch, default = group + dot + name.removeprefix("no_"), settings.value_at(defaults, path)
        if path in _NO_OPTIONS:
            problems.append(Problem(path, "is not an option: `cenie train DOMAIN METHOD`"))
        elif isinstance(default, dict):
            example = f"--{path}.{_first_setting(default)} VALUE"
            problems.append(Problem(path, f"is a group of settings; give them one by one, as in {example}"))
        elif switch != path and text == "true" and isinstance(settings.value_at(defaults, switch), bool):
            if switch in options:
                problems.append(Problem(path, f"contradicts --{switch}"))
            values[switch] = False
        else:
            values[path] = _plain(text, like=default)
    if problems:
        raise SettingsError(problems)
    return values


def _first_setting(group: dict[str, Any]) -> str:
    name, value = next(iter(group.items()))
    return f"{name}.{_first_setting(value)}" if isinstance(value, dict) else name


def _plain(text: str, like: Any = None) -> Any:
    if isinstance(like, str):
        return text
    try:
        return json.loads(text.lower() if text in ("True", "False", "None") else text)
    except (ValueError, RecursionError):
        pass
    if text.lower() == "none":
        return None
    return [_plain(part) for part in text.split(",") if part] if isinstance(like, list) else text


if __name__ == "__main__":
    main()
