"""The newest play of every stored level: when it was, and how the student fared. On the host, without JAX.

`levels.csv` is thinned out in long runs and grows too large to be searched at every evaluation. So a run
keeps the newest play of each level that is stored, writes it into every snapshot, and beside every
checkpoint, from which a resumed run goes on with it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cenie.rundir.archives import BROKEN, archive_bytes, read_archive

PLAYS = "plays.npz"
"""The file beside the arrays of a checkpoint."""
_OUTCOMES = ("return", "solved", "length", "episodes")
"""The columns kept from the records of a play, besides the domain's statistics of the level as
`level/NAME`."""

Plays = dict[str, np.ndarray]
"""Columns of equal length: `id` in ascending order, each once, and `cycle`, `updates` and the outcome."""


def plays_of(
    columns: Mapping[str, np.ndarray], cycles: Sequence[int], updates: Sequence[int], student: int
) -> Plays:
    """The newest play of each stored level in the records of some cycles.

    Args:
        columns: records of levels, each [cycles, students, n]; without an `id` there are no stored levels.
        cycles: the numbers of the cycles, which are the first ones of the columns.
        updates: how many updates there were after each of these cycles.
        student: whose plays.
    """
    if "id" not in columns or not len(cycles):
        return {}
    count = len(cycles)
    rows = {
        name: np.asarray(values)[:count, student]
        for name, values in columns.items()
        if name in _OUTCOMES or name.startswith("level/")
    }
    ids = np.asarray(columns["id"])[:count, student]
    counters = {"cycle": np.asarray(cycles), "updates": np.asarray(updates)}
    rows |= {name: np.broadcast_to(values[:, None], ids.shape) for name, values in counters.items()}
    found = {"id": ids.ravel().astype(np.int64)} | {
        name: _number(rows[name]).ravel() for name in sorted(rows)
    }
    stored = found["id"] >= 0
    return _last_of_each({name: values[stored] for name, values in found.items()})


def newest(earlier: Plays, later: Plays) -> Plays:
    """The later play of each level, if it has any."""
    if not later or not len(later["id"]):
        return earlier
    if earlier.keys() != later.keys():  # there were none, or of another version of the domain
        return later
    return _last_of_each({name: np.concatenate([earlier[name], later[name]]) for name in later})


def only(plays: Plays, ids: np.ndarray) -> Plays:
    """The plays of these levels: others were dropped, and no id is used again."""
    return {name: values[np.isin(plays["id"], ids)] for name, values in plays.items()}


def aligned(plays: Plays, ids: np.ndarray) -> dict[str, np.ndarray]:
    """The columns in the order of some ids, without `id`; NaN for a level whose play is not known."""
    if not plays:
        return {}
    place = np.clip(np.searchsorted(plays["id"], ids), 0, max(len(plays["id"]) - 1, 0))
    if not len(plays["id"]):
        return {name: np.full(len(ids), np.nan) for name in plays if name != "id"}
    known = plays["id"][place] == ids
    return {
        name: np.where(known, values[place], np.asarray(np.nan, values.dtype))
        for name, values in plays.items()
        if name != "id"
    }


def plays_bytes(plays: Sequence[Plays]) -> bytes:
    """The plays of each level buffer as a file."""
    named = {f"{number}/{name}": values for number, each in enumerate(plays) for name, values in each.items()}
    return archive_bytes(named)


def read_plays(path: Path, buffers: int) -> list[Plays] | None:
    """The plays of each buffer in a file; None if there is no such file, or it is damaged."""
    found: list[Plays] = [{} for _ in range(buffers)]
    try:
        for key, values in read_archive(path).items():
            number, _, name = key.partition("/")
            found[int(number)][name] = values
    except (*BROKEN, IndexError):
        return None
    return found if all(not each or _is_whole(each) for each in found) else None


def _is_whole(plays: Plays) -> bool:
    shapes = {values.shape for values in plays.values()}
    return {"id", "cycle", "updates"} <= plays.keys() and len(shapes) == 1 and plays["id"].ndim == 1


def _last_of_each(rows: Plays) -> Plays:
    """The last row of each id."""
    # `unique` gives the first of equal ones, so look from the end.
    ids, first = np.unique(rows["id"][::-1], return_index=True)
    return {name: values[::-1][first] for name, values in rows.items()} | {"id": ids}


def _number(values: np.ndarray) -> np.ndarray:
    """As a number that may be NaN: in its own precision if it has one, otherwise in 64 bits."""
    return values if values.dtype.kind == "f" else values.astype(np.float64)
