"""The two halves of every teacher: `ask` chooses levels, `tell` takes in what became of them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from cenie.teach.curriculum import Assignment, Curriculum, TeacherState
from cenie.types import Advantages, Rollout


def init(curriculum: Curriculum) -> TeacherState:
    """The state of a teacher that has not seen anything yet."""
    del curriculum
    return TeacherState()


def ask(
    curriculum: Curriculum, state: TeacherState, key: PRNGKeyArray, num_levels: int
) -> tuple[Assignment, TeacherState]:
    """Choose the `num_levels` levels of the next cycle. Consumes the key."""
    levels = jax.vmap(curriculum.generate)(jax.random.split(key, num_levels))
    return Assignment(levels=levels, learn=jnp.asarray(curriculum.learn_on_new)), state


def tell(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    rollout: Rollout,
    advantages: Advantages,
    key: PRNGKeyArray,
) -> tuple[TeacherState, dict[str, Array]]:
    """Take in the rollout of an assignment; returns the scalars worth logging. Consumes the key."""
    del curriculum, assignment, rollout, advantages, key
    return state, {}
