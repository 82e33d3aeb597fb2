"""Run directories as training leaves them, made up in milliseconds, and pictures that need no student."""

from pathlib import Path
from typing import Any

import numpy as np

from cenie import settings
from cenie.experiment.evaluate import Episode
from cenie.experiment.presets import preset
from cenie.experiment.rows import EvaluationRow
from cenie.report.films import Film
from cenie.report.page.pictures import Budget, data_uri, frame_strip
from cenie.rundir.evaluations import EvaluationTable
from cenie.rundir.files import RunDirectory, write_json
from cenie.rundir.levels import LevelTable
from cenie.rundir.snapshots import Snapshots

LEVELS = ("Labyrinth", "SixteenRooms", "SixteenRoomsFewerDoors")
MOMENTS = (10, 20, 30)


def make_run(
    path: Path,
    method: str = "plr-cenie",
    *,
    seed: int = 0,
    stored: int = 30,
    finished: bool = True,
    **more: Any,
) -> Path:
    """A finished run of mazes; with a buffer of `stored` levels at each of three moments, if any."""
    directory, rng = RunDirectory(path), np.random.default_rng(seed)
    path.mkdir(parents=True)
    config = settings.to_data(preset("maze", method, "quick", {"updates": 15, "seed": seed, **more}))
    write_json(directory.config, config)
    evaluations = EvaluationTable(directory.evaluations)
    for cycle in (0, *MOMENTS):
        rate = cycle / 40 + 0.1 * rng.random()
        rows = [
            EvaluationRow("cenie8", level, "original", episode, 0.5, solved, float(solved), 40)
            for level in LEVELS
            for episode, solved in enumerate((rng.random(10) < rate).tolist())
        ]
        evaluations.write(cycle, cycle // 2, cycle * 1000, rows)
    _write_levels(directory, stored, rng)
    if stored:
        _write_snapshots(directory, stored, rng, novel="cenie" in method)
    if finished:
        summary = {"version": "0.1.0", "updates": 15, "bit_exact": True, "deviations": []}
        write_json(directory.summary, summary)
    return path


def _write_levels(directory: RunDirectory, stored: int, rng: np.random.Generator) -> None:
    shape = (len(MOMENTS), 1, max(stored, 20))
    columns = {
        "kind": np.zeros(shape, int),
        "id": np.broadcast_to(np.arange(shape[2]) if stored else -1, shape),
        "parent": np.full(shape, -1),
        "generation": np.zeros(shape, int),
        "return": rng.random(shape).astype(np.float32),
        "solved": (rng.random(shape) < 0.5).astype(np.float32),
        "episodes": np.ones(shape, int),
        "length": rng.integers(5, 99, shape).astype(np.float32),
        "level/walls": rng.integers(0, 60, shape),
    }
    LevelTable(directory.levels).write([cycle - 1 for cycle in MOMENTS], columns)


def _write_snapshots(directory: RunDirectory, stored: int, rng: np.random.Generator, *, novel: bool) -> None:
    walls = rng.random((stored, 13, 13)) < 0.2
    walls[:, 0, 0] = walls[:, 12, 12] = False
    for moment, cycle in enumerate(MOMENTS):
        count = stored - 5 * (len(MOMENTS) - 1 - moment)
        chances = rng.random(count)
        arrays = {
            "cycle": np.array(cycle),
            "updates": np.array(cycle // 2),
            "buffer/levels/wall_map": walls[:count],
            "buffer/levels/goal": np.full((count, 2), 12, np.int32),
            "buffer/levels/start": np.zeros((count, 2), np.int32),
            "buffer/levels/direction": np.zeros(count, np.int32),
            "buffer/levels/time_limit": np.full(count, 250, np.int32),
            "buffer/levels/occluded": np.zeros(count, bool),
            "buffer/regret": rng.random(count).astype(np.float32),
            "buffer/probability": (chances / chances.sum()).astype(np.float32),
            "buffer/id": np.arange(count),
            "buffer/parent": np.where(np.arange(count) > 20, 0, -1),
            "buffer/generation": (np.arange(count) > 20).astype(np.int32),
            "buffer/last_played": np.arange(count),
            "buffer/clock": np.array(count),
        }
        if novel:
            arrays["buffer/novelty"] = rng.normal(size=count).astype(np.float32)
        Snapshots(directory.snapshots).write(cycle, arrays)


def a_film(name: str = "level", frames: int = 12, solved: bool = True) -> dict[str, Any]:
    """A film in which a bar moves from left to right."""
    pixels = np.full((frames, 40, 40, 3), 30, np.uint8)
    for now in range(frames):
        pixels[now, :, 40 * now // frames :][:, :4] = (240, 80, 60)
    episode = Episode(states=(), episode_return=0.5, solved=solved, length=frames - 1)
    return frame_strip(Film(name, pixels, list(range(frames)), episode))


class PaintedStudio:
    """Pictures and films without a domain and without a student: what the page is given, in no time."""

    def __init__(self) -> None:
        self.begin_page()

    def begin_page(self) -> None:
        self.pictures, self.films = Budget(10**6), Budget(10**6)

    def begin_run(self, pictures: int, films: int) -> None:
        assert pictures > 0 < films

    def level_pictures(self, run, curriculum, most):
        shade = np.zeros((40, 40, 3), np.uint8)
        return {number: data_uri(shade + np.uint8(number)) for number in curriculum.shown_ids()[:most]}

    def level_films(self, run, curriculum, numbers):
        return {number: a_film() for number in numbers[:6]}

    def suite_films(self, run, suite, most):
        return [
            {"name": name, "picture": None, "film": a_film(name, solved=name != "Labyrinth")}
            for name in LEVELS
        ]
