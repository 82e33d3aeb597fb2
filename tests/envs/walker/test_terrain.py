"""Terrains against the rules told twice, against gymnasium's own generator, and the published statistics."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.base import stack_same_shapes
from cenie.envs.walker.level import HIGHEST, LOWEST, WalkerLevel, make_level
from cenie.envs.walker.terrain import (
    BASE,
    BOXES,
    POINTS,
    STEP,
    Chances,
    build_terrain,
    terrain_of,
)
from tests.envs.walker import oracle

BATCH = 400
WORST = {"pit_high": 0.8, "stair_low": 5, "stair_high": 5, "stair_steps": 9}


@pytest.fixture(scope="module")
def build():
    return jax.jit(jax.vmap(build_terrain))


@pytest.fixture(scope="module")
def terrains():
    """Terrains of `BATCH` seeds of the given parameters, on the host."""
    compiled = jax.jit(jax.vmap(terrain_of))

    def make(first_seed=0, **parameters):
        levels = stack_same_shapes([make_level(first_seed, **parameters)] * BATCH)
        seeds = np.arange(first_seed, first_seed + BATCH, dtype=np.uint32)
        levels = eqx.tree_at(lambda levels: levels.seed, levels, seeds)
        return jax.tree.map(np.asarray, compiled(levels))

    return make


def random_levels(hardcore=False, seed=0):
    """Levels over the full ranges; some parameters are at their ends or equal, where rules change."""
    rng = np.random.default_rng(seed)
    parameters = rng.uniform(LOWEST, HIGHEST, (BATCH, 8)).astype(np.float32)
    ends = np.where(rng.random((BATCH, 8)) < 0.5, LOWEST, HIGHEST)
    parameters = np.where(rng.random((BATCH, 8)) < 0.15, ends, parameters)
    parameters[:50, 3:5] = 0.0
    parameters[40:80, 1:3] *= 0.09
    parameters[40:60, 5:7] = 0.1
    # Steps that are so low that they are left out, beside others that are not.
    parameters[100:150, 5:7] = (0.0, 0.3)
    chances = Chances(
        jnp.asarray(rng.random((BATCH, POINTS, 5), np.float32)), jnp.asarray(rng.random(BATCH, np.float32))
    )
    chances = jax.tree.map(lambda values: values.at[100:120].multiply(0.03), chances)
    full = np.full(BATCH, hardcore)
    return WalkerLevel(parameters, np.zeros(BATCH, np.uint32), full, np.full(BATCH, 2000, np.int32)), chances


def assert_boxes_in_order(terrain, number):
    used = int(terrain.num_boxes[number])
    boxes = terrain.boxes[number]
    assert (np.diff(boxes[:used, 0]) > 0).all()
    assert (boxes[:used, 2] > boxes[:used, 0]).all()
    assert (boxes[:used, 3] > boxes[:used, 1]).all()
    assert (boxes[used:, 0] > POINTS * STEP + 100).all()


def test_terrains_follow_the_rules_told_twice(build):
    levels, chances = random_levels()
    found = jax.tree.map(np.asarray, build(levels, chances))
    assert found.num_boxes.min() < 2
    assert found.num_boxes.max() > 30
    for number in range(BATCH):
        points, boxes = oracle.terrain(levels.parameters[number], np.asarray(chances.points[number]))
        np.testing.assert_allclose(found.x[number], points[:, 0], atol=2e-5)
        np.testing.assert_allclose(found.y[number], points[:, 1], atol=3e-4)
        assert found.num_boxes[number] == len(boxes)
        np.testing.assert_allclose(found.boxes[number, : len(boxes)], boxes, atol=3e-4)
        assert_boxes_in_order(found, number)
    np.testing.assert_allclose(found.push, 10 * np.asarray(chances.push) - 5, atol=1e-6)


@pytest.mark.parametrize("hardcore", [False, True])
def test_gym_terrains_are_those_of_gymnasium(build, hardcore):
    pytest.importorskip("Box2D")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
    walker = BipedalWalker(hardcore=hardcore)
    levels, chances = random_levels(hardcore)
    parameters = np.tile(np.array([1, 0, 0, 0, 0, 0, 0, 1], np.float32), (BATCH, 1))
    if hardcore:  # then nothing but the roughness counts
        parameters[:, 1:] = levels.parameters[:, 1:]
    levels = WalkerLevel(parameters, levels.seed, levels.hardcore, levels.time_limit)
    found = jax.tree.map(np.asarray, build(levels, chances))
    for number in range(60):
        walker._np_random = oracle.Chances(np.asarray(chances.points[number]))
        walker._generate_terrain(hardcore)
        np.testing.assert_allclose(found.x[number], walker.terrain_x, atol=1e-5)
        np.testing.assert_allclose(found.y[number], walker.terrain_y, atol=1e-5)
        shapes = [np.array(body.fixtures[0].shape.vertices) for body in walker.terrain]
        boxes = [[*shape.min(0), *shape.max(0)] for shape in shapes if len(shape) == 4]
        assert len(boxes) == found.num_boxes[number]
        assert (len(boxes) > 10) == hardcore
        expected = np.array(sorted(boxes)).reshape(-1, 4)
        np.testing.assert_allclose(found.boxes[number, : len(boxes)], expected, atol=1e-5)


def test_rough_ground_has_the_published_statistics(terrains):
    # Published for 400 to 500 terrains each; heights are proportional to the roughness.
    published = {1: 0.127, 5: 0.66, 9: 1.21, 10: 1.47}
    deviation = np.mean([value / roughness for roughness, value in published.items()])
    found = [terrains(roughness=1, first_seed=BATCH * part) for part in range(5)]
    heights = np.concatenate([part.y for part in found])
    np.testing.assert_allclose(heights[:, -1].std(), deviation, rtol=0.1)
    # The flat first points of sections count as well, those of the start do not.
    np.testing.assert_allclose(np.abs(np.diff(heights[:, 20:])).mean(), 0.0227, rtol=0.03)
    assert (heights[:, :21] == np.float32(BASE)).all()
    rougher = terrains(roughness=10)
    np.testing.assert_allclose(rougher.y - BASE, 10 * (found[0].y - BASE), atol=2e-3)
    assert (rougher.num_boxes == 0).all()


def test_numbers_of_obstacles_are_the_published_ones(terrains):
    stumps = terrains(stump_low=2, stump_high=2)
    assert {*stumps.num_boxes.tolist()} <= {12, 13, 14, 15}
    np.testing.assert_allclose(stumps.num_boxes.mean(), 13.3, atol=0.1)
    pits = terrains(pit_low=5, pit_high=5)
    assert {*pits.num_boxes.tolist()} <= {22, 24, 26, 28}
    np.testing.assert_allclose(pits.num_boxes.mean() / 2, 12.5, atol=0.1)


def test_an_obstacle_is_there_only_if_its_largest_size_is_large_enough(terrains):
    enough = {"pit_high": 0.8, "stump_high": 0.2, "stair_high": 0.2}
    for name, size in enough.items():
        assert (terrains(**{name: size}, stair_steps=9).num_boxes > 0).all()
        assert (terrains(**{name: size - 0.01}, stair_steps=9).num_boxes == 0).all()


def test_stairs_of_one_step_are_no_stairs(terrains):
    found = terrains(stair_low=2, stair_high=2, stair_steps=1)
    assert (found.num_boxes == 0).all()
    assert (found.y == np.float32(BASE)).all()


def test_the_order_of_a_pair_does_not_matter(terrains):
    one = terrains(pit_low=1, pit_high=6, stump_low=0, stump_high=3, stair_low=1, stair_high=2, stair_steps=5)
    two = terrains(pit_low=6, pit_high=1, stump_low=3, stump_high=0, stair_low=2, stair_high=1, stair_steps=5)
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_pits_are_exactly_as_wide_as_the_level_says(terrains):
    found = terrains(pit_low=2.3, pit_high=2.3)
    for x, y, boxes, used in zip(found.x, found.y, found.boxes, found.num_boxes):
        openings = boxes[1:used:2, 0] - boxes[0:used:2, 2]
        np.testing.assert_allclose(openings, 2.3 * STEP, atol=2e-5)
        # The ground line comes up again at the right side of the far wall.
        rims = x[1:][np.diff(y) > 1]
        np.testing.assert_allclose(rims, boxes[1:used:2, 2][: len(rims)], atol=2e-5)
        assert (np.diff(x) > 0).all()


def test_no_level_has_more_boxes_than_there_is_room_for(terrains):
    """The most that counting allows: pits of the smallest width, then the longest stairs."""
    assert terrains(**WORST).num_boxes.max() <= BOXES
    pits = terrains(pit_high=0.8)
    assert 38 <= pits.num_boxes.max() <= 40


def test_worst_case_of_boxes_fits(build):
    """Always pits of the smallest width, the shortest grass, and at the last place stairs of eight steps."""
    points = np.full((POINTS, 5), 1e-3, np.float32)
    points[:, 4] = 0.99
    points[182:] = (0.5, 0.9, 0.99, 0.0, 0.0)
    level = make_level(0, **WORST)
    levels, chances = random_levels()
    levels = stack_same_shapes([level] * BATCH)
    chances = Chances(jnp.broadcast_to(points, chances.points.shape), chances.push)
    found = jax.tree.map(np.asarray, build(levels, chances))
    assert found.num_boxes[0] == 46
    expected = oracle.terrain(level.parameters, points)[1]
    np.testing.assert_allclose(found.boxes[0, : len(expected)], expected, atol=1e-4)


def test_a_seed_decides_everything_and_seeds_differ(terrains):
    one, two = terrains(roughness=1, time_limit=1600), terrains(roughness=1, time_limit=1600)
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert len({row.tobytes() for row in one.y}) == BATCH
    assert (one.time_limit == 1600).all()
    # Pushes of all strengths in both directions.
    assert -5 <= one.push.min() < -4.8
    assert 4.8 < one.push.max() <= 5
