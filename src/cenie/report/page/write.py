"""The page as one file: template, style, program, plotting library and data put together. Loads no JAX.

The data comes from run directories, which may come from anyone. It goes into the page as compressed JSON, of
whose letters none has a meaning in HTML; the program shows it as text, never as markup; and the page's own
policy lets a browser run these very scripts and nothing else, and ask nobody for anything. The plotting
library is compressed, too: the program unpacks it and adds it as a script; the policy has its hash.
"""

import base64
import functools
import hashlib
import importlib.resources
import importlib.util
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cenie.report.measure.scores import SuiteScores
from cenie.report.page.data import LIMITS, Limits, page_data
from cenie.report.runs import Group
from cenie.settings import Problem, SettingsError
from cenie.system.durable import replace_file

if TYPE_CHECKING:
    from cenie.envs.base import Domain
    from cenie.report.page.pictures import Studio

_INSTALL = "is not installed; pip install 'cenie[report]'"


def write_page(
    groups: Sequence[Group],
    out: Path,
    *,
    skipped: Sequence[str] = (),
    pictures: bool = True,
    limits: Limits = LIMITS,
    stratified: bool = False,
    measured: Mapping[str, Sequence[SuiteScores]] | None = None,
    domains: Mapping[str, "Domain"] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write the page of groups of runs to a file.

    Args:
        groups: The groups, as from `group_runs`.
        out: The file.
        skipped: Sentences about directories that are not among them.
        pictures: Whether levels are drawn and episodes are filmed, for which JAX is loaded. A run for which
            that is impossible is shown without.
        limits: How much is shown at most.
        stratified: Whether intervals are rliable's.
        measured: The scores of each domain, if they are known.
        domains: The user's own domains by their names: none is imported because a file names it.
        say: Called with a sentence about what is being made.

    Returns:
        The file.

    Raises:
        SettingsError: plotly is not installed.
        WriteError: The file cannot be written.
    """
    check_installed()
    studio = open_studio(limits, domains=domains) if pictures else None
    data = page_data(
        groups,
        skipped=skipped,
        studio=studio,
        limits=limits,
        stratified=stratified,
        measured=measured,
        say=say,
    )
    replace_file(out, page_html(data).encode())
    return out


def open_studio(
    limits: Limits = LIMITS,
    interrupted: Callable[[], bool] = lambda: False,
    domains: Mapping[str, "Domain"] | None = None,
) -> "Studio":
    """Return the studio that draws levels and films episodes, until it is `interrupted`. Loads JAX."""
    from cenie.report.page.pictures import Studio

    return Studio(limits.picture_bytes, limits.film_bytes, interrupted, domains or {})


def check_installed() -> None:
    """Raise `SettingsError` if the package is missing that a page needs."""
    if importlib.util.find_spec("plotly") is None:
        raise SettingsError([Problem("report", f"plotly {_INSTALL}")])


def page_html(data: dict[str, Any]) -> str:
    """The whole page."""
    plotting, program = plotly_source(), _part("page.js")
    scripts = " ".join(f"'sha256-{_digest(source)}'" for source in (plotting, program))
    whom = "'self'" if data["live"] else "'none'"
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {whom}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "STYLE": _part("page.css"),
        "DATA": packed(data),
        "PLOTLY": _packed_plotly(),
        "PROGRAM": program,
    }
    # Split once at the marks, so that nothing that is put in can be taken for a mark.
    pieces = _part("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def json_for_html(data: Any) -> str:
    """JSON that may stand inside a script element: without characters that could end it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(data: Any) -> str:
    """The JSON as a page holds it: compressed, half as long, and of letters that mean nothing in HTML."""
    return _compressed(json_for_html(data))


def _compressed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


@functools.cache
def _packed_plotly() -> str:
    """The plotting library as a page holds it; it never changes, and a page may be made every few seconds."""
    return _compressed(plotly_source())


def plotly_source() -> str:
    """The plotting library as its package ships it."""
    source = importlib.resources.files("plotly") / "package_data" / "plotly.min.js"
    return source.read_text(encoding="utf-8")


def _part(name: str) -> str:
    return (importlib.resources.files("cenie.report.page") / name).read_text(encoding="utf-8")


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
