"""Coverage and novelty (CENIE). Stands alone: needs JAX, NumPy, and of ours `devices` and `settings`.

The names below are loaded when they are first used; the settings load without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenie.novelty.config import DistillationConfig, MixtureConfig, NeighboursConfig
    from cenie.novelty.coverage import CoverageState, fit, init, log_density, novelty, push
    from cenie.novelty.estimator import Coverage, FitError, NotFittedError
    from cenie.novelty.interface import CoverageModel
    from cenie.novelty.silhouette import silhouettes

__all__ = [
    "Coverage",
    "CoverageModel",
    "CoverageState",
    "DistillationConfig",
    "FitError",
    "MixtureConfig",
    "NeighboursConfig",
    "NotFittedError",
    "fit",
    "init",
    "log_density",
    "novelty",
    "push",
    "silhouettes",
]

_HOME = {
    "Coverage": "cenie.novelty.estimator",
    "DistillationConfig": "cenie.novelty.config",
    "MixtureConfig": "cenie.novelty.config",
    "NeighboursConfig": "cenie.novelty.config",
    "CoverageModel": "cenie.novelty.interface",
    "CoverageState": "cenie.novelty.coverage",
    "FitError": "cenie.novelty.estimator",
    "NotFittedError": "cenie.novelty.estimator",
    "fit": "cenie.novelty.coverage",
    "init": "cenie.novelty.coverage",
    "log_density": "cenie.novelty.coverage",
    "novelty": "cenie.novelty.coverage",
    "push": "cenie.novelty.coverage",
    "silhouettes": "cenie.novelty.silhouette",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cenie.novelty' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
