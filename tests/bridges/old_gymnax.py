"""gymnax 0.x beside the installed 1.x: a second copy, in a directory that only the tests look into."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

DIRECTORY = Path(sys.prefix) / "gymnax0"
"""Where the Makefile installs it."""


def old_gymnax() -> ModuleType:
    """The old copy. It calls itself `gymnax`, so the new one steps aside while it is loaded."""
    new = {name: module for name, module in sys.modules.items() if _is_gymnax(name)}
    for name in new:
        del sys.modules[name]
    sys.path.insert(0, str(DIRECTORY))
    try:
        return importlib.import_module("gymnax")
    finally:
        sys.path.remove(str(DIRECTORY))
        for name in [name for name in sys.modules if _is_gymnax(name)]:
            del sys.modules[name]
        sys.modules.update(new)


def _is_gymnax(name: str) -> bool:
    return name.split(".")[0] == "gymnax"
