"""Packages that load what they offer when it is first used. Their `public.py` lists it: every name once."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any


def front_door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package whose public names stand in its `public.py`."""

    def public() -> dict[str, Any]:
        found = vars(importlib.import_module(f"{package}.public"))
        return {
            name: value
            for name, value in found.items()
            if not name.startswith("_") and not isinstance(value, ModuleType)
        }

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(public())
        if not name.startswith("_"):
            # A module first: `from cenie import settings` asks here too, and must load no more than that.
            try:
                return importlib.import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
            if name in public():
                return public()[name]
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return get, lambda: ["__all__", *sorted(public())]
