"""`ask` and the four steps of `tell`, compiled for levels that are rows of bytes and are made outside of JAX.

The decisions are made by `cenie.teach.teacher`, the same functions that our own training cycle calls.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from cenie.envs.base import Design
from cenie.methods.family import Family
from cenie.records import Rollout
from cenie.replay.outcomes import Points
from cenie.replay.play import Play
from cenie.student.advantage import gae
from cenie.teach import teacher
from cenie.teach.curriculum import Assignment, Curriculum, TeacherState
from cenie.teach.measure import Metrics


@dataclass(frozen=True)
class _HostLevels:
    """Stands in for a domain: levels are made by Python outside, so that inside they are just rows."""

    size: int
    tasks: None = None
    environment: None = None
    encoding: None = None

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Array]:
        return lambda key: jnp.zeros(self.size, jnp.uint8)

    def edit(self, key: PRNGKeyArray, row: Array) -> Array:
        return row

    redraw = edit

    def design_for(self, name: str) -> Design:
        raise NotImplementedError  # refused before


@functools.cache
def curriculum_of(settings: Family, size: int) -> Curriculum:
    """A method's curriculum for rows of `size` bytes. New levels are blank in it, and edits change nothing.

    It is one object for equal arguments, so that what is compiled for one teacher serves all others like it.
    """
    return settings.curriculum(_HostLevels(size))


ask = jax.jit(teacher.ask, static_argnums=(0, 3))


def tell(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    *,
    steps: Mapping[str, ArrayLike],
    points: Points | None,
    key: PRNGKeyArray,
    gamma: float,
    gae_lambda: float,
) -> tuple[TeacherState, Metrics]:
    """Locate, score, store and learn.

    Only `score` is compiled for each length of the steps [n, t]; the others hold all that is large.

    Returns:
        The teacher's new state, and what to log.
    """
    (play,) = _locate(curriculum, state, points, assignment.batches)
    # What `score` needs of the play, so that nothing large goes through the program.
    small = Play((), kind=play.kind, leader=play.leader, best_return=play.best_return, scores=play.scores)
    scored = _score(curriculum, gamma, gae_lambda, small, dict(steps))
    play = dataclasses.replace(
        play,
        outcomes=scored.outcomes,
        best_return=scored.best_return,
        scores=scored.scores,
        entry_scores=scored.entry_scores,
        valid=scored.valid,
    )
    return _store_and_learn(curriculum, state, assignment, play, key)


@functools.partial(jax.jit, static_argnums=0)
def _locate(
    curriculum: Curriculum, state: TeacherState, points: Points | None, asked: tuple[Play, ...]
) -> tuple[Play, ...]:
    return teacher.locate(
        curriculum, state, tuple(dataclasses.replace(play, points=points) for play in asked)
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _score(
    curriculum: Curriculum, gamma: float, gae_lambda: float, play: Play, steps: dict[str, Array]
) -> Play:
    """The play with its scores. Its steps are left behind."""
    reward, done = steps["reward"], steps["terminated"] | steps["truncated"]
    rollout = Rollout(
        observation=(),
        action=jnp.zeros(reward.shape, jnp.int32),
        log_prob=jnp.zeros_like(reward),
        value=steps["value"],
        reward=reward,
        terminated=steps["terminated"],
        truncated=steps["truncated"],
        solved=steps.get("solved", jnp.zeros_like(done)),
        start=jnp.roll(done, 1, axis=1).at[:, 0].set(True),
        memory=(),
        # Never used: only completed episodes are scored, and nothing follows their last step.
        last_value=jnp.zeros(reward.shape[0]),
        final_value=steps.get("final_value"),
        entropy=steps.get("entropy"),
    )
    advantages = gae(rollout, gamma, gae_lambda, False, rollout.final_value is not None)
    if "advantage" in steps:
        target = steps["advantage"] + rollout.value
        advantages = dataclasses.replace(advantages, advantage=steps["advantage"], target=target)
    scored = teacher.score(curriculum, dataclasses.replace(play, rollout=rollout, advantages=advantages))
    return dataclasses.replace(scored, rollout=None, advantages=None)


@functools.partial(jax.jit, static_argnums=0)
def _store_and_learn(
    curriculum: Curriculum, state: TeacherState, assignment: Assignment, play: Play, key: PRNGKeyArray
) -> tuple[TeacherState, Metrics]:
    stored, plays, counts = teacher.store(curriculum, state, (play,), key)
    after, learned = teacher.learn(
        curriculum, state, stored=stored, assignment=assignment, plays=plays, key=key
    )
    return after, counts | learned
