"""Pictures for people: sizes, what is where, and that a drive leaves a line."""

import jax
import jax.numpy as jnp
import numpy as np

from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.domain import racing_domain
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.level import make_level
from cenie.envs.racing.render import drive_picture, episode_frames, render, speed_colour
from tests.envs.racing.gl_frames import UNIT_TEST_POINTS

CONFIG = RacingConfig(frame_size=16, texel=4.0, green="never")
LEVEL = make_level(UNIT_TEST_POINTS)


def states(length: int):
    """Of a car that drives ahead from the start."""
    racing = Racing(CONFIG)

    @jax.jit
    def play():
        course = racing.prepare(LEVEL)
        _, first = racing.reset(jax.random.key(0), course)
        step = lambda state, _: (  # noqa: E731
            racing.step(jax.random.key(0), course, state, jnp.array([0.5, 1.0, 0.0])).state,
            state,
        )
        return jax.lax.scan(step, first, length=length)[1]

    return play()


def test_pictures_of_tracks_and_drives() -> None:
    driven = states(8)
    track, drive = render(LEVEL, size=120), drive_picture(LEVEL, driven, size=120)
    assert track.dtype == drive.dtype == np.uint8
    # The box around the track is 294 x 286 with its edges, and has margins.
    assert track.shape == drive.shape
    assert max(track.shape[:2]) == 120
    grey = np.abs(track.astype(int) - (92, 94, 100)).max(axis=-1) < 8
    assert 0.05 < grey.mean() < 0.4
    # Where the car was there is a line, and no more than that has changed.
    changed = np.any(track != drive, axis=-1).mean()
    assert 0.001 < changed < 0.05


def test_frames_of_an_episode_are_finer_than_the_students() -> None:
    driven = states(3)
    domain = racing_domain(CONFIG)
    assert domain.render is not None
    frames = domain.render.episode(LEVEL, driven)
    assert frames.shape == (3, 288, 288, 3)
    assert not np.array_equal(frames[0], frames[2])
    small = episode_frames(LEVEL, driven, config=CONFIG, size=32)
    assert small.shape == (3, 32, 32, 3)


def test_speeds_have_colours_from_blue_to_red() -> None:
    slow, fast = speed_colour(0.0), speed_colour(500.0)
    assert slow[2] > slow[0]
    assert fast[0] > fast[2]
