"""Pictures of levels and films of episodes, small enough for a page: WebP within a budget of bytes.

Drawing needs the domain, and so JAX; without it the page has no pictures.
"""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from cenie.envs.base import Domain
from cenie.report import films, scenes
from cenie.report.page.curriculum import Curriculum
from cenie.report.page.numbers import one
from cenie.report.runs import LoggedRun
from cenie.report.scenes import Scene
from cenie.run.compilation import kept_programs
from cenie.run.config import load_config
from cenie.run.opened import Run

PICTURE_SIDE, FILM_SIDE = 320, 320
"""The longest side of a picture, in pixels."""
MOST_FRAMES = 120
"""Of a film."""
LONGEST_EPISODE = 2000
_COLOURS = 64
_WIDEST = 16_000
"""Pixels of a side of a WebP picture, which can have 16,383."""


@dataclass
class Budget:
    """Bytes that may still be spent, and what was left out because there were none."""

    left: int
    spent: int = 0
    refused: int = 0

    def take(self, size: int) -> bool:
        if size > self.left:
            self.refused += 1
            return False
        self.left -= size
        self.spent += size
        return True


@dataclass
class Studio:
    """Draws the levels of runs and films their students, as long as the budgets last.

    What was drawn is kept, so that a page which is made again and again draws new levels only.
    """

    pictures: Budget
    films: Budget
    _opened: dict[tuple[Path, int], Run] = field(default_factory=dict)
    _drawn: dict[tuple[Path, int], str] = field(default_factory=dict)

    def opened(self, run: LoggedRun) -> Run:
        """The run with its newest checkpoint. Raises what stands in the way."""
        newest = max((file.stat().st_mtime_ns for file in run.files.checkpoints.glob("step-*")), default=0)
        key = (run.path, newest)
        if key not in self._opened:
            config = load_config(run.files.config)
            self._opened = {key: films.open_for_pictures(run.path, config)}
        return self._opened[key]

    def level_pictures(self, run: LoggedRun, curriculum: Curriculum, most: int) -> dict[int, str]:
        """Pictures of the shown levels by their ids, the ones that count most first, as data URIs."""
        domain, places = self.opened(run).domain, curriculum.places()
        found: dict[int, str] = {}
        wanted = [number for number in curriculum.shown_ids() if number in places]
        for number in wanted[:most]:
            key = (run.path, number)
            if key not in self._drawn:
                buffer, row = places[number]
                (scene,) = scenes.buffer_scenes(domain, buffer, [row])
                self._drawn[key] = data_uri(small_picture(domain, scene))
            if not self.pictures.take(len(self._drawn[key])):
                break
            found[number] = self._drawn[key]
        self.pictures.refused += max(0, len(wanted) - len(found) - self.pictures.refused)
        return found

    def level_films(self, run: LoggedRun, curriculum: Curriculum, numbers: Sequence[int]) -> dict[int, Any]:
        """Films of the newest student on stored levels, by their ids."""
        opened, places = self.opened(run), curriculum.places()
        chosen = [number for number in numbers if number in places]
        wanted = [
            next(scenes.buffer_scenes(opened.domain, places[number][0], [places[number][1]]))
            for number in chosen
        ]
        made = self._films(opened, wanted)
        return {number: film for number, film in zip(chosen, made) if film is not None}

    def suite_films(self, run: LoggedRun, suite: str, most: int) -> list[dict[str, Any]]:
        """The levels of a suite, each with its picture and, if there is one, its film."""
        opened = self.opened(run)
        wanted = scenes.suite_scenes(opened.domain, suite)[:most]
        found = []
        for scene, film in zip(wanted, self._films(opened, wanted), strict=True):
            picture = data_uri(small_picture(opened.domain, scene))
            kept = picture if self.pictures.take(len(picture)) else None
            found.append({"name": scene.name, "picture": kept, "film": film})
        return found

    def _films(self, opened: Run, wanted: Sequence[Scene]) -> list[dict[str, Any] | None]:
        if not wanted:
            return []
        with kept_programs():
            episodes = films.record(opened.domain, opened.network, wanted, LONGEST_EPISODE)
        made: list[dict[str, Any] | None] = []
        for scene, episode in zip(wanted, episodes, strict=True):
            film = films.film(opened.domain, scene, episode, most_frames=MOST_FRAMES)
            strip = frame_strip(film)
            made.append(strip if self.films.take(len(strip["source"])) else None)
        return made


def small_picture(domain: Domain, scene: Scene) -> UInt8[np.ndarray, "height width 3"]:
    return films.shrunk(scenes.renderer_of(domain).level(scene.level), PICTURE_SIDE)


def frame_strip(film: films.Film) -> dict[str, Any]:
    """The pictures of a film in rows of one picture, which a page can show one after the other."""
    frames = films.shrunk(film.frames, FILM_SIDE)
    count, height, width, _ = frames.shape
    columns = max(1, min(count, _WIDEST // width, round((count * height / width) ** 0.5)))
    rows = -(-count // columns)
    strip = np.zeros((rows * height, columns * width, 3), np.uint8)
    for number, frame in enumerate(frames):
        top, left = (number // columns) * height, (number % columns) * width
        strip[top : top + height, left : left + width] = frame
    return {
        "source": data_uri(strip),
        "width": width,
        "height": height,
        "columns": columns,
        "count": count,
        "fps": one(film.frames_per_second),
        "steps": film.frames_at,
        "solved": film.episode.solved,
        "return": one(film.episode.episode_return),
        "length": film.episode.length,
    }


def data_uri(picture: UInt8[np.ndarray, "height width 3"]) -> str:
    """A picture within a page: exact where it has few colours, as drawings have, and otherwise nearly so."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    few = image.getcolors(_COLOURS) is not None
    content = io.BytesIO()
    image.save(content, "WEBP", lossless=few, quality=80 if few else 45, method=3)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode("ascii")


def notable(curriculum: Curriculum, most: int) -> list[int]:
    """Levels of the last moment that people will want to see played: the likeliest to be replayed, and those
    with the most and the least of each score."""
    if not curriculum.frames or not curriculum.has_buffer:
        return []
    frame = curriculum.frames[-1]
    columns = {name: values[frame.rows] for name, values in frame.columns.items()}
    orders = [np.argsort(-columns["probability"], kind="stable")]
    for name in ("novelty", "regret"):
        if name in columns:
            order = np.argsort(np.nan_to_num(columns[name]), kind="stable")
            orders += [order[::-1], order]
    return list(dict.fromkeys(_in_turns(orders, frame.ids)))[:most]


def _in_turns(orders: Iterable[np.ndarray], ids: np.ndarray) -> Iterable[int]:
    """The first of each order, then the second of each, ..."""
    for places in zip(*orders):
        yield from (int(ids[place]) for place in places)
