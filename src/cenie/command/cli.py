"""The table of commands. Each starts a backend of JAX only after its config has been found good."""

import importlib
import sys
import traceback

from cenie.command.exit_codes import BAD_INPUT, CANNOT_WRITE, FAILED, OK, REFUSED, complain
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
  cenie evaluate RUN|STUDENT [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]
                                            play held-out levels with the last student(s) of a run
  cenie play RUN|STUDENT [LEVEL] [--out FILE.gif]
                                            film the student on a level of a suite, of the buffer, of a file
  cenie gallery DOMAIN|RUN|STUDENT [LEVEL ...] [--suite NAME] [--out FILE.png]
                                            draw levels side by side, and what the student does on them
  cenie export RUN [--out DIR] [--checkpoint N]
                                            write a student by itself, for others to play: a STUDENT
  cenie watch RUN ... [--port N]            a page of the run in your browser, while it goes on
  cenie report RUN ... [--out DIR]          tables, figures and a page about runs
  cenie compare DOMAIN METHOD ... [--seeds N] [--jobs N] [--out DIR]
                                            train methods with several seeds, evaluate, and report
  cenie cite RUN ...                        BibTeX for the methods and domains of runs
  cenie methods                             the methods that can be trained
  cenie domains [DOMAIN]                    the domains; the generators, suites and presets of one

DOMAIN is one of those below, or package.module:attribute of your own (docs/guides/own-environment.md);
to go on with, or evaluate, a run of your own domain, name it again: --domain package.module:attribute

domains: {", ".join(DOMAINS)}
methods: {", ".join(METHODS)}
"""

COMMANDS = {
    "train": "cenie.command.train:train_command",
    "evaluate": "cenie.command.evaluate:evaluate_command",
    "play": "cenie.command.pictures:play_command",
    "gallery": "cenie.command.pictures:gallery_command",
    "export": "cenie.command.export:export_command",
    "watch": "cenie.command.watch:watch_command",
    "compare": "cenie.command.compare:compare_command",
    "report": "cenie.command.report:report_command",
    "cite": "cenie.command.cite:cite_command",
    "methods": "cenie.command.lists:methods_command",
    "domains": "cenie.command.lists:domains_command",
}
"""The function of each command, whose module is loaded when the command is asked for. The module has the
command's `--help` in `NAME_USAGE` or `USAGE`."""

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
    from cenie.command.options import parse

    place, function = COMMANDS[name].split(":")
    module = importlib.import_module(place)
    words, options = parse(arguments)
    if "help" not in options:
        return getattr(module, function)(words, options)
    usage = getattr(module, f"{name.upper()}_USAGE", getattr(module, "USAGE", USAGE))
    sys.stdout.write(module.help_text(words, options) if name == "train" else usage)
    return OK


if __name__ == "__main__":
    main()
