"""Circuits: the 20 of the benchmark, gym's classic tracks, and circuits of users. NumPy, on the host."""

import json
import math
from collections.abc import Sequence
from importlib import resources

import numpy as np
from jaxtyping import Float

from cenie.envs.racing.centre_line import CentreLine
from cenie.envs.racing.level import PLAYFIELD
from cenie.envs.racing.spline import closed_line
from cenie.envs.racing.track import Circuit

F1_PLAYFIELD = 3000 / 6
_EDGE = 50.0
"""The least room around a circuit."""

_FILE = resources.files("cenie.envs.racing").joinpath("data/circuits.json")
CIRCUITS = json.loads(_FILE.read_text("utf-8"))["circuits"]

LIMITS = dict.fromkeys(CIRCUITS, 2000)
LIMITS |= dict.fromkeys(("Australia", "Austria", "Belgium", "Italy", "Monaco"), 1500)
LIMITS |= dict.fromkeys(("Bahrain", "Malaysia", "Portugal"), 2500) | {"Mexico": 3000}
"""The paper's time limits, in physics steps."""
DCD_LIMITS = LIMITS | {"China": 2500}

VANILLA_LIMIT = 1000
VANILLA_TILES = 512
"""Room for the tiles of a classic track, which has 230 to 350."""
_CHECKPOINTS, _RADIUS = 12, 900 / 6
_STEP = 21 / 6
_TURN_RATE = 0.31
_MOST_STEPS = 2500
_START = -math.pi / _CHECKPOINTS


def f1_circuit(name: str, tiles: int, time_limit: int) -> Circuit:
    """A circuit of the benchmark, cut into tiles of equal length."""
    points = np.array(CIRCUITS[name]["points"])
    return _circuit(closed_line(points, tiles), F1_PLAYFIELD, time_limit)


def user_circuit(line: CentreLine, tiles: int, time_limit: int) -> Circuit:
    """A circuit along a centre line, driven in the order of its points."""
    backwards = np.roll(line.points[::-1], 1, axis=0)
    nodes = closed_line(backwards, tiles)
    half = float(np.max(np.ptp(nodes, axis=1))) / 2
    return _circuit(nodes, max(F1_PLAYFIELD, half + _EDGE), time_limit)


def user_limit(length: float) -> int:
    """A time limit for a circuit of a length: about a step for each unit, as the benchmark has it."""
    return max(1000, 500 * round(length / 500))


def _circuit(nodes: Float[np.ndarray, "2 t"], playfield: float, time_limit: int) -> Circuit:
    """Nodes of equal distances, centred; the car faces against their order."""
    way = np.roll(nodes, -1, axis=1) - nodes
    normal = np.arctan2(way[1], way[0]) + math.pi / 2
    centred = nodes - (nodes.max(1, keepdims=True) + nodes.min(1, keepdims=True)) / 2
    sharp = float(np.mean(np.abs(np.diff(normal))))
    return _packed(centred, normal, sharp, playfield=playfield, time_limit=time_limit)


def _packed(
    nodes: np.ndarray, normal: np.ndarray, sharp: float, *, playfield: float, time_limit: int
) -> Circuit:
    return Circuit(
        nodes=nodes.astype(np.float32),
        normal=normal.astype(np.float32),
        count=np.array(len(normal), np.int32),
        sharp=np.array(sharp, np.float32),
        playfield=np.array(playfield, np.float32),
        time_limit=np.array(time_limit, np.int32),
    )


def stack_circuits(circuits: Sequence[Circuit]) -> Circuit:
    """Circuits along a new leading axis; the shorter ones are filled up with nodes that do not exist."""
    most = max(len(circuit.normal) for circuit in circuits)

    def filled(array: np.ndarray) -> np.ndarray:
        if array.ndim == 0:
            return array
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, most - array.shape[-1])])

    names = ("nodes", "normal", "count", "sharp", "playfield", "time_limit")
    return Circuit(
        **{name: np.stack([filled(np.asarray(getattr(each, name))) for each in circuits]) for name in names}
    )


def vanilla_circuit(rng: np.random.Generator) -> Circuit:
    """A classic track of gym: a point steers from one of twelve checkpoints to the next. The car follows it.

    Drawn again until its ends meet. Kerbs are on the inside of bends here, and the track is not centred.
    """
    while True:
        track = _classic(rng)
        if track is not None:
            break
    nodes, normal = track
    room = VANILLA_TILES - len(normal)
    packed = _packed(nodes, normal, 0.2 * _TURN_RATE, playfield=PLAYFIELD, time_limit=VANILLA_LIMIT)
    return Circuit(
        nodes=np.pad(packed.nodes, ((0, 0), (0, room))),
        normal=np.pad(packed.normal, (0, room)),
        count=packed.count,
        sharp=packed.sharp,
        playfield=packed.playfield,
        time_limit=packed.time_limit,
    )


def _checkpoints(rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """The angle and the place of each."""
    made = []
    for number in range(_CHECKPOINTS):
        angle = 2 * math.pi * number / _CHECKPOINTS + rng.uniform(0, 2 * math.pi / _CHECKPOINTS)
        radius = rng.uniform(_RADIUS / 3, _RADIUS)
        if number in (0, _CHECKPOINTS - 1):
            angle, radius = 2 * math.pi * number / _CHECKPOINTS, 1.5 * _RADIUS
        made.append((angle, radius * math.cos(angle), radius * math.sin(angle)))
    return made


def _classic(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray] | None:
    """Nodes and normals of one lap, or None if its ends do not meet."""
    path = _path(_checkpoints(rng))
    angle = path[:, 0]
    crossings = np.flatnonzero((angle[1:] > _START) & (angle[:-1] <= _START)) + 1
    if len(crossings) < 2:
        return None
    lap = path[crossings[-2] : crossings[-1] - 1]
    if not 4 < len(lap) <= VANILLA_TILES:
        return None
    normal, gap = lap[:, 1], lap[0, 2:] - lap[-1, 2:]
    if math.hypot(math.cos(normal[0]) * gap[0], math.sin(normal[0]) * gap[1]) > _STEP:
        return None
    return lap[:, 2:].T, normal


def _path(checkpoints: list[tuple[float, float, float]]) -> np.ndarray:
    """Angle around the origin, normal and place after each step of the point, over several laps."""
    x, y, heading, aim, laps = 1.5 * _RADIUS, 0.0, 0.0, 0, 0
    other_side = False
    path = []
    while laps <= 4 and len(path) < _MOST_STEPS:
        angle = math.atan2(y, x)
        if other_side and angle > 0:
            laps += 1
            other_side = False
        if angle < 0:
            other_side = True
            angle += 2 * math.pi
        aim, angle = _next_aim(checkpoints, aim, angle)
        _, aim_x, aim_y = checkpoints[aim % _CHECKPOINTS]
        right_x, right_y = math.cos(heading), math.sin(heading)
        aside = 6 * (right_x * (aim_x - x) + right_y * (aim_y - y))
        while heading - angle > 1.5 * math.pi:
            heading -= 2 * math.pi
        while heading - angle < -1.5 * math.pi:
            heading += 2 * math.pi
        before = heading
        if abs(aside) > 0.3:
            heading -= math.copysign(min(_TURN_RATE, abs(0.001 * aside)), aside)
        x, y = x - right_y * _STEP, y + right_x * _STEP
        path.append((angle, (before + heading) / 2, x, y))
    return np.array(path)


def _next_aim(checkpoints: list[tuple[float, float, float]], aim: int, angle: float) -> tuple[int, float]:
    """The checkpoint ahead, and the angle, less a turn for each round of checkpoints that was passed."""
    while True:
        while angle > checkpoints[aim % _CHECKPOINTS][0]:
            aim += 1
            if aim % _CHECKPOINTS == 0:
                break
        else:
            return aim, angle
        angle -= 2 * math.pi
