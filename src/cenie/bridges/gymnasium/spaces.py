"""Spaces, observations and actions of the library in the forms of gymnasium."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import PyTree

from cenie.bridges.environment import children
from cenie.spaces import Box, Discrete, Space


def gymnasium_space(space: PyTree[Space]) -> spaces.Space:
    """The same space in gymnasium; a tree of spaces becomes a `Tuple` or a `Dict`."""
    if isinstance(space, Discrete) and space.shape == ():
        return spaces.Discrete(space.n)
    if isinstance(space, Discrete):
        return spaces.MultiDiscrete(np.full(space.shape, space.n), dtype=np.dtype(space.dtype).type)
    if isinstance(space, Box):
        return spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype).type)
    parts = {key: gymnasium_space(part) for key, part in children(space)}
    return spaces.Tuple(list(parts.values())) if isinstance(space, list | tuple) else spaces.Dict(parts)


def on_host(value: PyTree, space: spaces.Space) -> Any:
    """Copies of arrays on the host, with the structure and the types of a space of gymnasium."""
    if isinstance(space, spaces.Dict):
        return {key: on_host(part, space[key]) for key, part in children(value)}
    if isinstance(space, spaces.Tuple):
        return tuple(on_host(part, each) for (_, part), each in zip(children(value), space, strict=True))
    return np.array(value, space.dtype)


def unstacked(tree: PyTree, rows: Iterable[int]) -> list[PyTree]:
    """Some rows of arrays that have a leading axis, each with the structure of the tree."""
    leaves, structure = jax.tree.flatten(tree)
    return [structure.unflatten([leaf[row] for leaf in leaves]) for row in rows]
