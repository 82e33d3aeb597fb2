"""Pictures and films as the bytes of files. NumPy only, so that no domain needs more to be seen."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

_PAPER = 255
_COLOURS = 256
_CLEAR, _END = _COLOURS, _COLOURS + 1
_LONGEST_CODE = 12
"""Bits of a code in a GIF, at most."""


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

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width, _ = image.shape
    # Each line of pixels begins with a byte that says it is stored as it is.
    lines = np.pad(image.reshape(height, -1), ((0, 0), (1, 0)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(lines.tobytes())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def gif_bytes(frames: UInt8[np.ndarray, "time height width 3"], frames_per_second: int | float = 25) -> bytes:
    """The frames as the bytes of a GIF file that repeats for ever.

    A GIF has at most 256 colours: those that are most frequent, and for all others the nearest of them. Of
    each frame only the rectangle is stored in which it differs from the one before.
    """
    _, height, width, _ = frames.shape
    palette, numbers = _quantised(frames)
    colours = np.zeros((_COLOURS, 3), np.uint8)
    colours[: len(palette)] = palette
    parts = [b"GIF89a", struct.pack("<HHBBB", width, height, 0xF7, 0, 0), colours.tobytes()]
    parts.append(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")
    hundredths = max(2, round(100 / frames_per_second))  # programs that show films distrust shorter times
    for number, frame in enumerate(numbers):
        top, left, changed = _changed(numbers[number - 1], frame) if number else (0, 0, frame)
        size = changed.shape[::-1]
        # Left in place (4), so that the next one is painted over it.
        parts.append(b"\x21\xf9\x04" + struct.pack("<BHBB", 4, hundredths, 0, 0))
        parts.append(b"\x2c" + struct.pack("<HHHHB", left, top, *size, 0) + b"\x08")
        data = _compressed(changed.tobytes())
        parts += [bytes([len(data[at : at + 255])]) + data[at : at + 255] for at in range(0, len(data), 255)]
        parts.append(b"\x00")
    return b"".join([*parts, b"\x3b"])


def _changed(
    before: UInt8[np.ndarray, "height width"], now: UInt8[np.ndarray, "height width"]
) -> tuple[int, int, UInt8[np.ndarray, "_ _"]]:
    """The rectangle in which two pictures differ, at least one pixel: top, left side, what is there."""
    differs = before != now
    rows, columns = (np.flatnonzero(differs.any(axis=axis)) for axis in (1, 0))
    top, bottom = (rows[0], rows[-1] + 1) if len(rows) else (0, 1)
    left, right = (columns[0], columns[-1] + 1) if len(columns) else (0, 1)
    return int(top), int(left), now[top:bottom, left:right]


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


def _compressed(pixels: bytes) -> bytes:
    """The code of Lempel, Ziv and Welch with growing code lengths, as GIF wants it."""
    codes: list[int] = [_CLEAR]
    lengths: list[int] = [9]
    known: dict[int, int] = {}
    free, length, prefix = _END + 1, 9, pixels[0]
    for pixel in pixels[1:]:
        key = prefix << 8 | pixel
        longer = known.get(key)
        if longer is not None:
            prefix = longer
            continue
        codes.append(prefix)
        lengths.append(length)
        prefix = pixel
        if free == 1 << _LONGEST_CODE:
            codes.append(_CLEAR)
            lengths.append(length)
            known, free, length = {}, _END + 1, 9
            continue
        known[key] = free
        # The reader is one entry behind, so that the length grows one entry later than it would have to.
        length += free == 1 << length
        free += 1
    codes += [prefix, _END]
    lengths += [length, length]
    bits = np.array(codes)[:, None] >> np.arange(_LONGEST_CODE) & 1
    used = np.arange(_LONGEST_CODE) < np.array(lengths)[:, None]
    return np.packbits(bits[used].astype(np.uint8), bitorder="little").tobytes()
