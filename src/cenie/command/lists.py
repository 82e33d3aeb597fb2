"""`cenie methods` and `cenie domains`: what there is."""

import sys

from cenie.command.exit_codes import OK
from cenie.command.options import let_import
from cenie.envs.domains import DOMAINS, find_domain
from cenie.methods.table import ROWS
from cenie.settings import Problem, SettingsError, show


def methods_command(words: list[str], options: dict[str, str]) -> int:
    _refuse_more_than(0, "methods", words, options)
    width = max(map(len, ROWS))
    sys.stdout.write("".join(f"{name:{width}}  {row.summary}\n" for name, row in ROWS.items()))
    return OK


def domains_command(words: list[str], options: dict[str, str]) -> int:
    _refuse_more_than(1, "domains", words, options)
    if not words:
        width = max(map(len, DOMAINS))
        sys.stdout.write("".join(f"{name:{width}}  {summary}\n" for name, summary in DOMAINS.items()))
        sys.stdout.write("`cenie domains DOMAIN` says what generators, suites and presets it has\n")
    for name in words:
        let_import(name)
        entry = find_domain(name)
        sys.stdout.write(
            f"{name:14} {entry.summary}\n{'':14} generators: {', '.join(entry.generators)}\n"
            f"{'':14} suites: {', '.join(entry.suites)}\n{'':14} presets: {', '.join(entry.presets)}\n"
        )
    return OK


def _refuse_more_than(most: int, command: str, words: list[str], options: dict[str, str]) -> None:
    surplus = words[most:] + [f"--{name}" for name in options]
    if surplus:
        allowed = f"at most {most} argument" if most else "no arguments"
        raise SettingsError([Problem(command, f"takes {allowed}, got {show(surplus[0])}")])
