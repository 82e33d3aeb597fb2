"""What to cite for a run: the papers of its method, of its parts and of its domain. Loads no JAX.

The entries themselves stand in `references.bib`, beside this file.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

from cenie.rundir.run import Run

_FILE = Path(__file__).with_name("references.bib")

_PLR = {"jiang2021prioritized": "Prioritized Level Replay (PLR)"}
_ROBUST = _PLR | {"jiang2021replay": "PLR-perp: learning from replayed levels only"}
_ACCEL = _ROBUST | {"parkerholder2022evolving": "ACCEL: replay of edited levels"}
_PAIRED = {"dennis2020emergent": "PAIRED and minimax: designers that learn"}
_METHODS: dict[str, dict[str, str]] = {
    "dr": {"tobin2017domain": "domain randomisation"},
    "plr": _PLR,
    "plr-robust": _ROBUST,
    "plr-learnability": _ROBUST,
    "accel": _ACCEL,
    "minimax": _PAIRED,
    "paired": _PAIRED,
    "repaired": _PAIRED | {"jiang2021replay": "REPAIRED"},
    "sfl": {"rutherford2024no": "SFL: sampling for learnability"},
    "alp-gmm": {"portelas2019teacher": "ALP-GMM"},
    "poet": {"wang2019poet": "POET"},
    "traced": _ACCEL | {"cho2026traced": "TRACED"},
}
_NOVELTIES = {
    "cenie": {"teoh2024cenie": "CENIE: coverage-based novelty"},
    "diplr": {"li2023generalization": "DIPLR: diversity of trajectories"},
    "epoet": {"wang2020enhanced": "Enhanced POET: novelty by how past students fare"},
    "poet": {"wang2019poet": "POET: novelty by the encoding of levels"},
}
_SCORES = {
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
    for part in (*_method(run.method), _SCORES.get(score, {}) if isinstance(score, str) else {}):
        _add(found, part)
    for part in (_DOMAINS.get(run.domain_name, {}), _STATISTICS, _LIBRARY):
        _add(found, part)
    return found


def _method(method: str) -> list[dict[str, str]]:
    """The base of a method, and its novelty: `accel-cenie-dagger` is ACCEL with CENIE's."""
    plain = method.removesuffix("-dagger")
    if plain in _METHODS:
        return [_METHODS[plain]]
    name = next((name for name in _NOVELTIES if plain.endswith(name)), None)
    if name is None:
        return []
    return [_ACCEL if plain.startswith("accel") else _ROBUST, _NOVELTIES[name]]


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
