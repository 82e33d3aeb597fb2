"""What is written down of an episode that a student plays in an evaluation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationRow:
    """One episode on one held-out level."""

    suite: str
    level: str
    variant: str
    episode: int
    episode_return: float
    solved: bool
    score: float
    length: int
