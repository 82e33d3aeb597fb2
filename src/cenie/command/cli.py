"""The table of commands. Each starts a backend of JAX only after its config has been found good."""

import importlib
import sys
import traceback

from cenie.command.exit_codes import BAD_INPUT, CANNOT_WRITE, FAILED, OK, REFUSED, complain
from cenie.command.help import USAGE
from cenie.rundir.files import RunDirectoryError
from cenie.settings import Problem, SettingsError
from cenie.system.durable import WriteError, explain, is_wrong_kind
from cenie.system.streams import printable

COMMANDS = {
    "train": "cenie.command.train:train_command",
    "evaluate": "cenie.command.evaluate:evaluate_command",
    "play": "cenie.command.play:play_command",
    "gallery": "cenie.command.gallery:gallery_command",
    "export": "cenie.command.export:export_command",
    "watch": "cenie.command.watch:watch_command",
    "compare": "cenie.command.compare:compare_command",
    "report": "cenie.command.report:report_command",
    "cite": "cenie.command.cite:cite_command",
    "methods": "cenie.command.lists:methods_command",
    "domains": "cenie.command.lists:domains_command",
}
"""The function of each command. Its module is loaded when it is asked for: training needs none that draws."""

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
        if name not in COMMANDS:
            raise SettingsError([Problem(name, f"unknown command; known: {', '.join(COMMANDS)}")])
        module, _, function = COMMANDS[name].partition(":")
        return getattr(importlib.import_module(module), function)(rest)
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


if __name__ == "__main__":
    main()
