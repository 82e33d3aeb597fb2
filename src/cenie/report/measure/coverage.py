"""State-action coverage: how much of what students can meet each method has shown them (paper, section 4.2).

All points of all methods are put into one plane by a joint t-SNE, and a method covers the cells of a grid in
which it has points. The paper names neither the size of the grid nor the number of points; a grid with half
as many cells as a method has points leaves room to differ. Areas of a t-SNE plane are no distances, so that a
number without plane and grid stands beside: the mean distance of a point to the nearest other point of its
run, in the space of the points itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cenie.report.runs import Group
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run

STAGES = (1 / 30, 1 / 3, 2 / 3, 1.0)
"""The paper's checkpoints (1k, 10k, 20k and 30k updates) as parts of a run."""
MOST_POINTS = 2000
"""Points of all methods together: the time of a t-SNE grows faster than they do."""
MOST_RUNS = 5
"""Runs of a method: more would add little to so few points, and take long to read."""
POINTS_PER_CELL = 2.0
_PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded points [n, d] of a group, with the stage [n] and the run [n] of each.

    `updates` says after how many updates each stage was: methods differ in how often they learn.
    """

    group: Group
    points: np.ndarray
    stage: np.ndarray
    run: np.ndarray
    updates: dict[int, int]

    def take(self, rows: np.ndarray) -> "Recorded":
        """Some of the points."""
        return replace(self, points=self.points[rows], stage=self.stage[rows], run=self.run[rows])


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of a group in the common plane [n, 2], and what they cover.

    `covered` [stages] is the part of all cells in which the group has points so far, `spread` [runs] the mean
    distance to the nearest neighbour in the same run.
    """

    recorded: Recorded
    plane: np.ndarray
    covered: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class CoverageMap:
    """Clouds with the same number of points in a common plane, whose grid has `side` x `side` cells."""

    clouds: tuple[Cloud, ...]
    side: int


def stages_of(run: Run) -> list[int]:
    """The cycles of the snapshots that are nearest to the stages of a run, each once."""
    cycles = np.array(list(run.snapshots))
    if not len(cycles):
        return []
    nearest = [int(cycles[np.argmin(np.abs(cycles - part * cycles[-1]))]) for part in STAGES]
    return list(dict.fromkeys(nearest))


def is_recurrent(group: Group) -> bool:
    """Whether the points are made of a network's memory, which no two networks share."""
    student = group.runs[0].settings.get("student")
    network = student.get("network") if isinstance(student, dict) else None
    return isinstance(network, dict) and network.get("kind") in ("lstm", "gru")


def measure_coverage(
    groups: Sequence[Group], *, most: int = MOST_POINTS, seed: int = 0
) -> CoverageMap | None:
    """Measure the state-action coverage of groups in the plane of a joint t-SNE. Needs scikit-learn.

    Points of another width than the first group's cannot be compared with them and are left out.

    Args:
        groups: The groups.
        most: The largest number of points of all groups together: the time of a t-SNE grows faster than they
            do.
        seed: Decides which points are taken, and the t-SNE.

    Returns:
        A cloud of points for each group; None if there are fewer than two groups that have recorded points.
    """
    # As many runs of each: where every run has a network of its own, more runs cover more.
    counts = [sum(bool(run.snapshots) for run in group.runs) for group in groups]
    fewest = min([MOST_RUNS, *filter(None, counts)])
    found = [each for each in (_recorded(group, fewest) for group in groups) if len(each.points)]
    found = [each for each in found if each.points.shape[1] == found[0].points.shape[1]]
    if len(found) < 2:
        return None
    count = min(most // len(found), *(len(each.points) for each in found))
    rng = np.random.default_rng(seed)
    found = [each.take(rng.permutation(len(each.points))[:count]) for each in found]
    points = _standardised(np.concatenate([each.points for each in found]))
    plane = _joint_plane(points, seed)
    side = max(2, round(float(np.sqrt(count / POINTS_PER_CELL))))
    cells = cells_of(plane, side)
    stages = 1 + max(each.stage.max() for each in found)
    clouds = []
    for place, each in enumerate(found):
        own = slice(place * count, (place + 1) * count)
        seen = [np.unique(cells[own][each.stage <= stage]) for stage in range(stages)]
        covered = np.array([len(numbers) / side**2 for numbers in seen])
        runs = [points[own][each.run == run] for run in np.unique(each.run)]
        spread = np.array([nearest_distance(of_run) for of_run in runs])
        clouds.append(Cloud(each, plane[own], covered, spread))
    return CoverageMap(tuple(clouds), side)


def _recorded(group: Group, most: int) -> Recorded:
    """The points of the stages of the first `most` runs that have any."""
    points, stages, runs, updates = [], [], [], {}
    for number, run in enumerate([run for run in group.runs if run.snapshots][:most]):
        for stage, cycle in enumerate(stages_of(run)):
            try:
                snapshot = run.snapshot(cycle, buffers=False)
            except RunDirectoryError:
                continue
            values = None if snapshot is None else snapshot.points.get("values")
            if snapshot is None or values is None or not len(values):
                continue
            if points and values.shape[1] != points[0].shape[1]:
                continue
            updates.setdefault(stage, snapshot.updates)
            usable = np.isfinite(values).all(axis=1)
            points.append(values[usable].astype(np.float64))
            stages.append(np.full(usable.sum(), stage))
            runs.append(np.full(usable.sum(), number))
    if not points:
        return Recorded(group, np.empty((0, 0)), np.empty(0, int), np.empty(0, int), updates)
    return Recorded(group, np.concatenate(points), np.concatenate(stages), np.concatenate(runs), updates)


def _standardised(points: np.ndarray) -> np.ndarray:
    """Every coordinate with mean 0 and variance 1 over all methods; those that never change are 0."""
    spread = points.std(axis=0)
    return (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _joint_plane(points: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    # Threads that wait for each other take five times the CPU time where other programs run too.
    with threadpool_limits(1):
        return TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)


def cells_of(plane: np.ndarray, side: int) -> np.ndarray:
    """The number of the cell of each point, in a grid over the rectangle of all points."""
    low, high = plane.min(axis=0), plane.max(axis=0)
    scaled = (plane - low) / np.where(high > low, high - low, 1.0)
    places = np.minimum((scaled * side).astype(int), side - 1)
    return places[:, 0] * side + places[:, 1]


def nearest_distance(points: np.ndarray) -> float:
    """The mean distance of a point to the nearest other one; NaN for fewer than two points."""
    if len(points) < 2:
        return float("nan")
    squares = (points**2).sum(axis=1)
    nearest = []
    for first in range(0, len(points), 1024):  # a table of all distances at once would be large
        rows = slice(first, first + 1024)
        distances = squares[rows, None] + squares - 2.0 * points[rows] @ points.T
        distances[np.arange(len(distances)), np.arange(first, first + len(distances))] = np.inf
        nearest.append(distances.min(axis=1))
    return float(np.sqrt(np.maximum(np.concatenate(nearest), 0.0)).mean())
