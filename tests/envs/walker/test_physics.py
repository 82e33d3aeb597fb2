"""The physics of the walker against Box2D itself, step by step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from scipy import stats

from cenie.envs.reset import step_and_restart
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.dynamics import Walker, WalkerState, course_of
from cenie.envs.walker.level import HIGHEST, WalkerLevel
from cenie.envs.walker.physics import body
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
    """Two axes that are mapped over become one axis of lanes, the last one, and the physics sees no other."""
    episodes, _ = forced(True)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    program = str(jax.make_jaxpr(advance)(courses, courses.start, jnp.zeros((LANES, 4))))
    assert f"f32[3,5,{LANES}]" in program
    assert f"f32[4,{LANES // 4},3,5,1]" not in program


def _split_over_devices(courses, states, actions):
    """A step of ours inside of somebody's `shard_map`, half of the lanes on each of two devices."""
    mesh = jax.make_mesh((2,), ("lanes",), axis_types=(jax.sharding.AxisType.Auto,))
    lanes = PartitionSpec("lanes")

    def step(*arguments):
        return jax.vmap(lambda *each: WALKER.step(jax.random.key(0), *each))(*arguments)

    return jax.shard_map(step, mesh=mesh, in_specs=lanes, out_specs=lanes)(courses, states, actions)


def test_each_device_of_a_users_shard_map_steps_its_own_lanes_as_one_batch():
    episodes, _ = forced(True)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    program = str(jax.make_jaxpr(_split_over_devices)(courses, courses.start, jnp.zeros((LANES, 4))))
    assert f"f32[3,5,{LANES // 2}]" in program
    assert f"f32[3,5,{LANES}]" not in program


@pytest.mark.slow
def test_steps_inside_of_a_users_shard_map_are_the_same():
    episodes, _ = forced(True)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    compiled, state, differences = jax.jit(_split_over_devices), courses.start, []
    for t in range(60):
        action = jnp.asarray(episodes.action[:, t])
        alone, split = advance(courses, state, action), compiled(courses, state, action)
        np.testing.assert_array_equal(alone.terminated, split.terminated)
        differences.append(np.abs(np.asarray(alone.state.pose - split.state.pose)))
        state = alone.state
    # One program rounds otherwise than the other, which a contact may magnify within a step.
    assert np.quantile(differences, 0.9) < 1e-5
    assert np.quantile(differences, 0.99) < 2e-3


@pytest.mark.slow
def test_large_batches_make_the_same_steps():
    """They are cut into blocks, in which the rare cases are solved apart, some lanes at a time."""
    episodes, _ = forced(True)
    courses = courses_of(episodes.x, episodes.y, episodes.boxes)
    state, states = courses.start, []
    for t in range(96):
        states.append(state)
        state = advance(courses, state, jnp.asarray(episodes.action[:, t])).state
    times = range(5, 96, 12)
    chosen = jax.tree.map(lambda *each: jnp.concatenate(each), *(states[t] for t in times))
    actions = jnp.concatenate([jnp.asarray(episodes.action[:, t]) for t in times])
    many = jax.tree.map(lambda x: jnp.concatenate((x,) * 8), courses)
    keys = jax.random.split(jax.random.key(0), 128)
    large = jax.jit(jax.vmap(WALKER.step))(keys, many, chosen, actions)
    small = jax.tree.map(
        lambda *each: jnp.concatenate(each),
        *(advance(courses, states[t], jnp.asarray(episodes.action[:, t])) for t in times),
    )
    assert len(np.unique(np.asarray(large.state.touched))) > 8
    for found, expected in ((large.state.pose, small.state.pose), (large.reward, small.reward)):
        difference = np.abs(np.asarray(found) - np.asarray(expected))
        assert np.quantile(difference, 0.99) < 1e-5
        assert difference.max() < 1e-2
    for name in ("touched", "contact", "names"):
        np.testing.assert_array_equal(getattr(large.state, name), getattr(small.state, name))


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


def push_of(seed):
    """Of the first step. It decides much, so that it must be the same in both: the gait falls after -2.6."""
    return float(np.random.default_rng(int(seed)).uniform(-5, 5))


def _episodes_of_box2d(hardcore, seeds, policy, steps):
    returns, lengths = [], []
    for seed in seeds:
        walker, observation = box2d.made(hardcore, int(seed), push_of(seed))
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


def _episodes_of_ours(hardcore, seeds, policy, steps):
    pushes = np.array([push_of(seed) for seed in seeds], np.float32)
    grounds = [
        box2d.terrain(box2d.made(hardcore, int(seed), float(push))[0])
        for seed, push in zip(seeds, pushes, strict=True)
    ]
    returns, lengths = [], []
    for begin in range(0, len(seeds), LANES):
        part = slice(begin, begin + LANES)
        x, y, boxes = (np.array(each) for each in zip(*grounds[part]))
        courses = courses_of(x, y, boxes, jnp.asarray(pushes[part]))
        observation, state = jax.vmap(lambda course: WALKER.reset(jax.random.key(0), course))(courses)
        acts = [policy(seed) for seed in seeds[part]]
        total, alive, length = np.zeros(LANES), np.ones(LANES, bool), np.zeros(LANES)
        for t in range(steps):
            seen = np.asarray(observation)
            actions = np.array([act(row, t) for act, row in zip(acts, seen, strict=True)], np.float32)
            step = advance(courses, state, jnp.asarray(actions))
            observation, state = step.observation, step.state
            total += np.where(alive, step.reward, 0.0)
            length += alive
            alive &= ~np.asarray(step.terminated)
            if not alive.any():
                break
        returns.append(total)
        lengths.append(length)
    return np.concatenate(returns), np.concatenate(lengths)


def random_actions(steps):
    return lambda seed: lambda _, t: _drawn_actions(seed, steps)[t]


@functools.cache
def _drawn_actions(seed, steps):
    return np.random.default_rng(int(seed)).uniform(-1, 1, (steps, 4)).astype(np.float32)


def scripted_gait(_):
    gait = box2d.BipedalWalkerHeuristics()
    return lambda observation, _: np.array(gait.step_heuristic(observation), np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("hardcore", [False, True])
@pytest.mark.parametrize(
    ("policy", "steps"), [(random_actions(400), 400), (scripted_gait, 800)], ids=["random", "gait"]
)
def test_a_policy_fares_as_in_box2d(policy, steps, hardcore):
    """Returns, lengths, falls and stuck episodes on the same fresh terrains, after the same push."""
    seeds = 50_000 + np.arange(304)
    theirs = _episodes_of_box2d(hardcore, seeds, policy, steps)
    ours = _episodes_of_ours(hardcore, seeds, policy, steps)
    table = []
    for returns, lengths in (theirs, ours):
        falls = (returns < -50).sum()
        table.append((falls, len(returns) - falls))
        quartiles = np.quantile(returns, (0.25, 0.5, 0.75)).round(1)
        print(f"falls {falls}, neither fell nor arrived {(lengths == steps).sum()}, returns {quartiles}")
    assert stats.ks_2samp(ours[0], theirs[0]).pvalue > 0.01
    assert stats.ks_2samp(ours[1], theirs[1]).pvalue > 0.01
    assert stats.fisher_exact(table).pvalue > 0.01
    unfinished = [[(lengths == steps).sum(), (lengths < steps).sum()] for _, lengths in (theirs, ours)]
    assert stats.fisher_exact(unfinished).pvalue > 0.01


def joint_errors(pose):
    """How far the two ends of each joint are apart."""
    found = []
    for (a, b), at_a, at_b in zip(body.JOINT_BODIES, body.ANCHORS_A, body.ANCHORS_B, strict=True):
        ends = []
        for part, anchor in ((a, at_a), (b, at_b)):
            x, y, angle = pose[..., 0, part], pose[..., 1, part], pose[..., 2, part]
            cos, sin = jnp.cos(angle), jnp.sin(angle)
            ends.append((x + cos * anchor[0] - sin * anchor[1], y + sin * anchor[0] + cos * anchor[1]))
        found.append(jnp.hypot(ends[0][0] - ends[1][0], ends[0][1] - ends[1][1]))
    return jnp.stack(found, -1)


@pytest.mark.slow
def test_a_million_random_steps_on_the_most_extreme_levels():
    """Every parameter at its end; actions are held for a while, so that walkers get about."""
    count, steps = 128, 7_900
    levels = WalkerLevel(
        jnp.broadcast_to(jnp.asarray(HIGHEST, jnp.float32), (count, 8)),
        jnp.arange(count, dtype=jnp.uint32),
        jnp.zeros(count, bool),
        jnp.full(count, 2000, jnp.int32),
    )
    courses = jax.vmap(WALKER.prepare)(levels)

    def step(carry, key):
        states, actions = carry
        hold_key, action_key, step_key = jax.random.split(key, 3)
        held = jax.random.bernoulli(hold_key, 0.9, (count, 1))
        actions = jnp.where(held, actions, jax.random.uniform(action_key, (count, 4), minval=-1, maxval=1))
        made, _ = step_and_restart(WALKER, jax.random.split(step_key, (count, 2)), courses, states, actions)
        finite = jnp.isfinite(made.observation).all() & jnp.isfinite(made.reward).all()
        return (made.state, actions), (finite, joint_errors(made.state.pose).max(), made.state.pose[:, 0, 0])

    keys = jax.random.split(jax.random.key(5), steps)
    _, (finite, error, x) = jax.jit(
        lambda keys: jax.lax.scan(step, (courses.start, jnp.zeros((count, 4))), keys)
    )(keys)
    print(f"largest joint error {error.max():.4f} m; as far as {x.max():.1f} m")
    assert finite.all()
    # Box2D's joints come apart by 0.2 m in an episode's first state, and by 0.5 m under random actions.
    assert error.max() < 1.0
    assert x.max() > 10  # some came to where the obstacles are
