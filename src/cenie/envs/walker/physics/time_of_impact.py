"""Continuous collision: a leg that would pass into the ground within a step stops where it first touches.

Box2D does this after the step proper, for each body alone, without its joints, so every leg is a lane of its
own here. The gap that opens at the joints is closed by the next step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.walker.physics.body import HALF_HEIGHT
from cenie.envs.walker.physics.contact import (
    SLOTS,
    Manifold,
    Memory,
    in_slot,
    remembered,
    slots_of,
    touch,
    touched_bits,
)
from cenie.envs.walker.physics.contact_list import entry
from cenie.envs.walker.physics.ground import SKIN, Things, apart
from cenie.envs.walker.physics.lanes import constant_in
from cenie.envs.walker.physics.positions import SLOP, Placed, correct_contact
from cenie.envs.walker.physics.velocities import Contact, Impulses, contact_of, solve_contact, turned_by
from cenie.xla.tricks import computed_once, looks_costly

TARGET = 0.005
"""The distance at which a leg stops, skins aside."""
TOLERANCE = 0.00125
_MOST_STOPS = 8
_LAST = 1 - 1e-6
_POSITION_SWEEPS = 20
_VELOCITY_SWEEPS = 180
_SETTLED = 1e-6
"""Velocities that change less in a sweep are final: legs that are alone settle fast."""
_ADVANCES, _PUSHES, _NARROWINGS = 8, 3, 14


class Sweep(NamedTuple):
    """A straight motion, relative to where the step began, with the body's velocity at its end."""

    start: tuple[Array, Array, Array]
    motion: tuple[Array, Array, Array]
    velocity: Float[Array, "3 ..."]


class _Axis(NamedTuple):
    """A direction along which leg and thing are apart: of the ground, or of a side of the leg."""

    on_leg: Array
    normal: tuple[Array, Array]
    plane: Array


class _Path(NamedTuple):
    """A sweep of legs with what is needed to follow it."""

    x: Array
    y: Array
    cos: Array
    sin: Array
    dx: Array
    dy: Array
    turn: Array


def _path(sweep: Sweep) -> _Path:
    (x, y, angle), motion = sweep.start, sweep.motion
    return _Path(x, y, jnp.cos(angle), jnp.sin(angle), *motion)


def _pose(path: _Path, t: Array) -> tuple[Array, Array, Array, Array]:
    return path.x + t * path.dx, path.y + t * path.dy, *turned_by(path.cos, path.sin, t * path.turn)


_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))


def _closest(sweep: _Path, half_width: Array, things: Things, t: Array) -> tuple[Array, _Axis]:
    """The distance at a time (not above 0 if they overlap), and the axis between the closest features."""
    x, y, cos, sin = looks_costly(_pose(sweep, t), things.x)
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
    on_ground, (bu, bv) = jnp.sqrt(best), looks_costly((bu, bv), things.x)
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
    on_side, (lx, ly) = jnp.sqrt(leg_best), looks_costly((lx, ly), things.x)
    along, across = jnp.abs(c) * w + jnp.abs(s) * h, jnp.abs(s) * w + jnp.abs(c) * h
    apart = (jnp.abs(u) > a + along) | (jnp.abs(v) > b + across)
    apart |= (jnp.abs(u * c + v * s) > w + a * jnp.abs(c) + b * jnp.abs(s)) | (
        jnp.abs(v * c - u * s) > h + a * jnp.abs(s) + b * jnp.abs(c)
    )
    on_leg = on_side < on_ground * 0.9999
    # The closest point of the thing, corner or not, is where it extends most along the normal.
    nu, nv = bu / on_ground, bv / on_ground
    nx, ny = nu * ax - nv * ay, nu * ay + nv * ax
    plane = jnp.abs(nu) * a + jnp.abs(nv) * b + nx * things.x + ny * things.y
    flat = jnp.abs(ly) > jnp.abs(lx)
    normal = (
        jnp.where(on_leg, jnp.where(flat, 0.0, jnp.sign(lx)), nx),
        jnp.where(on_leg, jnp.where(flat, jnp.sign(ly), 0.0), ny),
    )
    plane = jnp.where(on_leg, jnp.where(flat, h, w), plane)
    distance = jnp.where(apart, jnp.minimum(on_ground, on_side), -1.0)
    distance, normal, plane = looks_costly((distance, normal, plane), things.x)
    return distance, _Axis(on_leg, normal, plane)


def _deepest(
    sweep: _Path, half_width: Array, things: Things, axis: _Axis, t: Array
) -> tuple[Array, tuple[Array, Array]]:
    """The separation along an axis at a time, and the corner (of leg or obstacle) that has it."""
    _, _, cos, sin = _pose(sweep, t)
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


def _along(sweep: _Path, axis: _Axis, point: tuple[Array, Array], t: Array) -> Array:
    """The separation of one corner along an axis at a time."""
    x, y, cos, sin = _pose(sweep, t)
    nx, ny = axis.normal
    px, py = point
    of_leg = nx * (x + cos * px - sin * py) + ny * (y + sin * px + cos * py)
    of_ground = (nx * cos - ny * sin) * (px - x) + (nx * sin + ny * cos) * (py - y)
    return jnp.where(axis.on_leg, of_ground, of_leg) - axis.plane


def first_touch(sweep: Sweep, half_width: Array, things: Things) -> Float[Array, "things ..."]:
    """The part of the motion after which a leg first touches each thing; 1 if it does not.

    Box2D's search: until it is done everywhere, but with an ample limit. Flags are numbers, 0 or 1, because
    kernels keep those in a form that is easy on the CPU.
    """
    path = jax.tree.map(lambda x: jnp.broadcast_to(x, things.x.shape), _path(sweep))
    half_width = half_width + 0 * things.x

    def advance(carry):
        active, t1, result = carry
        distance, axis = _closest(path, half_width, things, t1)
        near_enough = distance < TARGET + TOLERANCE
        result = jnp.where((active > 0) & (distance > 0) & near_enough, t1, result)
        active = looks_costly(jnp.where(near_enough, 0.0, active), things.x)

        def push_back(carry):
            inner, active, t1, t2, result = carry
            s2, point = looks_costly(_deepest(path, half_width, things, axis, t2), things.x)
            apart_at_end = (inner > 0) & (s2 > TARGET + TOLERANCE)
            active = jnp.where(apart_at_end, 0.0, active)
            arrives = (inner > 0) & ~apart_at_end & (s2 > TARGET - TOLERANCE)
            t1 = looks_costly(jnp.where(arrives, t2, t1), things.x)
            s1 = looks_costly(_along(path, axis, point, t1), things.x)
            searching = (inner > 0) & ~apart_at_end & ~arrives
            fails, stops = searching & (s1 < TARGET - TOLERANCE), searching & (s1 <= TARGET + TOLERANCE)
            result = jnp.where(stops & ~fails, t1, result)
            active = looks_costly(jnp.where(stops, 0.0, active), things.x)
            inner = looks_costly(jnp.where(searching & ~stops, 1.0, 0.0), things.x)
            t2 = _root(path, axis, point, inner, t1, t2, s1, s2)
            return inner, active, t1, t2, result

        carry = active, active, t1, end, result
        _, active, t1, _, result = _repeat(push_back, carry, _PUSHES)
        return active, t1, result

    begin, end = constant_in(path.x, 0.0), constant_in(path.x, 1.0)
    return _repeat(advance, (end, begin, end), _ADVANCES)[2]


def _repeat(function: Callable[..., Any], carry: Any, limit: int) -> Any:
    """Call a function as long as any of the flags that come first in the carry is set."""

    def goes_on(carry):
        return (carry[0] < limit) & (carry[1][0] > 0).any()

    return lax.while_loop(goes_on, lambda carry: (carry[0] + 1, function(carry[1])), (jnp.int32(0), carry))[1]


def _root(path, axis, point, active, t1, t2, s1, s2) -> Array:
    """When the separation is the target: bisection and secant steps in turn."""

    def narrow(carry):
        active, count, a1, a2, s1, s2, t = carry
        secant = a1 + (TARGET - s1) * (a2 - a1) / (s2 - s1)
        trial = looks_costly(jnp.where((active > 0) & (count % 2 == 1), secant, (a1 + a2) / 2), path.x)
        s = looks_costly(_along(path, axis, point, trial), path.x)
        t = jnp.where(active > 0, trial, t)
        above = s > TARGET
        searching = active > 0
        a1, s1 = jnp.where(searching & above, trial, a1), jnp.where(searching & above, s, s1)
        a2, s2 = jnp.where(searching & ~above, trial, a2), jnp.where(searching & ~above, s, s2)
        active = jnp.where(jnp.abs(s - TARGET) < TOLERANCE, 0.0, active)
        return active, count + 1, a1, a2, s1, s2, t

    return _repeat(narrow, (active, jnp.int32(0), t1, t2, s1, s2, t2), _NARROWINGS)[6]


class StoppedLegs(NamedTuple):
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
    legs: StoppedLegs, things: Things, *, half_width: Array, mass: Array, inertia: Array, time_step: float
) -> StoppedLegs:
    """All stops of legs within one step, of given inverse masses and inertias.

    Things are seen from where the centres of the legs were when the step began.
    """

    def stop(carry):
        legs, left, ignored, times, count = carry
        sweep = legs.sweep
        t = times.min(0)
        stops = t < _LAST
        x, y, angle = (start + t * motion for start, motion in zip(sweep.start, sweep.motion))
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        close = apart(things, x, y, cos=cos, sin=sin, half_width=half_width) <= SKIN
        around = things._replace(x=things.x - x, y=things.y - y)
        chosen = jnp.stack(slots_of(close, SLOTS), 1)
        thing = in_slot(jax.tree.map(lambda x: x[:, None], around), chosen)
        found = touch(thing, chosen.any(0), cos, sin, half_width)
        found = computed_once(found, found.total)
        # A thing that is near but not touched after all is ignored from now on.
        misses = (times <= t) & ~(chosen & (found.total > 0)).any(1) & stops
        ignored |= misses
        missed = misses.any(0)
        stops &= ~missed
        bits = touched_bits(found)
        flag = jnp.where(stops, update_flag(legs.flag, legs.bits, bits), legs.flag)
        bits = jnp.where(stops, bits, legs.bits)
        found = found._replace(total=jnp.where(stops, found.total, 0))
        impulses = jnp.stack(remembered(found, legs.memory), 1)
        memory = Memory(
            jnp.where(stops, jnp.stack(found.names, 1), legs.memory.names),
            jnp.where(stops, impulses, legs.memory.impulses),
        )

        pushes = jax.tree.map(lambda x: x.astype(t.dtype), found._replace(number=None, names=None))
        at_stop = Placed(0 * t, 0 * t, angle, cos, sin)
        used = (found.total > 0).any(1).sum(dtype=jnp.int32)
        shift = _push_out(at_stop, pushes, mass, inertia, used)
        contacts = contact_of(
            found, shift.x, shift.y, cos=shift.cos, sin=shift.sin, mass=mass, inertia=inertia
        )
        velocity = _solve_alone(sweep.velocity, contacts, used)
        velocity = jnp.where(stops, velocity, sweep.velocity)
        left = jnp.where(stops, left * (1 - t), left)
        start = x + shift.x, y + shift.y, shift.angle
        motion = left * time_step * velocity
        onward = Sweep(start, (motion[0], motion[1], motion[2]), velocity)
        sweep = jax.tree.map(lambda new, old: jnp.where(stops, new, old), onward, sweep)
        legs = StoppedLegs(sweep, bits, flag, memory)
        times = jnp.where(ignored, 1.0, first_touch(legs.sweep, half_width, things))
        return legs, left, ignored, times, count + 1

    carry = (
        legs,
        constant_in(legs.sweep.velocity[0], 1.0),
        constant_in(things.is_box, False),
        first_touch(legs.sweep, half_width, things),
        jnp.int32(0),
    )
    return lax.while_loop(lambda carry: (carry[3] < _LAST).any() & (carry[4] < _MOST_STOPS), stop, carry)[0]


def _push_out(leg: Placed, manifolds: Manifold, mass: Array, inertia: Array, used: Array) -> Placed:
    """Legs that stop are pushed out of what they touch, each until it is."""

    def sweep(carry):
        unfinished, leg = carry

        def push(slot, carry):
            new, deep = correct_contact(entry(manifolds, slot), carry[0], 0.75, mass=mass, inertia=inertia)
            return new, jnp.minimum(carry[1], deep)

        new, deepest = lax.fori_loop(0, used, push, (leg, constant_in(leg.x, 0.0)))
        new = Placed(*(jnp.where(unfinished > 0, fresh, old) for old, fresh in zip(leg, new)))
        return jnp.where(deepest >= -1.5 * SLOP, 0.0, unfinished), new

    return _repeat(sweep, (constant_in(leg.x, 1.0), leg), _POSITION_SWEEPS)[1]


def _solve_alone(velocity: Array, contacts: Contact, used: Array) -> Array:
    """Velocities of legs that touch the ground and nothing else: sweeps until nothing changes any more."""

    def solved(length: int) -> tuple[Array, Array, Array]:
        slots = [entry(contacts, slot) for slot in range(length)]

        def sweep(carry):
            _, before, impulses = carry
            velocity, new = before, []
            for contact, old in zip(slots, impulses):
                each, velocity = solve_contact(contact, old, velocity)
                velocity = looks_costly(velocity, contact.mass)
                new.append(each)
            changes = [jnp.abs(new - old) > _SETTLED for new, old in zip(velocity, before)]
            return jnp.where(changes[0] | changes[1] | changes[2], 1.0, 0.0), velocity, new

        none = [Impulses(*(constant_in(velocity[0], 0.0),) * 4)] * length
        carry = constant_in(velocity[0], 1.0), (velocity[0], velocity[1], velocity[2]), none
        return _repeat(sweep, carry, _VELOCITY_SWEEPS)[1]

    return jnp.stack(lax.cond(used > 2, lambda: solved(SLOTS), lambda: solved(2)))
