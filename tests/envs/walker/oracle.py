"""The rules of terrains once more, as plain Python, point by point. Takes the same random numbers."""

import math
import sys

import numpy as np

STEP, BASE = 14 / 30, 400 / 30 / 4


def box(x, y, width, low, high):
    return (x, y + low * STEP, x + width * STEP, y + high * STEP)


def terrain(parameters, chances):
    """Points and boxes of the original code's rules; `chances` are a row of five for each point."""
    roughness, pit_a, pit_b, stump_a, stump_b, stair_a, stair_b, most_steps = map(float, parameters)
    sizes = {
        "stump": sorted((stump_a, stump_b)),
        "stairs": sorted((stair_a, stair_b)),
        "pit": sorted((pit_a, pit_b)),
    }
    enabled = [
        kind for kind, least in (("stump", 0.2), ("stairs", 0.2), ("pit", 0.8)) if sizes[kind][1] >= least
    ]
    most_steps = round(most_steps)
    state, counter, oneshot, y, v = "grass", 20, False, BASE, 0.0
    points, boxes = [], []
    for i, row in enumerate(chances):
        # Whole numbers are chosen in single precision, as a product may be rounded up to the next one.
        size, slope_chance, steps_chance, length_chance, next_chance = map(np.float32, row)
        x = i * STEP
        if state in sizes and oneshot:
            low, high = sizes[state]
            drawn = low + float(size) * (high - low)
        if state == "grass" and not oneshot:
            v = 0.8 * v + 0.01 * np.sign(BASE - y)
            if i > 20:
                v += (2 * float(size) - 1) / 30
            y += roughness * v
        elif state == "pit" and oneshot:
            gap = 1 + drawn
            counter = math.ceil(np.float32(gap))
            delta = counter - gap
            boxes += [box(x, y, 1, -4, 0), box(x + gap * STEP, y, 1, -4, 0)]
            counter += 2
            y0 = y
        elif state == "pit":
            y = y0 - (4 * STEP if counter > 1 else 0)
            if counter == 1:
                x -= delta * STEP
        elif state == "stump" and oneshot:
            if drawn > 0:
                boxes.append(box(x, y, 1, 0, drawn))
        elif state == "stairs" and oneshot:
            slope = 1 if slope_chance > 0.5 else -1
            n = int(steps_chance * np.float32(most_steps))
            y0, h = y, drawn
            if h > 0.01:
                for s in range(n):
                    boxes.append(box(x + 4 * s * STEP, y0 + s * h * slope * STEP, 4, -h, 0))
                counter = 4 * n + 1
        elif state == "stairs":
            q = (4 * n - counter) // 4
            y = y0 + q * h * slope * STEP - (h * STEP if slope == -1 else 0)
        oneshot = False
        points.append((x, y))
        counter -= 1
        if counter == 0:
            counter = 5 + int(length_chance * np.float32(5))
            if state == "grass" and enabled:
                state = enabled[int(next_chance * np.float32(len(enabled)))]
            else:
                state = "grass"
            oneshot = True
    return np.array(points), np.array(boxes).reshape(-1, 4)


class Chances:
    """Answers the calls that gymnasium's generator makes to its random generator by a row for each point.

    Which point it is at is read from the caller's variable `i`.
    """

    def __init__(self, points):
        self.points = points
        self.stairs = None

    @property
    def number(self):
        frame = sys._getframe()
        while frame.f_code.co_name != "_generate_terrain":
            frame = frame.f_back
        return frame.f_locals["i"]

    def chance(self, column):
        return np.float32(self.points[self.number, column])

    def uniform(self, low, high):
        return low + (high - low) * float(self.chance(0))

    def random(self):
        self.stairs = self.number
        return float(self.chance(1))

    def integers(self, low, high):
        low, high = int(low), int(high)
        # The sizes of pits and stumps, and the number of stairs if the slope was just asked for.
        size = 2 if self.stairs == self.number else 0
        column = {(4, 5): 0, (5, 10): 3, (1, 4): 4, (3, 5): size, (1, 3): size}[low, high]
        return low + int(self.chance(column) * np.float32(high - low))
