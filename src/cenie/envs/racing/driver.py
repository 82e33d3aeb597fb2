"""A driver who knows the track: aims at a point ahead, and brakes before bends. A yardstick for students."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cenie.envs.racing.car import ANCHORS, WHEEL_RADIUS, Car, hull_position, hull_velocity
from cenie.envs.racing.track import Track

_WHEELBASE = float(ANCHORS[0, 1] - ANCHORS[2, 1])
_SMOOTHED = 12.0
"""Over how much of the road its curvature is averaged."""
_SLIP, _TURN = 5.0, 3.0
"""By how much wheels may run faster than the road, and the largest yaw rate, before the driver lifts."""


class Plan(eqx.Module):
    """The centre of the road in the order in which it is driven, and how fast it can be driven there."""

    places: Float[Array, "2 t"]
    speed: Float[Array, " t"]


def plan(track: Track, *, top_speed: float = 60.0, cornering: float = 55.0, braking: float = 30.0) -> Plan:
    """Speeds for a track: up to `cornering` sideways and `braking` ahead, in units per second squared."""
    count = int(track.count)
    nodes, normal = np.asarray(track.nodes)[:, :count], np.asarray(track.normal)[:count]
    ahead = np.array([-math.sin(normal[0]), math.cos(normal[0])])
    if ahead @ (nodes[:, 1] - nodes[:, 0]) < 0:
        nodes = np.roll(nodes[:, ::-1], 1, axis=1)
    step = np.roll(nodes, -1, axis=1) - nodes
    length = np.maximum(np.hypot(*step), 1e-6)
    direction = np.arctan2(step[1], step[0])
    turn = np.mod(direction - np.roll(direction, 1) + math.pi, 2 * math.pi) - math.pi
    window = max(1, round(_SMOOTHED / float(np.mean(length))))
    around = range(-(window // 2), window - window // 2)
    turned, gone = (sum(np.roll(each, k) for k in around) for each in (turn, length))
    speed = np.minimum(top_speed, np.sqrt(cornering / np.maximum(np.abs(turned / gone), 1e-6)))
    for _ in range(2):  # the second time with what lies behind the finish
        for index in reversed(range(count)):
            after = speed[(index + 1) % count]
            speed[index] = min(speed[index], math.sqrt(after**2 + 2 * braking * length[index]))
    return Plan(jnp.asarray(nodes, jnp.float32), jnp.asarray(speed, jnp.float32))


def pursue(plan: Plan, car: Car) -> Float[Array, " 3"]:
    """The action of the driver, on the scale of the environment."""
    place, velocity = hull_position(car), hull_velocity(car)
    moving = jnp.sqrt(jnp.sum(velocity**2))
    away = plan.places - place[:, None]
    distance = jnp.sum(away**2, axis=0)
    count = len(plan.speed)
    nearest = jnp.argmin(distance)
    reach = 7.0 + 0.25 * moving
    # The first point of the road ahead that is far enough away, within half a lap.
    ahead = jnp.mod(jnp.arange(count) - nearest, count)
    far = (distance >= reach**2) & (ahead < count // 2)
    aim = away[:, jnp.argmin(jnp.where(far, ahead, count))]
    cos, sin = jnp.cos(car.angle), jnp.sin(car.angle)
    right, forward = cos * aim[0] + sin * aim[1], cos * aim[1] - sin * aim[0]
    bend = 2 * right / jnp.maximum(jnp.sum(aim**2), 1.0)
    wheel = jnp.arctan(_WHEELBASE * bend) * (1.0 + 0.012 * moving)
    steer = jnp.where(forward < 0, jnp.sign(right) * 0.4, jnp.clip(wheel, -0.4, 0.4))
    wanted = plan.speed[jnp.mod(nearest + jnp.round(0.1 * moving).astype(jnp.int32), count)]
    # Wheels that spin hold no line: less gas until they do.
    slip = WHEEL_RADIUS * jnp.max(jnp.abs(car.spin)) - moving
    spinning = (slip > _SLIP) | (jnp.abs(car.turn) > _TURN)
    gas = jnp.where(spinning, 0.0, jnp.clip(0.1 * (wanted - moving), 0.0, 0.6))
    brake = jnp.where(jnp.abs(car.turn) > _TURN, 0.2, jnp.clip(0.04 * (moving - wanted), 0.0, 0.6))
    return jnp.stack([0.5 + 0.5 * steer, gas, brake]).astype(jnp.float32)
