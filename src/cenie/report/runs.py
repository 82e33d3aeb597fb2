"""Run directories as a report reads them: what was written, without JAX and without building anything.

Tables of long runs are large, so that only as much of them is read as a figure can show (`read_curves`,
`read_played`). What is damaged is named with the reason and left out, never fatal: a report over many runs
must not fail because one of them was killed.
"""

import csv
import functools
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cenie import settings
from cenie.envs.domains import DOMAINS
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.report.log_rows import NAN, LogRows, Row
from cenie.rundir.files import (
    EVALUATION_COLUMNS,
    LEVEL_PLACE,
    RunDirectory,
    RunDirectoryError,
    flat,
    read_json,
)
from cenie.rundir.levels import Snapshot, parse_levels, read_snapshot, snapshots_of
from cenie.rundir.metrics import check_format
from cenie.settings import SettingsError
from cenie.system.durable import explain, open_regular

PLACES = 300
"""How many points a curve has, at most."""
LOGGED = ("return", "solved", "length", "teacher/buffer_fill", "teacher/novelty", "teacher/regret_total")
"""The columns of the metrics that figures show."""
_ROWS_AT_A_PLACE = 8
_PLAYED_BYTES = 4 * 2**20
_PLAYED_PLACES = 64
_NOT_GROUPED_BY = ("seed", "run")
"""Settings that may differ within a group: which repetition it is, and what is written how often."""
_BUDGET = "run.env_steps"
"""The one setting among them that decides what a student learns."""
FOLLOWS = {"student.ppo.decay_updates": "updates"}
"""Settings that differ whenever another does, and need not be named then."""
_NAMED_SETTINGS = 3


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes on held-out levels, a column each; all of the same length."""

    cycle: np.ndarray
    updates: np.ndarray
    env_steps: np.ndarray
    suite: np.ndarray
    level: np.ndarray
    variant: np.ndarray
    returns: np.ndarray
    solved: np.ndarray
    score: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.cycle)

    def where(self, chosen: np.ndarray) -> "Episodes":
        """The rows for which `chosen` is true."""
        return Episodes(**{name: column[chosen] for name, column in vars(self).items()})

    def of(self, suite: str) -> "Episodes":
        return self.where(self.suite == suite)

    def suites(self) -> list[str]:
        """The suites in the order in which they were played first."""
        return list(dict.fromkeys(self.suite.tolist()))

    def levels(self) -> list[str]:
        """The names of the levels in the order of their suite."""
        return list(dict.fromkeys(self.level.tolist()))

    def level_means(self, column: str = "score") -> dict[str, float]:
        """The mean of a column for each level name, over variants, episodes and checkpoints."""
        names, number = np.unique(self.level, return_inverse=True)
        sums = np.bincount(number, getattr(self, column), len(names))
        means = dict(zip(names.tolist(), (sums / np.bincount(number, minlength=len(names))).tolist()))
        return {name: means[name] for name in self.levels()}

    def checkpoints(self) -> list["Episodes"]:
        """The rows of each evaluation, the earliest first."""
        return [self.where(self.cycle == cycle) for cycle in np.unique(self.cycle)]


@dataclass(frozen=True, eq=False)
class Progress:
    """Means of every evaluation on a suite: scores are [evaluations, levels].

    A level that an evaluation has not played is NaN.
    """

    updates: np.ndarray
    env_steps: np.ndarray
    levels: tuple[str, ...]
    scores: np.ndarray


def progress_of(episodes: Episodes) -> Progress:
    """The means of episodes of one suite, evaluation by evaluation."""
    levels = tuple(episodes.levels())
    cycles, first, moment = np.unique(episodes.cycle, return_index=True, return_inverse=True)
    place = {name: number for number, name in enumerate(levels)}
    cell = moment * len(levels) + np.array([place[name] for name in episodes.level.tolist()], np.int64)
    size = len(cycles) * len(levels)
    counts, sums = np.bincount(cell, minlength=size), np.bincount(cell, episodes.score, size)
    means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return Progress(
        episodes.updates[first], episodes.env_steps[first], levels, means.reshape(len(cycles), len(levels))
    )


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """What a run directory says. Every table is read when it is first asked for, and kept.

    A table that is damaged raises `RunDirectoryError` with the reason; one that is not there is empty. So are
    `metrics`, `snapshots` and a table of `later_evaluations` that are damaged, which `damage` then says.
    """

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any] | None
    damage: list[str] = field(default_factory=list)
    """What was found damaged so far, and is left out where several tables make up one figure."""

    @property
    def domain(self) -> str:
        return self.config["domain"]

    @property
    def method(self) -> str:
        return self.config["method"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def budget(self) -> int:
        """The updates that it was to have."""
        return self.config["updates"]

    @property
    def version(self) -> str | None:
        """Of cenie; None while the run is not finished."""
        return None if self.summary is None else str(self.summary.get("version"))

    @property
    def files(self) -> RunDirectory:
        return RunDirectory(self.path)

    @functools.cached_property
    def evaluations(self) -> Episodes:
        """The episodes played before, during and after training."""
        return read_episodes(self.files.evaluations)

    @functools.cached_property
    def later_evaluations(self) -> dict[str, Episodes]:
        """Those of `cenie evaluate` by suite: of each the file of the latest checkpoint."""
        found: dict[str, Episodes] = {}
        for file in sorted(self.path.glob("evaluation-*.csv")):
            try:
                episodes = read_episodes(file)
            except RunDirectoryError as error:
                self.damage.append(f"left out: {error}")
                continue
            for suite in episodes.suites():
                known = found.get(suite)
                if known is None or known.cycle.max() <= episodes.cycle.max():
                    found[suite] = episodes.of(suite)
        return found

    @functools.cached_property
    def suites(self) -> list[str]:
        """Every suite that its students have played."""
        return list(dict.fromkeys([*self.evaluations.suites(), *self.later_evaluations]))

    def final_episodes(self, suite: str) -> Episodes:
        """What the run came to on a suite: what `cenie evaluate` played, or else its own last evaluation."""
        later = self.later_evaluations.get(suite)
        if later is not None:
            return later
        own = self.evaluations.of(suite)
        return own.where(own.cycle == own.cycle.max()) if len(own) else own

    @functools.cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """What figures show of `metrics.jsonl`, and `cycle`, `updates`, `env_steps`; see `read_curves`."""
        try:
            return self.curves(LOGGED)
        except RunDirectoryError as error:
            self.damage.append(f"left out: {error}")
            return {name: np.empty(0) for name in ("cycle", "updates", "env_steps", *LOGGED)}

    def curves(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Columns of `metrics.jsonl`, with `cycle`, `updates` and `env_steps`; see `read_curves`."""
        return read_curves(self.files.metrics, tuple(names))

    def played(self, limit: int = _PLAYED_BYTES) -> dict[str, np.ndarray]:
        """Columns of `levels.csv`: all levels that were played, or a sample of them; see `read_played`."""
        return read_played(self.files.levels, limit)

    @functools.cached_property
    def snapshots(self) -> dict[int, Path]:
        """The snapshots by their cycles, the first one first."""
        try:
            return snapshots_of(self.files.snapshots)
        except RunDirectoryError as error:
            self.damage.append(f"left out: {error}")
            return {}

    def snapshot(self, cycle: int | None = None, *, buffers: bool = True) -> Snapshot | None:
        """The snapshot of a cycle, by default the last one that can be read; None if there is none.

        Without `buffers` only its points are read.
        """
        if cycle is not None:
            path = self.snapshots.get(cycle)
            return None if path is None else read_snapshot(path, buffers=buffers)
        for path in reversed(self.snapshots.values()):
            try:
                return read_snapshot(path, buffers=buffers)
            except RunDirectoryError:
                continue
        return None

    @functools.cached_property
    def progress(self) -> dict[str, "Progress"]:
        """The evaluations during training by suite: what `evaluations` comes to."""
        return {suite: progress_of(self.evaluations.of(suite)) for suite in self.evaluations.suites()}


@dataclass(frozen=True, eq=False)
class Group:
    """Repetitions of one experiment: runs of a domain and a method that differ in their seeds only.

    `number` is its place among the groups of the method, so that it looks the same in every figure.
    """

    domain: str
    method: str
    label: str
    runs: tuple[LoggedRun, ...]
    number: int = 0

    @property
    def counted(self) -> tuple[LoggedRun, ...]:
        """The finished runs, or all if none is."""
        return tuple(run for run in self.runs if run.summary is not None) or self.runs


@dataclass(frozen=True)
class Opened:
    """The runs that can be read, and a sentence for each directory that cannot."""

    runs: tuple[LoggedRun, ...]
    skipped: tuple[str, ...]


def open_runs(paths: Iterable[Path]) -> Opened:
    """Open run directories; in the place of one may be a directory that holds some."""
    runs, skipped = [], []
    for path in dict.fromkeys(each for given in paths for each in _run_directories(Path(given))):
        try:
            runs.append(open_run(path))
        except RunDirectoryError as error:
            skipped.append(f"{path} is left out: {error}")
    return Opened(tuple(runs), tuple(skipped))


def _run_directories(path: Path) -> list[Path]:
    if (path / "config.json").exists() or not path.is_dir():
        return [path]
    return sorted(config.parent for config in path.glob("*/config.json")) or [path]


def open_run(path: Path) -> LoggedRun:
    """Open one run directory. Raises `RunDirectoryError` with the reason if there is nothing to show."""
    files = RunDirectory(path)
    if not path.is_dir():
        raise RunDirectoryError("there is no such directory")
    if not files.config.exists():
        raise RunDirectoryError(
            "it has no config.json, so it is no run directory, or one that was never begun"
        )
    config = _writable(read_json(files.config))
    wanted = {"domain": str, "method": str, "seed": int, "updates": int}
    for name, kind in wanted.items():
        if not isinstance(config, dict) or type(config.get(name)) is not kind:
            raise RunDirectoryError(f"{files.config} does not say the {name} of the run")
    summary = _writable(read_json(files.summary)) if files.summary.exists() else None
    if summary is not None and not isinstance(summary, dict):
        raise RunDirectoryError(f"{files.summary} is no summary of a run")
    run = LoggedRun(path, config, summary)
    if not len(run.evaluations) and not run.later_evaluations and not _first_line(files.metrics):
        raise RunDirectoryError("nothing has been written yet: no evaluation and no training cycle")
    return run


def _writable(data: Any) -> Any:
    """Plain data with texts that UTF-8 can hold: JSON may name half of a surrogate pair."""
    if isinstance(data, str):
        return data.encode(errors="replace").decode()
    if isinstance(data, list):
        return [_writable(item) for item in data]
    if isinstance(data, dict):
        return {_writable(name): _writable(value) for name, value in data.items()}
    return data


def _first_line(path: Path) -> bytes:
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            line = file.readline(2**20)
            return line if line.endswith(b"\n") else b""
    except OSError:
        return b""


def read_episodes(path: Path) -> Episodes:
    """The rows of a table of evaluations; lines that are no rows are passed over.

    A file that is not there has none; `RunDirectoryError` if it cannot be read or is of an earlier format.
    """
    check_format(path)
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error
    text = text[: text.rfind("\n") + 1]
    width = len(EVALUATION_COLUMNS)
    try:
        rows = [cells for cells in csv.reader(io.StringIO(text)) if len(cells) == width]
    except csv.Error as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from error
    rows = rows[1:] if rows and tuple(rows[0]) == EVALUATION_COLUMNS else rows
    try:
        return _episodes(rows)
    except ValueError:
        return _episodes([row for row in rows if _is_episode(row)])


def _episodes(rows: list[list[str]]) -> Episodes:
    columns = list(zip(*rows)) or [()] * len(EVALUATION_COLUMNS)
    cycle, updates, steps, suite, level, variant, _, total, solved, score, length = columns
    counters = np.array([cycle, updates, steps], float)
    if not np.all(np.abs(counters) < 2**63):
        raise ValueError("counters must be whole numbers")
    names = [np.array(column, object) for column in (suite, level, variant)]
    results = np.array([total, solved, score, length], float)
    # An infinite result is no result: it is said wherever it would count, as NaN is.
    results[~np.isfinite(results)] = np.nan
    return Episodes(*counters.astype(np.int64), *names, *results)


def _is_episode(row: list[str]) -> bool:
    try:
        _episodes([row])
    except ValueError:
        return False
    return True


def read_curves(path: Path, names: Sequence[str], places: int = PLACES) -> dict[str, np.ndarray]:
    """Columns of a table of JSON rows as curves of at most `places` points, with their counters.

    A point is the mean of consecutive rows (of those that have a number). A table of many rows is not read as
    a whole: at each of so many equally spaced places some rows are read, and the others passed over. A
    column that no row has is NaN throughout. Empty if there is no file.
    """
    wanted = ("cycle", "updates", "env_steps", *names)
    groups = [rows for rows in _row_groups(path, wanted, places) if rows]
    longest = max(map(len, groups), default=0)
    points = np.full((len(groups), longest, len(wanted)), NAN)
    for place, rows in enumerate(groups):
        points[place, : len(rows)] = rows
    known = np.isfinite(points)
    counts = known.sum(axis=1)
    sums = np.where(known, points, 0.0).sum(axis=1)
    means = np.divide(sums, counts, out=np.full(sums.shape, NAN), where=counts > 0)
    return {name: means[:, column] for column, name in enumerate(wanted)}


def _row_groups(path: Path, wanted: Sequence[str], places: int) -> Iterator[list[Row]]:
    """The rows at each place: at most a few, next to each other."""
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.readline()
            log, row = LogRows(wanted, first), len(first) or 1
            file.seek(0)
            if size <= places * _ROWS_AT_A_PLACE * row * 1.25:
                rows = log.read(file.read())
                width = max(1, -(-len(rows) // places))
                yield from (rows[begin : begin + width] for begin in range(0, len(rows), width))
                return
            for place in range(places):
                file.seek(size * place // places)
                # Two more, since the first and the last one are cut, and later rows may be longer.
                content = file.read(int((_ROWS_AT_A_PLACE + 2) * row * 1.2))
                # All but the first place begin somewhere within a line.
                begin = content.find(b"\n") + 1 if place else 0
                yield log.read(content[begin:], _ROWS_AT_A_PLACE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error


def read_played(path: Path, limit: int = _PLAYED_BYTES) -> dict[str, np.ndarray]:
    """The columns of `levels.csv`; of a file of more than `limit` bytes a sample of that size.

    The sample is taken in runs of rows at equally spaced places, so that all of training is in it. Empty if
    there is no file; `RunDirectoryError` if it is damaged.
    """
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.readline(2**16)
            if not header.startswith(",".join(LEVEL_PLACE).encode()):
                raise RunDirectoryError(f"{path} is damaged: its first line does not name the columns")
            body = file.read() if size <= limit else b"".join(_pieces(file, size, limit))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error
    return parse_levels(path, header + body)


def _pieces(file: io.BufferedReader, size: int, limit: int) -> Iterator[bytes]:
    """Whole lines at equally spaced places of a file."""
    first, length = file.tell(), limit // _PLAYED_PLACES
    for place in range(_PLAYED_PLACES):
        file.seek(first + (size - first) * place // _PLAYED_PLACES)
        content = file.read(length)
        begin = content.find(b"\n") + 1 if place else 0
        yield content[begin : content.rfind(b"\n") + 1]


def group_runs(runs: Iterable[LoggedRun]) -> list[Group]:
    """Runs by domain and method, and by settings where these differ.

    The label of a group is its method, followed by the settings in which it differs from other groups of the
    method; those that are as in the preset are left out, if that does not make two labels the same.
    """
    found: dict[str, list[LoggedRun]] = {}
    for run in runs:
        found.setdefault(json.dumps(_identity(run), sort_keys=True), []).append(run)
    kinds: dict[tuple[str, str], list[list[LoggedRun]]] = {}
    for members in found.values():
        ordered = sorted(members, key=lambda run: (run.seed, str(run.path)))
        kinds.setdefault((ordered[0].domain, ordered[0].method), []).append(ordered)
    order = list(METHODS)
    result: list[Group] = []
    for domain, method in sorted(
        kinds, key=lambda kind: (kind[0], order.index(kind[1]) if kind[1] in order else len(order), kind[1])
    ):
        members = kinds[domain, method]
        labels = _labels([each[0] for each in members])
        named = sorted(zip(labels, members), key=lambda pair: (len(pair[0]), pair[0]))
        result += [
            Group(domain, method, label, tuple(each), number) for number, (label, each) in enumerate(named)
        ]
    return result


def _identity(run: LoggedRun) -> dict[str, Any]:
    return {
        path: value
        for path, value in flat(run.config)
        if path == _BUDGET or path.split(".", 1)[0] not in _NOT_GROUPED_BY
    }


def _labels(runs: Sequence[LoggedRun]) -> list[str]:
    """A label for each group of one method, given by its first run; no two are the same."""
    every = [_identity(run) for run in runs]
    usual = _usual(runs[0])
    differing = [
        [path for path in own if any(other.get(path) != own[path] for other in every)] for own in every
    ]
    short = [
        _label(runs[0].method, own, [path for path in paths if own[path] != usual.get(path)])
        for own, paths in zip(every, differing)
    ]
    if len(set(short)) == len(short):
        return short
    long = [_label(runs[0].method, own, paths) for own, paths in zip(every, differing)]
    return [
        f"{label} ({long[:at].count(label) + 1})" if long.count(label) > 1 else label
        for at, label in enumerate(long)
    ]


def _usual(run: LoggedRun) -> dict[str, Any]:
    """The settings of the run's preset; none of a domain that is not ours, or of a preset that is gone."""
    if run.domain not in DOMAINS:
        return {}
    try:
        config = preset(run.domain, run.method, run.config.get("preset"))
    except SettingsError:
        return {}
    return dict(flat(json.loads(json.dumps(settings.to_data(config)))))


def _label(method: str, own: dict[str, Any], differing: Sequence[str]) -> str:
    """The method, and what tells the group from others of the method."""
    named = [path for path in differing if FOLLOWS.get(path) not in differing]
    # The kind of a group of settings says more than the settings that only this kind has.
    named.sort(key=lambda path: not path.endswith(".kind"))
    parts = [_part(path, own[path]) for path in named[:_NAMED_SETTINGS] if own[path] != []]
    more = [f"and {len(named) - _NAMED_SETTINGS} more"] if len(named) > _NAMED_SETTINGS else []
    return ", ".join([method, *parts, *more])


def _part(path: str, value: Any) -> str:
    """A setting; parts that were passed from Python say themselves what they are."""
    return shown(value) if path == "from_python" else f"{_short(path)}={shown(value)}"


def _short(path: str) -> str:
    """The last part of a dotted path, with the one before if it says nothing alone."""
    *before, name = path.split(".")
    return f"{before[-1]}.{name}" if before and name in ("kind", "value", "size") else name


def shown(value: Any) -> str:
    """The value of a setting as a label shows it."""
    if isinstance(value, list):
        return "+".join(map(shown, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
