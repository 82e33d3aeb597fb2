"""The level buffer as it is read: the stored levels with their scores, probabilities and lineage."""

from dataclasses import dataclass

import jax
import numpy as np

from cenie.records import Level
from cenie.replay import buffer as buffers
from cenie.teach import teacher
from cenie.teach.curriculum import Curriculum, TeacherState


@dataclass(frozen=True)
class StoredLevels:
    """The levels of a buffer, along the leading axis of host arrays; the likeliest to be replayed first.

    `scores` by name, `probabilities` to be replayed next, `staleness` in levels sampled since it was last
    played. `ids` are numbered in the order of insertion; `parents` are ids too, or -1, and `generations`
    count edits.
    """

    levels: Level
    scores: dict[str, np.ndarray]
    probabilities: np.ndarray
    staleness: np.ndarray
    ids: np.ndarray
    parents: np.ndarray
    generations: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def stored_levels(curriculum: Curriculum, state: TeacherState, number: int = 0) -> StoredLevels | None:
    """The content of a level buffer (the first, unless students have their own); None if the method has
    none."""
    if curriculum.replay is None:
        return None
    buffer = state.buffers[number]
    mix = teacher.current_mix(curriculum, state)
    probabilities = np.asarray(buffers.probabilities(buffer, mix, curriculum.replay.config.priority))
    host, staleness = jax.device_get((buffer, buffer.staleness))
    order = np.argsort(-probabilities[: int(host.size)], kind="stable")
    return StoredLevels(
        levels=jax.tree.map(lambda leaf: np.asarray(leaf)[order], host.levels),
        scores={name: host.scores[order, place] for place, name in enumerate(host.columns)},
        probabilities=probabilities[order],
        staleness=staleness[order],
        ids=host.ids[order],
        parents=host.parents[order],
        generations=host.generations[order],
    )
