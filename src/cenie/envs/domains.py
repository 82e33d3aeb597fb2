"""The table of domains, and how others are found by `module:attribute`.

Imports no JAX: the command line reads it before anything heavy is loaded. A domain from elsewhere loads what
its module loads.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.presets import PRESETS as MAZE_PRESETS
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.presets import PRESETS as RACING_PRESETS
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.presets import PRESETS as WALKER_PRESETS
from cenie.settings import Problem, SettingsError, show
from cenie.spaces import DesignSpec, Space


@dataclass(frozen=True)
class DomainSpec:
    """The spaces and sizes on which networks and memory depend.

    `observation_parts` are the spaces an observation is made of; the bytes are those that one stored level,
    one stored observation and one prepared level (beyond what is stored of it) take, at least.
    """

    observation_parts: tuple[Space, ...]
    action_space: Space
    level_bytes: int
    observation_bytes: int
    prepared_bytes: int = 0


def spec_of_settings(settings: Any) -> DomainSpec:
    """As the settings of a domain say themselves, in properties of these names."""
    return DomainSpec(
        settings.observation_parts,
        settings.action_space,
        settings.level_bytes,
        settings.observation_bytes,
        getattr(settings, "prepared_bytes", 0),
    )


def design_of_settings(settings: Any, generator: str) -> DesignSpec:
    """As the settings of a domain say themselves, in a method of this name."""
    return settings.design_spec(generator)


@dataclass(frozen=True, eq=False)
class DomainEntry:
    """A row of the table; `factory`, a function or its `module:function`, turns the settings into a `Domain`.

    `settings` is a frozen dataclass, and `spec` derives the `DomainSpec` from an instance, which by default
    has the properties of these names itself. `roles` are names of generators by what they are for, and
    `presets` named sets of settings by their dotted paths (see `settings.Where`), the first of which is the
    usual one. `edits` says whether levels can be edited, `tasks` whether they are points of a box; `design`
    derives from an instance what a designer in the place of a generator sees and does, if levels can be
    designed. `suite_file`, a function or its `module:function`, checks a file of held-out levels by its name
    and content (those of the library without JAX), if there are such files; `Domain.suite_of_file` makes a
    suite of one. `xla_flags` make its programs faster on a CPU; the command line passes them to XLA, which
    reads them once for the whole process.
    """

    summary: str
    settings: type
    factory: str | Callable[[Any], Any]
    generators: tuple[str, ...]
    roles: Mapping[str, str]
    suites: tuple[str, ...]
    presets: Mapping[str, Mapping[str, Any]]
    edits: bool = True
    tasks: bool = True
    spec: Callable[[Any], DomainSpec] = spec_of_settings
    design: Callable[[Any, str], DesignSpec] | None = None
    suite_file: str | Callable[[str, str], Any] | None = None
    xla_flags: tuple[str, ...] = ()

    def build(self, settings: Any) -> Any:
        """The `Domain` with these settings."""
        if not isinstance(self.factory, str):
            return self.factory(settings)
        return _named(self.factory)(settings)

    def check_suite_file(self, name: str, content: str) -> None:
        """Raise `ValueError` with the reason if this is no file of held-out levels."""
        if self.suite_file is None:
            raise ValueError("this domain reads no levels from files")
        check = _named(self.suite_file) if isinstance(self.suite_file, str) else self.suite_file
        check(name, content)


def _named(reference: str) -> Callable[..., Any]:
    module, function = reference.split(":")
    return getattr(importlib.import_module(module), function)


DOMAINS = {
    "maze": DomainEntry(
        summary="13x13 mazes seen through a 5x5 egocentric window (Minigrid)",
        settings=MazeConfig,
        factory="cenie.envs.maze.domain:maze_domain",
        generators=("uniform60", "blocks25", "empty", "filled"),
        roles={"random": "uniform60", "simple": "empty"},
        suites=("cenie8", "cenie8-sym", "accel12", "plr7", "perfect-large", "all", "hard1000"),
        presets=MAZE_PRESETS,
        design=design_of_settings,
        # Together they halve the work of the compiler. A cycle that learns is no slower for it: what playing
        # loses without the newer kernels, 5 ms, loops gain that are not unrolled (docs/results.md).
        xla_flags=(
            "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling=true",
            "--xla_cpu_use_fusion_emitters=false",
        ),
    ),
    "walker": DomainEntry(
        summary="a two-legged walker on terrains of eight parameters (BipedalWalker)",
        settings=WalkerConfig,
        factory="cenie.envs.walker.domain:walker_domain",
        generators=("full", "easy"),
        roles={"random": "full", "simple": "easy"},
        suites=("walker6", "poet-roses", "high", "extreme"),
        presets=WALKER_PRESETS,
        design=design_of_settings,
        # The physics is many small steps. A loop that touches less than so many bytes in a turn becomes one
        # piece of code instead of a list of calls. Unrolled, loops over few walkers would not become vectors.
        # XLA's newer way to write kernels is slower here. What each is worth is in docs/results.md.
        xla_flags=(
            "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=30000000,"
            "xla_cpu_disable_loop_unrolling=true",
            "--xla_cpu_use_fusion_emitters=false",
        ),
    ),
    "racing": DomainEntry(
        summary="car races on tracks through twelve control points, seen from above (CarRacing)",
        settings=RacingConfig,
        factory="cenie.envs.racing.domain:racing_domain",
        generators=("grid", "continuous", "round"),
        roles={"random": "grid", "simple": "round"},
        suites=("f1", "f1-monitor", "vanilla", "bezier"),
        presets=RACING_PRESETS,
        design=design_of_settings,
        suite_file="cenie.envs.racing.centre_line:read_centre_line",
    ),
}


def is_reference(name: Any) -> bool:
    """Whether this is the name of a domain outside of the library, `module:attribute`."""
    return isinstance(name, str) and ":" in name


def find_domain(name: Any) -> DomainEntry:
    """The domain of a name in the table, or of `module:attribute`, whose module is then imported.

    Raises `SettingsError` with the reason if there is none.
    """
    if is_reference(name):
        from cenie.envs.foreign import load  # loads JAX, as will the module

        return load(name)
    if not isinstance(name, str) or name not in DOMAINS:
        known = f"must be one of {', '.join(DOMAINS)}, got {show(name)}"
        raise SettingsError([Problem("domain", f"{known} (one of your own is named module:attribute)")])
    return DOMAINS[name]
