"""The directory of a report, and what is put into it: figures, tables, and an item for each of them."""

import errno
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cenie.report.measure.coverage import MOST_POINTS
from cenie.report.tables import Row, csv_bytes
from cenie.rundir.files import file_name
from cenie.system.durable import WriteError, explain, replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cenie.envs.base import Domain


@dataclass(frozen=True)
class Options:
    """The parts to make besides those that are made quickly.

    Attributes:
        coverage: The joint t-SNE of the points of all methods, which takes most of the time of a report on
            few runs.
        pictures: Drawn levels and filmed episodes, for which JAX is loaded.
        pdf: Every figure as PDF too.
        page: The page to look at in a browser.
        points: The number of points of the t-SNE.
        stratified: Whether intervals are rliable's.
        domains: The user's own domains by their names: others are not imported because a file names them, and
            have no pictures.
    """

    coverage: bool = True
    pictures: bool = True
    pdf: bool = True
    page: bool = True
    points: int = MOST_POINTS
    stratified: bool = False
    domains: Mapping[str, "Domain"] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """A figure or a table with its caption and files; or, without files, why there is none.

    Attributes:
        title: The title.
        caption: The caption, or the reason.
        files: The names of its files, relative to the directory of the report.
        text: A table in Markdown.
    """

    title: str
    caption: str
    files: tuple[str, ...] = ()
    text: str = ""


class ReportWriter:
    """Where the parts of a report are written, each as soon as it is made.

    Names come from run directories, and so from anyone: only here do they become paths (`_place`).
    """

    def __init__(self, out: Path, options: Options, progress: Callable[[str], None]):
        self.out, self.options, self.progress = out, options, progress
        self.files: list[Path] = []
        self._taken: set[str] = set()
        for folder in ("figures", "tables"):
            try:
                if (out / folder).is_symlink():
                    raise NotADirectoryError(errno.ENOTDIR, "a link")
                (out / folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WriteError(f"cannot create {out / folder}: {explain(error)}", error.errno) from error

    def save(self, folder: str, name: str, suffix: str, content: bytes | str) -> str:
        """Write a file, whole or not at all; returns its name relative to the report.

        `folder` and `suffix` are ours, `name` may be any text.
        """
        place = self._place(folder, name, suffix)
        path = self.out / place
        # Half of a surrogate pair, which a file may name and UTF-8 cannot hold, becomes a question mark.
        replace_file(path, content.encode(errors="replace") if isinstance(content, str) else content)
        self.files.append(path)
        return place

    def _place(self, folder: str, name: str, suffix: str) -> str:
        """The relative path of a new file: in `folder`, whatever its name is, and no other file of this
        report. Names that differ in case only would be one file on some disks."""
        stem = f"{folder}/{file_name(name)}" if folder else file_name(name)
        number = 1
        while (place := stem + (f"-{number}" if number > 1 else "") + suffix).casefold() in self._taken:
            number += 1
        self._taken.add(place.casefold())
        return place

    def figure(self, name: str, figure: "Figure", rows: Sequence[Row] = ()) -> tuple[str, ...]:
        """Write a figure as PNG and PDF, and the numbers behind it as CSV, if there are any.

        The same figure has the same bytes at every time.
        """
        from matplotlib import rc_context

        plain: Any = {"text.parse_math": False, "text.usetex": False}  # as in `figures.STYLE`
        with rc_context(plain):
            _lay_out(figure)
        saved = []
        for suffix in ("png", "pdf") if self.options.pdf else ("png",):
            content = io.BytesIO()
            metadata = {"CreationDate": None} if suffix == "pdf" else {"Software": "cenie"}
            # Fonts that conferences accept: by default they would be of type 3.
            with rc_context({"pdf.fonttype": 42, **plain}):
                figure.savefig(content, format=suffix, dpi=170, metadata=metadata)
            saved.append(self.save("figures", name, f".{suffix}", content.getvalue()))
        return (*saved, self.table(name, rows)) if rows else tuple(saved)

    def table(self, name: str, rows: Sequence[Row]) -> str:
        """Write rows as CSV."""
        return self.save("tables", name, ".csv", csv_bytes(rows))


def _lay_out(figure: "Figure") -> None:
    """Reckon where everything goes, once rather than twice for each format."""
    from matplotlib import rc_context

    layout = figure.get_layout_engine()
    if layout is None:
        return
    layout.execute(figure)
    # "none" would put an empty engine in its place, for which all is drawn twice, once without ink; and
    # settings of the user's own could put another one there.
    with rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
