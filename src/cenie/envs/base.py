"""What a domain must provide: an environment, and the record that bundles its parts."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from cenie.spaces import Space
from cenie.types import EnvState, Level, Observation, Step


class Environment(eqx.Module):
    """A family of tasks indexed by a level. Pure: all randomness comes from the keys.

    The level is an argument of `step` rather than a part of the state, because it never changes during
    an episode: a rollout can then keep it outside the loop that carries the state.
    Functions take one level and one state; callers `vmap` over the level axis.
    """

    max_steps: eqx.AbstractVar[int]
    """An upper bound on the length of a training episode."""

    observation_space: eqx.AbstractVar[PyTree]
    """A pytree of `Space` with the structure of the observation."""

    action_space: eqx.AbstractVar[Space]

    @abc.abstractmethod
    def reset(self, key: PRNGKeyArray, level: Level) -> tuple[Observation, EnvState]:
        """Begin an episode of the level. Consumes the key."""

    @abc.abstractmethod
    def step(self, key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> Step:
        """Advance one step. Consumes the key. Does not restart a finished episode."""


@dataclass(frozen=True)
class SuiteEntry:
    """One row of a test suite: `variant` tells apart the entries that share a `level` name.

    `draw(rng)` returns the level of one evaluation episode; fixed levels ignore the generator.
    """

    level: str
    variant: str
    draw: Callable[[np.random.Generator], Level]


@dataclass(frozen=True)
class Suite:
    """A named set of held-out levels. Its score is the mean over level names of the mean over variants."""

    name: str
    entries: Sequence[SuiteEntry]

    def draw(self, seed: int, episodes: int) -> tuple[list[tuple[str, str, int]], list[Level]]:
        """Levels for `episodes` episodes of each entry, and their (level, variant, episode) labels.

        The draw depends on the seed, the entry and the episode only, so that methods and checkpoints are
        compared on the same levels, and asking for more episodes keeps the first ones.
        """
        labels, levels = [], []
        for number, entry in enumerate(self.entries):
            for episode in range(episodes):
                labels.append((entry.level, entry.variant, episode))
                levels.append(entry.draw(np.random.default_rng((seed, number, episode))))
        return labels, levels


@dataclass(frozen=True)
class Domain:
    """Everything the teacher and the evaluator need to know of a domain."""

    name: str
    environment: Environment
    generators: Mapping[str, Callable[[PRNGKeyArray], Level]]
    """Named level generators; each draws one level from a key."""
    roles: Mapping[str, str]
    """Names of generators by what they are for: `random` levels, and `simple` ones to begin with."""
    edit: Callable[[PRNGKeyArray, Level], Level]
    """A small random change of a level that keeps it valid."""
    statistics: Callable[[Level], dict[str, Array]]
    """Scalars that describe a level, for the logs."""
    suites: Mapping[str, Callable[[], Suite]]
    """Named held-out suites, built on demand."""
    stack: Callable[[Sequence[Level]], Level]
    """Stack levels of any sizes along a new leading axis, padding to a common shape."""
    to_json: Callable[[Level], Any]
    from_json: Callable[[Any], Level]
    """Levels as plain JSON values; `from_json` raises `ValueError` with a readable reason."""

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Level]:
        """The generator of a name, or of a role."""
        return self.generators[self.roles.get(name, name)]


def batched_reset(environment: Environment, key: PRNGKeyArray, levels: Level) -> tuple[Observation, EnvState]:
    """`reset` over the leading axis of `levels`, one key each. Consumes the key."""
    count = jax.tree.leaves(levels)[0].shape[0]
    return jax.vmap(environment.reset)(jax.random.split(key, count), levels)
