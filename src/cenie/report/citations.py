"""Citations for a run: the papers of its method, of its scores and of its domain.

Each of these names its papers itself (`papers`). The entries stand in `references.bib`, beside this file.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cenie.envs.domains import DOMAINS, find_domain
from cenie.methods.table import find_method
from cenie.rundir.run import Run

_FILE = Path(__file__).with_name("references.bib")

_LIBRARY = {"teoh2024cenie": "the paper that this library implements"}
_STATISTICS = {"agarwal2021deep": "IQM, optimality gap and intervals of `cenie report`"}


def reasons(run: Run) -> dict[str, list[str]]:
    """The keys of the entries to cite, in order, and why."""
    found: dict[str, list[str]] = {}
    for papers in _papers(run):
        for key, reason in papers.items():
            if reason not in found.setdefault(key, []):
                found[key].append(reason)
    return found


def _papers(run: Run) -> Iterator[Mapping[str, str]]:
    """Keys of entries with a reason each: of the method, of what it ranks by, of the domain, and always."""
    from cenie.replay.scores import SCORES  # loads JAX

    method = find_method(run.method)
    if method is not None:
        yield method.citations
    for name in _scores(run.settings.get("teacher")):
        if name in SCORES:
            yield SCORES[name].papers
    if run.domain_name in DOMAINS:
        yield find_domain(run.domain_name).papers
    yield _STATISTICS
    yield _LIBRARY


def _scores(teacher: Any) -> Iterator[str]:
    """The names of the scores in the settings of a teacher, as they stand in a file."""
    settings = teacher if isinstance(teacher, dict) else {}
    several, one = settings.get("scores"), settings.get("score")
    for text in several if isinstance(several, list) else ():
        if isinstance(text, str):
            yield text.partition(":")[0]
    if not several and isinstance(one, str):
        yield one


@functools.cache
def entries() -> dict[str, str]:
    """All entries by their keys."""
    texts = _FILE.read_text(encoding="utf-8").split("\n\n")
    return {text.split("{", 1)[1].split(",", 1)[0]: text.strip() for text in texts}


def bibtex(key: str, why: Iterable[str] = ()) -> str:
    """An entry, after comments that say what it is cited for."""
    return "".join(f"% {reason}\n" for reason in why) + entries()[key] + "\n"
