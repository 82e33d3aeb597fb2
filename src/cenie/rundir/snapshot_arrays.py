"""From the state of a run to the arrays of a snapshot, and from a snapshot to levels."""

import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Array

from cenie.records import Level
from cenie.replay import buffer as buffers
from cenie.rundir.plays import Plays, aligned
from cenie.rundir.snapshots import PLAYED, buffer_name
from cenie.teach import teacher
from cenie.teach.curriculum import TeacherState
from cenie.teach.cycle import Setup
from cenie.teach.recording import PointSample
from cenie.xla.devices import to_host

_LEVELS = "levels"


def snapshot_arrays(
    setup: Setup, state: TeacherState, points: PointSample | None, plays: Sequence[Plays] = ()
) -> dict[str, np.ndarray]:
    """The points, if there are any, and all stored levels with what is known of them.

    `plays` has the newest play of each level for each buffer, if they were kept.
    """
    arrays: dict[str, np.ndarray] = {}
    if points is not None:
        known = {name: value for name, value in vars(points).items() if value is not None}
        arrays |= {f"points/{name}": value for name, value in known.items()}
    for number, (size, kept) in enumerate(to_host(_buffers(setup, state))):
        rows = {name: values[:size] if values.ndim else values for name, values in kept.items()}
        if number < len(plays):
            newest = aligned(plays[number], rows["id"])
            rows |= {f"{PLAYED}/{name}": values for name, values in newest.items()}
        arrays |= {f"{buffer_name(number)}/{name}": values for name, values in sorted(rows.items())}
    return arrays


def levels_of_snapshot(arrays: Mapping[str, np.ndarray], like: Level) -> Level:
    """The levels of a buffer of a `Snapshot`, stacked; `like` is any level of the domain."""
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[_leaf_name(path)], like)


@functools.partial(jax.jit, static_argnames="setup")
def _buffers(setup: Setup, state: TeacherState) -> list[tuple[Array, dict[str, Array]]]:
    """The size of each buffer, and its slots."""
    replay = setup.curriculum.replay
    if replay is None:
        return []
    mix = teacher.current_mix(setup.curriculum, state)
    found = []
    for buffer in state.buffers:
        leaves = jax.tree_util.tree_leaves_with_path(buffer.levels)
        columns = {name: buffer.column(name) for name in buffer.columns}
        found.append(
            (
                buffer.size,
                {_leaf_name(path): leaf for path, leaf in leaves}
                | columns
                | {
                    "probability": buffers.probabilities(buffer, mix, replay.config.priority),
                    "id": buffer.ids,
                    "parent": buffer.parents,
                    "generation": buffer.generations,
                    "last_played": buffer.last_played,
                    "clock": buffer.clock,
                },
            )
        )
    return found


def _leaf_name(path: tuple) -> str:
    """A part of a level by its path in it; the only part of a level that is an array has none."""
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    return f"{_LEVELS}/{name}" if name else _LEVELS
