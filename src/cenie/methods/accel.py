"""ACCEL: edits of the levels that were just replayed (Parker-Holder et al., 2022).

A batch that was replayed may become the parents of the next batch: each gets children, which differ from
it by a few small changes, are scored like new levels, and compete for a place in the buffer.
"""

from dataclasses import dataclass
from typing import Literal

from cenie.methods.family import LevelFactory
from cenie.methods.table import Method
from cenie.replay.config import ReplayConfig
from cenie.settings import setting
from cenie.teach.curriculum import Editing


@dataclass(frozen=True)
class EditConfig:
    """Edits of the levels that were just replayed; how many changes one makes is a setting of the domain."""

    probability: float = setting(
        1.0,
        minimum=0.0,
        maximum=1.0,
        help="The probability that a replayed batch is edited.",
        source="paper",
    )
    parents: Literal["batch", "easy", "hard"] = setting(
        "batch",
        help="The levels that are edited: the whole batch, or the four of the lowest, or highest, scores, "
        "several times each.",
        source="paper; easy in the original code",
    )
    children: int = setting(
        1,
        minimum=1,
        help="Children of a parent; only the most novel one is offered to the buffer.",
        source="paper",
    )

    def editing(self, domain: LevelFactory) -> Editing:
        """The edits of a domain, as often as these settings say, and of those parents."""
        return Editing(domain.edit, self.probability, self.parents, self.children)


METHODS = (
    Method(
        "accel",
        "ACCEL",
        "#009e73",
        base="plr-robust",
        changes={
            "generator": "simple",  # ACCEL paper: complexity comes from edits only
            "replay": ReplayConfig(replay_prob=0.8),  # CENIE table, mazes
            "edit": EditConfig(),
        },
        papers={"parkerholder2022evolving": "ACCEL: replay of edited levels"},
    ),
)
