"""The physics of the walker against Box2D itself, step by step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cenie.envs.walker import body
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.dynamics import Walker, WalkerState, course_of
from cenie.envs.walker.terrain import Terrain

from . import box2d

LANES = 16
WALKER = Walker(WalkerConfig())


@jax.jit
def advance(courses, states, actions):
    """One step of a batch; all tests share its one program. Mapped twice, to see that it does not matter."""

    def step(*arguments):
        return WALKER.step(jax.random.key(0), *arguments)

    nested = jax.tree.map(lambda x: x.reshape(4, LANES // 4, *x.shape[1:]), (courses, states, actions))
    made = jax.vmap(jax.vmap(step))(*nested)
    return jax.tree.map(lambda x: x.reshape(LANES, *x.shape[2:]), made)


def courses_of(x, y, boxes, push=0.0, limit=2000):
    count = len(x)
    terrain = Terrain(
        jnp.asarray(x),
        jnp.asarray(y),
        jnp.asarray(boxes),
        jnp.zeros(count, jnp.int32),
        jnp.broadcast_to(jnp.float32(push), (count,)),
        jnp.full(count, limit, jnp.int32),
    )
    return jax.vmap(course_of)(terrain)


@functools.cache
def forced(hardcore):
    """Box2D's episodes, and what one step of ours makes of each of their states."""
    episodes = box2d.played(hardcore, range(LANES), 120)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    state, made = courses.start, []
    for t in range(episodes.action.shape[1]):
        state = WalkerState(
            jnp.asarray(episodes.pose[:, t]),
            jnp.asarray(episodes.velocity[:, t]),
            jnp.asarray(episodes.impulse[:, t]),
            *(getattr(state, name) for name in ("touched", "contact", "names", "touch", "time")),
        )
        step = advance(courses, state, jnp.asarray(episodes.action[:, t]))
        state = step.state
        made.append(jax.tree.map(np.asarray, step))
    return episodes, jax.tree.map(lambda *each: np.stack(each, 1), *made)


def test_bodies_and_joints_are_those_of_box2d():
    walker, _ = box2d.made(False, 0)
    for index, part in enumerate([walker.hull, *walker.legs]):
        about_centre = part.inertia - part.mass * part.localCenter.lengthSquared
        np.testing.assert_allclose(part.mass, body.MASSES[index], rtol=1e-6)
        np.testing.assert_allclose(about_centre, body.INERTIAS[index], rtol=1e-6)
    np.testing.assert_allclose(walker.hull.localCenter, body.HULL_CENTRE, atol=1e-7)
    for index, joint in enumerate(walker.joints):
        np.testing.assert_allclose(joint.GetReferenceAngle(), body.REFERENCE_ANGLES[index], atol=1e-7)
        limits = body.LOWER_LIMITS[index], body.UPPER_LIMITS[index]
        np.testing.assert_allclose(joint.limits, limits, atol=1e-7)


def test_an_episode_begins_as_in_box2d_whatever_the_push():
    for push in (-5.0, -3.3, -0.1, 0.4, 2.0, 5.0):
        walker, observation = box2d.made(False, 7, push)
        x, y, boxes = box2d.terrain(walker)
        courses = courses_of(x[None], y[None], boxes[None], push)
        first, states = jax.vmap(WALKER.reset)(jax.random.split(jax.random.key(0), 1), courses)
        pose, velocity, impulse, contact = box2d.state(walker)
        np.testing.assert_allclose(states.pose[0], pose, atol=1e-5)
        np.testing.assert_allclose(states.velocity[0], velocity, atol=1e-5)
        np.testing.assert_allclose(states.impulse[0], impulse, atol=1e-5)
        assert (np.asarray(states.contact[0])[1::2] == contact).all()
        np.testing.assert_allclose(first[0], observation, atol=1e-5)


@pytest.mark.parametrize("hardcore", [False, True])
def test_one_step_from_any_state_of_box2d_is_its_step(hardcore):
    episodes, made = forced(hardcore)
    goes_on = episodes.played & ~episodes.terminated.astype(bool)
    pose = np.abs(made.state.pose - episodes.pose[:, 1:])[goes_on]
    difference = (made.state.velocity - episodes.velocity[:, 1:])[goes_on]
    velocity = np.abs(difference)
    assert len(pose) > 1000
    assert np.quantile(pose, 0.9) < 1e-5
    assert np.quantile(pose, 0.99) < 2e-3
    hull = velocity[:, :, 0].max(1)
    assert np.quantile(hull, 0.9) < 1e-5
    assert np.quantile(hull, 0.99) < 0.02
    assert hull.max() < 0.15
    assert np.abs(difference[:, :, 0].mean(0)).max() < 2e-3
    assert np.quantile(velocity, 0.99) < 0.02


@pytest.mark.parametrize("hardcore", [False, True])
def test_flags_rewards_ends_and_rays_are_those_of_box2d(hardcore):
    episodes, made = forced(hardcore)
    played = episodes.played
    goes_on = played & ~episodes.terminated.astype(bool)
    assert (made.terminated == episodes.terminated.astype(bool))[played].all()
    assert not made.solved[played].any()
    flags = (made.state.contact[..., 1::2] == episodes.contact[:, 1:])[goes_on]
    assert flags.mean() >= 0.995
    observed = np.abs(made.observation - episodes.observation[:, 1:])[goes_on]
    assert np.quantile(observed, 0.95) < 1e-4
    assert np.quantile(observed[:, 14:], 0.99) < 1e-3
    reward = np.abs(made.reward - episodes.reward)[played]
    assert np.quantile(reward, 0.9) < 1e-3
    assert reward.max() < 0.2
    assert (made.reward[played & made.terminated] == -100).all()


def test_a_batch_stays_one_under_nested_maps():
    """Nothing is turned into a loop over all lanes with masks: what is rare is still a branch."""
    episodes, _ = forced(True)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    program = advance.lower(courses, courses.start, jnp.zeros((LANES, 4))).compile().as_text()
    assert "conditional(" in program


def test_an_episode_ends_at_the_time_limit_of_its_level():
    episodes, _ = forced(False)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes, limit=1)
    step = advance(courses, courses.start, jnp.zeros((LANES, 4)))
    assert step.truncated.all()
    assert not step.terminated.any()


def test_the_far_end_is_the_end_and_pays_nothing_more():
    episodes, _ = forced(False)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    # Into the air at both ends of the course.
    x = jnp.where(jnp.arange(LANES) % 2 == 0, 84.1, -4.8)
    state = courses.start
    state = state.__class__(
        *(
            state.pose.at[:, 0].add(x[:, None]).at[:, 1].add(20.0) if name == "pose" else getattr(state, name)
            for name in state.__dataclass_fields__
        )
    )
    step = advance(courses, state, jnp.zeros((LANES, 4)))
    assert step.terminated.all()
    np.testing.assert_array_equal(step.solved, np.arange(LANES) % 2 == 0)
    assert (step.reward[1::2] == -100).all()
    assert (step.reward[::2] > -1).all()


def _episodes_of_box2d(hardcore, seeds, policy, steps):
    returns, lengths = [], []
    for seed in seeds:
        walker, observation = box2d.made(hardcore, int(seed))
        act = policy(seed)
        total = 0.0
        for t in range(steps):
            observation, reward, over, _, _ = walker.step(act(observation, t))
            total += reward
            if over:
                break
        returns.append(total)
        lengths.append(t + 1)
    return np.array(returns), np.array(lengths)


@pytest.mark.slow
@pytest.mark.parametrize("hardcore", [False, True])
def test_random_actions_fare_as_in_box2d(hardcore):
    """Returns, lengths, falls and stuck episodes on fresh terrains, the same ones in both."""
    count, steps = 304, 400
    actions = np.random.default_rng(11).uniform(-1, 1, (count, steps, 4)).astype(np.float32)
    seeds = 50_000 + np.arange(count)
    grounds = [box2d.terrain(box2d.made(hardcore, int(seed))[0]) for seed in seeds]
    returns, lengths = _episodes_of_box2d(
        hardcore, seeds, lambda seed: lambda _, t: actions[seed - 50_000, t], steps
    )
    pushes = np.random.default_rng(12).uniform(-5, 5, count)
    ours, ours_lengths = [], []
    for begin in range(0, count, LANES):
        part = slice(begin, begin + LANES)
        x, y, boxes = (np.array(each) for each in zip(*grounds[part]))
        courses = courses_of(x, y, boxes, jnp.asarray(pushes[part], jnp.float32))
        state, total, alive = courses.start, np.zeros(LANES), np.ones(LANES, bool)
        length = np.zeros(LANES)
        for t in range(steps):
            step = advance(courses, state, jnp.asarray(actions[part, t]))
            state = step.state
            total += np.where(alive, step.reward, 0.0)
            length += alive
            alive &= ~np.asarray(step.terminated)
        ours.append(total)
        ours_lengths.append(length)
    ours, ours_lengths = np.concatenate(ours), np.concatenate(ours_lengths)
    assert stats.ks_2samp(ours, returns).pvalue > 0.01
    assert stats.ks_2samp(ours_lengths, lengths).pvalue > 0.01
    table = [[(lengths < steps).sum(), (lengths == steps).sum()]]
    table.append([(ours_lengths < steps).sum(), (ours_lengths == steps).sum()])
    assert stats.fisher_exact(table).pvalue > 0.01
