"""Files of pictures and films, read by another library."""

import io

import numpy as np
import pytest
from PIL import Image

from cenie.envs.images import gif_bytes, png_bytes, sheet

RNG = np.random.default_rng(0)


def opened(data):
    return Image.open(io.BytesIO(data))


def shown(data, hundredths):
    """The frames of a film as they are seen, one for each of these times."""
    film, frames = opened(data), []
    for number in range(film.n_frames):
        film.seek(number)
        times, rest = divmod(film.info["duration"], 10 * hundredths)
        assert rest == 0
        frames += [np.asarray(film.convert("RGB"))] * times
    return np.stack(frames)


def film(kind):
    if kind == "noise":  # 200 colours in no order, which fills the table of codes many times
        colours = RNG.integers(0, 256, (200, 3), np.uint8)
        return colours[RNG.integers(0, 200, (3, 97, 131))]
    if kind == "one pixel":
        return np.full((2, 1, 1, 3), 9, np.uint8)
    frames = np.zeros((4, 60, 80, 3), np.uint8)
    frames[..., 0] = np.arange(80) // 5
    for time in range(4):
        frames[time, 10 * time : 10 * time + 9, 20:40] = (250, 10, 100)
    return frames


@pytest.mark.parametrize("kind", ["noise", "one pixel", "plain"])
def test_a_film_reads_back_as_the_same_frames(kind):
    frames = film(kind)
    film_bytes = gif_bytes(frames, 20)
    np.testing.assert_array_equal(shown(film_bytes, 5), frames)
    assert opened(film_bytes).info["loop"] == 0


def test_a_frame_that_repeats_the_one_before_takes_its_time_and_no_room():
    frames = film("plain")[[0, 0, 0, 1, 1, 2]]
    np.testing.assert_array_equal(shown(gif_bytes(frames, 20), 5), frames)
    assert opened(gif_bytes(frames, 20)).n_frames == 3
    assert len(gif_bytes(frames, 20)) == len(gif_bytes(film("plain")[:3], 20))


def test_only_what_differs_from_the_frame_before_is_stored():
    still = RNG.integers(0, 256, (64, 64, 3), np.uint8) // 64 * 64
    moving = np.stack([still] * 20)
    moving[np.arange(20), 5, np.arange(20)] = (9, 9, 9)
    assert len(gif_bytes(moving)) < 2 * len(gif_bytes(moving[:1]))


def test_the_frames_of_a_film_are_shown_for_the_time_that_was_asked_for():
    assert opened(gif_bytes(film("plain"), 20)).info["duration"] == 50


def test_colours_beyond_256_become_the_nearest_that_are_left():
    frames = np.zeros((1, 64, 64, 3), np.uint8)
    frames[0, ..., 0] = np.arange(64) * 4
    frames[0, ..., 1] = np.arange(64)[:, None] * 4
    frames[0, :32, :32] = (0, 255, 0)
    found = np.asarray(opened(gif_bytes(frames)).convert("RGB")).astype(int)
    assert len(np.unique(found.reshape(-1, 3), axis=0)) == 256
    assert (found[:32, :32] == (0, 255, 0)).all()
    assert np.abs(found - frames[0]).max() > 0
    kept = np.unique(found.reshape(-1, 3), axis=0)
    distances = np.sum((frames[0].reshape(-1, 1, 3).astype(int) - kept) ** 2, axis=-1)
    np.testing.assert_array_equal(
        np.sum((found - frames[0]) ** 2, axis=-1).reshape(-1), distances.min(axis=1)
    )


def test_a_picture_reads_back_as_the_same_image():
    image = film("noise")[0]
    np.testing.assert_array_equal(np.asarray(opened(png_bytes(image))), image)


def test_small_pictures_are_centred_on_a_sheet_whose_rows_are_as_high_as_they_must_be():
    large, small = np.zeros((5, 7, 3), np.uint8), np.zeros((3, 3, 3), np.uint8)
    paper = sheet([large, small, small], columns=2, gap=2)
    assert paper.shape == (2 + 5 + 2 + 3 + 2, 2 + 7 + 2 + 7 + 2, 3)
    for rows, columns in (
        (slice(2, 7), slice(2, 9)),
        (slice(3, 6), slice(13, 16)),
        (slice(9, 12), slice(4, 7)),
    ):
        assert (paper[rows, columns] == 0).all()
        paper[rows, columns] = 255
    assert (paper == 255).all()
