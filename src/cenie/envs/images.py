"""Pictures and films as the bytes of files."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from PIL import Image

_PAPER = 255
_COLOURS = 256
"""Colours of a GIF, at most."""


def sheet(
    pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]], columns: int, gap: int = 8
) -> UInt8[np.ndarray, "height width 3"]:
    """Pictures side by side, `columns` in a row, on white; smaller ones are centred in their place."""
    width = max(picture.shape[1] for picture in pictures)
    rows = [pictures[first : first + columns] for first in range(0, len(pictures), columns)]
    heights = [max(picture.shape[0] for picture in row) for row in rows]
    size = sum(heights) + (len(rows) + 1) * gap, columns * (width + gap) + gap, 3
    paper, above = np.full(size, _PAPER, np.uint8), gap
    for row, height in zip(rows, heights):
        for column, picture in enumerate(row):
            top = above + (height - picture.shape[0]) // 2
            left = gap + column * (width + gap) + (width - picture.shape[1]) // 2
            paper[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
        above += height + gap
    return paper


def png_bytes(image: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """The image as the bytes of a PNG file."""
    from PIL import Image  # loaded where a picture is made: training needs none

    return _saved(Image.fromarray(image), "PNG")


def gif_bytes(frames: UInt8[np.ndarray, "time height width 3"], frames_per_second: int | float = 25) -> bytes:
    """The frames as the bytes of a GIF file that repeats for ever.

    A GIF has at most 256 colours: the most frequent ones, and for all others the nearest of these.

    Args:
        frames: Colours from 0 to 255. A frame that repeats the one before is stored as a longer time.
        frames_per_second: How fast they follow each other, up to 50: programs distrust shorter times.

    Returns:
        The content of the file.
    """
    palette, numbers = _quantised(frames)
    first, *rest = (_paletted(picture, palette) for picture in numbers)
    milliseconds = 10 * max(2, round(100 / frames_per_second))
    # Each frame is left in place (1), so that of the next one only what differs is stored. The palette, once
    # it is named here, is stored once.
    shown = {"duration": milliseconds, "loop": 0, "disposal": 1}
    return _saved(first, "GIF", save_all=True, append_images=rest, palette=palette.tobytes(), **shown)


def _paletted(
    numbers: UInt8[np.ndarray, "height width"], palette: UInt8[np.ndarray, "colours 3"]
) -> "Image.Image":
    from PIL import Image

    picture = Image.fromarray(numbers)
    picture.putpalette(palette.tobytes())
    return picture


def _saved(picture: "Image.Image", kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def _quantised(
    frames: UInt8[np.ndarray, "time height width 3"],
) -> tuple[UInt8[np.ndarray, "colours 3"], UInt8[np.ndarray, "time height width"]]:
    """At most 256 colours, and the number of the colour of each pixel."""
    packed = (frames.astype(np.uint32) << np.array([16, 8, 0], np.uint32)).sum(axis=-1, dtype=np.uint32)
    found, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    every = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=-1).astype(np.float32)
    palette = every[np.sort(np.argsort(-counts, kind="stable")[:_COLOURS])]
    nearest = np.empty(len(every), np.uint8)
    for first in range(0, len(every), 4096):  # a table of all distances at once would be large
        part = every[first : first + 4096]
        distances = np.sum(palette**2, axis=1) - 2.0 * part @ palette.T
        nearest[first : first + 4096] = np.argmin(distances, axis=1)
    return palette.astype(np.uint8), nearest[inverse].reshape(packed.shape)
