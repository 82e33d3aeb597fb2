"""Environments of other projects as ours: the common part of gymnax and jaxued.

Neither project is imported here. Their spaces are read by what they have: `n`, `low` and `high`, or `spaces`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from cenie.envs.base import Environment
from cenie.records import EnvState, Level, Observation, Step, strongly_typed
from cenie.spaces import Box, Discrete, Space

LIMIT = "max_steps_in_episode"
"""The name that both projects give to the time limit among the parameters of an environment."""

Solved = Callable[[Level, Step], Array]
"""Whether an episode that ended with this step was solved. Not asked before its end."""

Begin = Callable[[PRNGKeyArray, Level], tuple[Any, Any]]
"""Observation and state at the beginning of an episode."""

Advance = Callable[[PRNGKeyArray, Level, EnvState, Array], tuple[Any, Any, Any, Any, Any]]
"""Observation, state and reward of a step, and whether it terminated the episode or the time was up."""


class ForeignEnvironment(Environment):
    """An environment of another project. What it returns as Python numbers, or weakly typed, becomes arrays.

    Continuous actions are clipped to the action space: a normal distribution knows no bounds. `begin` and
    `advance` are functions rather than the environment itself, which may hold arrays and so could not be
    compared with others.
    """

    begin: Begin = eqx.field(static=True)
    advance: Advance = eqx.field(static=True)
    solved: Solved | None = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    # Not static: a dict could not be hashed there.
    observation_space: PyTree
    action_space: Space = eqx.field(static=True)

    def reset(self, key: PRNGKeyArray, level: Level) -> tuple[Observation, EnvState]:
        observation, state = self.begin(key, level)
        return as_level(observation), as_level(state)

    def step(self, key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> Step:
        if isinstance(self.action_space, Box):
            action = jnp.clip(action, self.action_space.low, self.action_space.high)
        observation, state, reward, terminated, timed_out = self.advance(key, level, state, action)
        terminated = jnp.asarray(terminated, bool)
        truncated = jnp.asarray(timed_out, bool) & ~terminated
        step = Step(
            observation=as_level(observation),
            state=as_level(state),
            reward=jnp.asarray(reward, jnp.float32).reshape(()),
            terminated=terminated,
            truncated=truncated,
            solved=jnp.zeros((), bool),
        )
        if self.solved is None:
            return step
        solved = jnp.asarray(self.solved(level, step), bool) & (terminated | truncated)
        return dataclasses.replace(step, solved=solved)


def as_level(parameters: PyTree) -> PyTree:
    """The same tree with every number as an array of a definite type, as levels must be.

    Args:
        parameters: A tree of numbers and arrays, such as the parameters of a gymnax environment.

    Returns:
        The tree with arrays as its leaves; a number has the shape [].
    """
    return strongly_typed(jax.tree.map(jnp.asarray, parameters))


def step_with_one_flag(
    environment: Any, key: PRNGKeyArray, state: EnvState, action: Array, parameters: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """`Advance` with an environment whose `step_env` has one flag for all ends, the time limit among them.

    What the flag would be without a limit tells them apart. It takes a second step to know, since some
    environments write into the state that it is a last one; the compiler finds that the two steps do the
    same, other than to look at the limit.
    """
    observation, after, reward, ended, _ = environment.step_env(key, state, action, parameters)
    limit = getattr(parameters, LIMIT, None)
    if limit is None:
        return observation, after, reward, ended, False
    dtype = jnp.asarray(limit).dtype
    never = jnp.finfo(dtype).max if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max
    unlimited = dataclasses.replace(parameters, **{LIMIT: jnp.asarray(never, dtype)})
    terminated = environment.step_env(jax.random.clone(key), state, action, unlimited)[3]
    return observation, after, reward, terminated, ended


def longest_episode(max_steps: int | None, parameters: Sequence[Any]) -> int:
    """The number of steps that was given, or the largest time limit among the parameters."""
    limits = [getattr(each, LIMIT, None) for each in parameters]
    if max_steps is not None:
        return max_steps
    if any(limit is None for limit in limits):
        raise ValueError(f"max_steps: must be given, as the parameters of the environment have no {LIMIT}")
    return max(math.ceil(np.asarray(limit)) for limit in limits)


def observation_spaces(observation: PyTree, declared: Any) -> PyTree:
    """The spaces of an observation's parts, from arrays or their shapes, in its structure.

    Shapes and types are the observation's, because a foreign space may get them wrong; bounds are taken
    from the declared space, or are all that the type can hold if none was declared.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _leaf_space(leaf, None if declared is None else _part(declared, path)), observation
    )


def action_space(declared: Any) -> Space:
    """The space of the actions."""
    if hasattr(declared, "n"):
        return Discrete(int(declared.n))
    return _leaf_space(jax.ShapeDtypeStruct(tuple(declared.shape), declared.dtype), declared)


def hull(spaces: Sequence[Space]) -> Space:
    """The smallest space that holds several of one kind and shape."""
    first = spaces[0]
    if all(isinstance(space, Box) and space.shape == first.shape for space in spaces):
        boxes = [space for space in spaces if isinstance(space, Box)]
        return dataclasses.replace(
            boxes[0], low=min(box.low for box in boxes), high=max(box.high for box in boxes)
        )
    if any(space != first for space in spaces):
        raise ValueError(f"spaces must not depend on the level, other than by bounds; got {set(spaces)}")
    return first


def key_of(entry: Any) -> Any:
    """The key, field or index that an entry of a path in a tree stands for."""
    return next(getattr(entry, name) for name in ("key", "name", "idx") if hasattr(entry, name))


def children(tree: PyTree) -> list[tuple[Any, Any]]:
    """The parts of one node of a tree, each with its key, field or index."""
    found = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)[0]
    return [(key_of(path[0]), part) for path, part in found]


def _part(declared: Any, path: tuple[Any, ...]) -> Any:
    """The declared space of a part of an observation."""
    for entry in path:
        try:
            declared = declared.spaces[key_of(entry)]
        except (AttributeError, KeyError, IndexError):
            place = jax.tree_util.keystr(path)
            raise ValueError(f"the observation has a part {place} that its space does not describe") from None
    return declared


def _leaf_space(leaf: Any, declared: Any) -> Space:
    shape, dtype = tuple(leaf.shape), jnp.dtype(leaf.dtype)
    if declared is None:
        return Box(shape, *_all_values(dtype), dtype.name)
    if hasattr(declared, "n"):
        count = int(declared.n)
        if dtype.kind in "iu":
            return Discrete(count, dtype.name, shape)
        return Box(shape, 0, count - 1, dtype.name)
    if not hasattr(declared, "low") or not hasattr(declared, "high"):
        raise ValueError(f"a space must be discrete or a box, got {type(declared).__name__}")
    number = float if dtype.kind == "f" else int
    return Box(shape, number(np.min(declared.low)), number(np.max(declared.high)), dtype.name)


def _all_values(dtype: np.dtype) -> tuple[int | float, int | float]:
    """Bounds of a type about which nothing else is known. Wide integers are unbounded, so that their range is
    not used for scaling."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return -math.inf, math.inf
