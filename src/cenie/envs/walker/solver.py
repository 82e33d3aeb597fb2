"""Box2D's solvers for a walker: impulses at joints and contacts, then the correction of positions.

Both are Gauss-Seidel sweeps in Box2D's order and number. Environments are the last axis.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from cenie.envs.walker.body import (
    ANCHORS_A,
    ANCHORS_B,
    INERTIAS,
    JOINT_BODIES,
    LOWER_LIMITS,
    MASSES,
    REFERENCE_ANGLES,
    UPPER_LIMITS,
)
from cenie.envs.walker.contact import SKIN, Manifolds, impact

VELOCITY_SWEEPS = 180
POSITION_SWEEPS = 60
SWEEP_ORDER = (3, 2, 0, 1)
"""Joints are solved in the order in which Box2D finds them: knee 1, hip 1, hip 0, knee 0."""
SLOP = 0.005
ANGULAR_SLOP = 2 / 180 * np.pi
_LARGEST_CORRECTION = 0.2
_LARGEST_TURN = 8 / 180 * np.pi
LEG_FRICTION = float(np.sqrt(2.5 * 0.2))

INVERSE_MASSES = (1 / MASSES).astype(np.float32)
INVERSE_INERTIAS = (1 / INERTIAS).astype(np.float32)
LEG_INVERSE_MASSES = INVERSE_MASSES[1:, None]
LEG_INVERSE_INERTIAS = INVERSE_INERTIAS[1:, None]


class Joints(NamedTuple):
    """What stays of the four joints while velocities are solved; one entry for each joint, of arrays over n."""

    arm_a: tuple[Array, Array]
    arm_b: tuple[Array, Array]
    side: Array
    """1 at the lower limit, -1 at the upper, 0 between them."""
    speed: Array
    most: Array
    """The largest impulse of the motor."""


class Contacts(NamedTuple):
    """What stays of the contacts of legs; slots first, then the two points if there are two, then lanes."""

    normal: Float[Array, "slots 2 *lanes"]
    across: Float[Array, "slots 2 *lanes"]
    """Turning effect at each point, of an impulse along the normal."""
    aside: Float[Array, "slots 2 *lanes"]
    """The same of an impulse along the tangent."""
    resistance: Float[Array, "slots 3 *lanes"]
    """Inverse masses along the normal: of the first point, of both, of the second."""
    slip_resistance: Float[Array, "slots 3 *lanes"]
    points: Array
    """How many points are solved for: 0, 1, or 2 as a block."""


def contacts_of(
    manifolds: Manifolds, pose: tuple[Array, Array, Array], inverse_mass: Array, inverse_inertia: Array
) -> Contacts:
    """Contacts of legs in a pose relative to the centre at which they were found."""
    (nx, ny), arms = impact(manifolds, pose)
    m, i = inverse_mass, inverse_inertia
    across = [x * ny - y * nx for x, y in arms]
    aside = [-x * nx - y * ny for x, y in arms]
    k11, k12, k22 = m + i * across[0] ** 2, m + i * across[0] * across[1], m + i * across[1] ** 2
    # Points that nearly depend on each other: Box2D uses the first only.
    block = (manifolds.count == 2) & (k11 * k11 < 1000.0 * (k11 * k22 - k12 * k12))
    t11, t12, t22 = m + i * aside[0] ** 2, m + i * aside[0] * aside[1], m + i * aside[1] ** 2
    return Contacts(
        jnp.stack((nx, ny), 1),
        jnp.stack(across, 1),
        jnp.stack(aside, 1),
        jnp.stack((k11, k12, k22), 1),
        jnp.stack((t11, t12, t22), 1),
        jnp.minimum(manifolds.count, jnp.where(block, 2, 1)),
    )


def solve_contact(
    contacts: Contacts, impulse: Array, velocity: Array, inverse_mass: Array, inverse_inertia: Array
) -> tuple[Array, Array]:
    """One contact of each lane: friction at both points, then both normal impulses as a block.

    `impulse` is (normal 1, normal 2, tangent 1, tangent 2) and `velocity` (x, y, turn) of the body.
    """
    m, i = inverse_mass, inverse_inertia
    nx, ny = contacts.normal
    a1, a2 = contacts.across
    s1, s2 = contacts.aside
    k11, k12, k22 = contacts.resistance
    t11, t12, t22 = contacts.slip_resistance
    n1, n2, f1, f2 = impulse
    vx, vy, w = velocity
    some, two = contacts.points > 0, contacts.points > 1
    slip = ny * vx - nx * vy
    most = LEG_FRICTION * n1
    g1 = jnp.clip(f1 - (slip + s1 * w) / t11, -most, most)
    d1 = jnp.where(some, g1 - f1, 0.0)
    most = LEG_FRICTION * n2
    g2 = jnp.clip(f2 - (slip + s2 * w + t12 * d1) / t22, -most, most)
    d2 = jnp.where(two, g2 - f2, 0.0)
    turned = w + i * (s1 * d1 + s2 * d2)
    closing = nx * vx + ny * vy
    b1 = closing + a1 * turned - k11 * n1 - k12 * n2
    b2 = closing + a2 * turned - k12 * n1 - k22 * n2
    det = k11 * k22 - k12 * k12
    x1, x2 = (k12 * b2 - k22 * b1) / det, (k12 * b1 - k11 * b2) / det
    only1, only2 = -b1 / k11, -b2 / k22
    both = (x1 >= 0) & (x2 >= 0)
    first = (only1 >= 0) & (k12 * only1 + b2 >= 0)
    second = (only2 >= 0) & (k12 * only2 + b1 >= 0)
    none = (b1 >= 0) & (b2 >= 0)
    o1 = jnp.where(both, x1, jnp.where(first, only1, jnp.where(second | none, 0.0, n1)))
    o2 = jnp.where(both, x2, jnp.where(first, 0.0, jnp.where(second, only2, jnp.where(none, 0.0, n2))))
    o1 = jnp.where(two, o1, jnp.maximum(n1 - (closing + a1 * turned) / k11, 0.0))
    o2 = jnp.where(two, o2, n2)
    o1 = jnp.where(some, o1, n1)
    e1, e2 = o1 - n1, o2 - n2
    along, slide = e1 + e2, d1 + d2
    velocity = jnp.stack(
        (
            vx + m * (nx * along + ny * slide),
            vy + m * (ny * along - nx * slide),
            turned + i * (a1 * e1 + a2 * e2),
        )
    )
    return jnp.stack((o1, o2, f1 + d1, f2 + d2)), velocity


def _solve_joint(joint: Joints, index: int, impulse: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Motor, then limit and anchor as a block. `impulse` is (x, y, limit, motor)."""
    body_a, body_b = JOINT_BODIES[index]
    ma, mb = INVERSE_MASSES[body_a], INVERSE_MASSES[body_b]
    ia, ib = INVERSE_INERTIAS[body_a], INVERSE_INERTIAS[body_b]
    (ax, ay), (bx, by) = joint.arm_a, joint.arm_b
    px, py, limit, motor = impulse
    k11 = ma + mb + ay * ay * ia + by * by * ib
    k12 = -ay * ax * ia - by * bx * ib
    k22 = ma + mb + ax * ax * ia + bx * bx * ib
    k13, k23, k33 = -ay * ia - by * ib, ax * ia + bx * ib, ia + ib
    det = k11 * k22 - k12 * k12
    h1, h2 = (k22 * k13 - k12 * k23) / det, (k11 * k23 - k12 * k13) / det
    schur = k33 - h1 * k13 - h2 * k23
    turn = b[2] - a[2]
    c1 = b[0] - b[2] * by - a[0] + a[2] * ay
    c2 = b[1] + b[2] * bx - a[1] - a[2] * ax
    new_motor = jnp.clip(motor - (turn - joint.speed) / k33, -joint.most, joint.most)
    d = new_motor - motor
    rest = turn + k33 * d - h1 * (c1 + k13 * d) - h2 * (c2 + k23 * d)
    pushed = limit - rest / schur
    new_limit = joint.side * jnp.maximum(joint.side * pushed, 0.0)
    t = d + new_limit - limit
    r1, r2 = c1 + k13 * t, c2 + k23 * t
    x, y = (k12 * r2 - k22 * r1) / det, (k12 * r1 - k11 * r2) / det
    impulse = jnp.stack((px + x, py + y, new_limit, new_motor))
    a = jnp.stack((a[0] - ma * x, a[1] - ma * y, a[2] - ia * (ax * y - ay * x + t)))
    b = jnp.stack((b[0] + mb * x, b[1] + mb * y, b[2] + ib * (bx * y - by * x + t)))
    return impulse, a, b


def joints_of(
    angle: Float[Array, "5 n"], speed: Float[Array, "4 n"], most: Float[Array, "4 n"]
) -> list[Joints]:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    joints = []
    for j, (a, b) in enumerate(JOINT_BODIES):
        bent = angle[b] - angle[a] - REFERENCE_ANGLES[j]
        side = (bent <= LOWER_LIMITS[j]).astype(angle.dtype) - (bent >= UPPER_LIMITS[j])
        joints.append(
            Joints(
                _turned(ANCHORS_A[j], cos[a], sin[a]),
                _turned(ANCHORS_B[j], cos[b], sin[b]),
                side,
                speed[j],
                most[j],
            )
        )
    return joints


def _turned(arm: np.ndarray, cos: Array, sin: Array) -> tuple[Array, Array]:
    x, y = (float(v) for v in arm)
    return cos * x - sin * y, sin * x + cos * y


def solve_velocities(
    velocity: Float[Array, "3 5 n"],
    joints: list[Joints],
    impulses: Float[Array, "4 4 n"],
    contacts: Contacts,
    touched: Float[Array, "4 slots 4 n"],
) -> tuple[Float[Array, "3 5 n"], Float[Array, "4 4 n"], Float[Array, "4 slots 4 n"]]:
    """Velocities after all sweeps, and the impulses of joints (x, y, limit, motor) and of contacts.

    Both start from their impulses of the last step.
    """
    bodies = [velocity[:, k] for k in range(5)]
    impulses_of = []
    for j, (a, b) in enumerate(JOINT_BODIES):
        px, py, limit, motor = impulses[:, j]
        limit = joints[j].side * jnp.maximum(joints[j].side * limit, 0.0)
        (ax, ay), (bx, by) = joints[j].arm_a, joints[j].arm_b
        t = limit + motor
        ma, mb, ia, ib = INVERSE_MASSES[a], INVERSE_MASSES[b], INVERSE_INERTIAS[a], INVERSE_INERTIAS[b]
        bodies[a] = bodies[a] - jnp.stack((ma * px, ma * py, ia * (ax * py - ay * px + t)))
        bodies[b] = bodies[b] + jnp.stack((mb * px, mb * py, ib * (bx * py - by * px + t)))
        impulses_of.append(jnp.stack((px, py, limit, motor)))
    used = (contacts.points > 0).any(tuple(range(1, contacts.points.ndim))).sum()
    touched = jnp.swapaxes(touched, 0, 1)
    started = jnp.where(jnp.stack((contacts.points > 0, contacts.points > 1) * 2, 1), touched, 0.0)
    legs = jnp.stack(bodies[1:], 1) + _effect(contacts, started)
    bodies[1:] = [legs[:, k] for k in range(4)]

    def sweep(_, carry):
        bodies, impulses, touched = carry
        bodies, impulses = list(bodies), list(impulses)
        for j in SWEEP_ORDER:
            a, b = JOINT_BODIES[j]
            impulses[j], bodies[a], bodies[b] = _solve_joint(joints[j], j, impulses[j], bodies[a], bodies[b])

        def at_slot(slot, carry):
            legs, touched = carry
            contact = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, slot, keepdims=False), contacts)
            impulse = lax.dynamic_index_in_dim(touched, slot, keepdims=False)
            impulse, legs = solve_contact(contact, impulse, legs, LEG_INVERSE_MASSES, LEG_INVERSE_INERTIAS)
            return legs, lax.dynamic_update_index_in_dim(touched, impulse, slot, 0)

        legs, touched = lax.fori_loop(0, used, at_slot, (jnp.stack(bodies[1:], 1), touched))
        return (bodies[0], *(legs[:, k] for k in range(4))), tuple(impulses), touched

    carry = tuple(bodies), tuple(impulses_of), touched
    bodies, impulses_of, touched = lax.fori_loop(0, VELOCITY_SWEEPS, sweep, carry)
    return jnp.stack(bodies, 1), jnp.stack(impulses_of, 1), jnp.swapaxes(touched, 0, 1)


def _effect(contacts: Contacts, impulse: Float[Array, "slots 4 4 n"]) -> Float[Array, "3 4 n"]:
    """What impulses at contacts change in the velocities of legs."""
    nx, ny = contacts.normal[:, 0], contacts.normal[:, 1]
    along, slide = impulse[:, 0] + impulse[:, 1], impulse[:, 2] + impulse[:, 3]
    turn = (contacts.across * impulse[:, :2] + contacts.aside * impulse[:, 2:]).sum((0, 1))
    push = jnp.stack(((nx * along + ny * slide).sum(0), (ny * along - nx * slide).sum(0)))
    return jnp.concatenate((LEG_INVERSE_MASSES * push, LEG_INVERSE_INERTIAS * turn[None]))


def correct_contact(
    manifold: Manifolds,
    pose: tuple[Array, Array, Array],
    factor: float,
    inverse_mass: Array,
    inverse_inertia: Array,
) -> tuple[tuple[Array, Array, Array], Array]:
    """Push legs out of the ground at both points of a contact, one after the other.

    The pose is (x, y, angle), relative to the centre that the manifold was made at. The second result is the
    separation of the deepest point.
    """
    x, y, angle = pose
    deepest = jnp.zeros_like(x)
    for number, (px, py) in enumerate(manifold.points):
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        nx, ny = manifold.normal
        # A point of the leg above a plane of the ground, or a point of the ground below a side of the leg.
        rx, ry = cos * px - sin * py, sin * px + cos * py
        turned_x, turned_y = cos * nx - sin * ny, sin * nx + cos * ny
        on_leg = manifold.on_leg
        arm_x, arm_y = jnp.where(on_leg, px - x, rx), jnp.where(on_leg, py - y, ry)
        push_x, push_y = jnp.where(on_leg, -turned_x, nx), jnp.where(on_leg, -turned_y, ny)
        apart = jnp.where(
            on_leg, turned_x * (px - x) + turned_y * (py - y), nx * (x + rx) + ny * (y + ry)
        ) - (manifold.plane + SKIN)
        exists = manifold.count > number
        deepest = jnp.where(exists, jnp.minimum(deepest, apart), deepest)
        error = jnp.clip(factor * (apart + SLOP), -_LARGEST_CORRECTION, 0.0)
        across = arm_x * push_y - arm_y * push_x
        impulse = jnp.where(exists, -error / (inverse_mass + inverse_inertia * across * across), 0.0)
        x, y = x + inverse_mass * impulse * push_x, y + inverse_mass * impulse * push_y
        angle = angle + inverse_inertia * across * impulse
    return (x, y, angle), deepest


def _correct_joint(
    index: int, side: Array, a: tuple[Array, ...], b: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Array, ...], Bool[Array, " n"]]:
    body_a, body_b = JOINT_BODIES[index]
    ma, mb = INVERSE_MASSES[body_a], INVERSE_MASSES[body_b]
    ia, ib = INVERSE_INERTIAS[body_a], INVERSE_INERTIAS[body_b]
    (xa, ya, angle_a), (xb, yb, angle_b) = a, b
    bent = angle_b - angle_a - REFERENCE_ANGLES[index]
    below, above = bent - LOWER_LIMITS[index], bent - UPPER_LIMITS[index]
    error = jnp.where(side > 0, -below, jnp.where(side < 0, above, 0.0))
    correction = jnp.where(
        side > 0,
        jnp.clip(below + ANGULAR_SLOP, -_LARGEST_TURN, 0.0),
        jnp.where(side < 0, jnp.clip(above - ANGULAR_SLOP, 0.0, _LARGEST_TURN), 0.0),
    )
    turn = -correction / (ia + ib)
    angle_a, angle_b = angle_a - ia * turn, angle_b + ib * turn
    ax, ay = _turned(ANCHORS_A[index], jnp.cos(angle_a), jnp.sin(angle_a))
    bx, by = _turned(ANCHORS_B[index], jnp.cos(angle_b), jnp.sin(angle_b))
    cx, cy = xb + bx - xa - ax, yb + by - ya - ay
    k11 = ma + mb + ay * ay * ia + by * by * ib
    k12 = -ay * ax * ia - by * bx * ib
    k22 = ma + mb + ax * ax * ia + bx * bx * ib
    det = k11 * k22 - k12 * k12
    px, py = (k12 * cy - k22 * cx) / det, (k12 * cx - k11 * cy) / det
    fits = (cx * cx + cy * cy <= SLOP * SLOP) & (error <= ANGULAR_SLOP)
    a = xa - ma * px, ya - ma * py, angle_a - ia * (ax * py - ay * px)
    b = xb + mb * px, yb + mb * py, angle_b + ib * (bx * py - by * px)
    return a, b, fits


def correct_positions(
    pose: Float[Array, "3 5 n"], start: Float[Array, "3 5 n"], joints: list[Joints], manifolds: Manifolds
) -> Float[Array, "3 5 n"]:
    """Poses (x, y, angle) that fit joints and contacts again, up to Box2D's slop. `start` is where contacts
    were found."""
    used = (manifolds.count > 0).any(tuple(range(1, manifolds.count.ndim))).sum()
    centre_x, centre_y = start[0, 1:], start[1, 1:]

    def sweep(carry):
        pose, done, count = carry
        legs = pose[0, 1:] - centre_x, pose[1, 1:] - centre_y, pose[2, 1:]

        def at_slot(slot, carry):
            legs, deepest = carry
            manifold = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, slot, keepdims=False), manifolds)
            legs, deep = correct_contact(manifold, legs, 0.2, LEG_INVERSE_MASSES, LEG_INVERSE_INERTIAS)
            return legs, jnp.minimum(deepest, deep)

        legs, deepest = lax.fori_loop(0, used, at_slot, (legs, jnp.zeros_like(legs[0])))
        fits = (deepest >= -3 * SLOP).all(0)
        x, y = legs[0] + centre_x, legs[1] + centre_y
        bodies = [tuple(pose[:, 0]), *((x[k], y[k], legs[2][k]) for k in range(4))]
        for j in SWEEP_ORDER:
            a, b = JOINT_BODIES[j]
            bodies[a], bodies[b], fits_j = _correct_joint(j, joints[j].side, bodies[a], bodies[b])
            fits &= fits_j
        corrected = jnp.stack([jnp.stack(body) for body in bodies], 1)
        return jnp.where(done, pose, corrected), done | fits, count + 1

    done = jnp.zeros(pose.shape[-1], bool)
    return lax.while_loop(
        lambda carry: (carry[2] < POSITION_SWEEPS) & ~carry[1].all(), sweep, (pose, done, jnp.int32(0))
    )[0]
