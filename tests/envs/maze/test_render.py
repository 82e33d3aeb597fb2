"""Pictures: tiles in their places."""

import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.dynamics import MazeState
from cenie.envs.maze.level import make_level
from cenie.envs.maze.render import render

WALLS = np.array([[False, True, False], [False, False, False]])
LEVEL = make_level(WALLS, (2, 0), (0, 1))


def tile_colours(image, x, y, tile):
    """The set of colours in a tile of the interior."""
    part = image[(y + 1) * tile : (y + 2) * tile, (x + 1) * tile : (x + 2) * tile]
    return {tuple(pixel) for pixel in part.reshape(-1, 3).tolist()}


def test_walls_border_goal_and_agent_are_drawn_in_their_tiles():
    image = render(LEVEL, tile=16)
    assert image.shape == (4 * 16, 5 * 16, 3)
    wall = tile_colours(image, -1, -1, 16)
    assert len(wall) == 1
    assert tile_colours(image, 1, 0, 16) == wall == tile_colours(image, 3, 1, 16)
    floor, goal, agent = (tile_colours(image, *place, 16) for place in ((2, 1), (2, 0), (0, 1)))
    assert goal - floor
    assert agent - floor
    assert (goal - floor).isdisjoint(agent - floor)
    assert not floor & wall


def test_the_domain_draws_levels_and_every_state_of_an_episode():
    draw = maze_domain(MazeConfig()).render
    np.testing.assert_array_equal(draw.level(LEVEL), render(LEVEL))
    states = MazeState(jnp.array([[0, 1], [1, 1], [1, 1]]), jnp.array([0, 0, 3]), jnp.arange(3))
    frames = draw.episode(LEVEL, states)
    assert frames.shape == (3, *render(LEVEL).shape)
    np.testing.assert_array_equal(frames[2], render(LEVEL, [(0, 1, 0), (1, 1, 0), (1, 1, 3)]))
    np.testing.assert_array_equal(frames[0], render(LEVEL, [(0, 1, 0)]))


@pytest.mark.parametrize(
    ("place", "directions", "times", "at_goal"),
    [
        ((2, 1), [3, 3], [4, 5], True),  # forward, into the goal
        ((2, 1), [3, 2], [4, 5], False),  # turned away
        ((2, 1), [3, 3], [3, 5], False),  # what happened between is not known
        ((1, 1), [3, 3], [4, 5], False),  # into a wall
    ],
)
def test_the_step_into_the_goal_is_drawn_although_the_environment_does_not_make_it(
    place, directions, times, at_goal
):
    states = MazeState(jnp.array([place, place]), jnp.array(directions), jnp.array(times))
    before, last = maze_domain(MazeConfig()).render.episode(LEVEL, states)
    red = (226, 78, 68)
    assert (red in tile_colours(last, 2, 0, 16)) == at_goal
    assert red not in tile_colours(before, 2, 0, 16)


@pytest.mark.parametrize(("direction", "axis", "sign"), [(0, 1, -1), (1, 0, -1), (2, 1, 1), (3, 0, 1)])
def test_the_agent_points_where_it_faces(direction, axis, sign):
    level = make_level(np.zeros((2, 2), bool), (1, 1), (0, 0), direction=direction)
    tile = render(level, tile=20)[20:40, 20:40]
    red = np.argwhere((tile[..., 0] > 150) & (tile[..., 2] < 100))
    # The base of the triangle is broad and lies behind, so the mass is on that side of the middle.
    assert sign * (red[:, axis].mean() - 9.5) > 0.5


def test_a_path_moves_the_agent_and_marks_where_it_was():
    image = render(LEVEL, [(0, 1, 0), (1, 1, 0), (2, 1, 3)], tile=16)
    still = render(LEVEL, tile=16)
    agent = tile_colours(still, 0, 1, 16) - tile_colours(still, 1, 1, 16)
    assert agent <= tile_colours(image, 2, 1, 16)
    assert not agent & tile_colours(image, 0, 1, 16)
    assert tile_colours(image, 1, 1, 16) - tile_colours(still, 1, 1, 16)
