"""The request behind a table of `cenie evaluate`, kept beside it, so that a later call can tell whether a
table is the one that it would write. Imports no JAX.

`evaluation-SUITE-seedS-cycleC.json` belongs to the table of the same name (docs/reference/run-directory.md).
"""

import hashlib
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cenie import __version__
from cenie.envs.domains import is_reference
from cenie.experiment.config import Config, EvaluationRequest, read_suite_file
from cenie.rundir.files import RunDirectoryError, read_json, write_json
from cenie.system.digest import folder_digest
from cenie.system.durable import open_regular

FORMAT = 1
_DOMAINS = Path(__file__).parents[1] / "envs"


@dataclass(frozen=True)
class Asked:
    """An evaluation as it was asked for.

    `content` stands for the levels of the suite: the SHA-256 of a file of levels, of the module of a domain
    of the user's own, or of the folder of a domain of the library.
    """

    suite: str
    content: str
    episodes: int
    seed: int
    checkpoints: int

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `cenie evaluate` that ask for it."""
        values = {
            "suite": self.suite,
            "episodes": self.episodes,
            "seed": self.seed,
            "checkpoints": self.checkpoints,
        }
        return tuple(f"--{name}={value}" for name, value in values.items())


def asked_for(config: Config, request: EvaluationRequest) -> Asked:
    """A request that was found good, with the content of its suite as it is now."""
    content = _content(config, request.suite)
    return Asked(request.suite, content, request.episodes, request.seed, request.checkpoints)


def _content(config: Config, suite: str) -> str:
    if suite not in config.entry.suites:
        return hashlib.sha256(read_suite_file(suite).encode()).hexdigest()
    if is_reference(config.domain):
        module = sys.modules.get(config.domain.partition(":")[0])
        file = getattr(module, "__file__", None)
        if file is not None and os.path.isfile(file):
            return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return f"cenie {__version__} {folder_digest(_DOMAINS / config.domain)}"


def write_record(table: Path, asked: Asked, cycle: int) -> None:
    """Say beside a table what it was asked for; `cycle` is the cycle of the newest played checkpoint.

    Raises `WriteError` if the disk refuses; the table then counts as one that nobody knows.
    """
    write_json(table.with_suffix(".json"), _record(asked, cycle, _hash_of(table)))


def is_played(directory: Path, asked: Asked, cycle: int) -> bool:
    """Whether a run directory has the table of this evaluation, unchanged since it was written."""
    for file in directory.glob("evaluation-*.json"):
        try:
            found, table = read_json(file), _hash_of(file.with_suffix(".csv"))
        except (RunDirectoryError, OSError):
            continue
        if found == _record(asked, cycle, table):
            return True
    return False


def _record(asked: Asked, cycle: int, table: str) -> dict[str, Any]:
    return {"format": FORMAT, **asdict(asked), "cycle": cycle, "table": table}


def _hash_of(table: Path) -> str:
    with open(open_regular(table, os.O_RDONLY), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
