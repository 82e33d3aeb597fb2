"""The table of commands. Each starts a backend of JAX only after its config has been found good."""

import sys
import traceback
from collections.abc import Callable

from cenie.command import cite, compare, evaluate, pictures, report, train, watch
from cenie.command.exit_codes import BAD_INPUT, CANNOT_WRITE, FAILED, OK, REFUSED, complain
from cenie.command.lists import domains_command, methods_command
from cenie.command.options import parse
from cenie.envs.domains import DOMAINS
from cenie.methods.table import METHODS
from cenie.rundir.files import RunDirectoryError
from cenie.settings import Problem, SettingsError
from cenie.system.durable import WriteError, explain, is_wrong_kind
from cenie.system.streams import printable

USAGE = f"""\
cenie: Unsupervised Environment Design in JAX

  cenie train DOMAIN METHOD [--preset NAME] [--updates N] [--seed S] [--out DIR]
              [--any.field VALUE ...]       train a student; --help lists every setting
              [--new-name]                  take the next free name if the directory holds a run already
              [--report]                    write a report (cenie report) when the run is finished
  cenie train --resume DIR [--updates N] [--decay keep|stretch|restart]
                                            go on after a stop, a crash or a kill, or make a run longer
  cenie evaluate DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]
                                            play held-out levels with the last student(s) of a run
  cenie play RUN [LEVEL] [--out FILE.gif]   film the student on a level of a suite, of the buffer, of a file
  cenie gallery DOMAIN|RUN [LEVEL ...] [--suite NAME] [--out FILE.png]
                                            draw levels side by side, and what the student does on them
  cenie watch RUN ... [--port N]            a page of the run in your browser, while it goes on
  cenie report RUN ... [--out DIR]          tables, figures and a page about runs
  cenie compare DOMAIN METHOD ... [--seeds N] [--jobs N] [--out DIR]
                                            train methods with several seeds, evaluate, and report
  cenie cite RUN ...                        BibTeX for the methods and domains of runs
  cenie methods                             the methods that can be trained
  cenie domains [DOMAIN]                    the domains; the generators, suites and presets of one

DOMAIN is one of the names below, or package.module:attribute of your own (docs/own-environment.md); to go on
with, or evaluate, a run of your own domain, name it again: --domain package.module:attribute

domains: {", ".join(DOMAINS)}
methods: {", ".join(METHODS)}
"""

Command = Callable[[list[str], dict[str, str]], int]
"""Carries out the plain words and the options of a command line; returns the exit code."""

COMMANDS: dict[str, tuple[Command, str]] = {
    "train": (train.train_command, train.USAGE),
    "evaluate": (evaluate.evaluate_command, evaluate.USAGE),
    "play": (pictures.play_command, pictures.PLAY_USAGE),
    "gallery": (pictures.gallery_command, pictures.GALLERY_USAGE),
    "watch": (watch.watch_command, watch.USAGE),
    "compare": (compare.compare_command, compare.USAGE),
    "report": (report.report_command, report.USAGE),
    "cite": (cite.cite_command, cite.USAGE),
    "methods": (methods_command, USAGE),
    "domains": (domains_command, USAGE),
}
"""Every command with its `--help`. `train` says more in its own: all settings."""

_LONGEST_PATH = 300


def main() -> None:
    """`python -m cenie.command.cli`; the `cenie` command begins at `command/entry.py`, which is lighter."""
    from cenie.command import entry

    entry.main()


def run(arguments: list[str]) -> int:
    """Carry out a command line; returns the exit code and never shows a traceback for bad input."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return OK
    name, *rest = arguments
    try:
        return _carry_out(name, rest)
    except SettingsError as error:
        sys.stderr.write("".join(f"error: {printable(str(problem))}\n" for problem in error.problems))
        return BAD_INPUT
    except RunDirectoryError as error:
        complain(str(error))
        return REFUSED
    except WriteError as error:
        complain(str(error))
        return CANNOT_WRITE
    except OSError as error:  # of a path that the command has not looked at by itself, such as one too long
        path = str(error.filename or name)
        complain(f"{path if len(path) < _LONGEST_PATH else path[:_LONGEST_PATH] + '...'}: {explain(error)}")
        return REFUSED if is_wrong_kind(error) else CANNOT_WRITE
    except SystemExit as error:  # of a domain: nothing was done, whatever its code is
        place = traceback.extract_tb(error.__traceback__)[-1]
        complain(f"{name} was ended by SystemExit: {error.code} ({place.filename}, line {place.lineno})")
        return FAILED


def _carry_out(name: str, arguments: list[str]) -> int:
    if name not in COMMANDS:
        raise SettingsError([Problem(name, f"unknown command; known: {', '.join(COMMANDS)}")])
    command, usage = COMMANDS[name]
    words, options = parse(arguments)
    if "help" not in options:
        return command(words, options)
    sys.stdout.write(train.help_text(words, options) if name == "train" else usage)
    return OK


if __name__ == "__main__":
    main()
