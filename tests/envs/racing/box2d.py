"""Gymnasium's car in Box2D: the yardstick of the physics, on tracks of ours."""

import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.racing.car import CENTRE, HULL_MASS, MASS, WHEEL_MASS, Car

Box2D = pytest.importorskip("Box2D")
car_dynamics = pytest.importorskip("gymnasium.envs.box2d.car_dynamics")


class Wheels(Box2D.b2ContactListener):
    """What gymnasium's listener does, but for the colours."""

    def __init__(self, world: "World"):
        super().__init__()
        self.world = world

    def BeginContact(self, contact):
        self._contact(contact, True)

    def EndContact(self, contact):
        self._contact(contact, False)

    def _contact(self, contact, begin):
        bodies = contact.fixtureA.body.userData, contact.fixtureB.body.userData
        tile = next((body for body in bodies if isinstance(body, SimpleNamespace)), None)
        wheel = next((body for body in bodies if hasattr(body, "tiles")), None)
        if tile is None or wheel is None:
            return
        if begin:
            wheel.tiles.add(tile)
            self.world.visited[tile.number] = True
        else:
            wheel.tiles.remove(tile)


class Tile(SimpleNamespace):
    def __hash__(self):
        return self.number


class World:
    """A car on the tiles of a track (quads of shape `[tile, corner, 2]`), at a place and an angle."""

    def __init__(self, quads: np.ndarray, place, angle: float):
        self.visited = np.zeros(len(quads), bool)
        self.listener = Wheels(self)
        self.world = Box2D.b2World((0, 0), contactListener=self.listener)
        shape = Box2D.b2PolygonShape(vertices=[(0, 0), (1, 0), (1, -1), (0, -1)])
        definition = Box2D.b2FixtureDef(shape=shape)
        for number, quad in enumerate(quads):
            definition.shape.vertices = [(float(x), float(y)) for x, y in quad]
            body = self.world.CreateStaticBody(fixtures=definition)
            body.fixtures[0].sensor = True
            body.userData = Tile(number=number, road_friction=1.0)
        self.car = car_dynamics.Car(self.world, float(angle), float(place[0]), float(place[1]))
        self.advance()

    def advance(self) -> None:
        self.car.step(0.02)
        self.world.Step(0.02, 180, 60)

    def step(self, steer: float, gas: float, brake: float) -> None:
        self.car.steer(-steer)
        self.car.gas(gas)
        self.car.brake(brake)
        self.advance()

    @property
    def place(self) -> np.ndarray:
        return np.array(self.car.hull.position)

    def state(self, last_angle: float) -> Car:
        """The state of the car as ours; Box2D does not keep the angle of the step before."""
        hull, wheels = self.car.hull, self.car.wheels
        velocity = (
            HULL_MASS * np.array(hull.linearVelocity)
            + WHEEL_MASS * sum(np.array(wheel.linearVelocity) for wheel in wheels)
        ) / MASS
        cos, sin = math.cos(hull.angle), math.sin(hull.angle)
        turned = np.array([cos * CENTRE[0] - sin * CENTRE[1], sin * CENTRE[0] + cos * CENTRE[1]])
        values = {
            "centre": np.array(hull.position) + turned,
            "angle": hull.angle,
            "last_angle": last_angle,
            "velocity": velocity,
            "turn": hull.angularVelocity,
            "joint": [wheel.joint.angle for wheel in wheels],
            "joint_rate": [wheel.angularVelocity - hull.angularVelocity for wheel in wheels],
            "spin": [wheel.omega for wheel in wheels],
            "phase": [wheel.phase for wheel in wheels],
            "gas": wheels[2].gas,
        }
        numbers = {name: jnp.asarray(np.array(value, np.float32)) for name, value in values.items()}
        return Car(**numbers, on_road=jnp.array([bool(wheel.tiles) for wheel in wheels]))
