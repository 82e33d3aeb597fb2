"""`cenie report`: figures, tables and the page of some runs."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from cenie.command.exit_codes import OK, say
from cenie.command.options import directory_option, own_domains, read_request
from cenie.report.page.write import check_installed as check_page
from cenie.report.runs import open_runs
from cenie.rundir.files import RunDirectoryError
from cenie.settings import Problem, SettingsError, setting
from cenie.system.streams import printable
from cenie.xla.flags import show_devices

USAGE = """\
cenie report RUN ... [--out DIR] [--no-coverage] [--no-pictures] [--no-pdf] [--points N] [--stratified]
             [--domain MODULE:ATTRIBUTE]

writes tables (CSV), figures (PNG, PDF) and one page (index.html) about runs, grouped by domain and method,
and says in what they differ that should not; RUN is a run directory, or a directory that holds some
by default into RUN/report for one run, and into ./report for several

--no-coverage   without the joint t-SNE of state-action points, which takes the longest
--no-pictures   without drawn levels, for which JAX is loaded
--no-pdf        figures as PNG only
--points N      points of all methods together in the t-SNE (default 2000)
--domain M:A    a domain of your own, which is imported for pictures of its levels (several: with commas)
--stratified    intervals as rliable has them: runs are drawn for each level by itself (too narrow where runs
                are good or bad as a whole; by default whole runs are drawn, and means have Student's t)
"""
_NEEDED = ("matplotlib",)


@dataclass(frozen=True)
class ReportRequest:
    """The request of `cenie report`, besides runs."""

    no_coverage: bool = False
    no_pictures: bool = False
    no_pdf: bool = False
    points: int = setting(2000, minimum=20, maximum=100_000)
    stratified: bool = False
    domain: str | None = None
    """The domain of the user's own, or several with commas."""


def report_command(words: list[str], options: dict[str, str]) -> int:
    out = directory_option(options, "out")
    request = read_request(ReportRequest, options)
    if not words:
        raise SettingsError([Problem("report", "expected RUN ..., one or more run directories")])
    check_installed()
    paths = [Path(word) for word in words]
    make_report(paths, out or default_directory(paths), request)
    return OK


def check_installed() -> None:
    """Refuse what needs the `report` extra if it is not there, before any work."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        message = f"needs {', '.join(missing)}: pip install 'cenie[report]'"
        raise SettingsError([Problem("report", message)])
    check_page()


def default_directory(paths: list[Path]) -> Path:
    """Beside the files of a single run; otherwise in the present directory."""
    single = len(paths) == 1 and len(open_runs(paths).runs) == 1 and (paths[0] / "config.json").exists()
    if not single:
        return Path("report")
    out = paths[0] / "report"
    if out.is_symlink():  # A run directory may come from anyone, and lead anywhere.
        raise RunDirectoryError(f"{out} is a link; --out names a directory to write into")
    return out


def make_report(paths: list[Path], out: Path, request: ReportRequest) -> None:
    """Write the report, saying what was left out and what to mind, and where it is."""
    domains = own_domains(request.domain)
    show_devices(1)
    from rich.console import Console
    from rich.text import Text

    from cenie.report.build import write_report
    from cenie.report.writer import Options

    made = Options(
        coverage=not request.no_coverage,
        pictures=not request.no_pictures,
        pdf=not request.no_pdf,
        points=request.points,
        stratified=request.stratified,
        domains=domains,
    )
    console = Console(stderr=True)
    with console.status("reading runs") as status:
        # As it is: what a file calls its domain may look like the markup of terminals.
        report = write_report(paths, out, made, progress=lambda line: status.update(Text(printable(line))))
    for sentence in report.skipped:
        say(sentence)
    for domain in report.domains:
        counted = ", ".join(f"{group.label} ({len(group.runs)})" for group in domain.groups)
        say(f"{domain.domain}: {counted}")
        for note in domain.notes:
            say(f"  mind: {note}")
    say(f"report: {report.entry}")
