"""Settings of the maze domain. Imports no JAX."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cenie.settings import Problem, setting
from cenie.spaces import Box, DesignSpec, Discrete, Space

Operation = Literal["wall", "empty", "goal", "agent"]

BUDGETS = {"uniform60": 60, "blocks25": 25, "empty": 0}
"""The generators and their wall budgets; "uniform60" draws its budget from 0 .. 59."""

DESIGN_NOISE = 50
"""How many random numbers a designer sees at each step."""


@dataclass(frozen=True)
class MazeConfig:
    """Mazes of `size` x `size` tiles inside a border of walls, and how levels are drawn and edited.

    `reward_decay` is c in the reward 1 - c t / H of a success at step t of H (0.9 as in the original code,
    1.0 as in the paper's text). `redraw_direction` draws the first direction of each episode afresh and
    ignores the one of the level.
    """

    size: int = setting(13, minimum=3, maximum=128)
    max_steps: int = setting(250, minimum=1, maximum=1_000_000)
    num_actions: Literal[3, 7] = 7
    reward_decay: float = setting(0.9, minimum=0.0, maximum=1.0)
    redraw_direction: bool = False

    coupled_budget: bool = False
    """The generator "uniform60" derives the number of walls from the place of the first one."""
    replacement: bool = True
    """Generators draw wall places with replacement, so that the final number of walls is below the budget."""

    num_edits: int = setting(5, minimum=1, maximum=1000)
    edit_operations: tuple[Operation, ...] = ("wall", "empty", "goal")

    @property
    def observation_parts(self) -> tuple[Space, ...]:
        """The codes of 5 x 5 tiles, which the original code divides by 10, and the direction."""
        return Box((5, 5, 3), 0, 10, "uint8"), Discrete(4)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.num_actions)

    def design_spec(self, generator: str) -> DesignSpec:
        """What a designer in the place of a generator sees (the whole grid, the time, noise) and does."""
        side, steps = self.size + 2, BUDGETS[generator] + 2
        parts = Box((side, side, 3), 0, 10, "uint8"), Discrete(steps + 1), Box((DESIGN_NOISE,), 0.0, 1.0)
        return DesignSpec(parts, Discrete(self.size**2), steps)

    @property
    def level_bytes(self) -> int:
        """What one stored level takes, at least: a byte for each tile, and the numbers beside the map."""
        return self.size**2 + 25

    @property
    def observation_bytes(self) -> int:
        """What one stored observation takes: the codes of 5 x 5 tiles, and the direction."""
        return 5 * 5 * 3 + 4

    def check(self) -> Iterator[Problem]:
        if not self.edit_operations or len(set(self.edit_operations)) < len(self.edit_operations):
            yield Problem("edit_operations", "must list at least one operation, and none of them twice")
        if self.coupled_budget and not self.replacement:
            yield Problem("coupled_budget", "needs replacement = true")
        if not self.replacement and self.size**2 < 61:
            yield Problem("replacement", "59 distinct walls, a goal and a start need a size of at least 8")
