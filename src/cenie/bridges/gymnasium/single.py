"""One environment, as an environment of gymnasium.

It is a vector environment of one. A step from Python costs some 0.2 ms whatever is played, most of it outside
of the physics. Many environments side by side (`gymnasium.make_vec`) share this cost.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from cenie.bridges.gymnasium.vector import LevelVectorEnv
from cenie.bridges.gymnasium.worlds import World
from cenie.records import Level


class LevelEnv(gymnasium.Env):
    """An environment of a domain, on a fresh level in each episode.

    Args:
        world: What is played, from `world_of`.
        render_mode: `rgb_array`, or None.

    The option `level` of `reset` is a level to play, or its JSON value. `info` has the level under `level`
    when an episode begins, and `solved` when it ends.
    """

    def __init__(self, world: World, *, render_mode: str | None = None):
        self._one = LevelVectorEnv(world, 1, autoreset_mode=AutoresetMode.DISABLED, render_mode=render_mode)
        self.render_mode = render_mode
        self.metadata = {name: self._one.metadata[name] for name in ("render_modes", "render_fps")}
        self.observation_space = world.observation_space
        self.action_space = world.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Decides the levels and episodes from here on; None goes on with the earlier seed.
            options: `level`, a level to play, or its JSON value.

        Returns:
            The first observation, and `info` with the level.

        Raises:
            ValueError: There is another option, or the level is none of this domain.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        given = {"level": options.pop("level")} if "level" in options else {}
        if options:
            raise ValueError(f"options: takes level, got {', '.join(map(str, options))}")
        observation, info = self._one.reset(seed=seed, options=given)
        return _first(observation), {"level": info["level"][0]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step.

        Args:
            action: An action of `action_space`.

        Returns:
            Observation, reward, whether the episode was terminated, whether it was truncated, and `info`,
            which says at the end of an episode whether it was `solved`.

        Raises:
            ValueError: The action is outside of the space.
            ResetNeeded: The episode has ended, or none has begun.
        """
        observation, reward, terminated, truncated, info = self._one.step(np.asarray(action)[None])
        told = {"solved": bool(info["solved"][0])} if "solved" in info else {}
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), told

    def render(self) -> np.ndarray | None:
        """Draw the present state.

        Returns:
            A picture, uint8 [height, width, 3]; None without a `render_mode`.
        """
        pictures = self._one.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """End the use of the environment."""
        self._one.close()

    @property
    def level(self) -> Level:
        """The level of the present episode, on the host."""
        return self._one.levels[0]


def _first(observation: Any) -> Any:
    """The observation of the only environment."""
    if isinstance(observation, dict):
        return {key: _first(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_first, observation))
    return observation[0]
