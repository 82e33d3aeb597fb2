"""The code of the pages in docs/: blocks that begin with the name of a file are files, the others are run."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    return re.findall(r"```(\w+)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def write_files(page: str, directory: Path) -> list[Path]:
    """Write the files that a page shows; returns their paths."""
    paths = []
    for _, text in blocks(page):
        if name := file_name(text):
            paths.append(directory / name)
            paths[-1].write_text(text)
    return paths


def file_name(text: str) -> str | None:
    found = re.match(r"# (\w+\.py)\n", text)
    return found[1] if found else None
