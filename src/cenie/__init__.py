"""cenie: Unsupervised Environment Design in JAX, with coverage-based novelty (CENIE, NeurIPS 2024).

The names below are loaded when they are first used, so that `import cenie` is light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenie.bridges.environment import as_level
    from cenie.bridges.features import state_action_features
    from cenie.bridges.gymnax import from_gymnax, gymnax_domain, to_gymnax
    from cenie.bridges.jaxued import from_jaxued
    from cenie.bridges.teacher import Teacher
    from cenie.envs.base import Design, Domain, Environment, ParameterSpace, Renderer, Suite, SuiteEntry
    from cenie.envs.check import check_environment
    from cenie.envs.parameters import Parameters, parameter_domain
    from cenie.run.build import build
    from cenie.run.evaluate import evaluate, level_scores, solved_rates, suite_mean
    from cenie.run.presets import preset
    from cenie.spaces import Box, Discrete
    from cenie.student.actions import Categorical, DiagonalGaussian
    from cenie.student.networks import Decision, Network
    from cenie.teach.curriculum import Curriculum, Editing, Replay
    from cenie.teach.cycle import cycle, cycles, init
    from cenie.teach.novelty import Novelty
    from cenie.teach.scores import Score
    from cenie.teach.source import RandomSource, Source
    from cenie.types import Step

__version__ = "0.1.0"

__all__ = [
    "Box",
    "Categorical",
    "Curriculum",
    "Decision",
    "Design",
    "DiagonalGaussian",
    "Discrete",
    "Domain",
    "Editing",
    "Environment",
    "Network",
    "Novelty",
    "ParameterSpace",
    "Parameters",
    "RandomSource",
    "Renderer",
    "Replay",
    "Score",
    "Source",
    "Step",
    "Suite",
    "SuiteEntry",
    "Teacher",
    "as_level",
    "build",
    "check_environment",
    "cycle",
    "cycles",
    "evaluate",
    "from_gymnax",
    "from_jaxued",
    "gymnax_domain",
    "init",
    "level_scores",
    "parameter_domain",
    "preset",
    "solved_rates",
    "state_action_features",
    "suite_mean",
    "to_gymnax",
]

_HOME = {
    "Box": "cenie.spaces",
    "Categorical": "cenie.student.actions",
    "Curriculum": "cenie.teach.curriculum",
    "Decision": "cenie.student.networks",
    "Design": "cenie.envs.base",
    "DiagonalGaussian": "cenie.student.actions",
    "Discrete": "cenie.spaces",
    "Domain": "cenie.envs.base",
    "Editing": "cenie.teach.curriculum",
    "Environment": "cenie.envs.base",
    "Network": "cenie.student.networks",
    "Novelty": "cenie.teach.novelty",
    "ParameterSpace": "cenie.envs.base",
    "Parameters": "cenie.envs.parameters",
    "RandomSource": "cenie.teach.source",
    "Renderer": "cenie.envs.base",
    "Replay": "cenie.teach.curriculum",
    "Score": "cenie.teach.scores",
    "Source": "cenie.teach.source",
    "Step": "cenie.types",
    "Suite": "cenie.envs.base",
    "SuiteEntry": "cenie.envs.base",
    "Teacher": "cenie.bridges.teacher",
    "as_level": "cenie.bridges.environment",
    "build": "cenie.run.build",
    "check_environment": "cenie.envs.check",
    "cycle": "cenie.teach.cycle",
    "cycles": "cenie.teach.cycle",
    "evaluate": "cenie.run.evaluate",
    "from_gymnax": "cenie.bridges.gymnax",
    "from_jaxued": "cenie.bridges.jaxued",
    "gymnax_domain": "cenie.bridges.gymnax",
    "init": "cenie.teach.cycle",
    "level_scores": "cenie.run.evaluate",
    "parameter_domain": "cenie.envs.parameters",
    "preset": "cenie.run.presets",
    "solved_rates": "cenie.run.evaluate",
    "state_action_features": "cenie.bridges.features",
    "suite_mean": "cenie.run.evaluate",
    "to_gymnax": "cenie.bridges.gymnax",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cenie' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
