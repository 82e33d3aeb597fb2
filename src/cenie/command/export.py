"""`cenie export`: the student of a run by itself, for others to play."""

from dataclasses import dataclass
from pathlib import Path

from cenie import settings
from cenie.command.configs import load_run_config
from cenie.command.exit_codes import OK, say
from cenie.command.options import directory_option, plain
from cenie.rundir.export import check_free, default_directory, export_student
from cenie.rundir.run import Run
from cenie.settings import Problem, SettingsError, setting
from cenie.xla.flags import show_devices

USAGE = """\
cenie export RUN [--out DIR] [--checkpoint N] [--licence NAME] [--domain MODULE:ATTRIBUTE]

writes the student of a run by itself: params.safetensors, config.json, and README.md, which says how it was
made and how well it plays; cenie play DIR, cenie evaluate DIR, cenie gallery DIR and cenie.load_student(DIR)
open it, without the run

--out DIR        by default RUN-student; a directory that is not there yet, or is empty
--checkpoint N   the student after cycle N, of those in RUN/checkpoints; by default the newest
--licence NAME   the licence under which you give the student away, for its card
--domain M:A     the run's domain again if it is one of your own: none is imported because a file names it
"""


@dataclass(frozen=True)
class ExportRequest:
    """The request of `cenie export`, besides the run and where to."""

    checkpoint: int | None = setting(None, minimum=0)
    licence: str | None = None


def export_command(words: list[str], options: dict[str, str]) -> int:
    if len(words) != 1:
        raise SettingsError([Problem("export", "expected RUN, a run directory")])
    path, domain = Path(words[0]), options.pop("domain", None)
    out = directory_option(options, "out") or default_directory(path)
    licence = options.pop("licence", None)
    given = {name: plain(text) for name, text in options.items()}
    request = settings.read(ExportRequest, given | {"licence": licence})
    config = load_run_config(path, domain)
    check_free(out)
    show_devices(1, *config.entry.xla_flags)
    run = Run(path, entry=config.entry, devices=1)
    export_student(run, out, cycle=request.checkpoint, licence=request.licence)
    for message in run.damage:
        say(message)
    say(f"student: {out}")
    return OK
