"""The evolution of a run's curriculum: the level buffer at each snapshot, or the played levels."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenie.replay.columns import NOVELTY, REGRET, score_columns
from cenie.report.measure.composition import with_known_paths
from cenie.report.measure.curves import evenly, updates_at
from cenie.report.page.numbers import one, short
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run
from cenie.rundir.snapshots import PLAYED, Snapshot

MOST_FRAMES = 24
"""Moments of training that are shown, spread over all of it."""
REPLAYED = 12
"""Levels that are likeliest to be replayed, at each moment: all of them are kept."""
_OUTCOMES = ("solved", "return", "length")
_NOT_SHOWN = ("clock", "last_played", "parent")
_PARTS = ("levels", f"{PLAYED}/")
"""Beginnings of names that are no columns of a level buffer."""
_WHEN = "played at"
MOST_BYTES = 2**25
"""Bytes of the records of levels to search for the last play of each, if they have to be searched."""
_TITLES = {
    "regret": "regret (the method's score)",
    "novelty": "novelty",
    "probability": "probability (of being replayed next)",
    "generation": "generation (edits since it was generated)",
    "id": "stored as number (later ones are higher)",
    "staleness": "staleness (levels drawn since it was last replayed)",
    "solved": "solved rate (when last played)",
    "return": "return (when last played)",
    "length": "episode length (when last played)",
    "cycle": "training cycle",
    _WHEN: "last played (number of updates)",
}


@dataclass(frozen=True, eq=False)
class Frame:
    """The levels at one moment. `rows` are those that are shown; in `source`, if they can be drawn."""

    cycle: int
    updates: int
    total: int
    columns: dict[str, np.ndarray]
    rows: np.ndarray
    source: dict[str, np.ndarray] | None

    @property
    def ids(self) -> np.ndarray:
        return self.columns["id"][self.rows]


@dataclass(frozen=True, eq=False)
class Moments:
    """All moments of a run that are shown, and what was passed over."""

    run: Run
    frames: list[Frame]
    has_buffer: bool
    problems: list[str]

    def shown_ids(self) -> list[int]:
        """Every level that appears, the ones that count most first: of the last moment, likeliest first."""
        found: dict[int, None] = {}
        for frame in reversed(self.frames):
            order = np.argsort(-frame.columns["probability"][frame.rows], kind="stable")
            found |= dict.fromkeys(frame.ids[order].tolist())
        return list(found)

    def places(self) -> dict[int, tuple[dict[str, np.ndarray], int]]:
        """For each shown level the arrays of a snapshot that has it, and its row there."""
        found: dict[int, tuple[dict[str, np.ndarray], int]] = {}
        for frame in self.frames:
            if frame.source is not None:
                for number, row in zip(frame.ids.tolist(), frame.rows.tolist()):
                    found.setdefault(number, (frame.source, row))
        return found


def read_curriculum(run: Run, most_levels: int) -> Moments:
    """The moments of a run, each with at most `most_levels` levels; damaged files are named and passed over.

    The same levels of a buffer are shown at all moments, as far as they are there, so that they can be
    followed. They are a fixed pseudo-random subset by id, plus the
    likeliest ones and the extremes of every score.
    """
    problems: list[str] = []
    snapshots = []
    cycles = list(run.snapshots)
    for cycle in (cycles[place] for place in evenly(len(cycles), MOST_FRAMES)):
        try:
            snapshot = run.snapshot(cycle)
            if snapshot is not None:
                snapshots.append(snapshot)
        except RunDirectoryError as error:
            problems.append(f"left out: {error}")
    stored = [
        snapshot for snapshot in snapshots if snapshot.buffers and len(snapshot.buffers[0].get("id", ()))
    ]
    if stored:
        # Snapshots of earlier versions do not say how levels were played.
        is_old = not all(_kept_plays(snapshot.buffers[0]) for snapshot in stored)
        played = _every_play(run, problems) if is_old else {}
        frames = [_stored_frame(snapshot, played, _complete_until(run), most_levels) for snapshot in stored]
        return Moments(run, frames, True, problems)
    played = _read(run, problems, Run.sample_of_played_levels)
    return Moments(run, _played_frames(run, played, snapshots, most_levels), False, problems)


def _read(
    run: Run, problems: list[str], read: Callable[[Run], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Records of levels; none if they are damaged, which is added to the problems."""
    try:
        return read(run)
    except RunDirectoryError as error:
        problems.append(f"levels.csv of {run.path} is left out: {error}")
        return {}


def _every_play(run: Run, problems: list[str]) -> dict[str, np.ndarray]:
    """All records of levels: of a sample nobody knows which play of a level was its last."""
    try:
        size = run.files.levels.stat().st_size
    except OSError:
        return {}
    if size > MOST_BYTES:
        problems.append(
            f"how stored levels of {run.path} were last played is not known: its snapshots do not say it, "
            f"and its levels.csv is too large to be searched ({size:,} bytes)"
        )
        return {}
    return _read(run, problems, lambda run: run.sample_of_played_levels(MOST_BYTES))


def _complete_until(run: Run) -> float:
    """The last cycle up to which all are recorded."""
    kept = run.settings.get("run")
    full = kept.get("recorded_cycles") if isinstance(kept, dict) else None
    return float(full) if isinstance(full, int) else math.inf


def _stored_frame(
    snapshot: Snapshot, played: Mapping[str, np.ndarray], complete_until: float, most: int
) -> Frame:
    buffer = snapshot.buffers[0]
    count = len(buffer["id"])
    columns = {
        name: values
        for name, values in buffer.items()
        if values.shape == (count,) and name not in _NOT_SHOWN and not name.startswith(_PARTS)
    }
    columns["parent"] = buffer.get("parent", np.full(count, -1))
    columns.setdefault("probability", np.full(count, 1.0 / count))
    if "last_played" in buffer and "clock" in buffer:
        columns["staleness"] = buffer["clock"] - buffer["last_played"]
    plays = _kept_plays(buffer)
    if not plays and snapshot.cycle <= complete_until:
        plays = _last_plays(buffer["id"], snapshot.cycle, played)
    columns |= with_known_paths(plays)
    return Frame(snapshot.cycle, snapshot.updates, count, columns, _chosen(columns, most), buffer)


def _kept_plays(buffer: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The last plays of the levels of a snapshot, as it says itself; nothing if it does not."""
    shape = buffer["id"].shape
    kept = {
        name.removeprefix(f"{PLAYED}/"): values.astype(float)
        for name, values in buffer.items()
        if name.startswith(f"{PLAYED}/") and values.shape == shape
    }
    names = {_WHEN: "updates"} | {name: name for name in kept if _is_shown(name)}
    return {name: kept[source] for name, source in names.items() if source in kept}


def _chosen(columns: Mapping[str, np.ndarray], most: int) -> np.ndarray:
    """Rows to show: the likeliest ones, the extremes of each score, and of the others some by their ids."""
    count = len(columns["id"])
    if count <= most:
        return np.arange(count)
    first = [np.argsort(-columns["probability"], kind="stable")[:REPLAYED]]
    for name in score_columns(columns):
        order = np.argsort(np.nan_to_num(columns[name]), kind="stable")
        first += [order[:3], order[-3:]]
    # Bits of a multiple of an odd number look like drawn ones, and are the same at every moment.
    lot = np.argsort((columns["id"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20))
    ranked = dict.fromkeys(np.concatenate([*first, lot]).tolist())
    return np.sort(np.array(list(ranked)[:most]))


def _last_plays(ids: np.ndarray, cycle: int, played: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The student's result when it last played each level before a snapshot, and the domain's statistics of
    it.

    NaN where the table does not have the level.
    """
    if "id" not in played or not len(played["id"]):
        return {}
    known = np.flatnonzero((played["cycle"] <= cycle) & (played["id"] >= 0) & (played["student"] == 0))
    if not len(known):
        return {}
    # The last row of each id: `unique` gives the first, so look from the end.
    known = known[::-1]
    levels, first = np.unique(played["id"][known], return_index=True)
    place = np.clip(np.searchsorted(levels, ids), 0, len(levels) - 1)
    found, rows = levels[place] == ids, known[first][place]
    names = filter(_is_shown, played)
    return {name: np.where(found, played[name][rows].astype(float), np.nan) for name in names}


def _is_shown(name: str) -> bool:
    """Whether a column says how a level was played, or what it is like."""
    return name in _OUTCOMES or name.startswith("level/")


def _played_frames(
    run: Run, played: Mapping[str, np.ndarray], snapshots: list[Snapshot], most: int
) -> list[Frame]:
    """For methods without a level buffer: the levels that were played between two snapshots."""
    if "cycle" not in played or not len(played["cycle"]):
        return []
    last = int(played["cycle"].max())
    ends = [(each.cycle, each.updates) for each in snapshots if each.cycle <= last]
    if not ends or ends[-1][0] < last:
        counted = updates_at(run, last)
        ends.append((last, 0 if counted is None else round(float(counted))))
    frames, begin = [], 0
    for cycle, updates in ends:
        rows = np.flatnonzero((played["cycle"] > begin) & (played["cycle"] <= cycle))
        begin = cycle
        if not len(rows):
            continue
        shown = rows[evenly(len(rows), most)]
        columns = {
            name: values[shown]
            for name, values in played.items()
            if name in (*score_columns(played), *_OUTCOMES, "cycle", "generation")
            or name.startswith("level/")
        }
        columns = with_known_paths(columns)
        # Levels that are not stored have no ids; their place in the table tells them apart here.
        columns |= {"id": shown, "parent": np.full(len(shown), -1)}
        columns["probability"] = np.full(len(shown), np.nan)
        frames.append(Frame(cycle, updates, len(rows), columns, np.arange(len(shown)), None))
    return frames


def curriculum_data(curriculum: Moments) -> dict[str, Any] | None:
    """The moments for the page. What never changes of a level is said once; None if there is nothing."""
    frames = curriculum.frames
    if not frames:
        return None
    names = list(dict.fromkeys(name for frame in frames for name in frame.columns if name != "parent"))
    if not curriculum.has_buffer:
        names = [name for name in names if name not in ("id", "probability")]
    names = [name for name in names if _varies(frame.columns.get(name) for frame in frames)]
    fixed = [name for name in names if name.startswith("level/") or name == "generation"]
    ids = sorted({number for frame in frames for number in frame.ids.tolist()})
    place = {number: at for at, number in enumerate(ids)}
    x, y, colour = _axes(names)
    return {
        "hasBuffer": curriculum.has_buffer,
        "columns": [{"name": name, "title": _title(name)} for name in names],
        "x": x,
        "y": y,
        "colour": colour,
        "ids": ids,
        "parents": _fixed(frames, "parent", place),
        "fixed": {name: _fixed(frames, name, place) for name in fixed},
        "frames": [
            _frame_data(frame, place, [name for name in names if name not in fixed]) for frame in frames
        ],
    }


def _frame_data(frame: Frame, place: Mapping[int, int], names: Iterable[str]) -> dict[str, Any]:
    return {
        "cycle": frame.cycle,
        "updates": frame.updates,
        "total": frame.total,
        "levels": [place[number] for number in frame.ids.tolist()],
        "values": {
            name: short(frame.columns[name][frame.rows])
            for name in names
            if name in frame.columns and name != "id"
        },
    }


def _fixed(frames: list[Frame], name: str, place: Mapping[int, int]) -> list[Any]:
    """A column that a level keeps, for every level that is shown: its last known value."""
    found: list[Any] = [None] * len(place)
    for frame in frames:
        if name in frame.columns:
            for number, value in zip(frame.ids.tolist(), frame.columns[name][frame.rows].tolist()):
                value = one(value)
                if value is not None:
                    found[place[number]] = value
    return found


def _varies(columns: Iterable[np.ndarray | None]) -> bool:
    """Whether there is anything to see in a column: at least two values."""
    values = np.concatenate([column.astype(float) for column in columns if column is not None])
    values = values[np.isfinite(values)]
    return bool(len(values) and values.min() < values.max())


def _axes(names: list[str]) -> tuple[str, str, str]:
    """Regret, or another score, against novelty, or against what else there is; coloured by generation, or by
    how hard it is."""
    described = [name for name in names if name.startswith("level/")]

    def first(wanted: Iterable[str]) -> str:
        return next((name for name in wanted if name in names), names[0] if names else "")

    scores = [name for name in score_columns(names) if name != NOVELTY]
    y = first([REGRET, *scores, "return", "solved", "length"])
    x = first([name for name in (NOVELTY, *scores, "return", *described, "length", "id") if name != y])
    colour = first(
        [name for name in ("generation", "id", "cycle", "solved", *described) if name not in (x, y)]
    )
    return x, y, colour


def _title(name: str) -> str:
    return _TITLES.get(name, name.removeprefix("level/") if name.startswith("level/") else name)
