"""Rewards and ends: those of the race, those of training, and actions that last several physics steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.check import check_environment
from cenie.envs.racing.circuits import f1_circuit, stack_circuits, vanilla_circuit
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.dynamics import Course, Racing, RacingState
from cenie.envs.racing.level import make_level
from cenie.records import Step
from tests.envs.racing.test_track import WORKED

KEY = jax.random.key(0)
SMALL = RacingConfig(frame_size=16, curve_samples=10, texel=2.0)
STILL = jnp.array([0.5, 0.0, 0.0])
GAS = jnp.array([0.5, 1.0, 0.0])


class Play:
    """An environment of the worked example, compiled once."""

    def __init__(self, config: RacingConfig, evaluation: bool = False, level=None):
        self.environment = Racing(config, evaluation=evaluation)
        self.course: Course = jax.jit(self.environment.prepare)(level or make_level(WORKED))
        self._step = jax.jit(self.environment.step)

    def step(self, state: RacingState, action, course: Course | None = None) -> Step:
        return self._step(KEY, course or self.course, state, jnp.asarray(action, jnp.float32))


@pytest.fixture(scope="module")
def race() -> Play:
    """Evaluation, a physics step at a time."""
    return Play(dataclasses.replace(SMALL, action_repeat=1, time_limit=300), evaluation=True)


@pytest.fixture(scope="module")
def training() -> Play:
    return Play(dataclasses.replace(SMALL, action_repeat=1, green="never", time_limit=300))


@pytest.fixture(scope="module")
def repeated() -> Play:
    return Play(dataclasses.replace(SMALL, action_repeat=8, green="never"))


@pytest.mark.slow  # it is compiled a dozen times
def test_it_is_an_environment():
    """Spaces, purity, and episodes that end in time; control points and circuits alike."""
    config = dataclasses.replace(SMALL, time_limit=80, green="observed")
    other = make_level([(90, 40), *WORKED[1:]])
    assert check_environment(Racing(config), make_level(WORKED), KEY, other_level=other) == []


def _way(course) -> np.ndarray:
    """From the first tile to the second."""
    nodes = [np.asarray(corners[:2]).mean(0) for corners in (course.tiles.corners_x, course.tiles.corners_y)]
    return np.array([along[1] - along[0] for along in nodes])


def test_the_car_faces_against_the_order_of_the_nodes(race):
    track_way = _way(race.course)
    angle = float(race.course.start.car.angle)
    ahead = np.array([-np.sin(angle), np.cos(angle)])
    assert ahead @ track_way < 0
    circuit = jax.jit(race.environment.prepare)(vanilla_circuit(np.random.default_rng(0)))
    way = _way(circuit)
    angle = float(circuit.start.car.angle)
    assert np.array([-np.sin(angle), np.cos(angle)]) @ way > 0


def test_tiles_under_the_car_at_the_start_are_paid_with_the_first_step(race):
    start = race.course.start
    under = int(start.visited.sum())
    assert under > 0
    first = race.step(start, STILL)
    count = int(race.course.count)
    paid = int(first.state.paid)
    assert paid >= under
    assert float(first.reward) == pytest.approx(1000 / count * paid - 0.1, abs=1e-3)
    second = race.step(first.state, STILL)
    more = int(second.state.paid) - paid
    assert float(second.reward) == pytest.approx(1000 / count * more - 0.1, abs=1e-3)


def test_grip_is_that_of_the_step_before(race):
    start = race.course.start
    assert start.car.on_road.any()
    far = dataclasses.replace(start.car, centre=jnp.array([300.0, 300.0]))
    after = race.step(dataclasses.replace(start, car=far), GAS)
    assert not after.state.car.on_road.any()


def test_leaving_the_field_replaces_the_reward(race):
    start = race.course.start
    outside = dataclasses.replace(start.car, centre=jnp.array([334.0, 0.0]))
    made = race.step(dataclasses.replace(start, car=outside), STILL)
    assert (float(made.reward), bool(made.terminated), bool(made.solved)) == (-100.0, True, False)


def all_but_one(play: Play) -> RacingState:
    """The car stands on the last tile that it has not visited."""
    start = play.course.start
    visited = ~start.visited | (jnp.arange(len(start.visited)) != jnp.argmax(start.visited))
    others = int(visited.sum())
    assert others == len(visited) - 1
    return dataclasses.replace(start, visited=visited, paid=jnp.int32(others))


def test_a_lap_ends_when_all_tiles_are_visited(race, training):
    made = race.step(all_but_one(race), STILL)
    count = int(race.course.count)
    assert (bool(made.terminated), bool(made.truncated), bool(made.solved)) == (True, False, True)
    assert float(made.reward) == pytest.approx(1000 / count - 0.1, abs=1e-3)
    made = training.step(all_but_one(training), STILL)
    assert float(made.reward) == pytest.approx(1000 / count - 0.1 + 100, abs=1e-3)


def test_leaving_the_field_costs_nothing_in_training(training):
    start = training.course.start
    outside = dataclasses.replace(start.car, centre=jnp.array([334.0, 0.0]))
    made = training.step(dataclasses.replace(start, car=outside), STILL)
    assert float(made.reward) == 0.0
    assert bool(made.terminated)


def standing(play: Play, most: int) -> tuple[list[float], Step]:
    state, rewards = play.course.start, []
    made = None
    for _ in range(most):
        made = play.step(state, STILL)
        state = made.state
        rewards.append(float(made.reward))
        if made.terminated | made.truncated:
            break
    assert made is not None
    return rewards, made


def test_a_car_that_stands_is_stopped_in_training_after_a_hundred_steps_without_a_tile(training):
    rewards, last = standing(training, 300)
    # The tiles of the first two steps leave the memory after a hundred more.
    paying = max(number for number, reward in enumerate(rewards) if reward > 0)
    assert len(rewards) == paying + 1 + 100
    assert bool(last.terminated)
    assert not last.truncated
    assert rewards[-1] == pytest.approx(-0.1)  # no bonus for that


def test_a_race_goes_on_until_its_time_is_over(race):
    rewards, last = standing(race, 301)
    assert len(rewards) == 300
    assert bool(last.truncated)
    assert not last.terminated
    assert rewards[-1] == pytest.approx(-0.1)


def test_the_end_of_time_pays_a_bonus_in_training(training):
    late = dataclasses.replace(training.course.start, time=jnp.int32(299), recent=jnp.ones(100))
    made = training.step(late, STILL)
    assert bool(made.truncated)
    assert not made.terminated
    assert float(made.reward) > 99


def test_an_action_is_eight_physics_steps(training, repeated):
    state, total = training.course.start, 0.0
    for _ in range(8):
        made = training.step(state, GAS)
        state, total = made.state, total + float(made.reward)
    at_once = repeated.step(repeated.course.start, GAS)
    assert float(at_once.reward) == pytest.approx(total, abs=1e-4)
    assert int(at_once.state.time) == 8
    np.testing.assert_allclose(at_once.state.car.centre, state.car.centre, atol=1e-5)
    np.testing.assert_array_equal(at_once.state.visited, state.visited)


def test_an_episode_may_end_in_the_middle_of_an_action(repeated):
    late = dataclasses.replace(repeated.course, time_limit=jnp.int32(1003))
    start = dataclasses.replace(repeated.course.start, time=jnp.int32(1000), recent=jnp.ones(100))
    made = repeated.step(start, STILL, late)
    assert int(made.state.time) == 1003
    assert bool(made.truncated)
    tiles = 1000 / int(late.count) * int(made.state.paid)
    assert float(made.reward) == pytest.approx(tiles - 0.3 + 100, abs=1e-2)
    finished = repeated.step(all_but_one(repeated), STILL)
    assert int(finished.state.time) == 1
    assert bool(finished.solved)


class Grass(Racing):
    """Whatever there is, it looks like grass from the fourth physics step on."""

    def _frame(self, level, state):
        size = self.config.frame_size
        return jnp.full((size, size, 3), jnp.where(state.time >= 4, 186, 184), jnp.uint8)


@pytest.mark.parametrize(("green", "first", "second"), [("exact", 5, 8), ("observed", 0, 8), ("never", 0, 0)])
def test_a_view_of_grass_costs_at_every_physics_step(green, first, second):
    """`exact` looks after each of them; `observed` lets the frame that was seen count until the next one."""
    environment = Grass(dataclasses.replace(SMALL, green=green))
    course = jax.jit(environment.prepare)(make_level(WORKED))
    step = jax.jit(environment.step)
    paid = 1000 / int(course.count)
    one = step(KEY, course, course.start, STILL)
    two = step(KEY, course, one.state, STILL)
    costs = [
        paid * int(one.state.paid) - 0.8 - float(one.reward),
        paid * int(two.state.paid - one.state.paid) - 0.8 - float(two.reward),
    ]
    np.testing.assert_allclose(costs, [0.05 * first, 0.05 * second], atol=1e-3)


def test_suites_are_played_without_shaping_and_in_their_own_time():
    environment = Racing(SMALL, evaluation=True)
    circuits = stack_circuits([f1_circuit("Italy", 64, 1500), vanilla_circuit(np.random.default_rng(0))])
    courses = jax.jit(jax.vmap(environment.prepare))(circuits)
    assert courses.time_limit.tolist() == [1500, 1000]
    assert courses.playfield.tolist() == pytest.approx([500.0, 2000 / 6])
    late = dataclasses.replace(courses.start, time=jnp.array([1496, 992]))
    made = jax.jit(jax.vmap(environment.step))(
        jax.random.split(KEY, 2), courses, late, jnp.tile(STILL, (2, 1))
    )
    assert made.state.time.tolist() == [1500, 1000]
    assert made.truncated.all()
    assert (made.reward < 90).all()


def test_an_observation_is_one_frame(race):
    assert race.environment.observation_space.shape == (16, 16, 3)
    seen, _ = race.environment.reset(KEY, race.course)
    assert (seen.shape, seen.dtype) == ((16, 16, 3), jnp.uint8)
    assert len(np.unique(np.asarray(seen).reshape(-1, 3), axis=0)) > 2
