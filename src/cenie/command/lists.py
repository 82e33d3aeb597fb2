"""`cenie methods` and `cenie domains`: what there is."""

import sys

from cenie.command.exit_codes import OK
from cenie.command.help import USAGE
from cenie.command.options import let_import, parse
from cenie.envs.domains import DOMAINS, find_domain
from cenie.methods.table import ROWS
from cenie.settings import Problem, SettingsError, show


def methods_command(arguments: list[str]) -> int:
    if _asks_for_help("methods", arguments):
        return OK
    width = max(map(len, ROWS))
    sys.stdout.write("".join(f"{name:{width}}  {row.summary}\n" for name, row in ROWS.items()))
    return OK


def domains_command(arguments: list[str]) -> int:
    if _asks_for_help("domains", arguments, most=1):
        return OK
    if not arguments:
        width = max(map(len, DOMAINS))
        sys.stdout.write("".join(f"{name:{width}}  {summary}\n" for name, summary in DOMAINS.items()))
        sys.stdout.write("`cenie domains DOMAIN` says what generators, suites and presets it has\n")
    for name in arguments:
        let_import(name)
        entry = find_domain(name)
        sys.stdout.write(
            f"{name:14} {entry.summary}\n{'':14} generators: {', '.join(entry.generators)}\n"
            f"{'':14} suites: {', '.join(entry.suites)}\n{'':14} presets: {', '.join(entry.presets)}\n"
        )
    return OK


def _asks_for_help(command: str, arguments: list[str], most: int = 0) -> bool:
    """Print the usage if asked to; refuse more arguments than a command takes."""
    words, options = parse(arguments)
    if "help" in options:
        sys.stdout.write(USAGE)
    elif len(words) > most or options:
        surplus = arguments[-1] if most else arguments[0]
        allowed = f"at most {most} argument" if most else "no arguments"
        raise SettingsError([Problem(command, f"takes {allowed}, got {show(surplus)}")])
    return "help" in options
