"""Environments of gymnax as ours, and ours as environments of gymnax.

Both step APIs are understood: 0.x, where one flag says that an episode has ended, and 1.0,
where running out of time is told apart. gymnax is imported only to make one of its environments.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from cenie.bridges import environment as shared
from cenie.bridges.environment import ForeignEnvironment, Solved, as_level
from cenie.envs.base import Domain, Environment
from cenie.envs.parameters import Parameters, Range, parameter_domain
from cenie.records import EnvState, Level, Prepared
from cenie.spaces import Box, Discrete, Space


def from_gymnax(
    environment: Any,
    params: Any = None,
    *,
    also: Sequence[Any] = (),
    max_steps: int | None = None,
    solved: Solved | None = None,
) -> Environment:
    """A gymnax environment whose level is its parameters: `as_level(params)` makes one of them.

    Episodes are not restarted by it, and those that only ran out of time are truncated, also where gymnax 0.x
    just says `done`.

    Args:
        environment: The environment of gymnax, 0.x or 1.0, without wrappers.
        params: Its parameters; by default its own.
        also: Further parameters. The spaces hold what the environment shows and takes with `params` and with
            each of these.
        max_steps: The largest number of steps of an episode; needed only if parameters have no
            `max_steps_in_episode`.
        solved: Says from a level and the last step of an episode whether it was solved, since gymnax does
            not; a boolean array []. By default no episode is.

    Returns:
        The environment.

    Raises:
        ValueError: The environment is a wrapper, nothing says how long episodes are, or spaces depend on the
            parameters other than by their bounds.
    """
    for name in ("step_env", "reset_env"):
        # Of the class: a wrapper would pass the question on to what is inside, and so be skipped.
        if not hasattr(type(environment), name):
            raise ValueError(
                f"{type(environment).__name__} has no {name} of its own: a wrapper of gymnax cannot be used, "
                "only the environment inside"
            )
    tells_time = hasattr(environment, "is_truncated")
    examples = [as_level(environment.default_params if params is None else params), *map(as_level, also)]

    def begin(key: PRNGKeyArray, level: Level) -> tuple[Any, Any]:
        return environment.reset_env(key, level)

    def advance(key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> tuple[Any, ...]:
        if not tells_time:
            return shared.step_with_one_flag(environment, key, state, action, level)
        observation, state, reward, terminated, _ = environment.step_env(key, state, action, level)
        return observation, state, reward, terminated, environment.is_truncated(state, level)

    observation, _ = jax.eval_shape(begin, jax.random.key(0), examples[0])
    spaces = [
        shared.observation_spaces(observation, environment.observation_space(each)) for each in examples
    ]
    return ForeignEnvironment(
        begin=begin,
        advance=advance,
        solved=solved,
        max_steps=shared.longest_episode(max_steps, examples),
        observation_space=jax.tree.map(lambda *each: shared.hull(each), *spaces),
        action_space=shared.hull([shared.action_space(environment.action_space(each)) for each in examples]),
    )


def gymnax_domain(
    environment: Any,
    ranges: Mapping[str, Range],
    *,
    params: Any = None,
    derive: Callable[[Level], Level] | None = None,
    bounds: tuple[float, float] | None = None,
    max_steps: int | None = None,
    solved: Solved | None = None,
) -> Domain:
    """A gymnax environment as a domain, whose levels are its parameters drawn from `ranges`.

    Args:
        environment: The environment of gymnax, 0.x or 1.0, without wrappers.
        ranges: The least and the largest value of each parameter that varies.
        params: The other parameters; by default the environment's own.
        derive: Returns a level in which parameters that follow from others are set.
        bounds: Two returns that count as 0 and 1 in evaluations; without them, `solved` must be given.
        max_steps: The largest number of steps of an episode; needed only if parameters have no
            `max_steps_in_episode`.
        solved: Says from a level and the last step of an episode whether it was solved; a boolean array [].

    Returns:
        The domain, with generators, edits and suites as `parameter_domain` makes them.

    Raises:
        ValueError: Neither `bounds` nor `solved` is given, a range does not fit its parameter, or
            `from_gymnax` refuses the environment.
    """
    if bounds is None and solved is None:
        raise ValueError("bounds or solved: one of them must say how good an episode is")
    default = as_level(environment.default_params if params is None else params)
    parameters = Parameters(default, ranges, derive)
    extremes = [level for _, _, level in parameters.extremes()]
    ours = from_gymnax(environment, default, also=extremes, max_steps=max_steps, solved=solved)
    return parameter_domain(environment.name, ours, parameters, bounds=bounds)


def to_gymnax(environment: Environment, level: Level) -> Any:
    """An environment of ours as one of gymnax 1.0. Its parameters are prepared levels.

    `default_params` make `level`, and its method `params_of(level)` returns what makes another. `info` says
    whether an episode was solved.

    Args:
        environment: The environment of ours.
        level: The level that is played by default.

    Returns:
        The environment of gymnax.

    Raises:
        ImportError: gymnax is missing or older than 1.0.
    """
    return _adapter()(environment, level)


class LevelState(eqx.Module):
    """The state of an environment of ours, and what gymnax asks a state for."""

    time: Int[Array, "*n"]
    state: EnvState
    terminated: Bool[Array, "*n"]
    truncated: Bool[Array, "*n"]


@functools.cache
def _adapter() -> type:
    """The class of our environments in gymnax, which is imported here because most users do without it."""
    from gymnax.environments import environment as gymnax_environment
    from gymnax.environments import spaces

    if not hasattr(gymnax_environment.Environment, "is_truncated"):
        raise ImportError("cenie.to_gymnax needs gymnax 1.0 or newer; the installed one is older")

    def space_of(space: PyTree[Space]) -> Any:
        if isinstance(space, Discrete) and space.shape == () and space.dtype == "int32":
            return spaces.Discrete(space.n)
        if isinstance(space, Discrete):
            return spaces.Box(0, space.n - 1, space.shape, jnp.dtype(space.dtype))
        if isinstance(space, Box):
            return spaces.Box(space.low, space.high, space.shape, jnp.dtype(space.dtype))
        parts = {key: space_of(part) for key, part in shared.children(space)}
        return spaces.Tuple(list(parts.values())) if isinstance(space, list | tuple) else spaces.Dict(parts)

    class LevelEnvironment(gymnax_environment.Environment):
        """An environment whose parameters are prepared levels."""

        def __init__(self, environment: Environment, level: Level):
            super().__init__()
            self.environment = environment
            self._default = self.params_of(level)

        def params_of(self, level: Level) -> Prepared:
            """The parameters that make this level."""
            return self.environment.prepare(level)

        @property
        def default_params(self) -> Any:
            return self._default

        def reset_env(self, key: PRNGKeyArray, params: Prepared) -> tuple[Any, LevelState]:
            observation, state = self.environment.reset(key, params)
            return observation, LevelState(jnp.int32(0), state, *(jnp.zeros((), bool),) * 2)

        def step_env(
            self, key: PRNGKeyArray, state: LevelState, action: Any, params: Prepared
        ) -> tuple[Any, ...]:
            step = self.environment.step(key, params, state.state, jnp.asarray(action))
            after = LevelState(state.time + 1, step.state, step.terminated, step.truncated)
            info = {"discount": self.discount(after, params), "solved": step.solved}
            return step.observation, after, step.reward, step.terminated, info

        def is_terminated(self, state: LevelState, params: Prepared) -> Array:
            return state.terminated

        def is_truncated(self, state: LevelState, params: Prepared) -> Array:
            return state.truncated

        @property
        def name(self) -> str:
            return type(self.environment).__name__

        @property
        def num_actions(self) -> int:
            space = self.environment.action_space
            return space.n if isinstance(space, Discrete) else math.prod(space.shape)

        def action_space(self, params: Prepared | None = None) -> Any:
            return space_of(self.environment.action_space)

        def observation_space(self, params: Prepared | None = None) -> Any:
            return space_of(self.environment.observation_space)

    return LevelEnvironment
