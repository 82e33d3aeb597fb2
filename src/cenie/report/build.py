"""A report: everything that can be said of some runs, written into one directory.

Figures (`figures/`, PNG and PDF), the numbers behind them (`tables/`, CSV), `report.md` with all of it in
order, and the page (`index.html`), which is one file and needs none of the others. What the runs have not
logged becomes a sentence. Only pictures of levels load JAX, since domains draw them with it.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cenie.report import tables
from cenie.report.appearance import group_title
from cenie.report.measure.comparable import comparability
from cenie.report.measure.coverage import measure_coverage
from cenie.report.measure.scores import measured_domains
from cenie.report.page.write import check_installed, write_page
from cenie.report.runs import Group, group_runs, open_runs
from cenie.report.tables import markdown
from cenie.report.writer import Item, Options, ReportWriter
from cenie.rundir.files import RunDirectoryError
from cenie.system.durable import open_regular

PAGE = "index.html"
_FIRST = "tables/runs.csv"
"""The first file of a report. It tells a report, even an unfinished one, from the user's own files."""
_MARKS = b"domain,group,method,"
_PLAYED_BYTES = 2**26
"""Total bytes of level records to read, shared between runs; `_FEWEST` and `_MOST` bound the share of one
run."""
_FEWEST_PLAYED_BYTES, _MOST_PLAYED_BYTES = 2**18, 2**24
_TURN = 2e-4
"""Seconds that one thread computes in Python while another one waits to."""


@dataclass(frozen=True, eq=False)
class DomainReport:
    """All that is said of the runs of one domain.

    Attributes:
        domain: The name of the domain.
        groups: The groups of its runs.
        notes: Sentences about differences between the runs.
        items: The figures and tables, in their order.
    """

    domain: str
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """The files that were written, and what they say.

    Attributes:
        out: The directory.
        domains: A report for each domain.
        skipped: A sentence for each directory that was left out.
        files: All files that were written.
    """

    out: Path
    domains: tuple[DomainReport, ...]
    skipped: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def entry(self) -> Path:
        """The file to open first."""
        page = self.out / PAGE
        return page if page in self.files else self.out / "report.md"


def write_report(
    paths: Iterable[str | Path],
    out: str | Path,
    options: Options | None = None,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Write a report on runs into a directory.

    Args:
        paths: Run directories, or directories that hold some.
        out: The directory of the report, which is made if need be.
        options: Which parts to make.
        progress: Called with a sentence about what is being made.

    Returns:
        The files that were written, and what they say.

    Raises:
        RunDirectoryError: There is not one run to report on, or `out` holds files of these names that no
            report has made.
        WriteError: The directory cannot be written to.
        SettingsError: A package is missing.
    """
    options = options or Options()
    if options.page:
        check_installed()
    # These need matplotlib, which those who only read runs may not have.
    from cenie.report.curriculum_items import curriculum_items
    from cenie.report.suite_items import curve_items, suite_items

    opened = open_runs(Path(path) for path in paths)
    if not opened.runs:
        reasons = "".join(f"\n  {sentence}" for sentence in opened.skipped)
        raise RunDirectoryError(f"there is no run to report on{reasons}")
    _check_place(Path(out))
    writer = ReportWriter(Path(out), options, progress)
    groups = group_runs(opened.runs)
    writer.table("runs", tables.run_rows(groups))
    fair = _PLAYED_BYTES // len(opened.runs)
    limit = min(max(fair, _FEWEST_PLAYED_BYTES), _MOST_PLAYED_BYTES)
    names = dict.fromkeys(group.domain for group in groups)
    parts = {domain: tuple(group for group in groups if group.domain == domain) for domain in names}
    measured = measured_domains(groups)
    domains = []
    # Coverage is reckoned while the figures before it are drawn; most of its time is not Python's.
    with _frequent_turns(), ThreadPoolExecutor(1) as pool:
        coverage = {
            domain: pool.submit(measure_coverage, own, most=options.points)
            for domain, own in parts.items()
            if options.coverage and len(own) > 1
        }
        for domain, own in parts.items():
            items = (
                *suite_items(writer, measured[domain], domain),
                *curve_items(writer, own, domain),
                *curriculum_items(writer, own, domain, limit=limit, coverage=coverage.get(domain)),
            )
            domains.append(DomainReport(domain, own, tuple(comparability(own, measured[domain])), items))
    writer.save("", "report", ".md", _markdown(domains, opened.skipped))
    if writer.options.page:
        pictures = writer.options.pictures
        page = write_page(
            groups,
            writer.out / PAGE,
            skipped=opened.skipped,
            pictures=pictures,
            stratified=writer.options.stratified,
            measured=measured,
            domains=writer.options.domains,
            say=writer.progress,
        )
        writer.files.append(page)
    return Report(writer.out, tuple(domains), opened.skipped, tuple(writer.files))


def _check_place(out: Path) -> None:
    """Refuse to replace the user's own files; files of an earlier report are replaced. Touches nothing."""
    found = [name for name in (PAGE, "report.md") if os.path.lexists(out / name)]
    found += [f"{name}/" for name in ("figures", "tables") if _holds_something(out / name)]
    if not found or _first_line(out / _FIRST).startswith(_MARKS):
        return
    raise RunDirectoryError(
        f"{out} holds {', '.join(found)}, and no {_FIRST} of a report: these are not replaced; --out names "
        "another directory"
    )


def _holds_something(directory: Path) -> bool:
    try:
        return not directory.is_symlink() and bool(os.listdir(directory))
    except OSError:
        return False


def _first_line(path: Path) -> bytes:
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            return file.readline(1000)
    except OSError:
        return b""


@contextlib.contextmanager
def _frequent_turns() -> Iterator[None]:
    """Threads take turns more often than usual.

    A t-SNE needs Python for a moment thousands of times, and would wait for it much longer than it computes:
    one of 10 s took 52 s beside a thread that computes in Python, and 13 s with these turns.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _markdown(domains: Iterable[DomainReport], skipped: Iterable[str]) -> str:
    lines = ["# Report", ""]
    left_out = [f"- {markdown(sentence)}" for sentence in skipped]
    if left_out:
        lines += ["Left out:", "", *left_out, ""]
    for domain in domains:
        lines += [f"## {markdown(domain.domain)}", "", "| | runs | seeds |", "|---|---|---|"]
        for group in domain.groups:
            seeds = ", ".join(str(run.seed) for run in group.runs)
            lines.append(f"| {markdown(group_title(group))} | {len(group.runs)} | {seeds} |")
        lines.append("")
        if domain.notes:
            lines += [
                "What to mind when comparing:",
                "",
                *(f"- {markdown(note)}" for note in domain.notes),
                "",
            ]
        for item in domain.items:
            lines += _item_lines(item)
    return "\n".join(lines) + "\n"


def _item_lines(item: Item) -> list[str]:
    title, caption = markdown(item.title), markdown(item.caption)
    pictures = [f"![{title}]({name})" for name in item.files if name.endswith(".png")]
    others = [f"[{name}]({name})" for name in item.files if not name.endswith(".png")]
    lines = [f"### {title}", "", *pictures, "", caption, ""]
    lines += [item.text] if item.text else []
    return [*lines, *([f"Files: {', '.join(others)}", ""] if others else [])]
