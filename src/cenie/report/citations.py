"""Citations for a run: the papers of its method, of its score and of its domain.

The papers of a method are named in its own file. The entries stand in `references.bib`, beside this file.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

from cenie.methods.table import find_method
from cenie.rundir.run import Run

_FILE = Path(__file__).with_name("references.bib")

SCORES = {
    "learnability": {"rutherford2024no": "the score p(1-p)"},
    "generalised-learnability": {"monette2025optimisation": "the score: generalised learnability"},
    "mna": {"mead2025improving": "the score MNA"},
    "mna-sum": {"mead2025improving": "the score MNA"},
}
_DOMAINS = {
    "maze": {
        "chevalierboisvert2023minigrid": "the maze is Minigrid's",
        "dennis2020emergent": "mazes as a benchmark of environment design",
    },
    "walker": {
        "brockman2016openai": "BipedalWalker",
        "towers2024gymnasium": "the simulator that ours is checked against",
        "wang2019poet": "terrains of BipedalWalker by parameters",
        "parkerholder2022evolving": "the eight parameters and the test levels",
    },
    "racing": {
        "brockman2016openai": "CarRacing",
        "towers2024gymnasium": "the simulator that ours is checked against",
        "jiang2021replay": "Bezier tracks and the F1 benchmark",
    },
}
_LIBRARY = {"teoh2024cenie": "the paper that this library implements"}
_STATISTICS = {"agarwal2021deep": "IQM, optimality gap and intervals of `cenie report`"}


def reasons(run: Run) -> dict[str, list[str]]:
    """The keys of the entries to cite, in order, and why."""
    found: dict[str, list[str]] = {}
    teacher = run.settings.get("teacher")
    score = teacher.get("score") if isinstance(teacher, dict) else None
    method = find_method(run.method)
    of_method = {} if method is None else method.citations
    of_score = SCORES.get(score, {}) if isinstance(score, str) else {}
    for part in (of_method, of_score, _DOMAINS.get(run.domain_name, {}), _STATISTICS, _LIBRARY):
        _add(found, part)
    return found


def _add(found: dict[str, list[str]], part: dict[str, str]) -> None:
    for key, reason in part.items():
        if reason not in found.setdefault(key, []):
            found[key].append(reason)


@functools.cache
def entries() -> dict[str, str]:
    """All entries by their keys."""
    texts = _FILE.read_text(encoding="utf-8").split("\n\n")
    return {text.split("{", 1)[1].split(",", 1)[0]: text.strip() for text in texts}


def bibtex(key: str, why: Iterable[str] = ()) -> str:
    """An entry, after comments that say what it is cited for."""
    return "".join(f"% {reason}\n" for reason in why) + entries()[key] + "\n"
