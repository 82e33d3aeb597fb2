"""Settings of the walker domain."""

import math
from dataclasses import dataclass

from cenie.settings import setting
from cenie.spaces import Box, DesignSpec, Space

PARAMETERS, STAIR_PARAMETERS = 8, 3
"""The number of parameters of a level, and the number of the last ones, which are for stairs."""

DESIGN_NOISE = 10
"""Random numbers that a designer sees at each step."""


@dataclass(frozen=True)
class WalkerConfig:
    """Terrains of eight parameters, and how levels are drawn and edited."""

    max_steps: int = setting(
        2000,
        minimum=1,
        maximum=1_000_000,
        help="The time limit of levels of training; held-out levels have their own.",
        source="original code",
    )
    stairs: bool = setting(
        True,
        help="Whether levels have stairs. Without them they have five parameters, as in POET: no generator, "
        "editor or teacher sets the other three.",
        source="paper",
    )
    num_edits: int = setting(3, minimum=1, maximum=1000, help="Changes that an edit makes.", source="paper")

    @property
    def observation_parts(self) -> tuple[Space, ...]:
        """Hull, joints, contacts and ten rays, as they are: speeds have no bound."""
        return (Box((24,), -math.inf, math.inf),)

    @property
    def action_space(self) -> Box:
        """Torques of the hips and knees, as parts of the largest; what lies beyond it is clipped."""
        return Box((4,), -1.0, 1.0)

    def design_spec(self, generator: str) -> DesignSpec:
        """The observation of a designer (the parameters so far, noise, the time), and its action: it sets one
        parameter by a number."""
        seen = Box((PARAMETERS + DESIGN_NOISE + 1,), 0.0, 10.0)
        steps = PARAMETERS if self.stairs else PARAMETERS - STAIR_PARAMETERS
        return DesignSpec((seen,), Box((1,), -math.inf, math.inf), steps)
