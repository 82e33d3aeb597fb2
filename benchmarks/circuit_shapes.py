"""How far the lines of the F1 circuits are from those of the original code: the table of docs/decisions.md.

    python -m benchmarks.circuit_shapes formula1.py

The file is `envs/box2d/racetracks/formula1.py` of the original code (facebookresearch/dcd), whose licence
(CC BY-NC 4.0) keeps it out of this project. It is read and not executed.
"""

import argparse
import ast
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from cenie.envs.racing.circuits import LIMITS, f1_circuit
from cenie.envs.racing.spline import closed_line
from cenie.envs.racing.track import HALF_WIDTH

NODES, TILES = 4096, 1024
"""Gaps are measured between fine lines, starts where cars start."""


class Difference(NamedTuple):
    """Of one closed line from another, in units of length and degrees."""

    mean: float
    largest: float
    start: float
    turned: float


def original_lines(text: str) -> dict[str, Float[np.ndarray, "n 2"]]:
    """The points of each circuit in the source of the original code.

    Args:
        text: source of calls that have a `name` and a list of points `xy`, as literals.

    Returns:
        Points of the closed lines, by name, centred; a last point that repeats the first is left out.
    """
    lines = {}
    for node in ast.walk(ast.parse(text)):
        given = {word.arg: word.value for word in node.keywords} if isinstance(node, ast.Call) else {}
        if {"name", "xy"} <= set(given):
            points = np.array(ast.literal_eval(given["xy"]), float)
            points = points[:-1] if np.array_equal(points[0], points[-1]) else points
            lines[ast.literal_eval(given["name"])] = centred(points)
    return lines


def centred(points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    return points - (points.max(axis=0) + points.min(axis=0)) / 2


def difference(ours: Float[np.ndarray, "n 2"], theirs: Float[np.ndarray, "m 2"]) -> Difference:
    """Gaps between two dense closed lines, both ways, and between their starts and the directions there."""
    there, back = KDTree(theirs).query(ours)[0], KDTree(ours).query(theirs)[0]
    gaps = np.concatenate([there, back])
    turned = (direction(ours) - direction(theirs) + 180) % 360 - 180
    return Difference(float(gaps.mean()), float(gaps.max()), math.dist(ours[0], theirs[0]), turned)


def direction(line: Float[np.ndarray, "n 2"]) -> float:
    """Of a line at its first node, in degrees."""
    x, y = line[1] - line[0]
    return math.degrees(math.atan2(y, x))


def length(line: Float[np.ndarray, "n 2"]) -> float:
    return float(np.hypot(*(np.roll(line, -1, axis=0) - line).T).sum())


def row(name: str, original: Float[np.ndarray, "n 2"]) -> str:
    """The line of a circuit in the table."""
    ours, tiles = (np.asarray(f1_circuit(name, nodes, LIMITS[name]).nodes).T for nodes in (NODES, TILES))
    theirs = centred(closed_line(original, NODES).T)
    gaps, starts = difference(ours, theirs), difference(tiles, original)
    largest = f"**{gaps.largest:.1f}**" if gaps.largest > 2 * HALF_WIDTH else f"{gaps.largest:.1f}"
    cells = (
        name,
        f"{length(ours):.0f}",
        f"{length(theirs):.0f}",
        f"{gaps.mean:.1f}",
        largest,
        f"{starts.start:.1f}",
        f"{direction(tiles):.1f}",
        f"{starts.turned:+.1f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    lines = original_lines(parser.parse_args().file.read_text())
    print(
        "| circuit | length | original | mean gap | largest gap | start: gap | start: direction | turned by |"
    )
    print("|" + "---|" * 8)
    for name in LIMITS:
        print(row(name, lines[name]))


if __name__ == "__main__":
    main()
