"""Pictures: ground, boxes, walker and flag in their places."""

import numpy as np
import pytest

from cenie.envs.walker.level import make_level
from cenie.envs.walker.render import STANDING, frame, render, terrain_on_host
from cenie.envs.walker.terrain import BASE, FINISH, STEP

SCALE = 10
FLAT = make_level(3)


def colours(image, places, bottom, scale=SCALE, left=0.0):
    """The pixels at places of the world, as whole numbers."""
    rows = [image.shape[0] - 1 - int((y - bottom) * scale) for _, y in places]
    columns = [int((x - left) * scale) for x, _ in places]
    return image[rows, columns].astype(int)


def is_green(pixels):
    return (pixels[:, 1] > pixels[:, 0] + 20) & (pixels[:, 1] > pixels[:, 2] + 20)


def is_earth(pixels):
    return (pixels[:, 0] > pixels[:, 2] + 20) & (pixels[:, 0] >= pixels[:, 1])


def is_stone(pixels):
    return np.ptp(pixels, axis=1) < 25


def test_flat_ground_is_grass_on_earth_below_the_sky():
    image = render(FLAT, scale=SCALE)
    bottom = BASE - 1.2
    xs = np.arange(10, 85, 5.0)
    assert is_green(colours(image, [(x, BASE - 0.12) for x in xs], bottom)).all()
    assert is_earth(colours(image, [(x, BASE - 0.8) for x in xs], bottom)).all()
    above = colours(image, [(x, BASE + 3.5) for x in xs], bottom)
    assert (above[:, 2] >= above[:, 0]).all()
    flag = colours(image, [(FINISH + 0.3, BASE + 2.2)], bottom)[0]
    assert flag[0] > 180
    assert flag[1:].max() < 110


@pytest.mark.parametrize("parameters", [{"stump_low": 3, "stump_high": 3}, {"pit_low": 5, "pit_high": 5}])
def test_boxes_and_pits_are_where_the_terrain_has_them(parameters):
    level = make_level(0, **parameters)
    terrain = terrain_on_host(level)
    image = render(level, scale=SCALE)
    bottom = terrain.y.min() - 1.2
    boxes = terrain.boxes[: int(terrain.num_boxes)]
    boxes = boxes[boxes[:, 2] < 92]
    middles = [((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) for box in boxes]
    assert is_stone(colours(image, middles, bottom)).all()
    pits = terrain.x[:-1][(terrain.y[:-1] < BASE - 1) & (terrain.y[1:] < BASE - 1)]
    if "pit_low" in parameters:
        assert len(pits) > 10
        inside = colours(image, [(x + STEP / 2, BASE - 0.6) for x in pits], bottom)
        assert not is_earth(inside).any()


@pytest.mark.filterwarnings("error")
def test_upright_rims_of_pits_are_painted_without_warnings():
    """A pit that is a rounding error wider than whole points has its far rim above the point before."""
    level = make_level(0, pit_low=2 + 2**-22, pit_high=2 + 2**-22)
    terrain = terrain_on_host(level)
    (upright,) = np.nonzero(np.diff(terrain.x) == 0.0)
    assert len(upright) > 5
    image = render(level, scale=SCALE)
    bottom = terrain.y.min() - 1.2
    walls = terrain.x[upright]
    beside = colours(image, [(x + 0.3, BASE - 0.8) for x in walls], bottom)
    within = colours(image, [(x - STEP / 2, BASE - 0.6) for x in walls], bottom)
    assert is_earth(beside).all()
    assert not is_earth(within).any()


def test_a_frame_follows_the_walker_and_legs_are_told_apart():
    terrain = terrain_on_host(FLAT)
    spread = STANDING.copy()
    spread[1:3, 0] -= 0.6
    spread[3:, 0] += 0.6
    for distance in (0.0, 40.0):
        poses = spread + np.array([distance, 0.0, 0.0])
        image = frame(FLAT, terrain, poses, scale=30)
        assert image.shape == (400, 600, 3)
        left, bottom = poses[0, 0] - 5.0, BASE - 4.2
        hull, *legs = colours(image, poses[:, :2] - [0, 0.1], bottom, 30, left)
        assert hull[2] > hull[0] > hull[1]
        # The leg before the hull is brighter than the one behind it.
        assert min(legs[0].sum(), legs[1].sum()) > max(legs[2].sum(), legs[3].sum()) + 60


def test_the_walker_turns_with_its_angle():
    terrain = terrain_on_host(FLAT)
    poses = STANDING + np.array([10.0, 1.0, 0.0])
    poses[0, 2] = np.pi / 2
    image = frame(FLAT, terrain, poses, scale=20)
    nose = colours(image, [(poses[0, 0], poses[0, 1] + 0.9)], BASE - 4.2, 20, poses[0, 0] - 5.0)[0]
    assert nose[2] > nose[0] > nose[1]


def test_the_camera_keeps_the_walker_in_the_picture_on_steep_courses():
    level = make_level(0, stair_low=5, stair_high=5, stair_steps=9, roughness=10)
    terrain = terrain_on_host(level)
    assert np.ptp(terrain.y) > 15
    for place in range(20, 190, 10):
        poses = STANDING.copy()
        poses[:, :2] += [terrain.x[place] - poses[0, 0], terrain.y[place] - BASE]
        image = frame(level, terrain, poses, scale=8).astype(int)
        purple = (image[..., 2] > image[..., 0] + 40) & (image[..., 0] > image[..., 1] + 25)
        assert purple[10:-10].any()
