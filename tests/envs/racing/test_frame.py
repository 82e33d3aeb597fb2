"""Frames against OpenGL's and gymnasium's, and both ways to draw against each other."""

import dataclasses
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.racing.car import Car, hull_position
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.frame import RoadShapes, frame, paint
from cenie.envs.racing.level import RacingLevel
from cenie.envs.racing.raster import on_all_pixels, rasterise
from cenie.envs.racing.track import track_of_level

ANALYTIC, TEXTURE = RacingConfig(renderer="analytic"), RacingConfig(renderer="texture", texel=0.25)
BAR, CAR = np.s_[..., 84:, :], np.s_[..., 64:80, 40:56]
"""Rows of the dashboard, and a window around the car."""


@cache
def fixture() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("gl_frames.npz")) as file:
        return dict(file)


def cars() -> Car:
    arrays = {name[4:]: values for name, values in fixture().items() if name.startswith("car_")}
    return Car(**{name: jnp.asarray(values) for name, values in arrays.items()})


def touched() -> jax.Array:
    return jnp.asarray(np.unpackbits(fixture()["touched"], axis=-1)[..., :468].astype(bool))


@partial(jax.jit, static_argnums=0)
def _draw(config: RacingConfig, points: jax.Array, cars: Car, touched: jax.Array) -> jax.Array:
    view = paint(config, track_of_level(RacingLevel(points), 40))
    return jax.vmap(lambda car, touched: frame(config, view, car, touched))(cars, touched)


@cache
def drawn(config: RacingConfig, levels: int = 4) -> np.ndarray:
    """The frames of the fixture, by one of our renderers."""
    one_by_one = [
        _draw(config, *jax.tree.map(lambda leaf, n=n: leaf[n], (fixture()["points"], cars(), touched())))
        for n in range(levels)
    ]
    return np.stack([np.asarray(frames) for frames in one_by_one])


def same(config: RacingConfig) -> np.ndarray:
    return np.all(drawn(config) == fixture()["frames"], axis=-1)


def test_the_analytic_renderer_is_that_of_opengl() -> None:
    equal = same(ANALYTIC)
    assert equal.mean() >= 0.9995
    assert equal.mean(axis=(-1, -2)).min() >= 0.999
    assert equal[BAR].mean() >= 0.9998
    assert equal[CAR].mean() >= 0.995


def test_the_texture_renderer_is_nearly_that_of_opengl() -> None:
    equal = same(TEXTURE)
    assert equal.mean() >= 0.992
    assert equal[BAR].mean() >= 0.9998
    difference = np.abs(drawn(TEXTURE).astype(int) - fixture()["frames"])
    assert (difference.max(axis=-1) > 20).mean() <= 0.003


@pytest.mark.parametrize("config", [ANALYTIC, TEXTURE], ids=["analytic", "texture"])
def test_grass_alone_is_told_from_other_views_as_by_opengl(config: RacingConfig) -> None:
    mine, theirs = (frames[..., 1].mean(axis=(-1, -2)) for frames in (drawn(config), fixture()["frames"]))
    assert np.any(theirs > 185)
    clear = np.abs(theirs - 185) > 0.3
    np.testing.assert_array_equal((mine > 185)[clear], (theirs > 185)[clear])


def test_smaller_frames_show_the_same_view() -> None:
    """The centres of a third of the pixels are centres of the larger ones."""
    small = dataclasses.replace(ANALYTIC, frame_size=32)
    third = drawn(ANALYTIC)[:1, :, 1::3, 1::3]
    assert np.mean(np.all(drawn(small, 1) == third, axis=-1)) >= 0.9999


def test_a_large_track_has_coarser_texels_but_is_all_there() -> None:
    far = np.array(fixture()["points"][0])
    track = track_of_level(RacingLevel(jnp.asarray(far)), 40)
    wide = jax.tree.map(lambda leaf: leaf, track)
    wide = dataclasses.replace(wide, road=track.road * 2.0, kerb=track.kerb * 2.0)
    coarse = dataclasses.replace(TEXTURE, texel=1.0)
    small, large = paint(coarse, track), paint(coarse, wide)
    assert float(large.extent) > float(small.extent)  # pyright: ignore
    covered = [int(jnp.sum(view.numbers > 0)) for view in (small, large)]  # pyright: ignore
    # Twice as large in both directions, seen in texels that are larger.
    ratio = covered[1] / covered[0] * (float(large.extent) / float(small.extent)) ** 2  # pyright: ignore
    assert ratio == pytest.approx(4.0, rel=0.05)


def random_quads(count: int) -> jax.Array:
    """Some crossed, some without area, some far away."""
    rng = np.random.default_rng(0)
    quads = rng.uniform(-10, 60, (2, 1, count)) + rng.normal(0, 9, (2, 4, count))
    quads[:, :, ::7] = 1e6
    quads[:, 2:, ::11] = quads[:, :1, ::11]
    return jnp.asarray(quads.astype(np.float32))


def test_blocks_and_all_pixels_give_the_same_picture() -> None:
    quads, shape = random_quads(40), (33, 50)
    blocks, everywhere = rasterise(quads, shape, 8), on_all_pixels(quads, shape)
    np.testing.assert_array_equal(blocks, everywhere)
    assert len(np.unique(blocks)) > 10


def test_a_batch_is_drawn_like_its_parts() -> None:
    quads = jnp.stack([random_quads(12), 0.5 * random_quads(12)])
    together = jax.vmap(lambda quads: rasterise(quads, (20, 20), 8))(quads)
    for part, alone in zip(together, quads):
        np.testing.assert_array_equal(part, rasterise(alone, (20, 20), 8))


def test_the_painter_is_that_of_numpy() -> None:
    """Pixel by pixel in double precision, the last shape over a centre wins."""
    quads, shape = random_quads(40), (33, 50)
    y, x = (np.arange(length) + 0.5 for length in shape)
    expected = np.zeros(shape, int)
    for number, corners in enumerate(np.asarray(quads, np.float64).transpose(2, 1, 0)):
        for triangle in ((0, 1, 3), (1, 2, 3)):
            (ax, ay), (bx, by), (cx, cy) = corners[list(triangle)]
            area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
            if area == 0:
                continue
            u = ((x - ax) * (cy - ay) - (cx - ax) * (y[:, None] - ay)) / area
            v = ((bx - ax) * (y[:, None] - ay) - (x - ax) * (by - ay)) / area
            expected[(u >= 0) & (v >= 0) & (u + v <= 1)] = number + 1
    assert np.mean(np.asarray(rasterise(quads, shape, 8)) == expected) > 0.999


def gymnasium_scene() -> tuple[Any, RoadShapes, Car, jax.Array]:
    """A drive of gymnasium's car: its own frame, its road as ours, and where its car is."""
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    pytest.importorskip("pygame")
    env = gymnasium.make("CarRacing-v3", lap_complete_percent=1.0).unwrapped
    env.reset(seed=3)
    for number in range(90):
        seen = env.step(np.array([0.25 if number > 50 else 0.0, 0.3, 0.0]))[0]
    quads, fresh, nowhere = [], [], np.full((4, 2), 1e6)
    for corners, colour in env.road_poly:
        if len({int(part) for part in colour}) == 1 and int(colour[0]) < 200:
            quads += [np.array(corners), nowhere]
            fresh.append(int(colour[0]) != 102)
        else:
            quads[-1] = np.array(corners)
    car, hull = env.car, env.car.hull
    zeros = jnp.zeros(4)
    # At rest, so that up is where it faces, as it always is in gymnasium. The dashboard is not compared.
    placed = Car(
        centre=jnp.asarray(np.array(hull.GetWorldPoint((0.0, -0.0798)), np.float32)),
        angle=jnp.float32(hull.angle),
        last_angle=jnp.float32(hull.angle),
        velocity=jnp.zeros(2),
        turn=jnp.float32(0.0),
        joint=jnp.asarray(np.array([wheel.joint.angle for wheel in car.wheels], np.float32)),
        joint_rate=zeros,
        spin=zeros,
        phase=jnp.asarray(np.array([wheel.phase for wheel in car.wheels], np.float32)),
        gas=jnp.float32(0.0),
        on_road=jnp.zeros(4, bool),
    )
    shapes = jnp.asarray(np.array(quads, np.float32).transpose(2, 1, 0))
    env.close()
    return seen, RoadShapes(shapes, jnp.float32(2000 / 6)), placed, ~jnp.array(fresh)


def test_the_camera_turns_with_the_velocity_of_a_sliding_car() -> None:
    """As in gym 0.15 and the original code; gymnasium's turns with the hull."""
    sliding, still = (jax.tree.map(lambda leaf: leaf[0, 0], cars()) for _ in range(2))
    angle = sliding.angle + 1.2
    velocity = 20.0 * jnp.stack([-jnp.sin(angle), jnp.cos(angle)])
    sliding = dataclasses.replace(sliding, velocity=velocity, turn=jnp.float32(0.0))
    still = dataclasses.replace(still, velocity=jnp.zeros(2), turn=jnp.float32(0.0))

    def facing(angle: jax.Array) -> Car:
        """The car at rest, its origin at the same place."""
        turned = dataclasses.replace(still, angle=angle, last_angle=angle)
        moved = turned.centre + hull_position(sliding) - hull_position(turned)
        return dataclasses.replace(turned, centre=moved)

    several = jax.tree.map(lambda *leaves: jnp.stack(leaves), sliding, facing(angle), facing(sliding.angle))
    shown = np.broadcast_to(touched()[0, 0], (3, 468))
    frames = np.asarray(_draw(ANALYTIC, fixture()["points"][0], several, shown))[:, :84]
    around = np.ones((84, 96), bool)
    around[60:, 36:60] = False  # the car itself
    by_velocity, by_hull = (np.mean(np.all(frames[0] == frame, axis=-1)[around]) for frame in frames[1:])
    assert by_velocity > 0.999
    assert by_hull < 0.9


def test_finer_frames_averaged_are_those_of_gymnasium() -> None:
    """Gymnasium smooths edges, and loses two grey levels on the way. The car is at rest."""
    theirs, view, car, touched = gymnasium_scene()
    fine = dataclasses.replace(ANALYTIC, frame_size=4 * 96)
    mine = np.asarray(jax.jit(lambda: frame(fine, view, car, touched))(), np.float64)
    mine = np.maximum(mine.reshape(96, 4, 96, 4, 3).mean(axis=(1, 3)) - 2.0, 0.0)
    difference = np.abs(mine - theirs)[:84]
    assert difference.mean() <= 0.3
    assert (difference.max(axis=-1) <= 5).mean() >= 0.98
