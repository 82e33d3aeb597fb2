"""The rules of a track written down as plainly as possible, in double precision."""

import math

import numpy as np

HALF_WIDTH, KERB_WIDTH, RUN = 40 / 6, 8 / 6, 4


def nodes_and_directions(points, samples=40):
    """Nodes before centring, and the direction from each to the next; all points must differ."""
    points = [tuple(map(float, point)) for point in points]
    centre = np.mean(points, axis=0)
    points = sorted(points, key=lambda p: math.atan2(p[0] - centre[0], p[1] - centre[1]))
    closed = np.array([*points, points[0]])
    chords = np.diff(closed, axis=0)
    theta = np.mod(np.arctan2(chords[:, 1], chords[:, 0]), 2 * math.pi)
    p = math.atan(0.2) / math.pi + 0.5
    phi = []
    for k in range(len(theta)):
        angle = p * theta[k] + (1 - p) * theta[k - 1]
        phi.append(angle + math.pi * (abs(theta[k - 1] - theta[k]) > math.pi))
    phi.append(phi[0])
    nodes = []
    for k, chord in enumerate(chords):
        r = 0.2 * math.hypot(*chord)
        first = closed[k] + r * np.array([math.cos(phi[k]), math.sin(phi[k])])
        last = closed[k + 1] - r * np.array([math.cos(phi[k + 1]), math.sin(phi[k + 1])])
        for j in range(samples - 1):
            t = j / (samples - 1)
            weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
            nodes.append(
                sum(w * q for w, q in zip(weights, (closed[k], first, last, closed[k + 1]), strict=True))
            )
    nodes = np.array(nodes)
    way = np.roll(nodes, -1, axis=0) - nodes
    return nodes, np.arctan2(way[:, 1], way[:, 0])


def kerbs(normal, sharp=None):
    """Which tiles have a kerb, marked one after the other."""
    count = len(normal)
    sharp = np.mean(np.abs(np.diff(normal))) if sharp is None else sharp
    marked = []
    for i in range(count):
        turns = [normal[i - k] - normal[i - k - 1] for k in range(RUN)]
        one_way = abs(sum(map(np.sign, turns))) == RUN
        marked.append(one_way and all(abs(turn) > sharp for turn in turns))
    for i in range(count):
        for k in range(RUN):
            marked[i - k] |= marked[i]
    return np.array(marked)


def quads(nodes, normal, inner, outer):
    """Corners `[tile, corner, 2]` between two offsets to the right of the centre, by the rules of tiles."""
    made = []
    for i in range(len(nodes)):
        unit, old = ((math.cos(normal[k]), math.sin(normal[k])) for k in (i, i - 1))
        made.append(
            [
                nodes[i] + inner[i] * np.array(unit),
                nodes[i] + outer[i] * np.array(unit),
                nodes[i - 1] + outer[i] * np.array(old),
                nodes[i - 1] + inner[i] * np.array(old),
            ]
        )
    return np.array(made)


def length_of(nodes):
    """The length of a closed polygon; `nodes` has rows x and y."""
    return float(np.sum(np.hypot(*(np.roll(nodes, -1, axis=1) - nodes))))
