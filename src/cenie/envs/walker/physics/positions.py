"""Box2D's correction of the positions of a walker, so that joints and contacts fit again.

It makes Gauss-Seidel sweeps in Box2D's order, until all fits or to their number. Environments are the last
axis ("lanes").
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from cenie.envs.walker.physics.body import (
    ANCHORS_A,
    ANCHORS_B,
    INVERSE_INERTIAS,
    INVERSE_MASSES,
    JOINT_BODIES,
    LOWER_LIMITS,
    REFERENCE_ANGLES,
    UPPER_LIMITS,
)
from cenie.envs.walker.physics.contact import Manifold
from cenie.envs.walker.physics.contact_list import entry, of_leg
from cenie.envs.walker.physics.ground import SKIN, Pair
from cenie.envs.walker.physics.lanes import constant_in, until_done
from cenie.envs.walker.physics.velocities import (
    SWEEP_ORDER,
    Push,
    Solution,
    of_kind,
    side_of,
    turned_arm,
    turned_by,
)
from cenie.xla.tricks import looks_costly

POSITION_SWEEPS = 60
_SWEEPS_AT_ONCE = 6
SLOP = 0.005
ANGULAR_SLOP = 2 / 180 * np.pi
_LARGEST_CORRECTION = 0.2
_CORRECTED_TURN = 8 / 180 * np.pi


class Placed(NamedTuple):
    """A body while its position is corrected."""

    x: Array
    y: Array
    angle: Array
    cos: Array
    sin: Array


def _moved(body: Placed, x: Array | float, y: Array | float, turn: Array) -> Placed:
    cos, sin = looks_costly(turned_by(body.cos, body.sin, turn), body.angle)
    return Placed(body.x + x, body.y + y, body.angle + turn, cos, sin)


def correct_contact(
    manifold: Manifold,
    leg: Placed,
    factor: float,
    *,
    mass: Array | float,
    inertia: Array | float,
) -> tuple[Placed, Array]:
    """Push legs out of the ground at both points of a contact, one after the other.

    Legs are placed relative to the centre that the manifold was made at; mass and inertia are inverse. The
    second result is the separation of the deepest point.
    """
    deepest = jnp.zeros_like(leg.x)
    on_leg = manifold.on_leg > 0
    nx, ny = manifold.normal
    for number, (px, py) in enumerate(manifold.points):
        x, y, _, cos, sin = leg
        # A point of the leg above a plane of the ground, or a point of the ground below a side of the leg.
        rx, ry = cos * px - sin * py, sin * px + cos * py
        turned_x, turned_y = cos * nx - sin * ny, sin * nx + cos * ny
        arm_x, arm_y = jnp.where(on_leg, px - x, rx), jnp.where(on_leg, py - y, ry)
        push_x, push_y = jnp.where(on_leg, -turned_x, nx), jnp.where(on_leg, -turned_y, ny)
        from_ground = nx * (x + rx) + ny * (y + ry)
        from_leg = turned_x * (px - x) + turned_y * (py - y)
        depth = jnp.where(on_leg, from_leg, from_ground) - (manifold.plane + SKIN)
        exists = manifold.total > number
        deepest = jnp.where(exists, jnp.minimum(deepest, depth), deepest)
        error = jnp.minimum(jnp.maximum(factor * (depth + SLOP), -_LARGEST_CORRECTION), 0.0)
        across = arm_x * push_y - arm_y * push_x
        impulse = jnp.where(exists, -error, 0.0) / (mass + inertia * across * across)
        leg = _moved(leg, mass * impulse * push_x, mass * impulse * push_y, inertia * across * impulse)
    return leg, deepest


def _correct_joint(index: int, side: Array, a: Placed, b: Placed) -> tuple[Placed, Placed, Array]:
    body_a, body_b = JOINT_BODIES[index]
    ma, mb = INVERSE_MASSES[body_a], INVERSE_MASSES[body_b]
    ia, ib = INVERSE_INERTIAS[body_a], INVERSE_INERTIAS[body_b]
    bent = b.angle - a.angle - REFERENCE_ANGLES[index]
    below, above = bent - LOWER_LIMITS[index], bent - UPPER_LIMITS[index]
    error = jnp.where(side > 0, -below, jnp.where(side < 0, above, 0.0))
    low = jnp.minimum(jnp.maximum(below + ANGULAR_SLOP, -_CORRECTED_TURN), 0.0)
    high = jnp.minimum(jnp.maximum(above - ANGULAR_SLOP, 0.0), _CORRECTED_TURN)
    turn = jnp.where(side > 0, low, jnp.where(side < 0, high, 0.0)) * (-1 / (ia + ib))
    a, b = _moved(a, 0.0, 0.0, -ia * turn), _moved(b, 0.0, 0.0, ib * turn)
    ax, ay = turned_arm(ANCHORS_A[index], a.cos, a.sin)
    bx, by = turned_arm(ANCHORS_B[index], b.cos, b.sin)
    cx, cy = b.x + bx - a.x - ax, b.y + by - a.y - ay
    k11 = ma + mb + ay * ay * ia + by * by * ib
    k12 = -ay * ax * ia - by * bx * ib
    k22 = ma + mb + ax * ax * ia + bx * bx * ib
    det = k11 * k22 - k12 * k12
    px, py = (k12 * cy - k22 * cx) / det, (k12 * cx - k11 * cy) / det
    fits = (cx * cx + cy * cy <= SLOP * SLOP) & (error <= ANGULAR_SLOP)
    a = _moved(a, -ma * px, -ma * py, -ia * (ax * py - ay * px))
    b = _moved(b, mb * px, mb * py, ib * (bx * py - by * px))
    return a, b, fits


class _Work(NamedTuple):
    """The constants of the correction of positions."""

    sides: list[Array]
    centres: list[Pair]
    """Where the legs were when contacts were found."""
    pushes: Push
    number: Array


class _Placing(NamedTuple):
    """Bodies, and how many sweeps they have had."""

    bodies: list[Placed]
    sweeps: Array


def correct_positions(solution: Solution, start: Float[Array, "3 5 n"]) -> Float[Array, "3 5 n"]:
    """Poses (x, y, angle) that fit joints and contacts again, up to Box2D's slop or the last sweep.

    `start` is where the contacts were found.
    """
    pose, lanes = solution.pose, solution.pose.shape[-1]
    cos, sin = jnp.cos(pose[2]), jnp.sin(pose[2])
    bodies = [Placed(pose[0, k], pose[1, k], pose[2, k], cos[k], sin[k]) for k in range(5)]
    centres = [(start[0, leg + 1], start[1, leg + 1]) for leg in range(4)]
    work = _Work([side_of(start[2], j) for j in range(4)], centres, solution.pushes, solution.number)
    placing = _Placing(bodies, constant_in(bodies[0].x, 0.0).astype(jnp.int32))
    all_lanes = constant_in(bodies[0].x, 1.0) > 0
    placing = until_done(_place, all_lanes, work, placing, max(16, lanes // 4))
    return jnp.stack([jnp.stack(body[:3]) for body in placing.bodies], 1)


def _place(work: _Work, placing: _Placing, unfinished: Array) -> tuple[_Placing, Array]:
    """Some sweeps for lanes that need them, and who needs more."""
    used = jnp.where(unfinished, work.number, 0).max()

    def advance(carry):
        placing, unfinished, number = carry
        corrected, fits = _position_sweep(placing.bodies, work, used)
        bodies = jax.tree.map(lambda old, new: jnp.where(unfinished, new, old), placing.bodies, corrected)
        sweeps = placing.sweeps + unfinished
        return _Placing(bodies, sweeps), unfinished & ~fits & (sweeps < POSITION_SWEEPS), number + 1

    carry = placing, unfinished, jnp.int32(0)
    return lax.while_loop(lambda carry: (carry[2] < _SWEEPS_AT_ONCE) & carry[1].any(), advance, carry)[:2]


def _position_sweep(bodies: list[Placed], work: _Work, used: Array) -> tuple[list[Placed], Array]:
    def push(place: Array, carry):
        legs, deepest = carry
        manifold, leg = entry(work.pushes, place)
        _, mass, inertia = of_kind(leg)
        placed = Placed(*(of_leg(leg, values) for values in zip(*legs)))
        placed = looks_costly(placed, manifold.plane)
        placed, deep = correct_contact(manifold, placed, 0.2, mass=mass, inertia=inertia)
        legs = [
            Placed(*(jnp.where(leg == k, new, old) for new, old in zip(placed, body)))
            for k, body in enumerate(legs)
        ]
        return legs, jnp.minimum(deepest, deep)

    legs = [body._replace(x=body.x - x, y=body.y - y) for body, (x, y) in zip(bodies[1:], work.centres)]
    legs, deepest = lax.fori_loop(0, used, push, (legs, constant_in(legs[0].x, 0.0)))
    legs = [body._replace(x=body.x + x, y=body.y + y) for body, (x, y) in zip(legs, work.centres)]
    bodies = [bodies[0], *legs]
    fits = deepest >= -3 * SLOP
    for j in SWEEP_ORDER:
        a, b = JOINT_BODIES[j]
        bodies[a], bodies[b], fits_j = _correct_joint(j, work.sides[j], bodies[a], bodies[b])
        fits = fits & fits_j
    return bodies, fits
