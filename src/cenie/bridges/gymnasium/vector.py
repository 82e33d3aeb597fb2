"""Many environments side by side, as one vector environment of gymnasium.

All of them are one program: a step of the batch is one call. An environment that begins an episode draws a
fresh level, unless it was told which one to play.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Bool, Float, Int, Key

from cenie.bridges.gymnasium.spaces import on_host, unstacked
from cenie.bridges.gymnasium.worlds import World
from cenie.records import EnvState, Level, Observation, Prepared
from cenie.xla.flags import show_devices

_AT_ONCE = 8
"""Environments that begin an episode in one call of the program, if not all do. Two programs, for this number
and for all, serve every case: another size would be compiled again."""


class _Playing(eqx.Module):
    """`n` environments in the middle of episodes."""

    key: Key[Array, " n"]
    """Made from the seed of each environment. The randomness of an episode follows from it and `episode`."""
    episode: Int[Array, " n"]
    time: Int[Array, " n"]
    level: Level
    prepared: Prepared
    state: EnvState
    observation: Observation


class _Outcome(eqx.Module):
    """The results of one step of `n` environments, besides their observations."""

    reward: Float[Array, " n"]
    terminated: Bool[Array, " n"]
    truncated: Bool[Array, " n"]
    solved: Bool[Array, " n"]


class LevelVectorEnv(gymnasium.vector.VectorEnv):
    """Environments of one domain, each on a level of its own.

    Args:
        world: What is played, from `world_of`.
        num_envs: The number of environments, n.
        autoreset_mode: When an ended episode begins anew: with the next step, with the same step, or when
            `reset` is called with a `reset_mask`.
        render_mode: `rgb_array`, or None.
        max_episode_steps: A time limit besides that of the levels.

    `reset` takes one seed, and environment i then has `seed + i`, or a sequence of seeds. The episodes of an
    environment depend on its seed alone, not on the number of the others. Options of `reset`:

    - `level`: the level that all environments play in this episode;
    - `levels`: a sequence with the level of each environment, or None for a fresh one;
    - `reset_mask`: bool[n], which environments are reset; the others go on.

    `info` has the host's copy of each level under `level` when an episode begins, and `solved` when it ends.

    Raises:
        ValueError: There is no environment, or the domain draws no pictures in this mode.
    """

    def __init__(
        self,
        world: World,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs: must be at least 1, got {num_envs}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: must be 'rgb_array' or None, got {render_mode!r}")
        if render_mode and world.render is None:
            raise ValueError("render_mode: this domain draws no pictures")
        show_devices(1, *world.xla_flags)  # without an effect if JAX was used before
        self.world = world
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            "render_modes": ["rgb_array"] if world.render else [],
            "render_fps": round(1 / world.seconds),
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = world.observation_space
        self.single_action_space = world.action_space
        self.observation_space = batch_space(world.observation_space, num_envs)
        self.action_space = batch_space(world.action_space, num_envs)
        self._longest = np.int32(np.iinfo(np.int32).max if max_episode_steps is None else max_episode_steps)
        self._playing: _Playing | None = None
        self._ended = np.zeros(num_envs, bool)
        self._assigned: dict[int, Level] = {}

    def assign(self, levels: Mapping[int, Any] | Sequence[Any] | None) -> None:
        """Choose the levels that environments play from their next episode on.

        This is where a curriculum comes in: give each environment the level that a teacher asks for.

        Args:
            levels: Levels, or their JSON values, by the numbers of the environments; or one for each. None
                lets all environments draw fresh levels again.

        Raises:
            ValueError: A level is none of this domain, or there is no such environment.
        """
        if levels is None:
            self._assigned = {}
            return
        if not isinstance(levels, Mapping):
            levels = dict(enumerate(self._one_each(levels)))
        unknown = [number for number in levels if not 0 <= number < self.num_envs]
        if unknown:
            raise ValueError(f"levels: there are {self.num_envs} environments, got numbers {unknown}")
        self._assigned |= {number: self.world.read(level) for number, level in levels.items()}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: One seed, and environment i then has `seed + i`, or a seed for each. None goes on with the
                earlier seeds.
            options: `level`, `levels` or `reset_mask`, as the class describes them.

        Returns:
            The first observations [n, ...], and `info` with the levels.

        Raises:
            ValueError: There is another option, a level is none of this domain, or the mask does not fit.
        """
        self._check_open()
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask", None))
        given = self._given(options)
        if options:
            names = ", ".join(map(str, options))
            raise ValueError(f"options: takes level, levels and reset_mask, got {names}")
        if self._playing is None and not mask.all():
            raise ValueError("reset_mask: the first reset must be of all environments")
        self._seed(seed, mask)
        rows = np.flatnonzero(mask)
        self._begin(rows, {int(row): given[row] for row in rows if given[row] is not None})
        self._ended[rows] = False
        return self._observations(), self._level_info(rows)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance all environments one step.

        Args:
            actions: Actions of `action_space` [n, ...].

        Returns:
            Observations [n, ...], rewards [n], whether each episode was terminated [n], whether it was
            truncated [n], and `info`.

        Raises:
            ValueError: The actions are outside of the space.
            ResetNeeded: No episode has begun, or one has ended and environments are not reset by themselves.
        """
        self._check_open()
        if self._playing is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        actions = self._checked(actions)
        restarting = self._ended.copy()
        if restarting.any() and self.autoreset_mode is AutoresetMode.DISABLED:
            numbers = np.flatnonzero(restarting).tolist()
            raise gymnasium.error.ResetNeeded(
                f"the episodes of environments {numbers} have ended: call reset with options['reset_mask']"
            )
        self._playing, outcome = _advance(self.world, self._playing, actions, restarting, self._longest)
        reward, terminated, truncated, solved = (
            np.array(part) for part in (outcome.reward, outcome.terminated, outcome.truncated, outcome.solved)
        )
        ended = terminated | truncated
        info: dict[str, Any] = {"solved": solved, "_solved": ended} if ended.any() else {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if ended.any():
                info = self._final_info(np.flatnonzero(ended), info)
            restarting = ended
        if restarting.any():
            rows = np.flatnonzero(restarting)
            self._begin(rows, {})
            info |= self._level_info(rows)
        self._ended = ended if self.autoreset_mode is not AutoresetMode.SAME_STEP else np.zeros_like(ended)
        return self._observations(), reward, terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw the present states.

        Returns:
            A picture of each environment, uint8 [height, width, 3]; None without a `render_mode`.

        Raises:
            ResetNeeded: No episode has begun.
        """
        if self.render_mode is None:
            gymnasium.logger.warn("render needs render_mode='rgb_array' when the environment is made")
            return None
        if self._playing is None:
            raise gymnasium.error.ResetNeeded("call reset before render")
        assert self.world.render is not None
        draw = self.world.render.episode
        playing = unstacked(jax.device_get((self._playing.level, self._playing.state)), range(self.num_envs))
        return tuple(draw(level, jax.tree.map(lambda leaf: leaf[None], state))[0] for level, state in playing)

    @property
    def levels(self) -> list[Level]:
        """The level of each environment in its present episode, on the host."""
        if self._playing is None:
            raise gymnasium.error.ResetNeeded("there are no levels before the first reset")
        return unstacked(jax.device_get(self._playing.level), range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the episodes. gymnasium calls it from `close`.

        Args:
            kwargs: Not used.
        """
        self._playing = None

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("this environment was closed")

    def _mask(self, mask: Any) -> Bool[np.ndarray, " n"]:
        """The environments to reset. Raises `ValueError` if the mask is none."""
        mask = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)
        if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            wanted = f"bool[{self.num_envs}] with at least one True"
            raise ValueError(f"reset_mask: must be {wanted}, got {mask.dtype}{list(mask.shape)}")
        return mask

    def _given(self, options: dict[str, Any]) -> list[Level | None]:
        """The level of each environment in the options, which are taken out of them."""
        if "level" in options and "levels" in options:
            raise ValueError("options: level and levels exclude each other")
        if options.get("level") is not None:
            return [self.world.read(options.pop("level"))] * self.num_envs
        options.pop("level", None)
        levels = options.pop("levels", None)
        levels = [None] * self.num_envs if levels is None else self._one_each(levels)
        return [None if level is None else self.world.read(level) for level in levels]

    def _one_each(self, values: Iterable[Any], name: str = "levels") -> list[Any]:
        """The values as a list. Raises `ValueError` if they are not one for each environment."""
        values = list(values)
        if len(values) != self.num_envs:
            wanted = f"one for each of {self.num_envs} environments"
            raise ValueError(f"{name}: must be {wanted}, got {len(values)}")
        return values

    def _seed(self, seed: int | Sequence[int | None] | None, mask: Bool[np.ndarray, " n"]) -> None:
        """Give the environments of the mask new keys, if there are new seeds."""
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
            seeds = [int(seed) + number for number in range(self.num_envs)]
        elif seed is not None:
            seeds = self._one_each(seed, "seed")
        elif self._playing is None:
            seeds = [None] * self.num_envs
        else:
            return
        new = [number if mask[i] else None for i, number in enumerate(seeds)]
        if self._playing is None:
            new = [int(self.np_random.integers(2**31)) if number is None else number for number in new]
        keys = jax.vmap(jax.random.key)(np.array([number or 0 for number in new], np.uint32))
        if self._playing is None:
            self._playing = _unplayed(self.world, keys)
            return
        chosen = np.array([number is not None for number in new])
        key = jnp.where(chosen, keys, self._playing.key)
        episode = jnp.where(chosen, 0, self._playing.episode)
        self._playing = dataclasses.replace(self._playing, key=key, episode=episode)

    def _begin(self, rows: Int[np.ndarray, " k"], given: dict[int, Level]) -> None:
        """Begin an episode in some environments, on levels that are given or assigned if there are any."""
        at_once = self.num_envs if len(rows) > _AT_ONCE else min(_AT_ONCE, self.num_envs)
        given = self._assigned | given
        for first in range(0, len(rows), at_once):
            part = rows[first : first + at_once]
            # Row n does not exist: what is computed for it is dropped.
            padded = np.concatenate([part, np.full(at_once - len(part), self.num_envs)])
            self._playing = _begin(self.world, self._playing, padded, *self._stacked(padded, given))

    def _stacked(self, rows: np.ndarray, given: dict[int, Level]) -> tuple[Level, Bool[np.ndarray, " k"]]:
        """Levels for these rows, and where they are given; the others are placeholders."""
        assert self._playing is not None
        shapes = jax.eval_shape(lambda level: level, self._playing.level)
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), shapes)
        levels = [given.get(row, nothing) for row in rows.tolist()]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *levels)
        return stacked, np.array([row in given for row in rows.tolist()])

    def _checked(self, actions: Any) -> np.ndarray:
        """The actions as one array. Raises `ValueError` if they are none of this batch."""
        space = self.single_action_space
        actions, shape = np.asarray(actions), self.action_space.shape
        if actions.shape != shape:
            raise ValueError(f"actions: must have the shape {shape}, got {actions.shape}")
        if isinstance(space, gymnasium.spaces.Discrete):
            if actions.dtype.kind not in "iu" or actions.min() < 0 or actions.max() >= space.n:
                raise ValueError(f"actions: must be whole numbers from 0 to {space.n - 1}, got {actions}")
            return actions.astype(np.int32)
        assert isinstance(space, gymnasium.spaces.Box)
        actions = actions.astype(np.float32)
        if not np.isfinite(actions).all():
            raise ValueError("actions: must be finite")
        return np.clip(actions, space.low, space.high)

    def _observations(self) -> Any:
        assert self._playing is not None
        return on_host(self._playing.observation, self.single_observation_space)

    def _level_info(self, rows: Int[np.ndarray, " k"]) -> dict[str, Any]:
        assert self._playing is not None
        levels = jax.device_get(jax.tree.map(lambda leaf: leaf[rows], self._playing.level))
        return _by_number("level", rows, unstacked(levels, range(len(rows))), self.num_envs)

    def _final_info(self, rows: Int[np.ndarray, " k"], info: dict[str, Any]) -> dict[str, Any]:
        observations = self._observations()
        last = unstacked(observations, rows.tolist())
        ended = {"final_info": info, "_final_info": info["_solved"]}
        return ended | _by_number("final_obs", rows, last, self.num_envs)


def _by_number(name: str, rows: np.ndarray, values: list[Any], count: int) -> dict[str, np.ndarray]:
    """An entry of `info` for the environments of these numbers, as gymnasium writes it."""
    entry, mask = np.full(count, None, object), np.zeros(count, bool)
    mask[rows] = True
    for row, value in zip(rows, values, strict=True):
        entry[row] = value
    return {name: entry, f"_{name}": mask}


@partial(jax.jit, static_argnums=0)
def _unplayed(world: World, keys: Key[Array, " n"]) -> _Playing:
    """Environments before their first episode: numbers of the right shapes."""
    levels = jax.vmap(world.draw)(keys)
    prepared = jax.vmap(world.environment.prepare)(levels)
    observation, state = jax.vmap(world.environment.reset)(keys, prepared)
    zero = jnp.zeros(keys.shape, jnp.int32)
    return _Playing(keys, zero, zero, levels, prepared, state, observation)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _begin(
    world: World, playing: _Playing, rows: Int[Array, " k"], levels: Level, given: Bool[Array, " k"]
) -> _Playing:
    """Begin an episode in some environments, on `levels` where `given` and on fresh ones elsewhere."""

    def begin(key: Array, episode: Array, level: Level, given: Array) -> tuple[Any, ...]:
        level_key, reset_key = jax.random.split(jax.random.fold_in(key, episode))
        level = jax.tree.map(lambda mine, drawn: jnp.where(given, mine, drawn), level, world.draw(level_key))
        prepared = world.environment.prepare(level)
        observation, state = world.environment.reset(reset_key, prepared)
        return level, prepared, state, observation

    key, episode = (jnp.take(leaf, rows, axis=0, mode="clip") for leaf in (playing.key, playing.episode))
    begun = jax.vmap(begin)(key, episode, levels, given)
    old = playing.level, playing.prepared, playing.state, playing.observation
    new = jax.tree.map(lambda old, new: old.at[rows].set(new, mode="drop"), old, begun)
    episode = playing.episode.at[rows].add(1, mode="drop")
    return _Playing(playing.key, episode, playing.time.at[rows].set(0, mode="drop"), *new)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(
    world: World, playing: _Playing, action: Array, waiting: Bool[Array, " n"], longest: Int[Array, ""]
) -> tuple[_Playing, _Outcome]:
    """One step of every environment; those that wait for their next episode have a step without reward."""

    def step_key(key: Array, episode: Array, time: Array) -> Array:
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, episode), 1), time)

    keys = jax.vmap(step_key)(playing.key, playing.episode, playing.time)
    made = jax.vmap(world.environment.step)(keys, playing.prepared, playing.state, action)
    time = playing.time + 1
    truncated = (made.truncated | (time >= longest)) & ~made.terminated
    outcome = _Outcome(
        reward=jnp.where(waiting, 0.0, made.reward),
        terminated=made.terminated & ~waiting,
        truncated=truncated & ~waiting,
        solved=made.solved & ~waiting,
    )
    return (
        _Playing(
            playing.key, playing.episode, time, playing.level, playing.prepared, made.state, made.observation
        ),
        outcome,
    )
