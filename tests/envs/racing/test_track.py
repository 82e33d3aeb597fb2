"""Tracks by the rules of the original code: curve, tiles, kerbs, and control points that are there twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.racing.config import POINTS
from cenie.envs.racing.curve import sample_curve
from cenie.envs.racing.generate import continuous_level, grid_level, round_level
from cenie.envs.racing.level import PLAYFIELD, RacingLevel, make_level
from cenie.envs.racing.parameters import encoding, statistics
from cenie.envs.racing.track import HALF_WIDTH, KERB_WIDTH, NOWHERE, track_of_level
from tests.envs.racing import oracle

WORKED = [
    (100, 50), (200, 40), (280, 90), (310, 170), (290, 250), (220, 300),
    (150, 310), (90, 280), (40, 220), (30, 150), (50, 100), (170, 120),
]  # fmt: skip
"""A worked example, with its figures below."""
SAMPLES = 40
curve = jax.jit(sample_curve, static_argnums=1)
track = jax.jit(track_of_level, static_argnums=1)


def test_the_worked_example():
    nodes, direction, count = curve(jnp.asarray(WORKED, jnp.float32), SAMPLES)
    nodes = np.asarray(nodes, float)
    assert int(count) == 468
    assert oracle.length_of(nodes) == pytest.approx(957.512, abs=1e-2)
    np.testing.assert_allclose((nodes.min(1) + nodes.max(1)) / 2, (169.97236, 175.62344), atol=1e-4)
    np.testing.assert_allclose(np.ptp(nodes, axis=1), (280.31275, 273.17181), atol=1e-4)
    assert np.mean(np.abs(np.diff(direction))) == pytest.approx(0.0617904, abs=1e-6)
    expected = {
        0: (2.98470, 100, 50),
        1: (2.88240, 98.88969, 50.17564),
        2: (2.79704, 97.72626, 50.48413),
        39: (2.11799, 50, 100),
        100: (1.41763, 32.98761, 190.93313),
        200: (0.11374, 156.19183, 311.83756),
        300: (-1.39463, 307.88017, 192.56596),
        467: (3.13936, 101.53666, 49.99657),
    }
    for index, (angle, x, y) in expected.items():
        assert float(direction[index]) == pytest.approx(angle, abs=1e-5)
        np.testing.assert_allclose(nodes[:, index], (x, y), atol=1e-4)
    made = track(make_level(WORKED), SAMPLES)
    assert int(made.kerbed.sum()) == 30
    np.testing.assert_allclose(made.nodes[:, 0], np.array([100, 50]) - (169.97236, 175.62344), atol=1e-4)


def levels(generator, count):
    return jax.device_get(jax.jit(jax.vmap(generator))(jax.random.split(jax.random.key(1), count)).points)


@pytest.fixture(scope="module")
def tracks():
    """Continuous levels and their tracks."""
    points = levels(continuous_level, 30)
    made = jax.jit(jax.vmap(lambda points: track_of_level(RacingLevel(points), SAMPLES)))(points)
    return points, jax.device_get(made)


def test_tracks_of_random_points_follow_the_rules(tracks):
    points, made = tracks
    for number, some in enumerate(points):
        nodes, direction = oracle.nodes_and_directions(some)
        nodes = nodes - (nodes.min(0) + nodes.max(0)) / 2
        normal = direction + np.pi / 2
        np.testing.assert_allclose(made.nodes[number].T, nodes, atol=5e-4)
        kerbed = oracle.kerbs(normal)
        np.testing.assert_array_equal(made.kerbed[number], kerbed)
        width = np.full(len(nodes), HALF_WIDTH)
        road = oracle.quads(nodes, normal, -width, width)
        np.testing.assert_allclose(np.moveaxis(made.road[number], -1, 0).swapaxes(1, 2), road, atol=1e-3)
        side = np.sign(np.roll(normal, 1) - normal)
        outer = side * (HALF_WIDTH + KERB_WIDTH)
        kerb = oracle.quads(nodes, normal, side * HALF_WIDTH, outer)[kerbed]
        found = np.moveaxis(made.kerb[number], -1, 0).swapaxes(1, 2)
        np.testing.assert_allclose(found[kerbed], kerb, atol=1e-3)
        assert (found[~kerbed] == NOWHERE).all()


def test_kerbs_across_the_seam_spread_twice():
    """Marks of the first tiles fall on the last ones, which are visited later and mark others."""
    normal = np.zeros(60)
    normal[58:] = 1.0, 2.0
    normal[:3] = 3.0, 4.0, 5.0
    from cenie.envs.racing.track import _kerbed

    turn = normal - np.roll(normal, 1)
    made = _kerbed(jnp.asarray(turn, jnp.float32), jnp.float32(0.5), jnp.int32(60))
    np.testing.assert_array_equal(made, oracle.kerbs(normal, 0.5))
    assert made[-4]
    padded = jnp.concatenate([jnp.asarray(turn, jnp.float32), jnp.full(7, 9.0)])
    np.testing.assert_array_equal(_kerbed(padded, jnp.float32(0.5), jnp.int32(60))[:60], made)


def test_the_order_of_the_points_is_irrelevant():
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(WORKED)
    np.testing.assert_allclose(
        track(make_level(shuffled), SAMPLES).nodes, track(make_level(WORKED), SAMPLES).nodes, atol=1e-4
    )
    np.testing.assert_allclose(encoding(make_level(shuffled)), encoding(make_level(WORKED)))
    moved = [(101, 50), *WORKED[1:]]
    assert not np.allclose(encoding(make_level(moved)), encoding(make_level(WORKED)))


def test_a_point_that_is_there_twice_counts_once():
    twice = [*WORKED[:11], WORKED[3]]
    made = track(make_level(twice), SAMPLES)
    assert int(made.count) == 11 * 39
    nodes, _ = oracle.nodes_and_directions(WORKED[:11])
    # The order is around the mean of all twelve, which here is that around the mean of eleven.
    nodes = nodes - (nodes.min(0) + nodes.max(0)) / 2
    np.testing.assert_allclose(np.asarray(made.nodes)[:, : 11 * 39].T, nodes, atol=5e-4)
    assert (np.asarray(made.road)[..., 11 * 39 :] == NOWHERE).all()
    assert np.isfinite(made.road).all()


def test_continuous_levels_are_spread_as_in_the_original():
    made = levels(continuous_level, 200)
    apart = []
    for points in made:
        centre = points.mean(0)
        order = np.argsort(np.arctan2(*(points - centre).T))
        apart.append(np.abs(np.diff(points[order], axis=0).sum(1)).min())
    assert min(apart) >= 0.7 / 12 * PLAYFIELD * 0.999
    lengths = jax.jit(jax.vmap(lambda p: statistics(RacingLevel(p), samples=SAMPLES)))(made)
    assert 1100 < float(lengths["length"].mean()) < 1220  # 1162 in the original
    assert 0.12 < float(lengths["kerbs"].mean()) < 0.18  # 0.15
    assert 0.2 < float(lengths["touches_itself"].mean()) < 0.45  # 0.33
    assert (lengths["tiles"] == 468).all()


def test_grid_levels_have_different_cells():
    made = levels(grid_level, 50)
    cells = made / (PLAYFIELD / 10)
    np.testing.assert_allclose(cells, cells.round(), atol=1e-5)
    assert {len(np.unique(points, axis=0)) for points in made} == {POINTS}
    assert (cells.round().min(), cells.round().max()) == (1, 10)


def test_simple_levels_do_not_touch_themselves():
    made = levels(round_level, 50)
    facts = jax.jit(jax.vmap(lambda p: statistics(RacingLevel(p), samples=SAMPLES)))(made)
    assert not facts["touches_itself"].any()
    assert float(facts["turning"].mean()) < 1.6


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (WORKED[:11], "12 control points"),
        ([(-1, 50), *WORKED[1:]], r"not so in the points \[0\]"),
        ([(float("nan"), 50), *WORKED[1:]], "must lie in"),
        ([(1, 1)] * 11 + [(2, 2)], "three control points"),
    ],
)
def test_levels_that_are_none_are_refused(points, reason):
    with pytest.raises(ValueError, match=reason):
        make_level(points)
