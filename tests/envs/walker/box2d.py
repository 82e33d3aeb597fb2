"""Gymnasium's walker, which is Box2D: its terrain, its bodies, and recorded episodes."""

import importlib.util
import warnings
from typing import NamedTuple

import numpy as np
import pytest

if importlib.util.find_spec("Box2D") is None:
    pytest.skip("there are no wheels of Box2D for this Python", allow_module_level=True)

with warnings.catch_warnings():
    # Box2D's binding warns while it is imported, and ends the process if a warning is an error.
    warnings.simplefilter("ignore")
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalker, BipedalWalkerHeuristics


class Episodes(NamedTuple):
    """Episodes side by side, padded with their last state. States are those before actions, and the last."""

    x: np.ndarray
    y: np.ndarray
    boxes: np.ndarray
    pose: np.ndarray
    velocity: np.ndarray
    impulse: np.ndarray
    contact: np.ndarray
    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    played: np.ndarray


class _Pushed:
    """A generator whose first push is given."""

    def __init__(self, generator, push):
        self.generator, self.push = generator, push

    def __getattr__(self, name):
        return getattr(self.generator, name)

    def uniform(self, low=0.0, high=1.0, *rest, **more):
        if (low, high) == (-5, 5):
            return self.push
        return self.generator.uniform(low, high, *rest, **more)


def made(hardcore, seed, push=None):
    """A walker after `reset`, and its first observation."""
    walker = BipedalWalker(hardcore=hardcore)
    observation, _ = walker.reset(seed=seed)
    if push is not None:
        walker._np_random = _Pushed(np.random.default_rng(seed), push)
        observation, _ = walker.reset()
    return walker, observation


def terrain(walker):
    boxes = []
    for body in walker.terrain:
        shape = body.fixtures[0].shape
        if type(shape).__name__ == "b2PolygonShape":
            corners = np.array(shape.vertices)
            boxes.append((*corners.min(0), *corners.max(0)))
    rows = np.array([(1000 + 3 * i, 0, 1001 + 3 * i, 1) for i in range(48)], np.float32)
    rows[: len(boxes)] = sorted(boxes) if boxes else rows[:0]
    return np.array(walker.terrain_x, np.float32), np.array(walker.terrain_y, np.float32), rows


def state(walker):
    """Poses of the centres of mass, velocities, impulses of the joints, and the two contact flags."""
    bodies = [walker.hull, *walker.legs]
    pose = np.array([(*body.worldCenter, body.angle) for body in bodies], np.float32).T
    velocity = np.array([(*body.linearVelocity, body.angularVelocity) for body in bodies], np.float32).T
    impulse = np.array(
        [(*j.GetReactionForce(1.0), j.GetReactionTorque(1.0), j.GetMotorTorque(1.0)) for j in walker.joints],
        np.float32,
    ).T
    return pose, velocity, impulse, np.array([leg.ground_contact for leg in walker.legs[1::2]])


def played(hardcore, seeds, steps):
    """Episodes of the scripted gait (even seeds) and of random actions (odd ones)."""
    grounds, records = [], []
    for seed in seeds:
        walker, observation = made(hardcore, seed)
        gait, rng = BipedalWalkerHeuristics(), np.random.default_rng(seed)
        grounds.append(terrain(walker))
        rows, over = [(*state(walker), observation)], False
        outcomes = []
        for _ in range(steps):
            action = gait.step_heuristic(observation) if seed % 2 == 0 else rng.uniform(-1, 1, 4)
            action = np.array(action, np.float32)
            if over:
                outcomes.append((action, 0.0, True, False))
            else:
                observation, reward, over, _, _ = walker.step(action)
                outcomes.append((action, reward, over, True))
            rows.append((*state(walker), observation))
        records.append([np.array(column) for column in (*zip(*rows), *zip(*outcomes))])
    return Episodes(*(np.array(each) for each in (*zip(*grounds), *zip(*records))))
