"""Pictures of levels and films of a student's episodes, as arrays of pixels and as the bytes of files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from cenie.envs.base import Domain, Renderer
from cenie.envs.images import gif_bytes, png_bytes, sheet
from cenie.experiment.evaluate import Episode, record_episodes
from cenie.report.shown_levels import Scene, renderer_of
from cenie.student.networks.base import Network

Picture = UInt8[np.ndarray, "_ _ 3"]
"""Pictures side by side may have different sizes, so that these have no names."""

MOST_FRAMES = 400
"""Pictures of one film; of longer episodes every second state is shown, or every third, ..."""
MOST_BYTES = 2**28
"""Bytes of all pictures of one film in memory."""
FRAMES_TOGETHER, SHEET_SIDE = 120, 640
"""Pictures of each of several films side by side, and how wide all of them are together, in pixels."""
SLOWEST, FASTEST, SECONDS = 6.0, 25.0, 6.0
"""Pictures per second, and how long a short film is to last."""


@dataclass(frozen=True)
class Film:
    """An episode in pictures of equal size, and how it went. `frames_at` are the steps that are shown.

    `shows_level` says whether each shows the whole level, and no camera follows the student.
    """

    name: str
    frames: UInt8[np.ndarray, "time height width 3"]
    frames_at: list[int]
    episode: Episode
    shows_level: bool = True

    @property
    def frames_per_second(self) -> float:
        return min(max(len(self.frames) / SECONDS, SLOWEST), FASTEST)


PLAYED_AGAIN = (
    "played again for the picture, with the same level and random numbers: a maze goes as in the evaluation, "
    "but a walker or a car may do better or worse, because numbers are rounded in another way"
)
"""The caption of pictures of episodes that an evaluation counted."""


def outcome(episode: Episode) -> str:
    """The outcome of an episode, in words."""
    how = "solved in" if episode.solved else "not solved in"
    return f"{how} {episode.length} steps, return {episode.episode_return:.2f}"


def record(domain: Domain, network: Network, scenes: Sequence[Scene], longest: int) -> list[Episode]:
    """Play an episode on each of the scenes, of at most about `longest` steps; scenes of one environment
    side by side."""
    found: dict[int, Episode] = {}
    for environment in {id(scene.environment): scene.environment for scene in scenes}.values():
        rows = [number for number, scene in enumerate(scenes) if scene.environment is environment]
        levels = domain.stack([scenes[number].level for number in rows])
        keys = jnp.stack([scenes[number].key for number in rows])
        played = record_episodes(environment, network, levels, keys=keys, longest=longest)
        found |= dict(zip(rows, played, strict=True))
    return [found[number] for number in range(len(scenes))]


def film(domain: Domain, scene: Scene, episode: Episode, *, most_frames: int = MOST_FRAMES) -> Film:
    """The pictures of an episode: the first state, the last two, and what fits in between."""
    renderer = renderer_of(domain)
    picture = renderer.level(scene.level)
    affordable = max(2, MOST_BYTES // picture.nbytes)
    states = len(jax.tree.leaves(episode.states)[0])
    stride = math.ceil(states / min(most_frames, affordable))
    shown = sorted({*range(0, states, stride), max(0, states - 2), states - 1})
    frames = renderer.episode(scene.level, jax.tree.map(lambda leaf: leaf[shown], episode.states))
    return Film(scene.name, frames, shown, episode, shows_level=frames.shape[1:] == picture.shape)


def last_look(domain: Domain, scene: Scene, episode: Episode) -> Picture:
    """The level and what the student did there, in one picture.

    Where a film shows the whole level, that is its last picture; where a camera follows the student, the
    level alone.
    """
    renderer: Renderer = renderer_of(domain)
    picture = renderer.level(scene.level)
    last = renderer.episode(scene.level, episode.states)[-1]
    return last if last.shape == picture.shape else picture


def shrunk(picture: UInt8[np.ndarray, "*time height width 3"], side: int) -> np.ndarray:
    """Every second pixel, every third, ... so that no side is longer than wanted; sharp edges stay sharp."""
    step = math.ceil(max(picture.shape[-3:-1]) / side)
    return picture[..., step // 2 :: step, step // 2 :: step, :]


def sheet_png(pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]], columns: int) -> bytes:
    """Pictures side by side, as a PNG file."""
    return png_bytes(sheet(pictures, columns))


def sheet_gif(films: Sequence[Film], columns: int, frames_per_second: float | None = None) -> bytes:
    """Films side by side, as a GIF file; those that have ended wait for the longest.

    Several films together are made smaller, since every pixel of every picture costs time.
    """
    if len(films) > 1:
        films = [replace(each, frames=shrunk(each.frames, max(48, SHEET_SIDE // columns))) for each in films]
    length = max(len(each.frames) for each in films)
    frames = [
        sheet([each.frames[min(now, len(each.frames) - 1)] for each in films], columns)
        for now in range(length)
    ]
    longest = max(films, key=lambda each: len(each.frames))
    return gif_bytes(np.stack(frames), frames_per_second or longest.frames_per_second)
