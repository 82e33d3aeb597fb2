"""Generators, the editor and the design environment: laws, validity, and one rule told twice."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.maze.config import BUDGETS, GENERATORS, MazeConfig
from cenie.envs.maze.design import MazeDesign, design_task
from cenie.envs.maze.domain import maze_domain
from cenie.envs.maze.edit import edit
from cenie.envs.maze.generate import generate, random_free_tile
from cenie.envs.maze.level import make_level, shortest_path
from cenie.envs.reset import step_and_restart, step_only
from cenie.experiment.presets import preset
from cenie.settings import SettingsError
from cenie.student.actions import Categorical
from cenie.student.networks.base import Decision, Network
from cenie.student.rollout import collect

KEY = jax.random.key(0)
WALLS_GOAL = ("wall", "empty", "goal")
ALL = ("wall", "empty", "goal", "agent")


@functools.cache
def generator(config, name):
    return jax.jit(jax.vmap(functools.partial(generate, config, name)))


@functools.cache
def draw(config, name, count, seed=0):
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.tree.map(np.asarray, generator(config, name)(keys))


def assert_valid(levels):
    """Invariants of a batch of levels of host arrays."""
    count, height, width = levels.wall_map.shape
    for place in (levels.goal, levels.start):
        assert (place >= 0).all()
        assert (place < [width, height]).all()
        assert not levels.wall_map[np.arange(count), place[:, 1], place[:, 0]].any()
    assert (levels.goal != levels.start).any(axis=1).all()
    assert ((levels.direction >= 0) & (levels.direction < 4)).all()


def tiles(places, width=13):
    return places[:, 1] * width + places[:, 0]


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_levels_are_valid_and_spread_evenly(name):
    levels = draw(MazeConfig(max_steps=77), name, 20_000)
    assert_valid(levels)
    assert (levels.time_limit == 77).all()
    assert not levels.occluded.any()
    for places in (levels.goal, levels.start):
        counts = np.bincount(tiles(places), minlength=169)
        # 118 expected per tile with a standard deviation of 11.
        assert counts.min() > 60
        assert counts.max() < 180
    assert np.bincount(levels.direction).min() > 4700


def test_wall_counts_follow_the_published_means():
    walls = {name: draw(MazeConfig(), name, 20_000).wall_map.sum(axis=(1, 2)) for name in BUDGETS}
    # 26.0 = mean over n of 169 (1 - (168/169)^n), less the share that goal and start remove.
    np.testing.assert_allclose(walls["uniform60"].mean(), 26.1, atol=0.4)
    assert walls["uniform60"].max() <= 59
    assert walls["uniform60"].min() == 0
    np.testing.assert_allclose(walls["blocks25"].mean(), 23.0, atol=0.15)
    assert walls["empty"].max() == 0


def test_coupled_budget_follows_the_published_law():
    walls = draw(MazeConfig(coupled_budget=True), "uniform60", 20_000).wall_map.sum(axis=(1, 2))
    np.testing.assert_allclose(walls.mean(), 25.9, atol=0.4)
    assert walls.max() <= 59


def test_coupled_budget_ties_the_number_of_walls_to_the_first_one():
    levels = draw(MazeConfig(coupled_budget=True), "uniform60", 20_000)
    walls = levels.wall_map.reshape(-1, 169)
    count = walls.sum(axis=1)
    # A level with 48 walls or more had a budget of at least 48, so its first wall was at tile 136 or later.
    many = walls[count >= 48]
    assert len(many) > 250
    lost = 1 - many[:, 136:].any(axis=1)
    assert lost.mean() < 0.05


def test_without_replacement_the_number_of_walls_is_exact():
    config = MazeConfig(replacement=False)
    assert (draw(config, "blocks25", 20_000).wall_map.sum(axis=(1, 2)) == 25).all()
    levels = draw(config, "uniform60", 20_000)
    assert_valid(levels)
    counts = np.bincount(levels.wall_map.sum(axis=(1, 2)), minlength=60)
    assert len(counts) == 60
    assert counts.min() > 240  # 333 expected


def test_generation_is_a_function_of_the_key():
    keys = jax.random.split(jax.random.key(0), 20_000)
    one = draw(MazeConfig(), "uniform60", 20_000)
    two = generator(MazeConfig(), "uniform60")(keys)
    other = draw(MazeConfig(), "uniform60", 20_000, seed=1)
    assert np.array_equal(one.wall_map, two.wall_map)
    assert not np.array_equal(one.wall_map, other.wall_map)


def test_tiny_crowded_mazes_stay_valid():
    assert_valid(draw(MazeConfig(size=3), "uniform60", 2000))


def test_random_free_tile_is_uniform_over_free_tiles_and_never_the_taken_one():
    walls = jnp.array([True, False, False, True, False, False])
    chances = jax.random.uniform(KEY, (6000,))
    drawn = np.asarray(jax.vmap(lambda chance: random_free_tile(chance, walls, jnp.int32(2)))(chances))
    counts = np.bincount(drawn, minlength=6)
    assert counts[[0, 2, 3]].sum() == 0
    assert counts[[1, 4, 5]].min() > 1800
    full = jax.vmap(lambda chance: random_free_tile(chance, jnp.ones(6, bool), jnp.int32(2)))(chances)
    assert set(np.asarray(full).tolist()) == {0, 1, 3, 4, 5}


# --- the editor


@functools.cache
def editor(operations, num_edits):
    return jax.jit(jax.vmap(functools.partial(edit, num_edits=num_edits, operations=operations)))


def mutate(levels, seed, *, operations=WALLS_GOAL, num_edits=5):
    keys = jax.random.split(jax.random.key(seed), len(levels.direction))
    return jax.tree.map(np.asarray, editor(operations, num_edits)(keys, levels))


@pytest.mark.parametrize("operations", [WALLS_GOAL, ("wall", "empty"), ALL, ("wall",)])
def test_edited_levels_stay_valid_through_many_edits(operations):
    for config, name in ((MazeConfig(), "uniform60"), (MazeConfig(size=3), "empty")):
        levels = draw(config, name, 4000)
        for round in range(12):
            before, levels = levels, mutate(levels, round, operations=operations)
            assert_valid(levels)
            assert np.array_equal(levels.direction, before.direction)
            assert np.array_equal(levels.time_limit, before.time_limit)
            # At most five tiles change, and the goal and the start may each have moved from and to a tile.
            assert (levels.wall_map != before.wall_map).sum(axis=(1, 2)).max() <= 7


@pytest.mark.slow
def test_a_hundred_thousand_levels_stay_valid_through_twenty_edits():
    for operations in (WALLS_GOAL, ALL):
        levels = draw(MazeConfig(), "uniform60", 100_000)
        for round in range(20):
            levels = mutate(levels, round, operations=operations)
            assert_valid(levels)


def repeated(level, count):
    return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), level)


def test_one_edit_follows_the_law_of_its_operations():
    walls = np.zeros((13, 13), bool)
    walls[:, ::2] = True
    level = make_level(walls, (3, 3), (5, 5), direction=2, time_limit=9, occluded=True)
    count = 40_000
    after = mutate(repeated(level, count), 0, num_edits=1)
    changed = after.wall_map != walls
    assert changed.sum(axis=(1, 2)).max() <= 2
    added = (after.wall_map & ~walls).any(axis=(1, 2)).mean()
    # 78 of 169 tiles are empty, and one operation in three puts a wall.
    np.testing.assert_allclose(added, 78 / 169 / 3, atol=0.01)
    moved_goal = (after.goal != [3, 3]).any(axis=1)
    # The goal operation on another tile, or any but itself on the goal.
    np.testing.assert_allclose(moved_goal.mean(), (168 / 169) / 3 + (1 / 169) * 2 / 3 * (76 / 77), atol=0.01)
    moved_start = (after.start != [5, 5]).any(axis=1)
    assert 0 < moved_start.mean() < 3 / 169, "the agent moves only when an edit lands on it"
    assert after.occluded.all()
    assert (after.time_limit == 9).all()


def test_without_a_goal_operation_the_goal_moves_only_when_an_edit_lands_on_it():
    level = make_level(np.zeros((13, 13), bool), (3, 3), (5, 5))
    after = mutate(repeated(level, 20_000), 0, operations=("wall", "empty"), num_edits=1)
    assert 0 < (after.goal != [3, 3]).any(axis=1).mean() < 3 / 169


def test_repair_never_puts_the_goal_on_the_agent_when_only_two_tiles_are_left():
    level = make_level(np.zeros((1, 2), bool), (0, 0), (1, 0))
    for operations in (WALLS_GOAL, ALL):
        after = mutate(repeated(level, 500), 1, operations=operations)
        assert_valid(after)
        assert not after.wall_map.any()


# --- levels that are filled to a share


@pytest.mark.parametrize("fill", [(0.0, 0.6), (0.25, 0.75), (0.4, 0.4)])
def test_filled_levels_have_a_share_of_walls_that_is_uniform_in_its_range(fill):
    levels = draw(MazeConfig(size=21, fill=fill), "filled", 4000)
    # Two tiles are never walls; the rest are independent, given the share.
    shares = levels.wall_map.sum(axis=(1, 2)) / (21**2 - 2)
    low, high = fill
    width = high - low
    middle = (low + high) / 2
    by_chance = (middle * (1 - middle) - width**2 / 12) / 21**2
    assert shares.mean() == pytest.approx(middle, abs=0.015)
    assert shares.var() == pytest.approx(width**2 / 12 + by_chance, rel=0.1)


def test_of_half_filled_levels_most_have_no_path_and_of_sparse_ones_nearly_all():
    def solvable(fill):
        levels = draw(MazeConfig(size=21, fill=(fill, fill)), "filled", 500)
        return np.mean(np.asarray(jax.vmap(shortest_path)(levels)) <= 21**2)

    assert solvable(0.1) > 0.98
    assert solvable(0.5) < 0.2


def test_a_range_of_fillings_must_be_in_order():
    with pytest.raises(SettingsError, match="must not exceed"):
        preset("maze", "dr", "quick", {"env.fill": (0.5, 0.4)})


def test_a_designer_in_the_place_of_filled_levels_has_their_budget():
    config = MazeConfig(size=9, fill=(0.1, 0.5))
    actions = np.random.default_rng(1).integers(0, 81, (200, config.wall_budget("filled") + 2))
    _, made, levels = designed("filled", actions, config)
    assert config.wall_budget("filled") == 40
    assert_valid(levels)
    np.testing.assert_array_equal(made.terminated.argmax(axis=1), 40 * actions[:, 0] // 81 + 1)


# --- the design environment


def designed(name, actions, config=MazeConfig()):  # noqa: B008
    """Play the actions [n, steps]; the states after every step."""
    environment, task = MazeDesign(config, name), design_task(config, name)
    keys = jax.random.split(KEY, len(actions))

    def play(key, actions):
        reset_key, key = jax.random.split(key)
        first, state = environment.reset(reset_key, task)

        def step(state, inputs):
            made = environment.step(*inputs[:1], task, state, inputs[1])
            return made.state, made

        last, made = jax.lax.scan(step, state, (jax.random.split(key, actions.shape[0]), actions))
        return first, made, environment.finished_level(last)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(keys, jnp.asarray(actions, jnp.int32)))


@pytest.mark.parametrize("name", list(BUDGETS))
def test_a_designed_maze_is_what_the_actions_say(name):
    steps = BUDGETS[name] + 2
    actions = np.random.default_rng(0).integers(0, 169, (300, steps))
    actions[0] = 40  # every choice collides
    _, made, levels = designed(name, actions)
    assert_valid(levels)
    # The first choice of a designer of up to 60 walls is how many there will be.
    placed = BUDGETS[name] * actions[:, 0] // 169 if name == "uniform60" else np.full(300, BUDGETS[name])
    assert (made.terminated == (np.arange(1, steps + 1) == placed[:, None] + 2)).all()
    assert not (made.truncated | made.solved).any()
    assert (made.reward == 0).all()
    np.testing.assert_array_equal(made.observation.time[0], np.arange(1, steps + 1))
    for chosen, walls, goal, start in zip(actions, levels.wall_map, tiles(levels.goal), tiles(levels.start)):
        budget = 60 * chosen[0] // 169 if name == "uniform60" else BUDGETS[name]
        expected = np.zeros(169, bool)
        expected[chosen[:budget]] = True
        assert goal == chosen[budget]
        if chosen[budget + 1] != goal:
            assert start == chosen[budget + 1]
        expected[[goal, start]] = False
        np.testing.assert_array_equal(walls.reshape(-1), expected)


def test_the_designer_sees_the_whole_grid_and_new_noise_at_each_step():
    first, made, levels = designed("blocks25", np.random.default_rng(1).integers(0, 169, (5, 27)))
    assert first.image.shape == (5, 15, 15, 3)
    border = first.image.copy()
    border[:, 1:-1, 1:-1] = (2, 5, 0)
    assert (border == (2, 5, 0)).all()
    assert (first.image[:, 1:-1, 1:-1] == (1, 0, 0)).all()
    for image, level in zip(made.observation.image[:, -1], range(5)):
        x, y = levels.goal[level] + 1
        assert tuple(image[x, y]) == (8, 1, 0)
        x, y = levels.start[level] + 1
        assert tuple(image[x, y]) == (10, 0, levels.direction[level])
        walls = image[1:-1, 1:-1, 0].T == 2
        np.testing.assert_array_equal(walls, levels.wall_map[level])
    noise = made.observation.noise[0]
    assert len(np.unique(noise)) == noise.size
    assert 0 <= noise.min() < noise.max() <= 1


class AnyTile(Network):
    """A designer that chooses tiles at random."""

    tiles: int = eqx.field(static=True)

    def initial_memory(self, count):
        return ()

    def step(self, memory, observation, start):
        count = start.shape[0]
        policy = Categorical(jnp.zeros((count, self.tiles)))
        return (), Decision(policy, jnp.zeros(count), jnp.zeros((count, 1)))

    def sequence(self, memory, observation, start):
        raise NotImplementedError


def test_a_level_is_built_in_a_rollout_without_restarts_and_read_from_its_final_state():
    made = maze_domain(MazeConfig(size=6)).design("blocks25")
    environment = made.environment
    tasks = jax.tree.map(lambda leaf: jnp.stack([leaf] * 40), made.task)

    @functools.partial(jax.jit, static_argnames="advance")
    def design(advance):
        designer = AnyTile(tiles=36)
        return collect(
            environment,
            designer,
            tasks,
            key=KEY,
            num_steps=environment.max_steps,
            advance=advance,
            keep_final_state=True,
        )

    rollout = design(step_only)
    assert rollout.terminated[:, -1].all()
    assert rollout.terminated.sum() == 40
    levels = jax.tree.map(np.asarray, jax.vmap(made.finished_level)(rollout.final_state))
    assert_valid(levels)
    for chosen, walls, goal, start in zip(
        np.asarray(rollout.action),
        levels.wall_map.reshape(40, -1),
        levels.goal @ (1, 6),
        levels.start @ (1, 6),
    ):
        assert goal == chosen[25]
        assert set(np.flatnonzero(walls)) == set(chosen[:25]) - {goal, start}
    # A restart would have left an empty maze instead.
    assert not design(step_and_restart).final_state.walls.any()


def test_tasks_have_the_walls_and_the_distance_that_were_asked_for():
    config = MazeConfig(max_steps=77)
    space = maze_domain(config).tasks
    assert space is not None
    assert space.low.tolist() == [0.0, 1.0]
    assert space.high.tolist() == [60.0, 24.0]
    points = jax.random.uniform(KEY, (2000, 2), minval=space.low, maxval=space.high)
    levels = jax.jit(jax.vmap(space.draw))(jax.random.split(jax.random.key(1), 2000), points)
    levels = jax.tree.map(np.asarray, levels)
    assert_valid(levels)
    assert (levels.time_limit == 77).all()
    walls, wanted = np.round(np.asarray(points)).T
    np.testing.assert_array_equal(levels.wall_map.sum(axis=(1, 2)), walls)
    distance = np.abs(levels.goal - levels.start).sum(axis=1)
    # From a goal at (x, y) the farthest tile is a corner.
    farthest = np.maximum(levels.goal, 12 - levels.goal).sum(axis=1)
    np.testing.assert_array_equal(distance, np.minimum(wanted, farthest))
    # Places are random: every tile is a goal, and starts lie in all directions from it.
    assert len(set(tiles(levels.goal))) == 169
    sides = np.sign(levels.start - levels.goal)
    assert len({tuple(side) for side in sides}) == 8


def test_tasks_of_the_smallest_mazes_leave_room_for_goal_and_start():
    space = maze_domain(MazeConfig(size=3)).tasks
    assert space is not None
    assert space.high.tolist() == [7.0, 4.0]
    keys = jax.random.split(KEY, 50)
    levels = jax.vmap(lambda key: space.draw(key, jnp.asarray(space.high)))(keys)
    assert_valid(jax.tree.map(np.asarray, levels))
    assert (np.asarray(levels.wall_map).sum(axis=(1, 2)) == 7).all()
