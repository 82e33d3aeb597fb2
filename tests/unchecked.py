"""Modules as users have them: without the type checks that the tests put around every function."""

import importlib.util
import sys
from types import ModuleType


def unchecked(name: str) -> ModuleType:
    """A second copy of a module, under a name that the checks do not know. Wrong types reach its own code."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    copy = f"unchecked_{name.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(copy, found.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[copy] = module
    spec.loader.exec_module(module)
    return module
