"""The motion of a car: one step of 1/50 s, as Box2D makes it of five bodies and four joints.

The joints are so stiff and the wheels so light that only what is left of them after a step has to be known.
Two small terms are Box2D's own: velocities are carried on with the lever arms of the step before, and what a
step moves along a tangent is pulled back, which turns the hull a little.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cenie.envs.racing.car import (
    ANCHORS,
    HULL_CENTRE,
    HULL_INERTIA,
    HULL_MASS,
    MASS,
    ORBIT_INERTIA,
    WHEEL_ARMS,
    WHEEL_INERTIA,
    WHEEL_MASS,
    WHEEL_RADIUS,
    Car,
    rotate,
    wheel_angles,
)

TIME_STEP = 0.02
ENGINE_POWER = 40_000.0
SPIN_INERTIA = 1.6
ROAD_GRIP, GRASS_GRIP = 400.0, 240.0
"""The largest force between a wheel and the ground."""
STIFFNESS = 82.0
"""Force per difference of speed between a wheel and the ground."""
BRAKE_RATE = 15.0
LOCKING_BRAKE = 0.9
GAS_STEP = 0.1
STEER_RATE, STEER_GAIN = 3.0, 50.0
STEER_LIMIT = 0.4
STEER_SLOP = math.radians(2.0)
"""A joint may go so far beyond its limit."""
LONGEST_STEP = 2.0
"""So far a body moves in a step at most, which makes 100 units a second the highest speed."""

_FRONT = np.array([1.0, 1.0, 0.0, 0.0])
_SLOP, _SWEEPS = 0.005, 60


def drive(car: Car, steer: Float[Array, ""], gas: Float[Array, ""], brake: Float[Array, ""]) -> Car:
    """The car a step later. `steer` goes from -1 (left) to 1, gas and brake from 0 to 1.

    Grip is taken from `on_road`, which stays as it is: it is looked at before a car moves.
    """
    front = jnp.asarray(_FRONT, car.angle.dtype)
    pressed = car.gas + jnp.minimum(jnp.clip(gas, 0.0, 1.0) - car.gas, GAS_STEP)
    error = -steer * front - car.joint
    rate = jnp.sign(error) * jnp.minimum(STEER_GAIN * jnp.abs(error), STEER_RATE)
    at_upper, at_lower = car.joint >= STEER_LIMIT, car.joint <= -STEER_LIMIT
    rate = jnp.where(at_upper, jnp.minimum(rate, 0.0), jnp.where(at_lower, jnp.maximum(rate, 0.0), rate))

    old_x, old_y = jnp.moveaxis(rotate(car.last_angle[None], WHEEL_ARMS), -1, 0)
    wheel_x, wheel_y = car.velocity[0] - car.turn * old_y, car.velocity[1] + car.turn * old_x
    direction = wheel_angles(car)
    side_x, side_y = jnp.cos(direction), jnp.sin(direction)
    forward_speed, side_speed = wheel_y * side_x - wheel_x * side_y, wheel_x * side_x + wheel_y * side_y
    spin = car.spin + TIME_STEP * ENGINE_POWER * pressed * (1 - front) / SPIN_INERTIA / (
        jnp.abs(car.spin) + 5.0
    )
    slower = spin - jnp.sign(spin) * jnp.minimum(BRAKE_RATE * brake, jnp.abs(spin))
    spin = jnp.where(brake >= LOCKING_BRAKE, 0.0, jnp.where(brake > 0, slower, spin))
    phase = car.phase + spin * TIME_STEP
    forward = STIFFNESS * (spin * WHEEL_RADIUS - forward_speed)
    sideways = -STIFFNESS * side_speed
    force = jnp.sqrt(forward**2 + sideways**2)
    grip = jnp.where(car.on_road, ROAD_GRIP, GRASS_GRIP)
    part = jnp.where(force > grip, grip / jnp.maximum(force, 1e-6), 1.0)
    forward, sideways = forward * part, sideways * part
    spin = spin - TIME_STEP * forward * WHEEL_RADIUS / SPIN_INERTIA
    force_x = sideways * side_x - forward * side_y
    force_y = sideways * side_y + forward * side_x

    total = jnp.stack([jnp.sum(force_x), jnp.sum(force_y)])
    velocity = car.velocity + TIME_STEP / MASS * total
    arm_x, arm_y = jnp.moveaxis(rotate(car.angle[None], WHEEL_ARMS), -1, 0)
    torque = jnp.sum(arm_x * force_y - arm_y * force_x)
    momentum = (HULL_INERTIA + ORBIT_INERTIA * jnp.cos(car.angle - car.last_angle)) * car.turn
    momentum += WHEEL_INERTIA * jnp.sum(car.turn + car.joint_rate)
    turn = momentum + TIME_STEP * torque - WHEEL_INERTIA * jnp.sum(rate)
    turn = turn / (HULL_INERTIA + ORBIT_INERTIA + 4 * WHEEL_INERTIA)

    moved = TIME_STEP * jnp.sqrt(jnp.sum(velocity**2))
    velocity = velocity * jnp.where(moved > LONGEST_STEP, LONGEST_STEP / jnp.maximum(moved, 1e-6), 1.0)
    turned = TIME_STEP * turn
    pulled = ORBIT_INERTIA / (HULL_INERTIA + ORBIT_INERTIA) * (turned - jnp.arctan(turned))
    joint = car.joint + TIME_STEP * rate + pulled
    most = STEER_LIMIT + STEER_SLOP
    joint = jnp.where(at_upper | at_lower, jnp.clip(joint, -most, most), joint)
    return Car(
        centre=car.centre + TIME_STEP * velocity,
        angle=car.angle + turned - pulled,
        last_angle=car.angle,
        velocity=velocity,
        turn=turn,
        joint=joint,
        joint_rate=rate,
        spin=spin,
        phase=phase,
        gas=pressed,
        on_road=car.on_road,
    )


def unsettled_wheels(place: Float[Array, " 2"]) -> Float[Array, "4 2"]:
    """Where the wheels of a new car are: at places that do not turn with it."""
    return place + jnp.asarray(ANCHORS, place.dtype)


def settled(place: Float[Array, " 2"], angle: Float[Array, ""]) -> Car:
    """A new car at rest, after its first step, in which the joints pull its wheels and its hull together."""
    kind = angle.dtype
    anchors = jnp.asarray(ANCHORS, kind)
    wheel_mobility, hull_mobility, hull_ease = 1 / WHEEL_MASS, 1 / HULL_MASS, 1 / HULL_INERTIA
    mobility = wheel_mobility + hull_mobility

    def sweep(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        hull, turned, wheels, busy = carry
        before = carry
        worst = jnp.zeros((), kind)
        for wheel in (3, 2, 1, 0):
            x, y = rotate(turned, anchors[wheel] - jnp.asarray(HULL_CENTRE, kind))
            gap = wheels[wheel] - hull - jnp.stack([x, y])
            worst = jnp.maximum(worst, jnp.sqrt(jnp.sum(gap**2)))
            xx, xy, yy = mobility + hull_ease * y * y, -hull_ease * x * y, mobility + hull_ease * x * x
            scale = 1 / (xx * yy - xy * xy)
            push_x = -scale * (yy * gap[0] - xy * gap[1])
            push_y = -scale * (xx * gap[1] - xy * gap[0])
            push = jnp.stack([push_x, push_y])
            hull = hull - hull_mobility * push
            turned = turned - hull_ease * (x * push_y - y * push_x)
            wheels = wheels.at[wheel].add(wheel_mobility * push)
        after = hull, turned, wheels, busy & (worst > _SLOP)
        return jax.tree.map(lambda new, old: jnp.where(busy, new, old), after, before)

    first = rotate(angle, HULL_CENTRE), angle, anchors, jnp.ones((), bool)
    hull, turned, wheels, _ = jax.lax.fori_loop(0, _SWEEPS, sweep, first)
    centre = (HULL_MASS * hull + WHEEL_MASS * jnp.sum(wheels, axis=0)) / MASS
    zero, zeros = jnp.zeros((), kind), jnp.zeros(4, kind)
    return Car(
        centre=place + centre,
        angle=turned,
        last_angle=turned,
        velocity=jnp.zeros(2, kind),
        turn=zero,
        joint=zeros + (angle - turned),
        joint_rate=zeros,
        spin=zeros,
        phase=zeros,
        gas=zero,
        on_road=jnp.zeros(4, bool),
    )
