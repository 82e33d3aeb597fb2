"""Changes pages while MkDocs builds the site: generated tables, the diagram, and links into the repository.

A page says `<!-- generated: NAME -->` where a table of the library is to stand. The tables are made from the
library while the site is built, so that they cannot be out of date.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import diagram
import generated

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_GENERATED = re.compile(r"<!-- generated: ([\w-]+)(?: ([\w-]+))? -->")
_MERMAID = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_FENCES = re.compile(r"(```.*?```)", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!#|[a-z]+:)([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """The navigation with all pages of the notebook, which has one for each series of measurements."""
    pages = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "notebook").glob("*.md"))
    (evidence,) = (section["Evidence"] for section in config.nav if "Evidence" in section)
    if pages and not any("Notebook" in entry for entry in evidence):
        evidence.append({"Notebook": pages})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page with its generated parts, its diagram, and links to the repository or names of files."""
    markdown = _GENERATED.sub(lambda found: generated.PARTS[found[1]](found[2]), markdown)
    markdown = _MERMAID.sub(lambda found: diagram.drawn(found[1]), markdown)
    folder = posixpath.dirname(page.file.src_uri)
    parts = _FENCES.split(markdown)
    return "".join(
        part
        if _FENCES.match(part)
        else _LINK.sub(lambda found: _outward(found, folder, config.repo_url), part)
        for part in parts
    )


def _outward(found: re.Match[str], folder: str, repository: str | None) -> str:
    """A link that works on the site.

    A link to what is not on the site leads to the repository, if its address is known, and is the text alone
    otherwise. A page that is called by the name of its file is called by its title.
    """
    text, target = found[1], found[2]
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    file = path.partition("#")[0]
    if path.startswith("docs/") and not (ROOT / file).is_dir():
        is_file_name = text.endswith(".md") and (ROOT / file).exists()
        return f"[{_title(ROOT / file)}]({target})" if is_file_name else found[0]
    if not (ROOT / file).exists():
        raise FileNotFoundError(f"{folder}: {target}")
    if repository:
        return f"[{text}]({repository.rstrip('/')}/blob/main/{path})"
    return text if file.rpartition("/")[2] in text else f"{text} (`{file}`)"


def _title(page: Path) -> str:
    """The first heading of a page."""
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
