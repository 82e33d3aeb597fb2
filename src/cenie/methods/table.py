"""The table of methods: their names, each in one line, and the file that holds all the rest.

A file is loaded when a method is looked up, and loads JAX. The names and the lines need no file.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A line of the table: the module of this room that has the method, and what it does."""

    file: str
    summary: str


ROWS = {
    "dr": Row("dr", "domain randomisation: random levels, learn from all of them"),
    "plr": Row("plr", "prioritised level replay: learns from new and replayed levels"),
    "plr-robust": Row("plr", "PLR-perp: learns from replayed levels only"),
    "accel": Row("accel", "replay of edited levels, starting from simple ones"),
    "plr-cenie": Row("cenie", "PLR-perp by novelty and regret (CENIE)"),
    "plr-cenie-dagger": Row("cenie", "PLR-perp by novelty alone (CENIE)"),
    "accel-cenie": Row("cenie", "ACCEL by novelty and regret (CENIE)"),
    "accel-cenie-dagger": Row("cenie", "ACCEL by novelty alone (CENIE)"),
    "diplr": Row("diplr", "PLR-perp by novelty and regret (DIPLR)"),
    "diplr-dagger": Row("diplr", "PLR-perp by novelty alone (DIPLR)"),
    "accel-diplr": Row("diplr", "ACCEL by novelty and regret (DIPLR)"),
    "accel-diplr-dagger": Row("diplr", "ACCEL by novelty alone (DIPLR)"),
    "plr-poet": Row("poet_novelty", "PLR-perp by novelty and regret (POET)"),
    "accel-poet": Row("poet_novelty", "ACCEL by novelty and regret (POET)"),
    "plr-epoet": Row("epoet_novelty", "PLR-perp by novelty and regret (Enhanced POET)"),
    "accel-epoet": Row("epoet_novelty", "ACCEL by novelty and regret (Enhanced POET)"),
    "minimax": Row("paired", "a designer learns to lower the student's return"),
    "paired": Row("paired", "a designer learns to raise the student's regret, which an antagonist measures"),
    "repaired": Row(
        "paired", "PAIRED with a level buffer for each student: learns from replayed levels only"
    ),
    "plr-learnability": Row("plr", "PLR-perp by learnability: p(1-p), or generalised to returns"),
    "traced": Row("traced", "ACCEL by regret, transition-prediction error and co-learnability (TRACED)"),
    "sfl": Row("sfl", "trains on the most learnable of many scouted levels (SFL)"),
    "alp-gmm": Row("alp_gmm", "levels of the kinds on which returns change most (ALP-GMM)"),
    "poet": Row("poet", "a population of levels, each with a student of its own (POET)"),
}

OWN = "own"
"""The method whose curriculum is passed from Python. It is not in the table: no command can train it."""


@dataclass(frozen=True)
class Method:
    """A method: its settings, and how it is named, drawn and cited.

    Args:
        name: The name on the command line.
        title: The name as papers write it, in figures and tables.
        colour: The colour in figures and on the page, as `#rrggbb`.
        base: The settings, which are a `Family`; or the name of the method that this one changes.
        changes: What is changed of the settings of the base, by the names of the settings.
        papers: Keys of `references.bib`, each with what it is cited for, besides those of the base.
    """

    name: str
    title: str
    colour: str
    base: Any
    changes: Mapping[str, Any] = field(default_factory=dict)
    papers: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The method in one line."""
        return ROWS[self.name].summary

    @property
    def settings(self) -> Any:
        """The settings of the method by default, a `Family`."""
        base = METHODS[self.base].settings if isinstance(self.base, str) else self.base
        return dataclasses.replace(base, **self.changes)

    @property
    def citations(self) -> dict[str, str]:
        """Keys of `references.bib`, each with what it is cited for: those of the base come first."""
        base = METHODS[self.base].citations if isinstance(self.base, str) else {}
        return {**base, **self.papers}


class _Methods(Mapping[str, Method]):
    """The methods by their names, in the order of the table. Looking one up loads its file."""

    def __getitem__(self, name: str) -> Method:
        return _in_file(ROWS[name].file, name)

    def __iter__(self) -> Iterator[str]:
        return iter(ROWS)

    def __len__(self) -> int:
        return len(ROWS)

    def __contains__(self, name: object) -> bool:
        return name in ROWS


METHODS: Mapping[str, Method] = _Methods()
"""All methods that can be trained by name."""


def find_method(name: str) -> Method | None:
    """The method of a name, `own` included; None if there is none."""
    if name == OWN:
        return _in_file("own", name)
    return METHODS.get(name)


def _in_file(file: str, name: str) -> Method:
    """The method of a file: its `METHODS` are a tuple."""
    methods = importlib.import_module(f"cenie.methods.{file}").METHODS
    return next(method for method in methods if method.name == name)
