"""Box2D's solver for the velocities of a walker: impulses at joints and contacts.

It makes Gauss-Seidel sweeps in Box2D's order and number. Environments are the last axis ("lanes").
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.walker.physics.body import (
    ANCHORS_A,
    ANCHORS_B,
    HALF_WIDTHS,
    INVERSE_INERTIAS,
    INVERSE_MASSES,
    JOINT_BODIES,
    LOWER_LIMITS,
    MASSES,
    REFERENCE_ANGLES,
    UPPER_LIMITS,
)
from cenie.envs.walker.physics.contact import SLOTS, Manifold, Memory, impact, remembered, touch
from cenie.envs.walker.physics.contact_list import (
    Listed,
    by_length,
    entry,
    list_close,
    make_list,
    of_leg,
    put,
)
from cenie.envs.walker.physics.ground import Pair, Things
from cenie.envs.walker.physics.lanes import constant_in
from cenie.xla.tricks import computed_once, looks_costly, unknown_ones

TIME_STEP = 1 / 50
VELOCITY_SWEEPS = 180
SWEEP_ORDER = (3, 2, 0, 1)
"""Joints are solved in the order in which Box2D finds them: knee 1, hip 1, hip 0, knee 0."""
_LARGEST_MOVE = 2.0
_LARGEST_TURN = np.pi / 2
LEG_FRICTION = float(np.sqrt(2.5 * 0.2))
_OPEN = 1e9


Triple = tuple[Array, Array, Array]


class Joint(NamedTuple):
    """The constants of a joint while velocities are solved.

    With K the matrix of inverse masses of the anchor (x, y) and the turn, `coupling` is its last column,
    `resistance` the entries of the 2 x 2 part with determinant `det`, `turning` the Schur complement.
    """

    arm_a: Pair
    arm_b: Pair
    side: Array
    """1 at the lower limit, -1 at the upper, 0 between them."""
    speed: Array
    most: Array
    """The largest impulse of the motor, times `stiffness`."""
    stiffness: Array
    coupling: Pair
    lever: Pair
    turning: Array
    resistance: Triple
    det: Array


class Contact(NamedTuple):
    """The constants of a contact of a leg while velocities are solved.

    Points that do not exist have a `bias` that keeps them open.
    """

    tangent: Pair
    across: Pair
    """Turning effect at each point, of an impulse along the normal."""
    aside: Pair
    """The same of an impulse along the tangent."""
    resistance: Triple
    """Inverse masses along the normal: of the first point, of the second, and what they share."""
    masses: Triple
    """Negated inverse of that matrix: first, second, shared."""
    single: Pair
    """Negated masses of each point alone."""
    slip_masses: Pair
    slip_shared: Array
    bias: Pair
    mass: Array
    inertia: Array
    """The inverse inertia of the leg."""


class Impulses(NamedTuple):
    """At the two points of a contact, along the normal and the tangent."""

    normal_1: Array
    normal_2: Array
    slip_1: Array
    slip_2: Array


def contact_of(
    manifold: Manifold,
    x: Array,
    y: Array,
    *,
    cos: Array,
    sin: Array,
    mass: Array | float,
    inertia: Array | float,
) -> Contact:
    """The contact of a leg in a pose relative to the centre at which it was found; masses are inverse."""
    (nx, ny), arms = impact(manifold, x, y, cos, sin)
    m, i = mass + 0 * nx, inertia + 0 * nx
    a1, a2 = (x * ny - y * nx for x, y in arms)
    s1, s2 = (-x * nx - y * ny for x, y in arms)
    k11, k12, k22 = m + i * a1 * a1, m + i * a1 * a2, m + i * a2 * a2
    # Points that nearly depend on each other: Box2D uses the first only.
    block = (manifold.total == 2) & (k11 * k11 < 1000.0 * (k11 * k22 - k12 * k12))
    k12 = jnp.where(block, k12, 0.0)
    det = k11 * k22 - k12 * k12
    return Contact(
        (ny, -nx),
        (a1, a2),
        (s1, s2),
        (k11, k22, k12),
        (-k22 / det, -k11 / det, k12 / det),
        (-1 / k11, -1 / k22),
        (1 / (m + i * s1 * s1), 1 / (m + i * s2 * s2)),
        m + i * s1 * s2,
        (jnp.where(manifold.total > 0, 0.0, _OPEN), jnp.where(block, 0.0, _OPEN)),
        m,
        i,
    )


def turned_by(cos: Array, sin: Array, angle: Array) -> Pair:
    """Cosine and sine after a turn by up to a quarter of a circle, without a call for each number."""
    q = angle * angle
    s = angle * (1 + q * (-1 / 6 + q * (1 / 120 + q * (-1 / 5040 + q * (1 / 362880 - q / 39916800)))))
    c = 1 + q * (-1 / 2 + q * (1 / 24 + q * (-1 / 720 + q * (1 / 40320 - q / 3628800))))
    return cos * c - sin * s, sin * c + cos * s


def solve_contact(contact: Contact, old: Impulses, velocity: Triple) -> tuple[Impulses, Triple]:
    """One contact of each lane: friction at both points, then both normal impulses as a block."""
    vx, vy, w = velocity
    tx, ty = contact.tangent
    sliding = tx * vx + ty * vy
    most_1, most_2 = LEG_FRICTION * old.normal_1, LEG_FRICTION * old.normal_2
    f1 = old.slip_1 - (sliding + contact.aside[0] * w) * contact.slip_masses[0]
    f1 = looks_costly(jnp.minimum(jnp.maximum(f1, -most_1), most_1), contact.mass)
    d1 = f1 - old.slip_1
    f2 = old.slip_2 - (sliding + contact.aside[1] * w + contact.slip_shared * d1) * contact.slip_masses[1]
    f2 = looks_costly(jnp.minimum(jnp.maximum(f2, -most_2), most_2), contact.mass)
    d2 = f2 - old.slip_2
    k11, k22, k12 = contact.resistance
    m11, m22, m12 = contact.masses
    turned = w + contact.inertia * (contact.aside[0] * d1 + contact.aside[1] * d2)
    closing = tx * vy - ty * vx
    b1 = contact.bias[0] + closing + contact.across[0] * turned - k11 * old.normal_1 - k12 * old.normal_2
    b2 = contact.bias[1] + closing + contact.across[1] * turned - k12 * old.normal_1 - k22 * old.normal_2
    x1, x2 = m11 * b1 + m12 * b2, m12 * b1 + m22 * b2
    only1, only2 = contact.single[0] * b1, contact.single[1] * b2
    both = (x1 >= 0) & (x2 >= 0)
    first = (only1 >= 0) & (k12 * only1 + b2 >= 0)
    second = (only2 >= 0) & (k12 * only2 + b1 >= 0)
    n1 = jnp.where(both, x1, jnp.where(first, only1, 0.0))
    n2 = jnp.where(both, x2, jnp.where(second & ~first, only2, 0.0))
    n1, n2 = looks_costly((n1, n2), contact.mass)
    change = pushed(contact, Impulses(n1 - old.normal_1, n2 - old.normal_2, d1, d2))
    return Impulses(n1, n2, f1, f2), (vx + change[0], vy + change[1], w + change[2])


def pushed(contact: Contact, impulses: Impulses) -> Triple:
    """The change of a leg's velocity by impulses at a contact."""
    (tx, ty), m = contact.tangent, contact.mass
    normal, slip = impulses.normal_1 + impulses.normal_2, impulses.slip_1 + impulses.slip_2
    across = contact.across[0] * impulses.normal_1 + contact.across[1] * impulses.normal_2
    aside = contact.aside[0] * impulses.slip_1 + contact.aside[1] * impulses.slip_2
    return m * (tx * slip - ty * normal), m * (tx * normal + ty * slip), contact.inertia * (across + aside)


def _solve_joint(joint: Joint, impulse: Pair, a: Triple, b: Triple) -> tuple[Pair, Triple]:
    """Motor, then limit and anchor as a block: new impulses of the first two, changes of (x, y, turn)."""
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


def _pulled(index: int, joint: Joint, a: Triple, b: Triple, change: Triple) -> tuple[Triple, Triple]:
    """The velocities of the bodies of a joint after an impulse (x, y, turn) between them."""
    body_a, body_b = JOINT_BODIES[index]
    ma, mb = INVERSE_MASSES[body_a], INVERSE_MASSES[body_b]
    ia, ib = INVERSE_INERTIAS[body_a], INVERSE_INERTIAS[body_b]
    (ax, ay), (bx, by) = joint.arm_a, joint.arm_b
    x, y, t = change
    return (
        (a[0] - ma * x, a[1] - ma * y, a[2] - ia * (ax * y - ay * x + t)),
        (b[0] + mb * x, b[1] + mb * y, b[2] + ib * (bx * y - by * x + t)),
    )


def side_of(angle: Float[Array, "5 n"], joint: int) -> Float[Array, " n"]:
    """1 if a joint is at its lower limit, -1 at the upper, 0 between them."""
    a, b = JOINT_BODIES[joint]
    bent = angle[b] - angle[a] - REFERENCE_ANGLES[joint]
    return (bent <= LOWER_LIMITS[joint]).astype(angle.dtype) - (bent >= UPPER_LIMITS[joint])


def _joints_of(angle: Float[Array, "5 n"], cos: Array, sin: Array, speed: Array, most: Array) -> list[Joint]:
    joints = []
    for j, (a, b) in enumerate(JOINT_BODIES):
        side = side_of(angle, j)
        ma, mb, ia, ib = INVERSE_MASSES[a], INVERSE_MASSES[b], INVERSE_INERTIAS[a], INVERSE_INERTIAS[b]
        ax, ay = turned_arm(ANCHORS_A[j], cos[a], sin[a])
        bx, by = turned_arm(ANCHORS_B[j], cos[b], sin[b])
        k11 = ma + mb + ay * ay * ia + by * by * ib
        k12 = -ay * ax * ia - by * bx * ib
        k22 = ma + mb + ax * ax * ia + bx * bx * ib
        k13, k23, k33 = -ay * ia - by * ib, ax * ia + bx * ib, ia + ib
        det = k11 * k22 - k12 * k12
        h1, h2 = (k22 * k13 - k12 * k23) / det, (k11 * k23 - k12 * k13) / det
        joints.append(
            Joint(
                (ax, ay),
                (bx, by),
                side,
                speed[j],
                most[j] * k33,
                k33 * unknown_ones(cos[a]),
                (k13, k23),
                (h1, h2),
                k33 - h1 * k13 - h2 * k23,
                (k11, k12, k22),
                det,
            )
        )
    return joints


def turned_arm(arm: np.ndarray, cos: Array, sin: Array) -> Pair:
    """The place of a joint seen from the centre of a body that has turned."""
    x, y = (float(v) for v in arm)
    return cos * x - sin * y, sin * x + cos * y


class VelocityProblem(NamedTuple):
    """A step before it is solved: poses, velocities (with gravity), last impulses, motors, what is near."""

    pose: Float[Array, "3 5 n"]
    velocity: Float[Array, "3 5 n"]
    impulse: Float[Array, "4 4 n"]
    """Impulses of the four joints: in x and y, of limits and of motors."""
    memory: Memory
    speed: Float[Array, "4 n"]
    most: Float[Array, "4 n"]
    things: Things
    close: Bool[Array, "things 4 n"]
    """Which things touch which legs, as far as their axes tell."""


class Push(NamedTuple):
    """A contact as far as positions need it; all are numbers."""

    manifold: Manifold
    leg: Array


class Solution(NamedTuple):
    """A step whose velocities are solved; positions are still to be corrected."""

    pose: Float[Array, "3 5 n"]
    velocity: Float[Array, "3 5 n"]
    impulse: Float[Array, "4 4 n"]
    memory: Memory
    touched: Int[Array, "4 n"]
    pushes: Push
    """In lists."""
    number: Int[Array, " n"]
    """The length of the lists."""


def solve(problem: VelocityProblem) -> Solution:
    """A step without continuous collision."""
    pose = problem.pose
    cos, sin = jnp.cos(pose[2]), jnp.sin(pose[2])
    joints = _joints_of(pose[2], cos, sin, problem.speed, problem.most)
    listed = list_close(problem.things, problem.close, cos[1:], sin[1:])
    used = listed.number.max()
    manifolds, contacts, first = _contacts_of(listed, problem.memory, used)

    limits = [
        joint.side * jnp.maximum(joint.side * problem.impulse[2, j], 0.0) for j, joint in enumerate(joints)
    ]
    bodies = [_row(problem.velocity, body) for body in range(5)]
    for j, (a, b) in enumerate(JOINT_BODIES):
        change = (problem.impulse[0, j], problem.impulse[1, j], limits[j] + problem.impulse[3, j])
        bodies[a], bodies[b] = _pulled(j, joints[j], bodies[a], bodies[b], change)
    bodies[1:] = _pushed_legs(bodies[1:], listed.leg, contacts, first, used)
    turning = [(problem.impulse[3, j], limits[j]) for j in range(4)]
    bodies, turning, last = _velocity_sweeps((bodies, turning, first), joints, listed.leg, contacts, used)

    # The anchors' impulses are what is left of the change of momentum.
    gained = [_parts(jnp.subtract, bodies[leg + 1], _row(problem.velocity, leg + 1)) for leg in range(4)]
    taken_back = jax.tree.map(jnp.negative, last)
    gained = _pushed_legs(gained, listed.leg, contacts, taken_back, used)
    gained = [jnp.stack(change[:2]) * float(MASSES[leg + 1]) for leg, change in enumerate(gained)]
    anchors = jnp.stack((gained[0] + gained[1], gained[1], gained[2] + gained[3], gained[3]), 1)
    impulse = jnp.concatenate(
        (anchors, jnp.stack([t[1] for t in turning])[None], jnp.stack([t[0] for t in turning])[None])
    )
    velocity = _limited(jnp.stack([jnp.stack(body) for body in bodies], 1))
    memory, touched = _by_leg(listed.leg, manifolds, last, used)
    numbers = manifolds._replace(number=None, names=None)
    pushes = Push(jax.tree.map(lambda x: x.astype(pose.dtype), numbers), listed.leg)
    moved = pose + TIME_STEP * velocity
    return Solution(moved, velocity, impulse, memory, touched, pushes, listed.number)


def _row(array: Float[Array, "3 5 n"], body: int) -> Triple:
    return array[0, body], array[1, body], array[2, body]


def _parts(function: Callable[..., Array], *triples: Triple) -> Triple:
    """A function of each of the three parts of velocities."""
    x, y, turn = (function(*parts) for parts in zip(*triples))
    return x, y, turn


def _where(condition: Array, first: Triple, second: Triple) -> Triple:
    return _parts(lambda a, b: jnp.where(condition, a, b), first, second)


def _contacts_of(listed: Listed, memory: Memory, used: Array) -> tuple[Manifold, Contact, Impulses]:
    """Contact points of what is listed, how they act, and the impulses that they begin with."""

    def find(place: Array) -> tuple[Manifold, Contact, Impulses]:
        thing, leg, cos, sin = entry((listed.things, listed.leg, listed.cos, listed.sin), place)
        half_width, mass, inertia = of_kind(leg)
        manifold = touch(thing, place < listed.number, cos, sin, half_width)
        manifold = computed_once(manifold, manifold.total)
        zero = jnp.zeros_like(cos)
        contact = contact_of(manifold, zero, zero, cos=cos, sin=sin, mass=mass, inertia=inertia)
        of_this = jax.tree.map(lambda x: of_leg(leg, [x[:, :, k] for k in range(4)]), memory)
        old = remembered(manifold, of_this)
        first = Impulses(*(jnp.where(bias > 0, 0.0, each) for bias, each in zip(contact.bias * 2, old)))
        return manifold, contact, first

    return make_list(find, used, listed.number)


def of_kind(leg: Array) -> Triple:
    """Half width, inverse mass and inverse inertia of legs."""
    lower = leg % 2 == 1
    upper_leg, lower_leg = (
        (float(HALF_WIDTHS[leg]), INVERSE_MASSES[leg + 1], INVERSE_INERTIAS[leg + 1]) for leg in (0, 1)
    )
    width, mass, inertia = (jnp.where(lower, b, a).astype(jnp.float32) for a, b in zip(upper_leg, lower_leg))
    return width, mass, inertia


def _pushed_legs(
    legs: list[Triple], leg: Array, contacts: Contact, impulses: Impulses, used: Array
) -> list[Triple]:
    """The velocities of legs after the impulses of all contacts."""

    def push(place: Array, legs: list[Triple]) -> list[Triple]:
        contact, each, mine = entry((contacts, impulses, leg), place)
        change = pushed(contact, each)
        return [_where(mine == k, _parts(jnp.add, old, change), old) for k, old in enumerate(legs)]

    return lax.fori_loop(0, used, push, legs)


def _by_leg(leg: Array, manifolds: Manifold, last: Impulses, used: Array) -> tuple[Memory, Array]:
    """The memory of contacts for the next step: names and impulses in the slots of legs, and bits."""
    numbers = jnp.arange(4)[:, None]
    none = constant_in(jnp.broadcast_to(leg[0], (4, leg.shape[1])), 0)
    nothing = constant_in(jnp.broadcast_to(manifolds.plane[0], (SLOTS, 4, leg.shape[1])), 0.0)

    def sort(place: Array, carry):
        names, impulses, bits, slot = carry
        manifold, each, mine = entry((manifolds, last, leg), place)
        listed = mine == numbers
        here = (jnp.arange(SLOTS)[:, None, None] == slot) & listed
        names = [jnp.where(here, new, old) for new, old in zip(manifold.names, names)]
        impulses = [jnp.where(here, new, old) for new, old in zip(each, impulses)]
        bit = jnp.where(manifold.total > 0, jnp.left_shift(1, manifold.number), 0)
        return names, impulses, jnp.where(listed, bits | bit, bits), slot + listed

    carry = [nothing.astype(jnp.int32)] * 2, [nothing] * 4, none, none
    names, impulses, bits, _ = lax.fori_loop(0, used, sort, carry)
    return Memory(jnp.stack(names, 1), jnp.stack(impulses, 1)), bits


def _velocity_sweeps(
    carry: tuple[list[Triple], list[Pair], Impulses],
    joints: list[Joint],
    leg: Array,
    contacts: Contact,
    used: Array,
) -> tuple[list[Triple], list[Pair], Impulses]:
    """All sweeps over the velocities of bodies and the impulses of motors and limits, and of contacts."""

    def touch_ground(legs: list[Triple], of_this: tuple[Contact, Impulses, Array]):
        contact, old, mine = of_this
        velocity = looks_costly(_parts(lambda *each: of_leg(mine, each), *legs), contact.mass)
        new, velocity = solve_contact(contact, old, velocity)
        velocity = looks_costly(velocity, contact.mass)
        return [_where(mine == k, velocity, body) for k, body in enumerate(legs)], new

    def sweep(touch_all, _, carry):
        bodies, turning, impulses = carry
        bodies, turning = list(bodies), list(turning)
        for j in SWEEP_ORDER:
            a, b = JOINT_BODIES[j]
            turning[j], change = _solve_joint(joints[j], turning[j], bodies[a], bodies[b])
            bodies[a], bodies[b] = _pulled(j, joints[j], bodies[a], bodies[b], change)
        legs, impulses = touch_all(bodies[1:], impulses)
        return [bodies[0], *legs], turning, impulses

    def short(length: int):
        rows = [entry((contacts, leg), place) for place in range(length)]

        def touch_all(legs, impulses):
            new = []
            for (contact, mine), old in zip(rows, impulses):
                legs, each = touch_ground(legs, (contact, old, mine))
                new.append(each)
            return legs, new

        bodies, turning, impulses = carry
        first = [entry(impulses, place) for place in range(length)]
        bodies, turning, last = lax.fori_loop(
            0, VELOCITY_SWEEPS, partial(sweep, touch_all), (bodies, turning, first)
        )
        for place, each in enumerate(last):
            impulses = put(impulses, each, place)
        return bodies, turning, impulses

    def long():
        def touch_one(place, carry):
            legs, impulses = carry
            legs, new = touch_ground(legs, entry((contacts, impulses, leg), place))
            return legs, put(impulses, new, place)

        def touch_all(legs, impulses):
            return lax.fori_loop(0, used, touch_one, (legs, impulses))

        return lax.fori_loop(0, VELOCITY_SWEEPS, partial(sweep, touch_all), carry)

    return by_length(used, short, long)


def _limited(velocity: Float[Array, "3 5 n"]) -> Float[Array, "3 5 n"]:
    """Box2D's largest move and turn of a step."""
    moved = TIME_STEP * jnp.sqrt(velocity[0] ** 2 + velocity[1] ** 2)
    turned = TIME_STEP * jnp.abs(velocity[2])
    factor = _LARGEST_MOVE / jnp.maximum(moved, _LARGEST_MOVE)
    return velocity * jnp.stack((factor, factor, _LARGEST_TURN / jnp.maximum(turned, _LARGEST_TURN)))
