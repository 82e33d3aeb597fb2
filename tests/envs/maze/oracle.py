"""A maze simulator in plain Python, written from the rules and sharing no code with the library."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

STEPS = [(1, 0), (0, 1), (-1, 0), (0, -1)]


@dataclass
class Simulator:
    """One episode of a level given by plain values; `grid` has the border."""

    walls: np.ndarray
    goal: tuple[int, int]
    start: tuple[int, int]
    direction: int
    limit: int
    occluded: bool = False
    decay: float = 0.9
    time: int = 0
    grid: np.ndarray = field(init=False)

    def __post_init__(self):
        self.grid = np.pad(self.walls, 1, constant_values=True)
        self.x, self.y = self.start

    @classmethod
    def of(cls, level, decay=0.9):
        return cls(
            np.asarray(level.wall_map),
            tuple(int(v) for v in level.goal),
            tuple(int(v) for v in level.start),
            int(level.direction),
            int(level.time_limit),
            bool(level.occluded),
            decay,
        )

    def wall(self, x, y):
        height, width = self.walls.shape
        if not (-1 <= x <= width and -1 <= y <= height):
            return True
        return bool(self.grid[y + 1, x + 1])

    def step(self, action):
        """Reward, terminated, truncated, solved."""
        self.time += 1
        dx, dy = STEPS[self.direction]
        solved = False
        if action == 0:
            self.direction = (self.direction - 1) % 4
        elif action == 1:
            self.direction = (self.direction + 1) % 4
        elif action == 2:
            ahead = (self.x + dx, self.y + dy)
            if ahead == self.goal:
                solved = True
            elif not self.wall(*ahead):
                self.x, self.y = ahead
        reward = 1 - self.decay * self.time / self.limit if solved else 0.0
        return reward, solved, self.time >= self.limit and not solved, solved

    def image(self):
        dx, dy = STEPS[self.direction]
        right_x, right_y = -dy, dx
        codes = np.zeros((5, 5, 3), np.uint8)
        opaque = np.zeros((5, 5), bool)
        for u in range(5):
            for v in range(5):
                x = self.x + (4 - v) * dx + (u - 2) * right_x
                y = self.y + (4 - v) * dy + (u - 2) * right_y
                if (x, y) == self.goal:
                    codes[u, v] = (8, 1, 0)
                elif self.wall(x, y):
                    codes[u, v], opaque[u, v] = (2, 5, 0), True
                else:
                    codes[u, v] = (1, 0, 0)
        if self.occluded:
            codes[~visible(opaque)] = 0
        return codes


def visible(opaque):
    """The sweeps of the occlusion rule, literally."""
    mask = np.zeros((5, 5), bool)
    mask[2, 4] = True
    for v in range(4, -1, -1):
        for u in range(4):
            if mask[u, v] and not opaque[u, v]:
                mask[u + 1, v] = True
                if v > 0:
                    mask[u + 1, v - 1] = mask[u, v - 1] = True
        for u in range(4, 0, -1):
            if mask[u, v] and not opaque[u, v]:
                mask[u - 1, v] = True
                if v > 0:
                    mask[u - 1, v - 1] = mask[u, v - 1] = True
    return mask


def path_length(walls, start, goal):
    """Shortest 4-connected path by breadth-first search; None if there is none."""
    height, width = walls.shape
    start, goal = (tuple(int(v) for v in place) for place in (start, goal))
    distance = {start: 0}
    queue = deque([start])
    while queue:
        x, y = queue.popleft()
        if (x, y) == goal:
            return distance[goal]
        for dx, dy in STEPS:
            place = (x + dx, y + dy)
            inside = 0 <= place[0] < width and 0 <= place[1] < height
            if inside and not walls[place[1], place[0]] and place not in distance:
                distance[place] = distance[x, y] + 1
                queue.append(place)
    return None


def fewest_actions(level):
    """Fewest turns and steps to the goal, by breadth-first search over places and directions."""
    walls = np.asarray(level.wall_map)
    height, width = walls.shape
    goal = tuple(int(v) for v in level.goal)
    first = (int(level.start[0]), int(level.start[1]), int(level.direction))
    distance = {first: 0}
    queue = deque([first])
    while queue:
        x, y, direction = node = queue.popleft()
        ahead = (x + STEPS[direction][0], y + STEPS[direction][1])
        if ahead == goal:
            return distance[node] + 1
        following = [(x, y, (direction + 1) % 4), (x, y, (direction - 1) % 4)]
        if 0 <= ahead[0] < width and 0 <= ahead[1] < height and not walls[ahead[1], ahead[0]]:
            following.append((*ahead, direction))
        for other in following:
            if other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    return None


def random_level_values(rng, height, width, density):
    """Walls, goal and start of a random valid maze."""
    walls = rng.random((height, width)) < density
    tiles = rng.permutation(height * width)[:2]
    (goal_y, goal_x), (start_y, start_x) = (divmod(int(tile), width) for tile in tiles)
    walls[goal_y, goal_x] = walls[start_y, start_x] = False
    return walls, (goal_x, goal_y), (start_x, start_y)
