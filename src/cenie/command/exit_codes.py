"""Exit codes of commands, and complaints on the standard error."""

import sys

from cenie.system.streams import printable

OK, FAILED, BAD_INPUT, REFUSED, CANNOT_WRITE, DIVERGED = 0, 1, 2, 3, 4, 5


def complain(message: str) -> None:
    """Say what is wrong, on as many lines as the message has."""
    sys.stderr.write("error: " + "\n".join(map(printable, message.split("\n"))) + "\n")


def say(line: str = "") -> None:
    """Print a line for the user of the command."""
    sys.stdout.write(f"{printable(line)}\n")
