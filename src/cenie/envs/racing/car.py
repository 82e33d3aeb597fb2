"""The car: its shape, its state, and where its parts are.

A hull of four polygons and four wheels on joints that only turn. All five move as one body whose wheels turn
in place, so that the state consists of the body, of the joints and of the spinning wheels. Wheels are in the
order front left, front right, rear left, rear right; forward is +y in the frame of the hull.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

SIZE = 0.02
"""Units of length in a unit of the shapes below."""

HULL = tuple(
    np.array(corners) * SIZE
    for corners in (
        [(-60, 130), (60, 130), (60, 110), (-60, 110)],
        [(-15, 120), (15, 120), (20, 20), (-20, 20)],
        [(25, 20), (50, -10), (50, -40), (20, -90), (-20, -90), (-50, -40), (-50, -10), (-25, 20)],
        [(-50, -120), (50, -120), (50, -90), (-50, -90)],
    )
)
"""Front wing, nose, body and rear wing, in the frame of the hull."""

WHEEL_RADIUS = 27 * SIZE
WHEEL_HALF_WIDTH = 14 * SIZE
ANCHORS = np.array([(-55, 80), (55, 80), (-55, -82), (55, -82)]) * SIZE
"""Where the wheels are, in the frame of the hull."""

HULL_MASS = 7.06
HULL_CENTRE = np.array([0.0, -0.0825309])
"""The centre of mass of the hull, in its frame."""
HULL_INERTIA = 18.26036 - HULL_MASS * HULL_CENTRE[1] ** 2
WHEEL_MASS, WHEEL_INERTIA = 0.06048, 0.0074592
"""Moments of inertia are about the centres of mass."""

MASS = HULL_MASS + 4 * WHEEL_MASS
CENTRE = (HULL_MASS * HULL_CENTRE + WHEEL_MASS * ANCHORS.sum(0)) / MASS
"""The centre of mass of the car, in the frame of the hull."""
HULL_ARM = HULL_CENTRE - CENTRE
WHEEL_ARMS = ANCHORS - CENTRE
ORBIT_INERTIA = HULL_MASS * HULL_ARM @ HULL_ARM + WHEEL_MASS * np.sum(WHEEL_ARMS**2)
"""The share of the places of the five centres in the moment of inertia of the car."""


class Car(eqx.Module):
    """The state of a moving car.

    `centre` and `velocity` refer to the centre of mass of the whole car. Lever arms of velocities are
    from the step before, as in Box2D, so that its `last_angle` is kept.
    """

    centre: Float[Array, "*n 2"]
    angle: Float[Array, "*n"]
    """The angle of the hull; 0 faces +y."""
    last_angle: Float[Array, "*n"]
    velocity: Float[Array, "*n 2"]
    turn: Float[Array, "*n"]
    """The yaw rate."""
    joint: Float[Array, "*n 4"]
    """The angle of each wheel relative to the hull."""
    joint_rate: Float[Array, "*n 4"]
    spin: Float[Array, "*n 4"]
    """The speed at which each wheel rolls, in radians per second."""
    phase: Float[Array, "*n 4"]
    """The angle by which each wheel has rolled, in radians; for pictures."""
    gas: Float[Array, "*n"]
    on_road: Bool[Array, "*n 4"]
    """Whether each wheel touched a tile, when it was last looked."""


def rotate(angle: Float[Array, "..."], vector: np.ndarray | Float[Array, "... 2"]) -> Float[Array, "... 2"]:
    """The vector turned by the angle."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    x, y = jnp.asarray(vector, angle.dtype)[..., 0], jnp.asarray(vector, angle.dtype)[..., 1]
    return jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def hull_position(car: Car) -> Float[Array, "*n 2"]:
    """The origin of the hull's frame: the place of the car in rules and pictures."""
    return car.centre - rotate(car.angle, CENTRE)


def hull_velocity(car: Car) -> Float[Array, "*n 2"]:
    """The velocity of the hull's centre of mass, by which the camera turns and the speed is shown."""
    x, y = jnp.moveaxis(rotate(car.last_angle, HULL_ARM), -1, 0)
    return car.velocity + car.turn[..., None] * jnp.stack([-y, x], axis=-1)


def wheel_positions(car: Car) -> Float[Array, "*n 4 2"]:
    """The centres of the wheels."""
    return car.centre[..., None, :] + rotate(car.angle[..., None], WHEEL_ARMS)


def wheel_angles(car: Car) -> Float[Array, "*n 4"]:
    """The directions of the wheels; 0 faces +y."""
    return car.angle[..., None] + car.joint
