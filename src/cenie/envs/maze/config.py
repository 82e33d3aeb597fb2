"""Settings of the maze domain."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cenie.settings import Problem, setting, show
from cenie.spaces import Box, DesignSpec, Discrete, Space

Operation = Literal["wall", "empty", "goal", "agent"]

BUDGETS = {"uniform60": 60, "blocks25": 25, "empty": 0}
"""The generators and their wall budgets; "uniform60" draws its budget from 0 .. 59."""

FILLED = "filled"
"""The generator that makes each tile a wall by chance, so that its budget goes by the size."""

GENERATORS = (*BUDGETS, FILLED)

DESIGN_NOISE = 50
"""Random numbers that a designer sees at each step."""


@dataclass(frozen=True)
class MazeConfig:
    """Mazes of `size` x `size` tiles inside a border of walls, and how levels are drawn and edited."""

    size: int = setting(
        13, minimum=3, maximum=128, help="Tiles along each side, without the border.", source="paper"
    )
    max_steps: int = setting(
        250, minimum=1, maximum=1_000_000, help="The time limit of levels of training.", source="paper"
    )
    num_actions: Literal[3, 7] = setting(
        7,
        help="Left, right and forward; with 7 there are four more that do nothing.",
        source="original code; 3 in the paper",
    )
    reward_decay: float = setting(
        0.9,
        minimum=0.0,
        maximum=1.0,
        help="c in the reward 1 - c t / H of a success at step t of H.",
        source="original code; 1 in the paper",
    )
    redraw_direction: bool = setting(
        False,
        help="Whether the first direction of each episode is drawn afresh, and the level's own is ignored.",
        source="ours; the original code draws it when a level is loaded",
    )

    coupled_budget: bool = setting(
        False,
        help='Whether the generator "uniform60" derives the number of walls from the place of the first one.',
        source="ours; it does in the original code",
    )
    replacement: bool = setting(
        True,
        help="Whether generators draw wall places with replacement, so that the final number of walls is "
        "below the budget.",
        source="original code",
    )

    fill: tuple[float, float] = setting(
        (0.0, 0.6),
        minimum=0.0,
        maximum=0.95,
        help='The range from which the share of walls of a level of the generator "filled" is drawn.',
        source="SFL's code has 0 to 0.6 in JaxNav",
    )

    num_edits: int = setting(5, minimum=1, maximum=1000, help="Tiles that an edit changes.", source="paper")
    edit_operations: tuple[Operation, ...] = setting(
        ("wall", "empty", "goal"),
        help="The contents that an edit may give to a tile.",
        source="original code",
    )

    @property
    def observation_parts(self) -> tuple[Space, ...]:
        """The codes of 5 x 5 tiles, which the original code divides by 10, and the direction."""
        return Box((5, 5, 3), 0, 10, "uint8"), Discrete(4)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.num_actions)

    def wall_budget(self, generator: str) -> int:
        """The number of walls for a designer in the place of this generator."""
        return round(self.fill[1] * self.size**2) if generator == FILLED else BUDGETS[generator]

    def design_spec(self, generator: str) -> DesignSpec:
        """The observation of a designer in the place of a generator (the whole grid, the time, noise), and
        its actions."""
        side, steps = self.size + 2, self.wall_budget(generator) + 2
        parts = Box((side, side, 3), 0, 10, "uint8"), Discrete(steps + 1), Box((DESIGN_NOISE,), 0.0, 1.0)
        return DesignSpec(parts, Discrete(self.size**2), steps)

    def check(self) -> Iterator[Problem]:
        if not self.edit_operations or len(set(self.edit_operations)) < len(self.edit_operations):
            yield Problem("edit_operations", "must list at least one operation, and none of them twice")
        if self.fill[0] > self.fill[1]:
            yield Problem("fill", f"the first must not exceed the second, got {show(self.fill)}")
        if self.coupled_budget and not self.replacement:
            yield Problem("coupled_budget", "needs replacement = true")
        if not self.replacement and self.size**2 < 61:
            yield Problem("replacement", "59 distinct walls, a goal and a start need a size of at least 8")
