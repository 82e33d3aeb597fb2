"""Warnings of degenerate curricula, with a remedy: each is said once, not in every cycle."""

from collections.abc import Iterator

from cenie.replay.scores import uniform
from cenie.teach.curriculum import Curriculum, Replay
from cenie.teach.source import RandomSource

PATIENCE = 5
"""Batches of levels before anything is said."""


class Watch:
    """Looks at the batches of levels as they are played.

    `remedy` tells the user how to get levels scored that complete no episode.
    """

    def __init__(self, replay: Replay | None, remedy: str):
        self._replay = replay
        self._remedy = remedy
        self._batches = self._levels = self._unscored = self._equal_in_a_row = 0
        self._said: set[str] = set()

    def look(self, levels: int, unscored: int, equal_scores: bool) -> Iterator[str]:
        """Take in a batch of levels; yield the warnings for the user, each once."""
        if self._replay is None:
            return
        self._batches += 1
        self._levels += levels
        self._unscored += unscored
        self._equal_in_a_row = self._equal_in_a_row + 1 if equal_scores else 0
        if self._batches >= PATIENCE and 2 * self._unscored > self._levels and self._is_news("unscored"):
            yield (
                f"{self._unscored} of the {self._levels} levels played so far completed no episode: they "
                f"have no score and cannot be replayed. {self._remedy}"
            )
        tells_apart = any(column.score.compute is not uniform for column in self._replay.scores)
        if self._equal_in_a_row >= PATIENCE and tells_apart and self._is_news("equal"):
            yield (
                f"all levels of the last {PATIENCE} batches have the same score, so that it cannot tell them "
                "apart; a critic whose values are all 0 does this where no reward is ever found. "
                "Check the values, or choose another score"
            )

    def _is_news(self, what: str) -> bool:
        is_first = what not in self._said
        self._said.add(what)
        return is_first


def too_short(curriculum: Curriculum, num_steps: int, longest_episode: int) -> Iterator[str]:
    """Yield the warnings known beforehand: rollouts that may end before the first episode does."""
    replay = curriculum.replay
    unfinished = curriculum.unfinished if replay is None else replay.config.unfinished
    looks = replay is not None or not isinstance(curriculum.source, RandomSource)
    if looks and unfinished == "ignore" and num_steps < longest_episode:
        lost = "has no score and cannot be replayed" if replay else "tells the teacher nothing"
        yield (
            f"rollouts of {num_steps} steps may end before an episode does (up to {longest_episode} steps): "
            f"such a level {lost}. {remedy(longest_episode, 'replay.unfinished' if replay else 'unfinished')}"
        )


def remedy(longest_episode: int, name: str = "replay.unfinished") -> str:
    """The remedy in a training run of ours; `name` is the setting of the teacher that decides."""
    return (
        f"Raise student.num_steps to {longest_episode}, or set teacher.{name} to 'score' to score "
        "what was played of an episode"
    )
