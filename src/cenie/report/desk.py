"""The directory of a report, and what is put into it: figures, tables, and an item for each of them."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cenie.report.coverage import MOST_POINTS
from cenie.report.tables import Row, csv_bytes
from cenie.run.durable import WriteError, explain, replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Options:
    """What to make besides what is made quickly.

    `coverage` is the joint t-SNE of the points of all methods, which takes most of the time of a report on
    few runs; `pictures` are drawn levels and filmed episodes, for which JAX is loaded; `page` is the one to
    look at in a browser; `points` is how many points the t-SNE has; `stratified` asks for the intervals of
    rliable.
    """

    coverage: bool = True
    pictures: bool = True
    pdf: bool = True
    page: bool = True
    points: int = MOST_POINTS
    stratified: bool = False


@dataclass(frozen=True)
class Item:
    """A figure or a table with its caption and files; or, without files, why there is none.

    `text` is a table in Markdown. The names of files are relative to the directory of the report.
    """

    title: str
    caption: str
    files: tuple[str, ...] = ()
    text: str = ""


class Desk:
    """Where the parts of a report are written, each as soon as it is made."""

    def __init__(self, out: Path, options: Options, progress: Callable[[str], None]):
        self.out, self.options, self.progress = out, options, progress
        self.files: list[Path] = []
        for folder in ("figures", "tables"):
            try:
                (out / folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WriteError(f"cannot create {out / folder}: {explain(error)}", error.errno) from error

    def save(self, name: str, content: bytes) -> str:
        """Write a file, whole or not at all; returns its name."""
        path = self.out / name
        replace_file(path, content)
        self.files.append(path)
        return name

    def figure(self, name: str, figure: "Figure") -> tuple[str, ...]:
        """Write a figure as PNG and PDF; the same figure has the same bytes at every time."""
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
            saved.append(self.save(f"figures/{name}.{suffix}", content.getvalue()))
        return tuple(saved)

    def table(self, name: str, rows: Sequence[Row]) -> str:
        """Write rows as CSV."""
        return self.save(f"tables/{name}.csv", csv_bytes(rows))


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
