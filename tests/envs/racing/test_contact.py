"""Which tiles wheels touch, against Box2D's own test of overlap; and what the driver makes of it on a lap."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.racing.car import WHEEL_HALF_WIDTH, WHEEL_RADIUS, wheel_angles, wheel_positions
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.contact import MARGIN, tiles_of, touched_by_car, touched_by_wheels, under_hull
from cenie.envs.racing.driver import plan, pursue
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.generate import continuous_level, grid_level
from cenie.envs.racing.physics import settled
from cenie.envs.racing.track import track_of_level
from tests.envs.racing.box2d import Box2D, World

PLACES = 25


def distances(quads: np.ndarray, place: np.ndarray, angle: float) -> np.ndarray:
    """The distance of a wheel from each tile, as Box2D measures it between the cores of both shapes."""
    wheel = Box2D.b2PolygonShape(box=(WHEEL_HALF_WIDTH, WHEEL_RADIUS))
    at = Box2D.b2Transform()
    at.Set((float(place[0]), float(place[1])), float(angle))
    still = Box2D.b2Transform()
    still.SetIdentity()
    found = []
    for quad in quads:
        tile = Box2D.b2PolygonShape(vertices=[(float(x), float(y)) for x, y in quad])
        result = Box2D.b2Distance(
            shapeA=tile, idxA=0, transformA=still, shapeB=wheel, idxB=0, transformB=at, useRadii=False
        )
        found.append(result.distance)
    return np.array(found)


def check_level(generator, seed: int) -> tuple[int, int]:
    """Compare all tiles near some places; how many overlap, and how many tiles have sides that cross."""
    rng = np.random.default_rng(seed)
    track = jax.jit(lambda key: track_of_level(generator(key), 40))(jax.random.key(seed))
    tiles = tiles_of(track)
    quads = np.moveaxis(np.asarray(track.road), -1, 0).swapaxes(1, 2)
    look = jax.jit(touched_by_wheels)
    overlaps = 0
    for _ in range(PLACES):
        node = np.asarray(track.nodes[:, rng.integers(int(track.count))])
        place, angle = node + rng.normal(0, 6, 2), rng.uniform(-np.pi, np.pi)
        found = np.asarray(look(tiles, jnp.tile(jnp.asarray(place, jnp.float32), (4, 1)), jnp.full(4, angle)))
        near = np.flatnonzero(np.hypot(*(quads.mean(1) - place).T) < 30)
        apart = distances(quads[near], np.asarray(place, np.float32), angle)
        clear = np.abs(apart - MARGIN) > 1e-4
        np.testing.assert_array_equal(found[0, near][clear], (apart < MARGIN)[clear])
        assert not np.delete(found[0], near).any()
        overlaps += int((apart < MARGIN).sum())
    a, b, c, d = (quads[:, k] for k in range(4))

    def side(p, q, r):
        return np.sign((q[:, 0] - p[:, 0]) * (r[:, 1] - p[:, 1]) - (q[:, 1] - p[:, 1]) * (r[:, 0] - p[:, 0]))

    crossed = (side(a, b, c) != side(b, c, d)) | (side(b, c, d) != side(c, d, a))
    return overlaps, int(crossed.sum())


def test_wheels_touch_what_box2d_says():
    overlaps, crossed = np.sum([check_level(continuous_level, 0), check_level(grid_level, 1)], axis=0)
    assert overlaps > 50
    assert crossed > 0


@pytest.mark.slow
def test_wheels_touch_what_box2d_says_on_many_levels():
    generators = continuous_level, grid_level
    found = [check_level(generator, seed) for seed in range(20) for generator in generators]
    overlaps, crossed = np.sum(found, axis=0)
    assert overlaps > 1000
    assert crossed > 300


def test_the_hull_covers_tiles_too():
    track = jax.jit(lambda key: track_of_level(continuous_level(key), 40))(jax.random.key(3))
    tiles = tiles_of(track)
    car = settled(track.nodes[:, 100], track.normal[100])
    covered = np.flatnonzero(under_hull(tiles, car))
    assert 100 in covered
    wheels = np.flatnonzero(touched_by_wheels(tiles, wheel_positions(car), wheel_angles(car)).any(0))
    assert set(wheels) <= set(covered)


def test_cars_of_a_batch_touch_what_each_of_them_touches():
    """In a batch contacts are computed once and held, whether or not the first wheels are on the road."""
    track = jax.jit(lambda key: track_of_level(continuous_level(key), 40))(jax.random.key(3))
    tiles = tiles_of(track)
    places, angles = track.nodes[:, :300:60].T, track.normal[:300:60]
    cars = jax.vmap(settled)(places.at[1].add(500.0), angles)
    for on_road in (False, True):
        cars = dataclasses.replace(cars, on_road=jnp.full_like(cars.on_road, on_road))
        found = jax.jit(jax.vmap(touched_by_car, in_axes=(None, 0)))(tiles, cars)
        alone = [touched_by_wheels(tiles, *each) for each in zip(wheel_positions(cars), wheel_angles(cars))]
        np.testing.assert_array_equal(found, np.stack(alone))
        assert list(found.any((1, 2))) == [True, False, True, True, True]


def lap(generator, seed: int, actions: int):
    """The driver's actions on a level, with our environment after each of them, and Box2D's."""
    environment = Racing(RacingConfig(action_repeat=1, time_limit=5000, frame_size=16), evaluation=True)
    level = jax.jit(generator)(jax.random.key(seed))
    course = jax.jit(environment.prepare)(level)
    track = jax.jit(lambda level: track_of_level(level, 40))(level)
    line = plan(track, top_speed=45.0)

    @jax.jit
    def play(course):
        def body(state, _):
            action = pursue(line, state.car)
            result = environment.step(jax.random.key(0), course, state, action)
            return result.state, (action, result.reward, result.state.visited, result.solved)

        return jax.lax.scan(body, course.start, length=actions)[1]

    rows, reward, visited, solved = jax.device_get(play(course))
    quads = np.moveaxis(np.asarray(track.road), -1, 0).swapaxes(1, 2)
    world = World(quads, np.asarray(track.nodes[:, 0]), float(track.normal[0]))
    count, paid, differences, total = len(quads), 0, [], 0.0
    for number, (steer, gas, brake) in enumerate(rows):
        world.step(float(2 * steer - 1), float(gas), float(brake))
        now = int(world.visited.sum())
        total += 1000 / count * (now - paid) - 0.1
        paid = now
        differences.append(int(np.sum(visited[number] != world.visited)))
        if paid == count:
            break
    earned = float(reward[: len(differences)].sum())
    return np.array(differences), total, earned, bool(solved.any()), paid / count


def test_a_drive_visits_and_earns_what_it_does_in_box2d():
    differences, theirs, ours, _, share = lap(continuous_level, 0, 400)
    assert share > 0.1
    assert differences.max() <= 1
    assert ours == pytest.approx(theirs, abs=1000 / 468 + 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_lap_visits_and_earns_what_it_does_in_box2d(seed):
    """On one of these tracks the driver passes by six tiles, in both."""
    differences, theirs, ours, solved, share = lap(continuous_level, seed, 3000)
    assert solved == (share == 1.0)
    assert share > 0.98
    assert differences.max() <= 2
    assert ours == pytest.approx(theirs, abs=2 * 1000 / 468 + 0.5)


def test_tiles_that_do_not_exist_are_never_touched():
    track = jax.jit(lambda key: track_of_level(grid_level(key), 40))(jax.random.key(0))
    shorter = dataclasses.replace(track, exists=track.exists.at[50:].set(False))
    at = jnp.tile(track.nodes[:, 60], (4, 1))
    assert touched_by_wheels(tiles_of(track), at, jnp.zeros(4))[:, 60].all()
    assert not touched_by_wheels(tiles_of(shorter), at, jnp.zeros(4))[:, 50:].any()
