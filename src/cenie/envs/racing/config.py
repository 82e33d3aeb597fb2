"""Settings of the racing domain."""

from dataclasses import dataclass
from typing import Literal

from cenie.settings import setting
from cenie.spaces import Box, DesignSpec, Discrete, Space

POINTS = 12
"""Control points of a level."""

CELLS = 10
"""Columns, and rows, of the grid on which control points lie."""

DESIGN_NOISE = 4
"""Random numbers that a designer sees at each step."""

FrameRenderer = Literal["texture", "analytic"]


@dataclass(frozen=True)
class RacingConfig:
    """Tracks through twelve control points, the student's view of them, and its rewards.

    Times are physics steps, 50 to a second; the student acts every `action_repeat` steps. `time_limit`
    holds for the levels that are made here; circuits have their own.
    """

    time_limit: int = setting(
        1000,
        minimum=1,
        maximum=1_000_000,
        help="The time limit of levels of training, in physics steps; circuits have their own.",
        source="original code",
    )
    action_repeat: int = setting(
        8,
        minimum=1,
        maximum=100,
        help="Physics steps until the student acts again.",
        source="original code",
    )

    shaping: bool = setting(
        True,
        help="Whether training pays 100 at every end, takes 0.05 for a view of grass alone, and ends "
        "hopeless episodes. Suites are always played without.",
        source="original code",
    )
    green: Literal["exact", "observed", "never"] = setting(
        "exact",
        help="The check whether a view is of grass alone: after every physics step, for which all of them "
        "are drawn (exact); at the frames that the student sees, where each counts until the next "
        "(observed); or never.",
        source="original code",
    )

    frame_size: int = setting(
        96,
        minimum=16,
        maximum=512,
        help="Rows and columns of a frame; the view is the same whatever their number.",
        source="paper",
    )
    renderer: FrameRenderer = setting(
        "texture",
        help="The renderer of frames in training: a picture of the road that was painted once, or the tiles "
        "themselves (analytic), which is exact and slower.",
        source="ours",
    )
    evaluation_renderer: FrameRenderer = setting(
        "analytic", help="The renderer of frames of suites: as in renderer.", source="ours"
    )
    texel: float = setting(
        0.25,
        above=0.0,
        maximum=10.0,
        help="The side of a texel of the painted road, in units of length.",
        source="ours",
    )

    curve_samples: int = setting(
        40,
        minimum=3,
        maximum=1000,
        help="Points of the curve between two control points, both of them included.",
        source="original code",
    )
    circuit_tiles: int = setting(
        1024,
        minimum=16,
        maximum=16_384,
        help="Tiles of equal length into which a circuit is cut.",
        source="ours; 4999 in the original code",
    )
    limits: Literal["paper", "dcd"] = setting(
        "paper",
        help="The source of the time limits of circuits; they differ in China only (2000 and 2500).",
        source="paper",
    )

    num_edits: int = setting(
        1,
        minimum=1,
        maximum=POINTS,
        help="Control points that an edit moves.",
        source="ours; no published method edits tracks",
    )
    edit_distance: float = setting(
        33.0,
        above=0.0,
        maximum=500.0,
        help="The largest move of a control point in an edit, along each axis.",
        source="ours",
    )

    @property
    def max_steps(self) -> int:
        """An upper bound on the number of actions in an episode of training."""
        return -(-self.time_limit // self.action_repeat)

    @property
    def tiles(self) -> int:
        """The largest number of tiles that the track of a level can have."""
        return POINTS * (self.curve_samples - 1)

    @property
    def observation_parts(self) -> tuple[Space, ...]:
        """One frame; the student puts the last ones together."""
        return (Box((self.frame_size, self.frame_size, 3), 0, 255, "uint8"),)

    @property
    def action_space(self) -> Box:
        """Steering from left to right, gas and brake, all from 0 to 1."""
        return Box((3,), 0.0, 1.0)

    def design_spec(self, generator: str) -> DesignSpec:
        """The observation of a designer (a map of the points so far, the time, noise), and its action: it
        chooses a cell."""
        seen = Box((CELLS, CELLS, 1), 0, 1, "uint8"), Discrete(POINTS + 1), Box((DESIGN_NOISE,), 0.0, 1.0)
        return DesignSpec(seen, Discrete(CELLS**2), POINTS)
