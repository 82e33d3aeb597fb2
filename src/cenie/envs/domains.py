"""The table of domains. Imports no JAX: the command line reads it before anything heavy is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.presets import PRESETS as MAZE_PRESETS
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.presets import PRESETS as WALKER_PRESETS


@dataclass(frozen=True)
class DomainEntry:
    """A row of the table; `factory` is `module:function` and turns the settings into a `Domain`.

    `settings` is a type with the properties `level_bytes`, `observation_bytes`, `observation_parts` (the
    spaces an observation is made of) and `action_space`. `roles` are names of generators by what they are
    for, and `presets` named sets of settings by their dotted paths; see `cenie.settings.Where`.
    """

    summary: str
    settings: type
    factory: str
    generators: tuple[str, ...]
    roles: Mapping[str, str]
    suites: tuple[str, ...]
    presets: Mapping[str, Mapping[str, Any]]


DOMAINS = {
    "maze": DomainEntry(
        summary="13x13 mazes seen through a 5x5 egocentric window (Minigrid)",
        settings=MazeConfig,
        factory="cenie.envs.maze.domain:maze_domain",
        generators=("uniform60", "blocks25", "empty"),
        roles={"random": "uniform60", "simple": "empty"},
        suites=("cenie8", "cenie8-sym", "accel12", "plr7", "perfect-large", "all"),
        presets=MAZE_PRESETS,
    ),
    "walker": DomainEntry(
        summary="a two-legged walker on terrains of eight parameters (BipedalWalker)",
        settings=WalkerConfig,
        factory="cenie.envs.walker.domain:walker_domain",
        generators=("full", "easy"),
        roles={"random": "full", "simple": "easy"},
        suites=("walker6", "poet-roses", "high", "extreme"),
        presets=WALKER_PRESETS,
    ),
}
