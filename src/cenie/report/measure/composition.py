"""The composition of a curriculum: the difficulty of the replayed levels, and the levels in the buffer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cenie.report.measure.coverage import stages_of
from cenie.report.measure.curves import updates_at
from cenie.report.runs import Group
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run

INTERVALS = 12
"""Intervals into which training is cut."""
LOW_REGRET = 0.05
"""The part of the stored levels that count as of low regret, at least `_FEWEST` levels."""
_FEWEST = 10


PATH, SOLVABLE = "level/path", "level/solvable"
"""Columns of mazes: the length of the shortest path, and whether there is one."""


@dataclass(frozen=True)
class Scale:
    """A scale on which levels are told apart: a column of the records, and the lower ends of its classes."""

    title: str
    column: str
    names: tuple[str, ...]
    ends: tuple[int | float, ...]


_WALKER = Scale(
    "paper's thresholds reached",
    "level/difficulty",
    ("Easy", "Moderate", "Challenging", "Very Challenging", "Extremely Challenging"),
    (0, 1, 2, 3, 4),
)
_WALLS = Scale(
    "walls", "level/walls", ("0-11", "12-23", "24-35", "36-47", "48 and more"), (0, 12, 24, 36, 48)
)
_PATH = Scale(
    "shortest path",
    PATH,
    ("0-5", "6-11", "12-17", "18-29", "30 and more", "unsolvable"),
    (0, 6, 12, 18, 30, np.inf),
)
_SCALES = {"walker": (_WALKER,), "maze": (_PATH, _WALLS)}


@dataclass(frozen=True, eq=False)
class Composition:
    """The parts [intervals, classes] of the replayed levels of a group, and where the intervals end."""

    group: Group
    scale: Scale
    ends: np.ndarray
    parts: np.ndarray
    levels: int


def scales_of(domain: str, columns: Sequence[str]) -> list[Scale]:
    """The scales of a domain's levels; for an unknown domain, quarters of each measure that it logs."""
    known = [scale for scale in _SCALES.get(domain, ()) if scale.column in columns]
    own = [name for name in columns if name.startswith("level/")]
    quarters = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
    return known or [Scale(name.removeprefix("level/"), name, quarters, ()) for name in own[:2]]


def compositions(groups: Sequence[Group], *, limit: int) -> list[list[Composition]]:
    """For each scale of the domain the composition of every group that has replayed levels.

    Runs are pooled. `limit` is how many bytes of the records of a run are read.
    """
    pooled = {group.label: _replayed(group, limit) for group in groups}
    columns = list(dict.fromkeys(name for each in pooled.values() for name in each))
    found = []
    for scale in scales_of(groups[0].domain, columns):
        rows = [(group, pooled[group.label]) for group in groups]
        rows = [(group, each) for group, each in rows if len(each.get(scale.column, ()))]
        values = [_values(scale, each) for _, each in rows]
        classes = _with_ends(scale, values)
        made = [_composition(group, classes, each, own) for (group, each), own in zip(rows, values)]
        if made:
            found.append(made)
    return found


def _replayed(group: Group, limit: int) -> dict[str, np.ndarray]:
    """The records of the levels that the first student replayed, with the updates at that time."""
    tables = []
    for run in group.runs:
        try:
            played = run.sample_of_played_levels(limit)
        except RunDirectoryError:
            continue
        if not len(played.get("cycle", ())):
            continue
        chosen = (played["kind"] == "replay") & (played["student"] == 0)
        updates = updates_at(run, played["cycle"][chosen])
        if updates is not None:
            tables.append({name: column[chosen] for name, column in played.items()} | {"updates": updates})
    if not tables:
        return {}
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables]) for name in shared}


def with_known_paths(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of levels with NaN for the path of a maze that has none: records have a number there."""
    if PATH not in columns or SOLVABLE not in columns:
        return dict(columns)
    solvable = columns[SOLVABLE] > 0
    return {**columns, PATH: np.where(solvable, columns[PATH].astype(float), np.nan)}


def _values(scale: Scale, rows: dict[str, np.ndarray]) -> np.ndarray:
    """The values by which levels are told apart; the path of a maze that cannot be solved is endless."""
    if scale is not _PATH:
        return rows[scale.column].astype(float)
    values = with_known_paths(rows)[PATH].astype(float)
    return np.where(np.isnan(values), np.inf, values)


def _with_ends(scale: Scale, values: Sequence[np.ndarray]) -> Scale:
    """The scale; one without classes gets the quarters of all values of all groups."""
    if scale.ends or not values:
        return scale
    every = np.concatenate(values)
    every = every[np.isfinite(every)]
    quarters = np.quantile(every, [0.25, 0.5, 0.75]) if len(every) else np.zeros(3)
    return Scale(scale.title, scale.column, scale.names, (-np.inf, *map(float, quarters)))


def _composition(group: Group, scale: Scale, rows: dict[str, np.ndarray], values: np.ndarray) -> Composition:
    ends = np.linspace(0, max(rows["updates"].max(), 1), INTERVALS + 1)[1:]
    interval = np.minimum(np.searchsorted(ends, rows["updates"]), INTERVALS - 1)
    number = np.clip(np.searchsorted(scale.ends, values, side="right") - 1, 0, len(scale.names) - 1)
    counts = np.zeros((INTERVALS, len(scale.names)))
    np.add.at(counts, (interval, number), 1.0)
    totals = counts.sum(axis=1, keepdims=True)
    parts = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    return Composition(group, scale, ends, parts, len(values))


@dataclass(frozen=True, eq=False)
class Chosen:
    """Stored levels of low regret at one time of a run: rows of its buffer of high and of low novelty."""

    run: Run
    updates: int
    buffer: dict[str, np.ndarray]
    novel: np.ndarray
    familiar: np.ndarray


def low_regret_levels(run: Run, count: int = 3) -> list[Chosen]:
    """Low-regret stored levels with the highest and lowest novelty, at a few stages of training.

    The paper shows levels that are among the ten lowest by regret and among the ten highest by novelty; of
    thousands of levels hardly one is. So the levels of the lowest regret are sorted by novelty, and both ends
    are shown.
    """
    found = []
    for cycle in stages_of(run):
        try:
            snapshot = run.snapshot(cycle)
        except RunDirectoryError:
            continue
        if snapshot is None or not snapshot.buffers:
            continue
        buffer = snapshot.buffers[0]
        if not {"regret", "novelty"} <= buffer.keys():
            continue
        known = np.flatnonzero(np.isfinite(buffer["regret"]) & np.isfinite(buffer["novelty"]))
        if len(known) < 2 * count:
            continue
        low = known[np.argsort(buffer["regret"][known], kind="stable")]
        low = low[: max(_FEWEST, 2 * count, round(LOW_REGRET * len(known)))]
        ordered = low[np.argsort(-buffer["novelty"][low], kind="stable")]
        found.append(Chosen(run, snapshot.updates, buffer, ordered[:count], ordered[::-1][:count]))
    return found
