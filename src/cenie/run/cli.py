"""The command line. Loads JAX only after the arguments and the config have been found good."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from cenie import settings
from cenie.envs.domains import DOMAINS
from cenie.run.config import (
    MAY_CHANGE_ON_RESUME,
    Config,
    EvaluationRequest,
    check_names,
    config_type,
    load_config,
)
from cenie.run.continuation import Decay, check_checkpoints, check_unused, updates_done
from cenie.run.devices import prepare_devices
from cenie.run.directory import RunDirectory, RunDirectoryError, differing_settings, free_name
from cenie.run.durable import WriteError
from cenie.run.presets import PRESETS, preset
from cenie.run.terminal import printable
from cenie.settings import Problem, SettingsError
from cenie.teach.methods import METHODS

OK, BAD_INPUT, REFUSED, CANNOT_WRITE, DIVERGED = 0, 2, 3, 4, 5

USAGE = f"""\
cenie: Unsupervised Environment Design in JAX

  cenie train DOMAIN METHOD [--preset {"|".join(PRESETS)}] [--updates N] [--seed S] [--out DIR]
              [--any.field VALUE ...]       train a student; --help lists every field
  cenie train --resume DIR [--updates N] [--decay keep|stretch|restart]
                                            go on after a stop, a crash or a kill, or make a run longer
  cenie evaluate DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]
                                            play held-out levels with the last student(s) of a run
  cenie methods                             the methods that can be trained
  cenie domains                             the domains, their generators and suites

domains: {", ".join(DOMAINS)}
methods: {", ".join(METHODS)}
"""

EVALUATE = "expected DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `cenie` command."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


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
        sys.stderr.write(printable("".join(f"error: {problem}\n" for problem in error.problems)))
        return BAD_INPUT
    except RunDirectoryError as error:
        sys.stderr.write(printable(f"error: {error}\n"))
        return REFUSED
    except WriteError as error:
        sys.stderr.write(printable(f"error: {error}\n"))
        return CANNOT_WRITE


def _train(arguments: list[str]) -> int:
    names, options = parse(arguments)
    if "help" in options:
        return _train_help(names, options)
    if "resume" in options:
        return _resume(names, options)
    if len(names) != 2:
        raise SettingsError([Problem("train", "expected DOMAIN METHOD, e.g. `cenie train maze dr`")])
    domain, method = names
    name = options.pop("preset", "quick")
    out = options.pop("out", None)
    config = preset(domain, method, name, typed(domain, method, options))
    default = Path("runs") / f"{domain}-{method}-{name}-seed{config.seed}"
    path = Path(out) if out is not None else free_name(default)
    if RunDirectory(path).config.exists():
        raise RunDirectoryError(f"{path} already holds a run; `cenie train --resume {path}` goes on with it")
    check_unused(RunDirectory(path))
    return _start(config, path, resume=False)


def _resume(names: list[str], options: dict[str, str]) -> int:
    path = Path(options.pop("resume"))
    decay = _decay(options.pop("decay", None))
    unwanted = [Problem(name, "not allowed with --resume") for name in ("preset", "out") if name in options]
    unwanted += [Problem(name, "the directory says what to train") for name in names]
    if unwanted:
        raise SettingsError(unwanted)
    saved = load_config(RunDirectory(path).config)
    config = settings.replace(saved, typed(saved.domain, saved.method, options))
    changed = differing_settings(settings.to_data(saved), settings.to_data(config), MAY_CHANGE_ON_RESUME)
    if changed:
        allowed = ", ".join(MAY_CHANGE_ON_RESUME)
        lines = "\n  ".join(changed)
        raise RunDirectoryError(f"a resumed run may change only {allowed}; differing:\n  {lines}")
    directory = RunDirectory(path)
    check_checkpoints(config, directory)
    done = updates_done(config, directory)
    if done is not None:
        text = f"nothing to do: {path} has had {done} updates; --updates N with a larger N goes on\n"
        sys.stdout.write(printable(text))
        return OK
    return _start(config, path, resume=True, decay=decay)


def _decay(text: str | None) -> Decay | None:
    for choice in get_args(Decay):
        if text == choice:
            return choice
    if text is not None:
        allowed = ", ".join(get_args(Decay))
        raise SettingsError([Problem("decay", f"must be one of {allowed}, got '{text[:60]}'")])
    return None


def _start(config: Config, path: Path, *, resume: bool, decay: Decay | None = None) -> int:
    prepare_devices(config)
    from rich.console import Console

    from cenie.run.progress import Progress
    from cenie.run.train import TrainingDiverged, train

    console = Console(stderr=False)
    console.print(
        printable(f"{config.method} on {config.domain}, preset {config.preset}, seed {config.seed}: {path}"),
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    try:
        with Progress(console, config.updates) as progress:
            finished = train(config, RunDirectory(path), progress, resume=resume, decay=decay)
    except WriteError as error:
        has_any = RunDirectory(path).checkpoints.is_dir()
        kept = f"\nnothing was lost up to the last checkpoint in {path}" if has_any else ""
        raise WriteError(f"{error}{kept}", error.errno) from error
    except TrainingDiverged as error:
        sys.stderr.write(f"error: {error}\n")
        return DIVERGED
    if not finished:
        text = printable(f"stopped; go on with: cenie train --resume {path}")
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return OK


def _evaluate(arguments: list[str]) -> int:
    names, options = parse(arguments)
    if len(names) != 1 or "help" in options:
        raise SettingsError([Problem("evaluate", EVALUATE)])
    config = load_config(RunDirectory(Path(names[0])).config)
    request = settings.read(
        EvaluationRequest,
        {"suite": config.run.suite, **{key: _plain(value) for key, value in options.items()}},
    )
    suites = DOMAINS[config.domain].suites
    if request.suite not in suites:
        raise SettingsError([Problem("suite", f"must be one of {', '.join(suites)}, got '{request.suite}'")])
    directory = RunDirectory(Path(names[0]))
    if not check_checkpoints(config, directory):
        raise RunDirectoryError(f"{directory.path} has no checkpoint to evaluate")
    prepare_devices(config)
    from cenie.run.examine import examine

    examine(config, directory, request)
    return OK


def _methods(arguments: list[str]) -> int:
    del arguments
    sys.stdout.write("".join(f"{name:14} {method.summary}\n" for name, method in METHODS.items()))
    return OK


def _domains(arguments: list[str]) -> int:
    del arguments
    for name, entry in DOMAINS.items():
        sys.stdout.write(
            f"{name:14} {entry.summary}\n{'':14} generators: {', '.join(entry.generators)}\n"
            f"{'':14} suites: {', '.join(entry.suites)}\n"
        )
    return OK


def _train_help(names: list[str], options: dict[str, str]) -> int:
    """All fields with their defaults, for a domain and a method (the first ones unless named)."""
    import tyro

    domain, method = [*names, *(next(iter(DOMAINS)), next(iter(METHODS)))[len(names) :]][:2]
    check_names(domain, method)
    sys.stdout.write(USAGE)
    default = preset(domain, method, options.get("preset", "quick"))
    try:
        tyro.cli(config_type(domain, method), default=default, args=["--help"], prog="cenie train")
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
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if not equals:
            # A name without a value is a switch; one that is not a switch is refused by its type.
            value = "true" if not rest or rest[0].startswith("--") else rest.pop(0)
        if name in options:
            problems.append(Problem(word, "given twice"))
        options[name] = value
    if problems:
        raise SettingsError(problems)
    return words, options


def typed(domain: str, method: str, options: dict[str, str]) -> dict[str, Any]:
    """Option values as plain data. Lists are written `a,b`, texts without quotes; `no-` negates a switch."""
    check_names(domain, method)
    defaults = settings.to_data(config_type(domain, method)(domain=domain, method=method, preset="quick"))
    values: dict[str, Any] = {}
    for path, text in options.items():
        group, dot, name = path.rpartition(".")
        switch = group + dot + name.removeprefix("no_")
        if switch != path and text == "true" and isinstance(_at(defaults, switch), bool):
            values[switch] = False
        else:
            values[path] = _plain(text, like=_at(defaults, path))
    return values


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _plain(text: str, like: Any = None) -> Any:
    if isinstance(like, str):
        return text
    try:
        return json.loads(text.lower() if text in ("True", "False", "None") else text)
    except ValueError:
        pass
    if text.lower() == "none":
        return None
    return [_plain(part) for part in text.split(",") if part] if isinstance(like, list) else text


if __name__ == "__main__":
    main()
