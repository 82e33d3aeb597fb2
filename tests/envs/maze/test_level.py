"""Level statistics, stacking and validity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.maze.level import encoding, make_level, stack_levels, statistics
from tests.envs.maze.oracle import path_length, random_level_values


@pytest.mark.parametrize("sides", [(13, 13), (4, 70)])
def test_statistics_agree_with_breadth_first_search(sides):
    rng = np.random.default_rng(0)
    levels = [make_level(*random_level_values(rng, *sides, rng.uniform(0, 0.6))) for _ in range(128)]
    found = jax.jit(jax.vmap(statistics))(stack_levels(levels))
    impassable = 0
    for number, level in enumerate(levels):
        length = path_length(level.wall_map, level.start, level.goal)
        impassable += length is None
        assert found["path"][number] == (length or 0)
        assert bool(found["solvable"][number]) == (length is not None)
        assert found["walls"][number] == level.wall_map.sum()
        assert found["manhattan"][number] == np.abs(level.goal - level.start).sum()
    assert 0 < impassable < 128


def test_an_impassable_level_has_a_path_of_0_and_is_encoded_as_farther_than_all_others():
    walls = np.zeros((13, 13), bool)
    walls[6] = True
    level = make_level(walls, (0, 12), (0, 0))
    assert int(statistics(level)["path"]) == 0
    np.testing.assert_allclose(encoding(level), [13 / 169, 1.0, 12 / 24])


def test_stack_pads_with_walls_and_keeps_the_rest():
    small = make_level(np.zeros((2, 3), bool), (2, 1), (0, 0), direction=3, time_limit=7, occluded=True)
    large = make_level(np.zeros((5, 4), bool), (0, 1), (1, 0))
    stacked = stack_levels([small, large])
    assert stacked.wall_map.shape == (2, 5, 4)
    assert not stacked.wall_map[0, :2, :3].any()
    assert stacked.wall_map[0].sum() == 5 * 4 - 2 * 3
    assert not stacked.wall_map[1].any()
    np.testing.assert_array_equal(stacked.goal, [[2, 1], [0, 1]])
    np.testing.assert_array_equal(stacked.direction, [3, 0])
    np.testing.assert_array_equal(stacked.time_limit, [7, 250])
    np.testing.assert_array_equal(stacked.occluded, [True, False])


def test_stacking_device_levels_gives_host_arrays():
    level = jax.tree.map(jnp.asarray, make_level(np.zeros((3, 3), bool), (2, 2), (0, 0)))
    stacked = stack_levels([level, level])
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(stacked))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"goal": (1, 1)}, "goal .* on a wall"),
        ({"start": (1, 1)}, "start .* on a wall"),
        ({"goal": (3, 0)}, "goal .* outside"),
        ({"start": (0, -1)}, "start .* outside"),
        ({"goal": (0, 0)}, "same tile"),
        ({"direction": 4}, "direction"),
        ({"time_limit": 0}, "time limit"),
    ],
)
def test_make_level_refuses_what_breaks_an_invariant(change, reason):
    walls = np.zeros((3, 3), bool)
    walls[1, 1] = True
    values = {"wall_map": walls, "goal": (2, 2), "start": (0, 0), "direction": 0}
    with pytest.raises(ValueError, match=reason):
        make_level(**{**values, **change})
