"""The state after the first step of an episode, in which Box2D puts together a walker that does not fit.

It depends on the push only, because all levels begin with the same flat ground, and is linear in it on both
sides of 0. So it is a table, for the pushes of `PUSHES`, as Box2D has it (tests do it again): it would take
longer than any other step to compute.
"""

import json
from importlib import resources

import numpy as np

from cenie.envs.walker.terrain import PUSH

PUSHES = np.array([-PUSH, 0.0, PUSH], np.float32)

_TABLE = json.loads(resources.files("cenie.envs.walker").joinpath("data/start.json").read_text("utf-8"))
POSES, VELOCITIES, IMPULSES = (
    np.array(_TABLE[name], np.float32) for name in ("poses", "velocities", "impulses")
)
"""For each push: x, y and angle of the bodies, their velocities, and the impulses of the joints."""

TOUCHED = np.array([0, 1 << 9 | 1 << 10, 0, 1 << 9 | 1 << 10], np.int32)
"""Both lower legs stand where the tenth edge ends."""
CONTACTS = np.array([False, True, False, True])
