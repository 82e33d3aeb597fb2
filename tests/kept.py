"""Traced programs of tiny runs, kept for the tests that need them again.

To trace a cycle takes more than to fetch it from the cache of compiled programs. Many tests train the same
tiny run, in several files and on both workers: each program is traced once in a run of the tests.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from cenie.experiment.build import build, program_settings
from cenie.experiment.config import Config
from cenie.teach.cycle import Setup
from cenie.xla.parts import CompiledCycles

directory: Path | None = None
"""Where they are kept; of all workers of one run of the tests. None outside of such a run."""


def kept_programs() -> contextlib.AbstractContextManager[Path | None]:
    """In the place of the library's, for trainings in the process of the tests."""
    return contextlib.nullcontext(directory)


def environment() -> dict[str, str]:
    """Of a process that trains as users do: it keeps its programs, and finds those of an earlier one."""
    assert directory is not None
    others = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    place = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", directory.parent))
    return others | {"CENIE_CACHE_DIR": str(place / "processes")}


def programs(config: Config, options: dict[str, Any] | None = None) -> tuple[Setup, CompiledCycles]:
    """The setup of a config and its cycles, which are served what an earlier test has traced."""
    _, setup = build(config)
    settings = program_settings(config, None)
    return setup, CompiledCycles(setup, 1, options, settings=settings, directory=directory)
