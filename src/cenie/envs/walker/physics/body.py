"""The walker's bodies and joints: shapes and masses.

Bodies are in the order hull, upper leg 0, lower leg 0, upper leg 1, lower leg 1; joints in the order of the
actions: hip 0, knee 0, hip 1, knee 1. All are rigid, and collide with the ground only.
"""

import numpy as np

UNIT = 1 / 30
HULL = np.array([(-30, 9), (6, 9), (34, 1), (34, -8), (-30, -8)]) * UNIT
"""Corners of the hull, clockwise, in the frame of the body."""
LEG_HEIGHT = 34 * UNIT
LEG_DOWN = -8 * UNIT
"""Where the hips are, below the origin of the hull."""
HALF_WIDTHS = np.array([4.0, 3.2, 4.0, 3.2]) * UNIT
"""Half widths of the four legs, which are rectangles."""
HALF_HEIGHT = LEG_HEIGHT / 2


def _polygon(corners: np.ndarray, density: float) -> tuple[float, np.ndarray, float]:
    """Mass, centre of mass and moment of inertia about it, of a polygon of even density."""
    a, b = corners, np.roll(corners, -1, axis=0)
    doubled = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    area = doubled.sum() / 2
    centre = (doubled[:, None] * (a + b)).sum(0) / (6 * area)
    about_origin = (doubled * ((a * a + a * b + b * b).sum(1))).sum() / 12
    mass = density * area
    return abs(mass), centre, abs(density * about_origin) - abs(mass) * (centre @ centre)


def _rectangle(half_width: float, half_height: float) -> np.ndarray:
    return np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (half_width, half_height)


_PARTS = [_polygon(HULL, 5.0), *(_polygon(_rectangle(w, HALF_HEIGHT), 1.0) for w in HALF_WIDTHS)]
MASSES = np.array([part[0] for part in _PARTS])
INERTIAS = np.array([part[2] for part in _PARTS])
INVERSE_MASSES = tuple(float(np.float32(1 / mass)) for mass in MASSES)
INVERSE_INERTIAS = tuple(float(np.float32(1 / inertia)) for inertia in INERTIAS)
HULL_CENTRE = _PARTS[0][1]
"""The centre of mass of the hull, in the frame of the body; legs have theirs at the origin."""

JOINT_BODIES = ((0, 1), (1, 2), (0, 3), (3, 4))
ANCHORS_A = np.array([(0, LEG_DOWN) - HULL_CENTRE, (0, -HALF_HEIGHT)] * 2)
ANCHORS_B = np.array([(0, HALF_HEIGHT)] * 4)
"""Where the joints are on their two bodies, seen from the centres of mass."""
REFERENCE_ANGLES = np.array([-0.05, 0.0, 0.05, 0.0])
"""Angles of the joints when they were made: all joint angles are relative to them."""
LOWER_LIMITS = np.array([-0.8, -1.6, -0.8, -1.6])
UPPER_LIMITS = np.array([1.1, -0.1, 1.1, -0.1])
MOTOR_SPEEDS = np.array([4.0, 6.0, 4.0, 6.0])
MOTOR_TORQUE = 80.0
