"""Tiny environments in which a learner either finds the one thing to find or is broken.

Each takes seconds and isolates one ability: to fit a value, to read the observation, to discount, to act,
to act on what was seen. The last set misbehaves on purpose.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from cenie.envs.base import Environment
from cenie.records import EnvState, Level, Observation, Step
from cenie.spaces import Box, Discrete

TASKS = ("constant", "observe", "delay", "act", "match", "recall")


class View(eqx.Module):
    """The fields of a maze observation."""

    image: Any
    direction: Any


class Probe(Environment):
    """An episode shows a sign (-1 or 1) and pays at its end. The level is an index into `TASKS`.

    constant: always 1. observe: the sign. delay: 1 after two steps, which the observation tells apart.
    act: 1 for the right action. match: the *first* action must match the sign, and it pays two steps
    later. recall: the sign is seen at the first step only, and the *last* action must match it.
    """

    continuous: bool = eqx.field(static=True, default=False)
    as_view: bool = eqx.field(static=True, default=False)

    max_steps = 3

    @property
    def observation_space(self) -> Any:  # pyright: ignore
        return View(Box((3, 3, 3), 0, 10, "uint8"), Discrete(4)) if self.as_view else Box((2,), -1.0, 2.0)

    @property
    def action_space(self) -> Any:  # pyright: ignore
        return Box((1,), -1.0, 1.0) if self.continuous else Discrete(2)

    def reset(self, key: PRNGKeyArray, level: Level) -> tuple[Observation, EnvState]:
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        state = (jnp.zeros((), jnp.int32), sign, jnp.zeros(()))
        return self.observe(level, *state), state

    def step(self, key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> Step:
        time, sign, first = state
        chosen = jnp.clip(action[0], -1.0, 1.0) if self.continuous else 2.0 * action - 1.0
        first = jnp.where(time == 0, chosen, first)
        pay = jnp.stack([jnp.ones(()), sign, jnp.ones(()), chosen, first * sign, chosen * sign])[level]
        time = time + 1
        done = time == jnp.array([1, 1, 2, 1, 3, 3])[level]
        state = (time, sign, first)
        no = jnp.zeros((), bool)
        return Step(self.observe(level, *state), state, jnp.where(done, pay, 0.0), done, no, no)

    def observe(self, level: Level, time: Array, sign: Array, first: Array) -> Observation:
        always = (level == TASKS.index("observe")) | (level == TASKS.index("match"))
        shown = jnp.where(always | ((level == TASKS.index("recall")) & (time == 0)), sign, 0.0)
        if not self.as_view:
            return jnp.stack([shown, time.astype(jnp.float32)])
        code = jnp.select([shown > 0, shown < 0], [8, 2], 1).astype(jnp.uint8)
        return View(jnp.ones((3, 3, 3), jnp.uint8).at[0, 0, 0].set(code), time % 4)


FAULTS = (
    "nan reward",
    "inf reward",
    "huge reward",
    "nan observation",
    "always done",
    "never done",
    "pays late",
)


class Faulty(Environment):
    """Misbehaves as the level says: an index into `FAULTS`."""

    max_steps = 5
    observation_space = Box((2,), -1.0, 1.0)  # pyright: ignore
    action_space = Discrete(2)  # pyright: ignore

    def reset(self, key: PRNGKeyArray, level: Level) -> tuple[Observation, EnvState]:
        return self._observe(key, level), jnp.zeros((), jnp.int32)

    def step(self, key: PRNGKeyArray, level: Level, state: EnvState, action: Array) -> Step:
        state = state + 1
        terminated = (level == FAULTS.index("always done")) | ((level < 4) & (state == 3))
        truncated = (level == FAULTS.index("pays late")) & (state == self.max_steps)
        bad = jnp.array([jnp.nan, -jnp.inf, 1e30])[jnp.minimum(level, 2)]
        reward = jnp.where((level < 3) & (action == 1), bad, jnp.where(level == 6, truncated * 1.0, 0.1))
        no = jnp.zeros((), bool)
        return Step(self._observe(key, level), state, reward, terminated, truncated, no)

    def _observe(self, key: PRNGKeyArray, level: Level) -> Observation:
        seen = jax.random.uniform(key, (2,), minval=-1.0)
        return jnp.where((level == FAULTS.index("nan observation")) & (seen > 0.5), jnp.nan, seen)
