"""Pictures of levels and films of episodes, small enough for a page: WebP within a budget of bytes.

Drawing needs the domain, and so JAX; without it the page has no pictures.
"""

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from cenie.envs.base import Domain
from cenie.replay.columns import score_columns
from cenie.report import films, shown_levels
from cenie.report.page.curriculum import Moments
from cenie.report.page.numbers import one
from cenie.report.shown_levels import Scene
from cenie.rundir.run import Run
from cenie.xla.cache import kept_programs

PICTURE_SIDE, FILM_SIDE = 320, 256
"""The longest side of a picture, in pixels."""
MOST_FRAMES, FEWER_FRAMES = 120, 72
"""Pictures of a film; the fewer are for a film whose pictures take many bytes each."""
LONGEST_EPISODE = 2000
_COLOURS = 64
_WIDEST = 16_000
"""Pixels of a side of a WebP picture, which can have 16,383."""


class InterruptedDrawing(BaseException):
    """Nobody waits for the pictures any more. No mere exception: that would count as a failed picture."""


@dataclass
class Budget:
    """Bytes that may be spent, and how many things were left out because they would have cost too much."""

    limit: int
    spent: int = 0
    refused: int = 0

    def take(self, size: int) -> bool:
        if self.spent + size > self.limit:
            self.refused += 1
            return False
        self.spent += size
        return True


class Studio:
    """Draws the levels of runs and films their students, as long as the budgets last.

    What was drawn is kept, so that a page which is made again and again draws only what is new.
    """

    def __init__(
        self,
        picture_bytes: int,
        film_bytes: int,
        interrupted: Callable[[], bool],
        domains: Mapping[str, Domain],
    ):
        self._limits, self._interrupted = (picture_bytes, film_bytes), interrupted
        self._domains = domains
        self._opened: dict[Path, tuple[int, Run]] = {}
        self._drawn: dict[tuple[Path, str], str] = {}
        self._filmed: dict[tuple[Path, int, str], dict[str, Any]] = {}
        self.begin_page()

    def begin_page(self) -> None:
        """A new page has the whole budgets."""
        self.pictures, self.films = map(Budget, self._limits)

    def begin_run(self, pictures: int, films: int) -> None:
        """Begin a run with a new budget of bytes: its share of a page that several runs share."""
        self.pictures = Budget(pictures, refused=self.pictures.refused)
        self.films = Budget(films, refused=self.films.refused)

    def level_pictures(self, run: Run, curriculum: Moments, most: int) -> dict[int, str]:
        """Pictures of the shown levels by their ids, the ones that count most first, as data URIs."""
        _, opened = self._open(run)
        places = curriculum.places()
        found: dict[int, str] = {}
        for number in [number for number in curriculum.shown_ids() if number in places][:most]:
            picture = self._picture(run, _stored(opened.domain, *places[number]), opened.domain)
            if picture is None:
                break
            found[number] = picture
        return found

    def level_films(self, run: Run, curriculum: Moments, numbers: Sequence[int]) -> dict[int, Any]:
        """Films of the newest student on stored levels, by their ids."""
        _, opened = self._open(run)
        places = curriculum.places()
        chosen = [number for number in numbers if number in places]
        made = self._films(run, [_stored(opened.domain, *places[number]) for number in chosen])
        return {number: film for number, film in zip(chosen, made, strict=True) if film is not None}

    def suite_films(self, run: Run, suite: str, most: int) -> list[dict[str, Any]]:
        """The levels of a suite, each with its picture and, if there is one, its film."""
        _, opened = self._open(run)
        wanted = shown_levels.suite_scenes(opened.domain, suite)[:most]
        made = zip(wanted, self._films(run, wanted), strict=True)
        return [
            {"name": scene.name, "picture": self._picture(run, scene, opened.domain), "film": film}
            for scene, film in made
        ]

    def _open(self, run: Run) -> tuple[int, Run]:
        """The run with its newest checkpoint, and a number that is another one for every checkpoint."""
        stamps = (file.stat().st_mtime_ns for file in run.files.checkpoints.glob("step-*"))
        newest = max(stamps, default=0)
        known = self._opened.get(run.path)
        if known is None or known[0] != newest:
            entry = self._domains.get(run.domain_name)
            self._opened[run.path] = newest, Run(run.path, entry=entry, devices=1)
            self._filmed = {key: film for key, film in self._filmed.items() if key[0] != run.path}
        return self._opened[run.path]

    def _stop_if_interrupted(self) -> None:
        if self._interrupted():
            raise InterruptedDrawing

    def _picture(self, run: Run, scene: Scene, domain: Domain) -> str | None:
        self._stop_if_interrupted()
        key = run.path, scene.name
        if key not in self._drawn:
            self._drawn[key] = data_uri(_small(_drawn_level(domain, scene), PICTURE_SIDE))
        return self._drawn[key] if self.pictures.take(len(self._drawn[key])) else None

    def _films(self, run: Run, wanted: Sequence[Scene]) -> list[dict[str, Any] | None]:
        newest, opened = self._open(run)
        missing = [scene for scene in wanted if (run.path, newest, scene.name) not in self._filmed]
        if missing:
            with kept_programs():
                episodes = films.record(opened.domain, opened.network, missing, LONGEST_EPISODE)
            for scene, episode in zip(missing, episodes, strict=True):
                self._stop_if_interrupted()
                most = (
                    MOST_FRAMES if _is_drawing(_image(_drawn_level(opened.domain, scene))) else FEWER_FRAMES
                )
                film = films.film(opened.domain, scene, episode, most_frames=most)
                self._filmed[run.path, newest, scene.name] = frame_strip(film)
        made = [self._filmed[run.path, newest, scene.name] for scene in wanted]
        return [film if self.films.take(len(film["source"])) else None for film in made]


def _drawn_level(domain: Domain, scene: Scene) -> UInt8[np.ndarray, "height width 3"]:
    return shown_levels.renderer_of(domain).level(scene.level)


def _stored(domain: Domain, buffer: dict[str, np.ndarray], row: int) -> Scene:
    return next(shown_levels.buffer_scenes(domain, buffer, [row]))


def frame_strip(film: films.Film) -> dict[str, Any]:
    """The pictures of a film in rows of one picture, which a page can show one after the other."""
    frames = np.stack([_small(frame, FILM_SIDE) for frame in film.frames])
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
        "showsLevel": film.shows_level,
        "fps": one(film.frames_per_second),
        "steps": film.frames_at,
        "solved": film.episode.solved,
        "return": one(film.episode.episode_return),
        "length": film.episode.length,
    }


def _small(
    picture: UInt8[np.ndarray, "height width 3"], side: int
) -> UInt8[np.ndarray, "smaller narrower 3"]:
    """A picture whose longest side is not longer than wanted: drawings keep their few colours and sharp
    edges, others are averaged."""
    image = _image(picture)
    if _is_drawing(image):
        return films.shrunk(picture, side)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)


def _image(picture: UInt8[np.ndarray, "height width 3"]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(picture))


def _is_drawing(image: Image.Image) -> bool:
    """Whether it has few colours, so that it can be kept exactly in few bytes."""
    return image.getcolors(_COLOURS) is not None


def data_uri(picture: UInt8[np.ndarray, "height width 3"]) -> str:
    """A picture within a page: exact where it has few colours, as drawings have, and otherwise nearly so."""
    image = _image(picture)
    few = _is_drawing(image)
    content = io.BytesIO()
    image.save(content, "WEBP", lossless=few, quality=20 if few else 30, method=1 if few else 6)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode("ascii")


def notable(curriculum: Moments, most: int) -> list[int]:
    """Levels of the last moment that people will want to see played: the likeliest to be replayed, and those
    with the most and the least of each score."""
    if not curriculum.frames or not curriculum.has_buffer:
        return []
    frame = curriculum.frames[-1]
    columns = {name: values[frame.rows] for name, values in frame.columns.items()}
    orders = [np.argsort(-columns["probability"], kind="stable")]
    for name in sorted(score_columns(columns)):
        order = np.argsort(np.nan_to_num(columns[name]), kind="stable")
        orders += [order[::-1], order]
    return list(dict.fromkeys(_in_turns(orders, frame.ids)))[:most]


def _in_turns(orders: Iterable[np.ndarray], ids: np.ndarray) -> Iterable[int]:
    """The first of each order, then the second of each, ..."""
    for places in zip(*orders):
        yield from (int(ids[place]) for place in places)
