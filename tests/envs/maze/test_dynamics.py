"""The maze against a plain simulator and against jaxued's Maze."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.dynamics import Maze
from cenie.envs.maze.level import make_level, stack_levels
from cenie.envs.maze.observe import GOAL, WALL, _visible
from cenie.envs.maze.presets import PRESETS
from cenie.envs.reset import step_and_restart
from tests.envs.maze.oracle import Simulator, random_level_values, visible

KEY = jax.random.key(0)


def random_levels(seed, count, *, sides=(13, 13), occluded=False, limits=(20, 60)):
    rng = np.random.default_rng(seed)
    levels = []
    for number in range(count):
        values = random_level_values(rng, *sides, density=rng.uniform(0, 0.6))
        limit = int(rng.integers(*limits))
        hidden = occluded and number % 2 == 1
        levels.append(make_level(*values, direction=int(rng.integers(4)), time_limit=limit, occluded=hidden))
    return levels


@jax.jit
def play(levels, actions):
    """All that happens when `actions` [t, n] are played with restarts; also the first observation."""
    environment = Maze(MazeConfig())
    keys = jax.random.split(KEY, (len(levels.direction), 2))
    first, state = jax.vmap(environment.reset)(keys[:, 0], levels)

    def step(state, action):
        made, final = step_and_restart(environment, keys, levels, state, action)
        return made.state, (made, final)

    return first, jax.lax.scan(step, state, actions)[1]


def test_every_step_agrees_with_the_plain_simulator_with_and_without_occlusion():
    levels = random_levels(1, 48, occluded=True) + [
        # A wide and a tall map: rows and columns are packed into words of different numbers.
        make_level(
            *random_level_values(np.random.default_rng(5), *sides, 0.2), time_limit=90, occluded=hidden
        )
        for sides in ((3, 40), (37, 5))
        for hidden in (False, True)
    ]
    # Mostly forward, so that the agents come around.
    actions = np.random.default_rng(2).choice(
        7, (150, len(levels)), p=[0.15, 0.15, 0.6, 0.025, 0.025, 0.025, 0.025]
    )
    first, (made, final) = jax.tree.map(
        np.asarray, play(stack_levels(levels), jnp.asarray(actions, jnp.int32))
    )
    solved = 0
    for number, level in enumerate(levels):
        simulator = Simulator.of(level)
        np.testing.assert_array_equal(first.image[number], simulator.image())
        for t, action in enumerate(actions[:, number]):
            reward, *flags = simulator.step(action)
            solved += flags[2]
            assert abs(made.reward[t, number] - reward) < 1e-6
            assert flags == [bool(flag[t, number]) for flag in (made.terminated, made.truncated, made.solved)]
            assert np.array_equal(final.image[t, number], simulator.image())
            if any(flags):
                simulator = Simulator.of(level)
            assert np.array_equal(made.observation.image[t, number], simulator.image())
            assert made.observation.direction[t, number] == simulator.direction
            assert tuple(made.state.position[t, number]) == (simulator.x, simulator.y)
            assert made.state.time[t, number] == simulator.time
    assert solved > 20


def test_sight_agrees_with_the_sweeps_for_very_many_views():
    opaque = np.random.default_rng(0).random((20_000, 5, 5)) < np.linspace(0.05, 0.8, 20_000)[:, None, None]
    opaque[:, 2, 4] = False
    ahead = opaque[:, :, ::-1]  # nearest first
    walls = np.sum(ahead * (1 << np.arange(5)), axis=-1).astype(np.uint32)
    seen = np.asarray(jax.vmap(_visible)(jnp.asarray(walls)))
    bits = (seen[:, None, None] >> (5 * np.arange(5)[:, None] + np.arange(5))) & 1
    expected = np.array([visible(view) for view in opaque])
    np.testing.assert_array_equal(bits[:, :, ::-1] == 1, expected)


def test_parity_with_jaxued_over_ten_thousand_steps():
    jaxued = pytest.importorskip("jaxued.environments")
    from jaxued.environments.maze.level import Level

    count, steps = 50, 200
    levels = stack_levels(random_levels(3, count, limits=(60, 61)))
    theirs = jaxued.Maze()
    params = theirs.default_params.replace(max_steps_in_episode=60)
    their_levels = Level(
        wall_map=jnp.asarray(levels.wall_map),
        goal_pos=jnp.asarray(levels.goal, jnp.uint32),
        agent_pos=jnp.asarray(levels.start, jnp.uint32),
        agent_dir=jnp.asarray(levels.direction, jnp.uint8),
        width=jnp.full(count, 13),
        height=jnp.full(count, 13),
    )
    actions = np.random.default_rng(4).choice(
        7, (steps, count), p=[0.15, 0.15, 0.6, 0.025, 0.025, 0.025, 0.025]
    )
    first, (made, final) = play(levels, jnp.asarray(actions, jnp.int32))

    @jax.jit
    def play_theirs(levels, actions):
        keys = jax.random.split(KEY, count)
        observation, begun = jax.vmap(theirs.reset_to_level, (0, 0, None))(keys, levels, params)

        def step(state, action):
            seen, state, reward, done, _ = jax.vmap(theirs.step, (0, 0, 0, None))(keys, state, action, params)
            again = jax.tree.map(
                lambda a, b: jnp.where(done.reshape(-1, *[1] * (a.ndim - 1)), b, a), state, begun
            )
            return again, (seen, reward, done)

        return observation, jax.lax.scan(step, begun, actions)[1]

    their_first, (seen, reward, done) = play_theirs(their_levels, jnp.asarray(actions, jnp.int32))
    np.testing.assert_array_equal(first.image, their_first.image)
    np.testing.assert_array_equal(final.image, seen.image)
    np.testing.assert_array_equal(final.direction, seen.agent_dir)
    np.testing.assert_allclose(made.reward, reward, rtol=1e-6)
    np.testing.assert_array_equal(made.terminated | made.truncated, done)
    assert 10 < int(jnp.sum(made.solved)) < int(jnp.sum(done))


def corridor_of(length, limit):
    """A straight corridor: the goal is `length` steps east of the start."""
    return make_level(np.zeros((1, length + 1), bool), (length, 0), (0, 0), time_limit=limit)


@pytest.mark.parametrize(("decay", "expected"), [(0.9, 0.1), (1.0, 0.0)])
def test_success_on_the_very_last_step_is_solved_and_not_truncated_whatever_it_pays(decay, expected):
    environment, level = Maze(MazeConfig(reward_decay=decay)), corridor_of(3, limit=3)
    step = jax.jit(environment.step)
    _, state = jax.jit(environment.reset)(KEY, level)
    for _ in range(2):
        made = step(KEY, level, state, jnp.int32(2))
        state = made.state
        assert not (made.terminated | made.truncated)
    made = step(KEY, level, state, jnp.int32(2))
    assert bool(made.solved)
    assert bool(made.terminated)
    assert not bool(made.truncated)
    np.testing.assert_allclose(made.reward, expected, atol=1e-6)
    assert tuple(made.state.position) == (2, 0), "the agent does not move onto the goal"


def test_padding_a_level_changes_nothing_the_agent_can_see():
    small = random_levels(7, 8, sides=(9, 9), occluded=True)
    large = make_level(*random_level_values(np.random.default_rng(0), 49, 49, 0.3))
    alone, together = stack_levels(small), stack_levels([*small, large])
    actions = jnp.asarray(np.random.default_rng(1).integers(0, 3, (40, 9)), jnp.int32)
    one, other = play(alone, actions[:, :8]), play(together, actions)
    for a, b in zip(jax.tree.leaves(one[1]), jax.tree.leaves(other[1])):
        np.testing.assert_array_equal(a, b[:, :8])


def test_levels_of_different_limits_and_occlusion_share_one_program():
    traces = []
    environment = Maze(MazeConfig())

    @jax.jit
    def step(level, state, action):
        traces.append(1)
        return environment.step(KEY, level, state, action)

    for limit, occluded in ((5, False), (5202, True)):
        level = make_level(np.zeros((49, 49), bool), (3, 3), (0, 0), time_limit=limit, occluded=occluded)
        _, state = jax.jit(environment.reset)(KEY, level)
        assert not bool(step(level, state, jnp.int32(2)).truncated)
    assert len(traces) == 1


def test_direction_is_redrawn_only_when_asked_for():
    level = make_level(np.zeros((5, 5), bool), (3, 3), (0, 0), direction=1)
    keys = jax.random.split(KEY, 64)
    for redraw, expected in ((False, {1}), (True, {0, 1, 2, 3})):
        environment = Maze(MazeConfig(redraw_direction=redraw))
        _, state = jax.jit(jax.vmap(environment.reset, (0, None)))(keys, level)
        assert set(np.asarray(state.direction).tolist()) == expected


def test_spaces_have_the_structure_of_the_observation_and_the_number_of_actions():
    environment = Maze(MazeConfig(num_actions=3))
    observation, _ = jax.eval_shape(environment.reset, KEY, corridor_of(3, 3))
    assert jax.tree.structure(environment.observation_space) == jax.tree.structure(observation)
    assert environment.observation_space.image.shape == observation.image.shape
    assert environment.action_space.n == 3


def test_every_preset_names_its_network_and_the_codes_that_it_sees():
    """The presets load without JAX, so that they cannot take the codes from the view itself."""
    for preset in PRESETS.values():
        assert {"student.network.kind", "student.network.encoder.kind"} <= preset.keys()
    assert PRESETS["quick"]["student.network.encoder.codes"] == (WALL[0], GOAL[0])
