"""How many levels of `hard1000` a hand-made explorer with a perfect memory solves.

    python examples/explore_hard_mazes.py

It says what a student could reach. It sees what a student sees, a view of 5 x 5 tiles that walls do not
block, and remembers every tile. It walks to the nearest place from which a tile comes into view that it has
not seen, and to the goal once it sees that. "Nearest" counts turns and steps. It is no bound: another order
of exploring may solve more.
"""

from collections import deque

import numpy as np

from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain

DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))


def view(pose):
    """The 25 tiles that are seen from (x, y, direction)."""
    x, y, direction = pose
    ahead_x, ahead_y = DIRECTIONS[direction]
    right_x, right_y = -ahead_y, ahead_x
    return [
        (x + ahead * ahead_x + right * right_x, y + ahead * ahead_y + right * right_y)
        for ahead in range(5)
        for right in range(-2, 3)
    ]


def ahead(pose):
    x, y, direction = pose
    return x + DIRECTIONS[direction][0], y + DIRECTIONS[direction][1]


def way(pose, free, is_end):
    """The poses on the way of fewest actions over free tiles to one that is an end; None if there is none."""
    came_from, waiting = {pose: None}, deque([pose])
    while waiting:
        here = waiting.popleft()
        if is_end(here):
            poses = []
            while here != pose:
                poses.append(here)
                here = came_from[here]
            return poses[::-1]
        x, y, direction = here
        # Of two ways of the same length the one that walks first: it shows more than a turn.
        following = [(*ahead(here), direction)] if ahead(here) in free else []
        following += [(x, y, (direction + 1) % 4), (x, y, (direction - 1) % 4)]
        for other in following:
            if other not in came_from:
                came_from[other] = here
                waiting.append(other)
    return None


def explore(level):
    """Whether the explorer solves a level within its time limit."""
    walls, goal = np.asarray(level.wall_map), tuple(np.asarray(level.goal).tolist())
    tiles = {(x, y) for y, x in np.ndindex(walls.shape)}
    pose = (*np.asarray(level.start).tolist(), int(level.direction))
    seen, free, left = set(), set(), []

    def faces_goal(pose):
        return ahead(pose) == goal

    def sees_more(pose):
        return any(tile in tiles and tile not in seen for tile in view(pose))

    for _ in range(int(level.time_limit)):
        new = tiles.intersection(view(pose)) - seen
        seen |= new
        free |= {(x, y) for x, y in new if not walls[y, x]} - {goal}
        if faces_goal(pose):
            return True
        if goal in new or not left:
            known = way(pose, free, faces_goal) if goal in seen else None
            left = known or way(pose, free, sees_more)
        if left is None:
            return False
        pose = left.pop(0)
    return False


def main():
    suite = maze_domain(MazeConfig()).suites["hard1000"]()
    solved = {}
    for entry, level in zip(suite.entries, suite.draw(0, 1)[1], strict=True):
        solved.setdefault(entry.level, []).append(explore(level))
    for band, each in solved.items():
        print(f"{band:14s} {np.mean(each):.2f}")
    print(f"{'mean':14s} {np.mean(list(solved.values())):.3f}")


if __name__ == "__main__":
    main()
