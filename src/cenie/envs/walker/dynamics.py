"""The walker as an environment: Box2D's step for its five bodies, what it observes, and what it is paid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cenie.envs.reset import ObservingEnvironment
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.level import WalkerLevel
from cenie.envs.walker.lidar import lidar
from cenie.envs.walker.physics.body import (
    HALF_WIDTHS,
    HULL_CENTRE,
    INVERSE_INERTIAS,
    INVERSE_MASSES,
    JOINT_BODIES,
    MOTOR_SPEEDS,
    MOTOR_TORQUE,
    REFERENCE_ANGLES,
)
from cenie.envs.walker.physics.contact import SLOTS, Memory
from cenie.envs.walker.physics.ground import SKIN, Ground, Things, apart, ground_of, near, reach
from cenie.envs.walker.physics.hull import hull_distance
from cenie.envs.walker.physics.lanes import constant_in, in_blocks, on_few, over_lanes
from cenie.envs.walker.physics.positions import correct_positions
from cenie.envs.walker.physics.time_of_impact import (
    TARGET,
    TOLERANCE,
    StoppedLegs,
    Sweep,
    stop_at_ground,
    update_flag,
)
from cenie.envs.walker.physics.velocities import TIME_STEP, VelocityProblem, solve
from cenie.envs.walker.start import CONTACTS, IMPULSES, POSES, PUSHES, TOUCHED, VELOCITIES
from cenie.envs.walker.terrain import FINISH, Terrain, terrain_of
from cenie.records import Step
from cenie.spaces import Space

GRAVITY = -10.0
_CLOSEST = 0.008
_SWEEP_EDGES = 6
_BLOCK = 64
"""Walkers computed side by side."""


class WalkerState(eqx.Module):
    """The state of an episode. Bodies and joints are in the order of `body`."""

    pose: Float[Array, "*n 3 5"]
    """Centres of mass and angles."""
    velocity: Float[Array, "*n 3 5"]
    impulse: Float[Array, "*n 4 4"]
    """Impulses of the last step, with which the next one begins: of the anchors in x and y, limits and
    motors."""
    touched: Int[Array, "*n 4"]
    """The things that each leg touches, as bits."""
    contact: Bool[Array, "*n 4"]
    """The flags of the legs; the lower legs' are observed."""
    names: Int[Array, "*n 4 2 4"]
    touch: Float[Array, "*n 4 4 4"]
    """Impulses of the last step at contact points, and the names by which the next one knows them."""
    time: Int[Array, "*n"]


class Course(eqx.Module):
    """A terrain, prepared: where to look for boxes, and the state after the first step."""

    time_limit: Int[Array, "*n"]
    ground: Ground
    start: WalkerState


class Walker(ObservingEnvironment):
    """Walk to the far end of a terrain with two legs."""

    max_steps: int = eqx.field(static=True)
    observation_space: PyTree = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def __init__(self, config: WalkerConfig):
        self.max_steps = config.max_steps
        self.observation_space = config.observation_parts[0]
        self.action_space = config.action_space

    def prepare(self, level: WalkerLevel) -> Course:
        return course_of(terrain_of(level))

    def reset(self, key: PRNGKeyArray, level: Course) -> tuple[Float[Array, " 24"], WalkerState]:
        """Begin an episode, always in the same way: the push of the first step is part of the level."""
        return self.observe(level, level.start), level.start

    def step(self, key: PRNGKeyArray, level: Course, state: WalkerState, action: Float[Array, " 4"]) -> Step:
        """Advance one step; deterministic. Pays progress, less the torque used, and -100 for a fall."""
        before = _shaping(state)
        state, falls = _advance(level.ground, state, jnp.asarray(action, jnp.float32))
        x = hull_origin(state)[0]
        torque = jnp.minimum(jnp.abs(action), 1.0).sum()
        reward = _shaping(state) - before - 0.00035 * MOTOR_TORQUE * torque
        falls |= x < 0
        solved = ~falls & (x > FINISH)
        terminated = falls | solved
        reward = jnp.where(falls, -100.0, reward).astype(jnp.float32)
        truncated = (state.time >= level.time_limit) & ~terminated
        return Step(self.observe(level, state), state, reward, terminated, truncated, solved)

    def observe(self, level: Course, state: WalkerState) -> Float[Array, " 24"]:
        return _observe(level.ground, state)


def course_of(terrain: Terrain) -> Course:
    """Prepare a terrain."""
    return Course(terrain.time_limit, ground_of(terrain.x, terrain.y, terrain.boxes), _start(terrain.push))


def _start(push: Float[Array, ""]) -> WalkerState:
    def at_push(table: np.ndarray) -> Array:
        part = jnp.abs(push) / PUSHES[2]
        return table[1] + part * (jnp.where(push < 0, table[0], table[2]) - table[1])

    return WalkerState(
        at_push(POSES),
        at_push(VELOCITIES),
        at_push(IMPULSES),
        jnp.asarray(TOUCHED),
        jnp.asarray(CONTACTS),
        jnp.zeros((SLOTS, 2, 4), jnp.int32),
        jnp.zeros((SLOTS, 4, 4)),
        jnp.int32(0),
    )


def hull_origin(state: WalkerState) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Where the hull is: the origin of its frame, which is not its centre of mass."""
    x, y, angle = state.pose[..., 0, 0], state.pose[..., 1, 0], state.pose[..., 2, 0]
    return _origin(x, y, angle)


def body_poses(state: WalkerState) -> Float[Array, "*n 5 3"]:
    """Origins and angles of the five bodies, for pictures."""
    x, y = hull_origin(state)
    poses = jnp.swapaxes(state.pose, -1, -2)
    return poses.at[..., 0, 0].set(x).at[..., 0, 1].set(y)


def _origin(x: Array, y: Array, angle: Array) -> tuple[Array, Array]:
    u, v = (float(value) for value in HULL_CENTRE)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return x - (cos * u - sin * v), y - (sin * u + cos * v)


def _shaping(state: WalkerState) -> Float[Array, ""]:
    return 130 / 30 * hull_origin(state)[0] - 5.0 * jnp.abs(state.pose[2, 0])


def _last(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), tree)


def _first(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), tree)


@over_lanes
def _advance(
    ground: Ground, state: WalkerState, action: Float[Array, "n 4"]
) -> tuple[WalkerState, Bool[Array, " n"]]:
    """One step of the physics for a batch, and whether the hull touched the ground in it."""
    before = state, constant_in(state.time, 0) > 0
    number = jnp.arange(state.time.shape[0], dtype=jnp.int32)

    def advance(inputs: tuple[Array, Array], before: tuple[WalkerState, Array]) -> tuple[WalkerState, Array]:
        return _advance_block(ground, *inputs, before[0])

    if number.shape[0] <= _BLOCK:
        return in_blocks(advance, (number, action), before, _BLOCK, state.time)
    # Walkers that touch much are computed together: what all of a block do not need costs nothing.
    order = jnp.argsort(_close_things(ground, number, jnp.moveaxis(state.pose, 0, -1))[2].sum((0, 1)))
    inputs = jax.tree.map(lambda x: x[order], (number, action))
    after = in_blocks(advance, inputs, jax.tree.map(lambda x: x[order], before), _BLOCK, state.time)
    return jax.tree.map(lambda x: x[jnp.argsort(order)], after)


def _half_widths(like: Float[Array, "4 n"]) -> Float[Array, "4 n"]:
    return jnp.broadcast_to(jnp.asarray(HALF_WIDTHS, like.dtype)[:, None], like.shape)


def _close_things(
    ground: Ground, number: Int[Array, " n"], pose: Float[Array, "3 5 n"]
) -> tuple[Things, Float[Array, "things 4 n"], Bool[Array, "things 4 n"]]:
    """The things near legs, their distances along each axis, and whether they touch, as far as axes tell."""
    x, y, angle = pose[:, 1:]
    cos, sin, half_width = jnp.cos(angle), jnp.sin(angle), _half_widths(x)
    lane, left = jnp.broadcast_to(number, x.shape), x - reach(cos, sin, half_width) - SKIN
    things = near(ground, lane, (x, y), left=left)
    distance = apart(things, jnp.zeros_like(x), jnp.zeros_like(x), cos=cos, sin=sin, half_width=half_width)
    return things, distance, distance <= SKIN


def _advance_block(
    ground: Ground, number: Int[Array, " n"], action: Float[Array, "n 4"], state: WalkerState
) -> tuple[WalkerState, Bool[Array, " n"]]:
    """A step of some walkers, of the given numbers on the ground."""
    old, action = _last(state), action.T
    pose, count = old.pose, action.shape[-1]
    hull_at_start = hull_distance(ground, number, *pose[:, 0])
    x, y, angle = pose[:, 1:]
    lane, half_width = jnp.broadcast_to(number, x.shape), _half_widths(x)
    cos, sin, zero = jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(x)
    things, start_distance, close = _close_things(ground, number, pose)

    velocity = old.velocity.at[1].add(TIME_STEP * GRAVITY)
    speed = jnp.sign(action) * jnp.asarray(MOTOR_SPEEDS, x.dtype)[:, None]
    most = TIME_STEP * MOTOR_TORQUE * jnp.minimum(jnp.abs(action), 1.0)
    problem = VelocityProblem(
        pose, velocity, old.impulse, Memory(old.names, old.touch), speed, most, things, close
    )
    solved = solve(problem)

    bits = solved.touched
    flags = update_flag(old.contact, old.touched, bits)
    new = correct_positions(solved, pose)
    new_x, new_y, new_angle = new[:, 1:]
    new_cos, new_sin = jnp.cos(new_angle), jnp.sin(new_angle)
    left = jnp.minimum(x - reach(cos, sin, half_width), new_x - reach(new_cos, new_sin, half_width))
    things = near(ground, lane, (x, y), left=left - SKIN, edges=_SWEEP_EDGES)
    end_distance = apart(things, new_x - x, new_y - y, cos=new_cos, sin=new_sin, half_width=half_width)
    few = (start_distance < _CLOSEST).any(0) | (end_distance < _CLOSEST).any(0)
    masses = jnp.broadcast_to(jnp.asarray(INVERSE_MASSES[1:], x.dtype)[:, None], x.shape)
    inertias = jnp.broadcast_to(jnp.asarray(INVERSE_INERTIAS[1:], x.dtype)[:, None], x.shape)
    motion = new_x - x, new_y - y, new_angle - angle
    legs = StoppedLegs(Sweep((zero, zero, angle), motion, solved.velocity[:, 1:]), bits, flags, solved.memory)
    arguments = legs, half_width, masses, inertias, things
    single_legs = jax.tree.map(lambda x: x.reshape(*x.shape[:-2], 4 * count), arguments)
    stopped = on_few(
        lambda few: stop_at_ground(
            few[0], few[4], half_width=few[1], mass=few[2], inertia=few[3], time_step=TIME_STEP
        ),
        few.reshape(4 * count),
        single_legs,
        single_legs[0],
        max(16, 3 * count // 4),
    )
    stopped = jax.tree.map(lambda x: x.reshape(*x.shape[:-1], 4, count), stopped)
    (sx, sy, sa), (mx, my, ma), leg_velocity = stopped.sweep
    # Without a stop the end is what it was, not the sum of its parts.
    same = (mx == motion[0]) & (my == motion[1]) & (ma == motion[2])
    legs_end = jnp.where(same, new[:, 1:], jnp.stack((x + sx + mx, y + sy + my, sa + ma)))
    new = jnp.concatenate((new[:, :1], legs_end), 1)
    velocity = jnp.concatenate((solved.velocity[:, :1], leg_velocity), 1)
    hull_at_end = hull_distance(ground, number, *new[:, 0])
    falls = (hull_at_start <= SKIN) | (hull_at_end < TARGET - TOLERANCE)
    parts = new, velocity, solved.impulse, stopped.bits, stopped.flag, *stopped.memory, old.time + 1
    return WalkerState(*_first(parts)), falls


@over_lanes
def _observe(ground: Ground, state: WalkerState) -> Float[Array, "n 24"]:
    now = _last(state)
    hull_x, hull_y, hull_angle = now.pose[:, 0]
    vx, vy, turn = now.velocity[:, 0]
    parts = [hull_angle, 2.0 * turn / 50, 0.3 * vx * 20 / 50, 0.3 * vy * (400 / 30) / 50]
    for j, (a, b) in enumerate(JOINT_BODIES):
        bent = now.pose[2, b] - now.pose[2, a] - REFERENCE_ANGLES[j] + j % 2
        parts += [bent, (now.velocity[2, b] - now.velocity[2, a]) / MOTOR_SPEEDS[j]]
        if j % 2:
            parts.append(now.contact[j].astype(hull_angle.dtype))
    rays = lidar(ground, *_origin(hull_x, hull_y, hull_angle))
    return jnp.concatenate((jnp.stack(parts), rays)).T
