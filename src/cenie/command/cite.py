"""`cenie cite`: what to cite for a run."""

import sys
from pathlib import Path

from cenie.command.exit_codes import OK
from cenie.report.citations import bibtex, reasons
from cenie.report.runs import open_runs
from cenie.rundir.files import RunDirectoryError
from cenie.settings import Problem, SettingsError

USAGE = """\
cenie cite RUN ...

prints BibTeX of the papers behind the methods and the domains of the runs, each with what it is cited for
"""


def cite_command(words: list[str], options: dict[str, str]) -> int:
    if not words or options:
        raise SettingsError(
            [Problem("cite", "expected RUN ..., one or more run directories, and no options")]
        )
    opened = open_runs(map(Path, words))
    if opened.skipped:
        raise RunDirectoryError("\n".join(opened.skipped))
    found: dict[str, list[str]] = {}
    for run in opened.runs:
        for key, why in reasons(run).items():
            known = found.setdefault(key, [])
            known += [reason for reason in why if reason not in known]
    sys.stdout.write("\n".join(bibtex(key, why) for key, why in found.items()))
    return OK
