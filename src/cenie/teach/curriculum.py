"""What a method is: a frozen record of the parts that distinguish one teacher from another."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Bool, PRNGKeyArray

from cenie.types import Level


@dataclass(frozen=True)
class Curriculum:
    """A teacher, as data. Recipes build it; `teacher.ask`, `teacher.tell` and the one cycle interpret it.

    `generate` draws one new level from a key. `learn_on_new` says whether the student takes gradient
    steps on levels that it has not met before.
    """

    generate: Callable[[PRNGKeyArray], Level]
    learn_on_new: bool


class Assignment(eqx.Module):
    """What the teacher asks for in one cycle: play these levels, and learn from them or not."""

    levels: Level
    learn: Bool[Array, ""]


class TeacherState(eqx.Module):
    """Everything a teacher remembers between cycles: nothing, for a teacher without a level buffer."""
