"""Continuous collision: a leg that would pass into the ground within a step stops where it first touches.

Box2D does this after the step proper, for each body alone, without its joints, so every leg is a lane of its own
here. The gap that opens at the joints is closed by the next step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from cenie.envs.walker.body import HALF_HEIGHT
from cenie.envs.walker.contact import (
    SKIN,
    SLOTS,
    Memory,
    Things,
    apart,
    in_slot,
    remembered,
    slots_of,
    touch,
    touched_bits,
)
from cenie.envs.walker.solver import SLOP, Impulses, contact_of, correct_contact, solve_contact

TARGET = 0.005
"""The distance at which a leg stops, skins aside."""
TOLERANCE = 0.00125
_MOST_STOPS = 8
_POSITION_SWEEPS = 20
_VELOCITY_SWEEPS = 180


class Sweep(NamedTuple):
    """A straight motion, relative to where the step began, with the body's velocity at its end."""

    start: tuple[Array, Array, Array]
    motion: tuple[Array, Array, Array]
    velocity: Float[Array, "3 *lanes"]


class _Axis(NamedTuple):
    """A direction along which leg and obstacle are apart: of the ground, or of a side of the leg in its frame."""

    on_leg: Array
    normal: tuple[Array, Array]
    plane: Array


def _pose(sweep: Sweep, t: Array) -> tuple[Array, Array, Array, Array]:
    (x, y, angle), (dx, dy, turn) = sweep.start, sweep.motion
    angle = angle + t * turn
    return x + t * dx, y + t * dy, jnp.cos(angle), jnp.sin(angle)


_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))


def _closest(sweep: Sweep, half_width: Array, things: Things, t: Array) -> tuple[Array, _Axis]:
    """The distance at a time (not above 0 if they overlap), and the axis between the closest features."""
    x, y, cos, sin = _pose(sweep, t)
    w, h = half_width, HALF_HEIGHT
    ax, ay, a, b = things.axis_x, things.axis_y, things.half, things.thickness
    dx, dy = x - things.x, y - things.y
    u, v = dx * ax + dy * ay, dy * ax - dx * ay
    # The leg's axes in the frame of the obstacle.
    c, s = cos * ax + sin * ay, sin * ax - cos * ay
    best = jnp.full_like(u, jnp.inf)
    bu = bv = best
    for sx, sy in _CORNERS:
        pu, pv = u + sx * w * c - sy * h * s, v + sx * w * s + sy * h * c
        qu, qv = pu - jnp.clip(pu, -a, a), pv - jnp.clip(pv, -b, b)
        square = qu * qu + qv * qv
        closer = square < best
        best, bu, bv = jnp.where(closer, square, best), jnp.where(closer, qu, bu), jnp.where(closer, qv, bv)
    on_ground = jnp.sqrt(best)
    leg_best = jnp.full_like(u, jnp.inf)
    lx = ly = leg_best
    for sx, sy in _CORNERS:
        ru, rv = sx * a - u, sy * b - v
        px, py = ru * c + rv * s, rv * c - ru * s
        qx, qy = px - jnp.clip(px, -w, w), py - jnp.clip(py, -h, h)
        square = qx * qx + qy * qy
        closer = square < leg_best
        leg_best = jnp.where(closer, square, leg_best)
        lx, ly = jnp.where(closer, qx, lx), jnp.where(closer, qy, ly)
    on_side = jnp.sqrt(leg_best)
    along, across = jnp.abs(c) * w + jnp.abs(s) * h, jnp.abs(s) * w + jnp.abs(c) * h
    apart = (jnp.abs(u) > a + along) | (jnp.abs(v) > b + across)
    apart |= (jnp.abs(u * c + v * s) > w + a * jnp.abs(c) + b * jnp.abs(s)) | (
        jnp.abs(v * c - u * s) > h + a * jnp.abs(s) + b * jnp.abs(c)
    )
    on_leg = on_side < on_ground * 0.9999
    # The closest point of the obstacle is a corner or on a side; the largest extent along the normal either way.
    nu, nv = bu / on_ground, bv / on_ground
    nx, ny = nu * ax - nv * ay, nu * ay + nv * ax
    plane = jnp.abs(nu) * a + jnp.abs(nv) * b + nx * things.x + ny * things.y
    flat = jnp.abs(ly) > jnp.abs(lx)
    axis = _Axis(
        on_leg,
        (
            jnp.where(on_leg, jnp.where(flat, 0.0, jnp.sign(lx)), nx),
            jnp.where(on_leg, jnp.where(flat, jnp.sign(ly), 0.0), ny),
        ),
        jnp.where(on_leg, jnp.where(flat, h, w), plane),
    )
    return jnp.where(apart, jnp.minimum(on_ground, on_side), -1.0), axis


def _deepest(
    sweep: Sweep, half_width: Array, things: Things, axis: _Axis, t: Array
) -> tuple[Array, tuple[Array, Array]]:
    """The separation along an axis at a time, and the corner (of leg or obstacle) that has it."""
    x, y, cos, sin = _pose(sweep, t)
    ax, ay, a, b = things.axis_x, things.axis_y, things.half, things.thickness
    nx, ny = axis.normal
    # Of the leg, in its frame: opposite to the normal.
    corner_x = -jnp.sign(nx * cos + ny * sin) * half_width
    corner_y = -jnp.sign(ny * cos - nx * sin) * HALF_HEIGHT
    # Of the obstacle, in the world.
    mx, my = nx * cos - ny * sin, nx * sin + ny * cos
    along, across = -jnp.sign(mx * ax + my * ay) * a, -jnp.sign(my * ax - mx * ay) * b
    point_x, point_y = things.x + along * ax - across * ay, things.y + along * ay + across * ax
    point = jnp.where(axis.on_leg, point_x, corner_x), jnp.where(axis.on_leg, point_y, corner_y)
    return _along(sweep, axis, point, t), point


def _along(sweep: Sweep, axis: _Axis, point: tuple[Array, Array], t: Array) -> Array:
    """The separation of one corner along an axis at a time."""
    x, y, cos, sin = _pose(sweep, t)
    nx, ny = axis.normal
    px, py = point
    of_leg = nx * (x + cos * px - sin * py) + ny * (y + sin * px + cos * py)
    of_ground = (nx * cos - ny * sin) * (px - x) + (nx * sin + ny * cos) * (py - y)
    return jnp.where(axis.on_leg, of_ground, of_leg) - axis.plane


def first_touch(sweep: Sweep, half_width: Array, things: Things) -> Float[Array, "things *lanes"]:
    """The part of the motion after which a leg first touches each thing; 1 if it does not."""
    shape = jnp.broadcast_shapes(things.x.shape, sweep.start[0].shape)
    zero = jnp.zeros(shape, things.x.dtype)

    def advance(carry):
        active, t1, result, count = carry
        distance, axis = _closest(sweep, half_width, things, t1)
        stops = active & (distance > 0) & (distance < TARGET + TOLERANCE)
        result = jnp.where(stops, t1, result)
        active &= distance >= TARGET + TOLERANCE

        def push_back(carry):
            inner, active, t1, t2, result, count = carry
            s2, point = _deepest(sweep, half_width, things, axis, t2)
            active &= ~(inner & (s2 > TARGET + TOLERANCE))
            arrives = inner & active & (s2 > TARGET - TOLERANCE)
            t1 = jnp.where(arrives, t2, t1)
            inner &= active & ~arrives
            s1 = _along(sweep, axis, point, t1)
            fails, stops = inner & (s1 < TARGET - TOLERANCE), inner & (s1 <= TARGET + TOLERANCE)
            result = jnp.where(stops & ~fails, t1, result)
            inner, active = inner & ~stops & ~fails, active & ~stops & ~fails
            t = _root(lambda t: _along(sweep, axis, point, t), inner, t1, t2, s1, s2)
            return inner, active, t1, jnp.where(inner, t, t2), result, count + 1

        _, active, t1, _, result, _ = lax.while_loop(
            lambda carry: carry[0].any() & (carry[5] < 8),
            push_back,
            (active, active, t1, zero + 1, result, jnp.int32(0)),
        )
        return active, t1, result, count + 1

    _, _, result, _ = lax.while_loop(
        lambda carry: carry[0].any() & (carry[3] < 20), advance, (zero == 0, zero, zero + 1, jnp.int32(0))
    )
    return result


def _root(separation, active: Array, t1: Array, t2: Array, s1: Array, s2: Array) -> Array:
    """When the separation is the target: bisection and secant steps in turn."""

    def narrow(carry):
        active, a1, a2, s1, s2, t, count = carry
        secant = a1 + (TARGET - s1) * (a2 - a1) / (s2 - s1)
        trial = jnp.where(count % 2 == 1, secant, (a1 + a2) / 2)
        s = separation(trial)
        t = jnp.where(active, trial, t)
        above = s > TARGET
        a1, s1 = jnp.where(active & above, trial, a1), jnp.where(active & above, s, s1)
        a2, s2 = jnp.where(active & ~above, trial, a2), jnp.where(active & ~above, s, s2)
        active &= jnp.abs(s - TARGET) >= TOLERANCE
        return active, a1, a2, s1, s2, t, count + 1

    carry = active, t1, t2, s1, s2, t2, jnp.int32(0)
    return lax.while_loop(lambda carry: carry[0].any() & (carry[6] < 50), narrow, carry)[5]


class Stopped(NamedTuple):
    """Legs at the end of the step: where they are, how they move, and what they touched last."""

    sweep: Sweep
    bits: Int[Array, "*lanes"]
    flag: Bool[Array, "*lanes"]
    memory: Memory


def update_flag(flag: Array, bits: Array, new_bits: Array) -> Array:
    """Box2D's events as the original reads them: the end of any contact clears the flag of a leg."""
    ended, begun = bits & ~new_bits, new_bits & ~bits
    return (ended == 0) & (flag | (begun != 0))


def stop_at_ground(
    legs: Stopped, half_width: Array, mass: Array, inertia: Array, things: Things, time_step: float
) -> Stopped:
    """All stops of legs within one step, of given inverse masses and inertias.

    Things are seen from where the centres of the legs were when the step began.
    """
    one = jnp.where(jnp.abs(legs.sweep.start[2]) < 1e30, 1.0, 0.5)

    def stop(carry):
        legs, left, ignored, _, count = carry
        sweep = legs.sweep
        times = jnp.where(ignored, 1.0, first_touch(sweep, half_width, things))
        t = times.min(0)
        stops = t < 1 - 1e-6
        x, y, angle = (start + t * motion for start, motion in zip(sweep.start, sweep.motion))
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        close = apart(things, x, y, cos, sin, half_width) <= SKIN
        around = things._replace(x=things.x - x, y=things.y - y)
        chosen = jnp.stack(slots_of(close, SLOTS), 1)
        thing = in_slot(jax.tree.map(lambda x: x[:, None], around), chosen)
        found = touch(thing, chosen.any(0), cos, sin, half_width)
        # A thing that is near but not touched after all is ignored from now on.
        misses = (times <= t) & ~(chosen & (found.count > 0)).any(1) & stops
        ignored |= misses
        missed = misses.any(0)
        stops &= ~missed
        bits = touched_bits(found)
        flag = jnp.where(stops, update_flag(legs.flag, legs.bits, bits), legs.flag)
        bits = jnp.where(stops, bits, legs.bits)
        found = found._replace(count=jnp.where(stops, found.count, 0))
        impulses = jnp.stack(remembered(found, legs.memory), 1)
        memory = Memory(
            jnp.where(stops, jnp.stack(found.names, 1), legs.memory.names),
            jnp.where(stops, impulses, legs.memory.impulses),
        )

        def at(tree: PyTree, slot: Array) -> PyTree:
            def entry(x: Array) -> Array:
                return lax.dynamic_index_in_dim(x, slot, x.ndim - 2, keepdims=False)

            return jax.tree.map(entry, tree)

        def push_out(carry):
            moved, done, count = carry

            def push(slot, carry):
                new, deep = correct_contact(at(found, slot), carry[0], 0.75, mass, inertia)
                return new, jnp.minimum(carry[1], deep)

            new, deepest = lax.fori_loop(0, used, push, (moved, jnp.zeros_like(t)))
            moved = tuple(jnp.where(done, old, fresh) for old, fresh in zip(moved, new))
            return moved, done | (deepest >= -1.5 * SLOP), count + 1

        used = (found.count > 0).any(1).sum()
        shift, _, _ = lax.while_loop(
            lambda carry: ~carry[1].all() & (carry[2] < _POSITION_SWEEPS),
            push_out,
            ((jnp.zeros_like(t), jnp.zeros_like(t), angle), ~stops, jnp.int32(0)),
        )
        cos, sin = jnp.cos(shift[2]), jnp.sin(shift[2])
        contacts = contact_of(found, shift[0], shift[1], cos, sin, mass, inertia)

        def solve(carry):
            velocity, impulses, _, count = carry

            def solve_one(slot, carry):
                new, velocity = solve_contact(at(contacts, slot), at(carry[1], slot), carry[0], one)
                return velocity, jax.tree.map(
                    lambda all, x: lax.dynamic_update_index_in_dim(all, x, slot, 0), carry[1], new
                )

            new, impulses = lax.fori_loop(0, used, solve_one, (velocity, impulses))
            return new, impulses, (jnp.abs(velocity - new) > 1e-6).any(), count + 1

        none = Impulses(*(jnp.zeros_like(found.plane),) * 4)
        velocity, _, _, _ = lax.while_loop(
            lambda carry: carry[2] & (carry[3] < _VELOCITY_SWEEPS),
            solve,
            (sweep.velocity, none, stops.any(), jnp.int32(0)),
        )
        left = jnp.where(stops, left * (1 - t), left)
        start = tuple(
            jnp.where(stops, new, old)
            for new, old in zip((x + shift[0], y + shift[1], shift[2]), sweep.start)
        )
        motion = tuple(
            jnp.where(stops, left * time_step * new, old) for new, old in zip(velocity, sweep.motion)
        )
        legs = Stopped(Sweep(start, motion, velocity), bits, flag, memory)
        return legs, left, ignored, (stops | missed).any(), count + 1

    carry = legs, jnp.ones_like(half_width), jnp.zeros_like(things.is_box), jnp.array(True), jnp.int32(0)
    return lax.while_loop(lambda carry: carry[3] & (carry[4] < _MOST_STOPS), stop, carry)[0]
