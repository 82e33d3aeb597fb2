"""Box2D's solvers for a walker: impulses at joints and contacts, then the correction of positions.

Both are Gauss-Seidel sweeps in Box2D's order and number. Environments are the last axis.
"""

from functools import partial
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
from cenie.envs.walker.lanes import one_kernel
from cenie.envs.walker.contact import SKIN, SLOTS, Manifolds, impact

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
    """What stays of a joint while velocities are solved; arrays over environments.

    With K the matrix of inverse masses of the anchor (x, y) and the turn, `coupling` is its last column,
    `resistance` the entries of the 2 x 2 part with determinant `det`, and `turning` the Schur complement.
    """

    arm_a: tuple[Array, Array]
    arm_b: tuple[Array, Array]
    side: Array
    """1 at the lower limit, -1 at the upper, 0 between them."""
    speed: Array
    most: Array
    """The largest impulse of the motor, times `stiffness`."""
    stiffness: Array
    coupling: tuple[Array, Array]
    lever: tuple[Array, Array]
    turning: Array
    resistance: tuple[Array, Array, Array]
    det: Array
    effect_a: tuple[Float[Array, "3 n"], ...]
    effect_b: tuple[Float[Array, "3 n"], ...]
    """What impulses in x, in y and around the joint change in the velocities of its bodies."""


class Contacts(NamedTuple):
    """What stays of the contacts of legs while velocities are solved: slots first, lanes last.

    Points that do not exist have a `bias` that keeps them open.
    """

    tangent: tuple[Array, Array]
    across: tuple[Array, Array]
    """Turning effect at each point, of an impulse along the normal."""
    aside: tuple[Array, Array]
    """The same of an impulse along the tangent."""
    resistance: tuple[Array, Array, Array]
    """Inverse masses along the normal: of the first point, of the second, and what they share."""
    masses: tuple[Array, Array, Array]
    """Negated inverse of that matrix: first, second, shared."""
    single: tuple[Array, Array]
    """Negated masses of each point alone."""
    slip_masses: tuple[Array, Array]
    slip_shared: Array
    bias: tuple[Array, Array]
    effect: tuple[Array, Array, Array, Array]
    """What unit impulses (two normal ones, two tangential ones) change in the velocity (x, y, turn)."""


class Impulses(NamedTuple):
    """At the two points of a contact, along the normal and the tangent."""

    normal_1: Array
    normal_2: Array
    slip_1: Array
    slip_2: Array


def contacts_of(
    manifolds: Manifolds, pose: tuple[Array, Array, Array], inverse_mass: Array, inverse_inertia: Array
) -> Contacts:
    """Contacts of legs in a pose relative to the centre at which they were found."""
    (nx, ny), arms = impact(manifolds, pose)
    m, i = inverse_mass + 0 * nx, inverse_inertia + 0 * nx
    a1, a2 = (x * ny - y * nx for x, y in arms)
    s1, s2 = (-x * nx - y * ny for x, y in arms)
    k11, k12, k22 = m + i * a1 * a1, m + i * a1 * a2, m + i * a2 * a2
    # Points that nearly depend on each other: Box2D uses the first only.
    block = (manifolds.count == 2) & (k11 * k11 < 1000.0 * (k11 * k22 - k12 * k12))
    k12 = jnp.where(block, k12, 0.0)
    det = k11 * k22 - k12 * k12
    mx, my = m * nx, m * ny
    return Contacts(
        (ny, -nx),
        (a1, a2),
        (s1, s2),
        (k11, k22, k12),
        (-k22 / det, -k11 / det, k12 / det),
        (-1 / k11, -1 / k22),
        (1 / (m + i * s1 * s1), 1 / (m + i * s2 * s2)),
        m + i * s1 * s2,
        (jnp.where(manifolds.count > 0, 0.0, _OPEN), jnp.where(block, 0.0, _OPEN)),
        (
            jnp.stack((mx, my, i * a1), -3),
            jnp.stack((mx, my, i * a2), -3),
            jnp.stack((my, -mx, i * s1), -3),
            jnp.stack((my, -mx, i * s2), -3),
        ),
    )


_OPEN = 1e9


def kept(array: Array, one: Array) -> Array:
    """The same array, divided by ones that the compiler does not know to be ones.

    XLA computes what several kernels read again in each of them, unless it thinks that it is expensive.
    Of a long chain of small steps, as here, hundreds of copies would be made.
    """
    return array / one


def solve_contact(contact: Contacts, old: Impulses, velocity: Array, one: Array) -> tuple[Impulses, Array]:
    """One contact of each lane: friction at both points, then both normal impulses as a block.

    `velocity` has (x, y, turn) in front.
    """
    vx, vy, w = velocity[0], velocity[1], velocity[2]
    tx, ty = contact.tangent
    sliding = tx * vx + ty * vy
    most_1, most_2 = LEG_FRICTION * old.normal_1, LEG_FRICTION * old.normal_2
    f1 = old.slip_1 - (sliding + contact.aside[0] * w) * contact.slip_masses[0]
    f1 = kept(jnp.minimum(jnp.maximum(f1, -most_1), most_1), one)
    d1 = f1 - old.slip_1
    f2 = old.slip_2 - (sliding + contact.aside[1] * w + contact.slip_shared * d1) * contact.slip_masses[1]
    f2 = kept(jnp.minimum(jnp.maximum(f2, -most_2), most_2), one)
    d2 = f2 - old.slip_2
    k11, k22, k12 = contact.resistance
    m11, m22, m12 = contact.masses
    turned = w + contact.effect[2][2] * d1 + contact.effect[3][2] * d2
    closing = tx * vy - ty * vx
    b1 = contact.bias[0] + closing + contact.across[0] * turned - k11 * old.normal_1 - k12 * old.normal_2
    b2 = contact.bias[1] + closing + contact.across[1] * turned - k12 * old.normal_1 - k22 * old.normal_2
    x1, x2 = m11 * b1 + m12 * b2, m12 * b1 + m22 * b2
    only1, only2 = contact.single[0] * b1, contact.single[1] * b2
    both = (x1 >= 0) & (x2 >= 0)
    first = (only1 >= 0) & (k12 * only1 + b2 >= 0)
    second = (only2 >= 0) & (k12 * only2 + b1 >= 0)
    n1 = kept(jnp.where(both, x1, jnp.where(first, only1, 0.0)), one)
    n2 = kept(jnp.where(both, x2, jnp.where(second & ~first, only2, 0.0)), one)
    e1, e2 = n1 - old.normal_1, n2 - old.normal_2
    effects = contact.effect
    velocity = velocity + effects[0] * e1 + effects[1] * e2 + effects[2] * d1 + effects[3] * d2
    return Impulses(n1, n2, f1, f2), velocity


def _solve_joint(
    joint: Joints, impulse: tuple[Array, Array], a: Array, b: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Motor, then limit and anchor as a block: new impulses of motor and limit, and changes of (x, y, turn)."""
    motor, limit = impulse
    (ax, ay), (bx, by) = joint.arm_a, joint.arm_b
    turn = b[2] - a[2]
    c1 = b[0] - b[2] * by - a[0] + a[2] * ay
    c2 = b[1] + b[2] * bx - a[1] - a[2] * ax
    wanted = joint.stiffness * motor - turn + joint.speed
    new_motor = jnp.minimum(jnp.maximum(wanted, -joint.most), joint.most) / joint.stiffness
    d = new_motor - motor
    rest = joint.turning * (limit - d) - (turn - joint.lever[0] * c1 - joint.lever[1] * c2)
    new_limit = joint.side * jnp.maximum(joint.side * rest, 0.0) / joint.turning
    t = d + new_limit - limit
    r1, r2 = c1 + joint.coupling[0] * t, c2 + joint.coupling[1] * t
    k11, k12, k22 = joint.resistance
    x, y = (k12 * r2 - k22 * r1) / joint.det, (k12 * r1 - k11 * r2) / joint.det
    return (new_motor, new_limit), (x, y, t)


def joints_of(
    angle: Float[Array, "5 n"], speed: Float[Array, "4 n"], most: Float[Array, "4 n"], one: Array
) -> list[Joints]:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    joints = []
    zero = jnp.zeros_like(one)
    for j, (a, b) in enumerate(JOINT_BODIES):
        bent = angle[b] - angle[a] - REFERENCE_ANGLES[j]
        side = (bent <= LOWER_LIMITS[j]).astype(angle.dtype) - (bent >= UPPER_LIMITS[j])
        ma, mb, ia, ib = INVERSE_MASSES[a], INVERSE_MASSES[b], INVERSE_INERTIAS[a], INVERSE_INERTIAS[b]
        ax, ay = _turned(ANCHORS_A[j], cos[a], sin[a])
        bx, by = _turned(ANCHORS_B[j], cos[b], sin[b])
        k11 = ma + mb + ay * ay * ia + by * by * ib
        k12 = -ay * ax * ia - by * bx * ib
        k22 = ma + mb + ax * ax * ia + bx * bx * ib
        k13, k23, k33 = -ay * ia - by * ib, ax * ia + bx * ib, ia + ib
        det = k11 * k22 - k12 * k12
        h1, h2 = (k22 * k13 - k12 * k23) / det, (k11 * k23 - k12 * k13) / det
        effect_a = (zero - ma, zero, ia * ay), (zero, zero - ma, -ia * ax), (zero, zero, zero - ia)
        effect_b = (zero + mb, zero, -ib * by), (zero, zero + mb, ib * bx), (zero, zero, zero + ib)
        joints.append(
            Joints(
                (ax, ay),
                (bx, by),
                side,
                speed[j],
                most[j] * k33,
                k33 * one,
                (k13, k23),
                (h1, h2),
                k33 - h1 * k13 - h2 * k23,
                (k11, k12, k22),
                det,
                tuple(jnp.stack(rows) for rows in effect_a),
                tuple(jnp.stack(rows) for rows in effect_b),
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
    one: Float[Array, " n"],
) -> tuple[Float[Array, "3 5 n"], Float[Array, "4 4 n"], Float[Array, "4 slots 4 n"]]:
    """Velocities after all sweeps, and the impulses of joints (x, y, limit, motor) and of contacts.

    Both start from their impulses of the last step.
    """
    before = velocity
    opened = jnp.stack(contacts.bias + contacts.bias) > 0
    touched = jnp.where(opened, 0.0, touched)
    limits = [joint.side * jnp.maximum(joint.side * impulses[2, j], 0.0) for j, joint in enumerate(joints)]
    axial = jnp.stack(limits) + impulses[3]
    velocity = velocity + _effect_of_joints(joints, impulses[0], impulses[1], axial)
    velocity = velocity.at[:, 1:].add(_effect_of_contacts(contacts, touched))
    used = (contacts.bias[0] == 0).any(tuple(range(1, contacts.bias[0].ndim))).sum()

    pairs = []
    for j, joint in enumerate(joints):
        lower = joint.effect_b if j % 2 else [0 * effect for effect in joint.effect_b]
        upper = joint.effect_a if j % 2 else joint.effect_b
        pairs.append([jnp.stack(both, 1) for both in zip(upper, lower)])

    turning = tuple(zip(impulses[3], limits))
    carry = velocity[:, 0], (velocity[:, 1:3], velocity[:, 3:]), turning, tuple(touched)
    hull, legs, turning, touched = lax.switch(
        used,
        [one_kernel(partial(_sweeps, slots)) for slots in range(SLOTS + 1)],
        carry, joints, pairs, contacts, one,
    )
    velocity = jnp.concatenate((hull[:, None], *legs), 1)
    touched = jnp.stack(touched)
    # The anchors' impulses are what is left of the change of momentum.
    masses = jnp.asarray(MASSES[1:], velocity.dtype)[:, None]
    gained = masses * ((velocity - before)[:2, 1:] - _effect_of_contacts(contacts, touched)[:2])
    anchors = jnp.stack((gained[:, 0] + gained[:, 1], gained[:, 1], gained[:, 2] + gained[:, 3], gained[:, 3]), 1)
    motors, limits = (jnp.stack(each) for each in zip(*turning))
    return velocity, jnp.concatenate((anchors, limits[None], motors[None])), touched


def _sweeps(slots, carry, joints, pairs, contacts, one):
    """All sweeps, for contacts in the first slots only."""
    contacts = [jax.tree.map(lambda x, slot=slot: x[slot], contacts) for slot in range(slots)]

    def sweep(_, carry):
        hull, legs, turning, touched = carry
        legs, turning = list(legs), list(turning)
        for j in SWEEP_ORDER:
            leg = legs[j // 2]
            a, b = (leg[:, 0], leg[:, 1]) if j % 2 else (hull, leg[:, 0])
            turning[j], change = _solve_joint(joints[j], turning[j], a, b)
            if j % 2 == 0:
                hull = sum((e * d for e, d in zip(joints[j].effect_a, change)), hull)
            legs[j // 2] = sum((e * d for e, d in zip(pairs[j], change)), leg)
        if slots:
            both = jnp.concatenate(legs, 1)
            new = []
            for contact, impulses in zip(contacts, touched):
                impulses, both = solve_contact(contact, impulses, both, one)
                new.append(impulses)
            legs, touched = (both[:, :2], both[:, 2:]), tuple(new)
        return hull, tuple(legs), tuple(turning), touched

    hull, legs, turning, touched = carry
    first = tuple(Impulses(*(each[slot] for each in touched)) for slot in range(slots))
    hull, legs, turning, last = lax.fori_loop(0, VELOCITY_SWEEPS, sweep, (hull, legs, turning, first))
    if slots:
        touched = tuple(
            jnp.stack([*each, *(old[slot] for slot in range(slots, SLOTS))]) for each, old in zip(zip(*last), touched)
        )
    return hull, legs, turning, touched


def _effect_of_joints(joints: list[Joints], x: Array, y: Array, axial: Array) -> Float[Array, "3 5 n"]:
    bodies = [jnp.zeros_like(joints[0].effect_a[0])] * 5
    for j, (a, b) in enumerate(JOINT_BODIES):
        change = (x[j], y[j], axial[j])
        bodies[a] = sum((e * d for e, d in zip(joints[j].effect_a, change)), bodies[a])
        bodies[b] = sum((e * d for e, d in zip(joints[j].effect_b, change)), bodies[b])
    return jnp.stack(bodies, 1)


def _effect_of_contacts(contacts: Contacts, impulse: Float[Array, "4 slots 4 n"]) -> Float[Array, "3 4 n"]:
    return sum(each[:, None] * effect for each, effect in zip(impulse, contacts.effect)).sum(0)


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
