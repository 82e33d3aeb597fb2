"""The environments of the library in gymnasium. Importing this module registers them:

    import gymnasium
    import cenie.gymnasium

    envs = gymnasium.make_vec("cenie/BipedalWalker-v0", num_envs=64)
    envs.reset(seed=0)

| name | what it is |
|---|---|
| `cenie/BipedalWalker-v0` | the walker on gymnasium's flat terrain |
| `cenie/BipedalWalkerHardcore-v0` | the walker on gymnasium's terrain with obstacles |
| `cenie/Walker-v0` | the walker on terrains of eight random parameters |
| `cenie/CarRacing-v0` | a race on a track through twelve random control points |
| `cenie/F1-v0` | a race on one of twenty circuits |
| `cenie/Maze-v0` | a maze of 13 x 13 tiles, seen through a window of 5 x 5 |

All take `settings`, a dict with settings of their domain, as in
`gymnasium.make_vec("cenie/CarRacing-v0", num_envs=4, settings={"shaping": False})`. A domain of your own
becomes a vector environment by `cenie.gymnasium.make_vec(domain, num_envs=64)`.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium.envs.registration import register

from cenie.bridges.gymnasium.single import LevelEnv
from cenie.bridges.gymnasium.vector import LevelVectorEnv
from cenie.bridges.gymnasium.worlds import WORLDS, world_of
from cenie.envs.base import Domain

__all__ = ["LevelEnv", "LevelVectorEnv", "make", "make_vec"]


def make_vec(domain: Domain, num_envs: int, *, generator: str = "random", **options: Any) -> LevelVectorEnv:
    """A domain of your own as a vector environment.

    Args:
        domain: The domain.
        num_envs: The number of environments.
        generator: The generator of fresh levels, by its name or role.
        options: `autoreset_mode`, `render_mode`, `max_episode_steps` of `LevelVectorEnv`.

    Returns:
        The environments, each on a level of its own.
    """
    return LevelVectorEnv(world_of(domain, generator), num_envs, **options)


def make(domain: Domain, *, generator: str = "random", render_mode: str | None = None) -> LevelEnv:
    """A domain of your own as a single environment.

    Args:
        domain: The domain.
        generator: The generator of fresh levels, by its name or role.
        render_mode: `rgb_array`, or None.

    Returns:
        The environment.
    """
    return LevelEnv(world_of(domain, generator), render_mode=render_mode)


def _registered(name: str, settings: Mapping[str, Any] | None = None, **options: Any) -> LevelEnv:
    return LevelEnv(WORLDS[name](settings or {}), **options)


def _registered_vector(
    name: str, num_envs: int = 1, settings: Mapping[str, Any] | None = None, **options: Any
) -> LevelVectorEnv:
    return LevelVectorEnv(WORLDS[name](settings or {}), num_envs, **options)


for _name in WORLDS:
    register(
        id=f"cenie/{_name}",
        entry_point=_registered,
        vector_entry_point=_registered_vector,
        kwargs={"name": _name},
    )
