"""The numbers that the CENIE paper prints, to stand beside our figures (Teoh, Li and Varakantham, NeurIPS
2024).

The runs of the paper had another budget than most of ours: 30,000 updates on mazes and walkers, 2,750 on the
racing car, five seeds. These are its numbers, not ours, and every table says so.
"""

from dataclasses import dataclass
from importlib import resources

SOURCE = "the CENIE paper (NeurIPS 2024)"


@dataclass(frozen=True)
class Reference:
    """Numbers that the paper prints, by method: what they are, and after how many updates."""

    what: str
    budget: str
    values: dict[str, str]


def f1_returns() -> dict[str, dict[str, tuple[float, float]]]:
    """The paper's results on its circuits, read from `data/f1.txt`.

    Returns:
        Mean and standard error of the return on each track, and over all of them (`Mean`), by method.
    """
    file = resources.files("cenie.report").joinpath("data/f1.txt")
    header, *rows = file.read_text("utf-8").splitlines()
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        track, *numbers = row.split()
        pairs = zip(map(float, numbers[::2]), map(float, numbers[1::2]))
        found[track] = dict(zip(header.split()[1:], pairs, strict=True))
    return found


COVERAGE = Reference(
    "state-action coverage in BipedalWalker",
    "30,000 updates",
    {"plr-robust": "43.4 %", "plr-cenie": "55.3 %", "accel": "42.5 %", "accel-cenie": "47.6 %"},
)
PERFECT_LARGE = Reference(
    "solved rate on PerfectMazeLarge",
    "30,000 updates",
    {"plr-robust": "less than 10 %", "plr-cenie": "close to 50 %"},
)
WALKER = Reference(
    "aggregate score (IQM) in BipedalWalker",
    "30,000 updates",
    {"accel-cenie": "close to 55 % of optimal"},
)
REFERENCES = {"perfect-large": PERFECT_LARGE, "walker6": WALKER}
"""The paper's results on single suites."""
