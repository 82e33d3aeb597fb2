"""Who stays in a full buffer of the original code: counters of staleness in NumPy, in double precision.

Written from a description of its behaviour, for rank weights and a buffer that is full from the start: every
draw ages all levels and resets the drawn one; a level that enters begins with the number of levels that were
observed after it in its batch; the level of the lowest weight leaves if its raw score is not higher.
"""

import numpy as np


class OriginalSampler:
    def __init__(self, scores, staleness, temperature, staleness_coef):
        self.scores = np.asarray(scores, np.float64).copy()
        self.staleness = np.asarray(staleness, np.float64).copy()
        self.numbers = np.arange(len(self.scores))
        self.next_number = len(self.scores)
        self.temperature, self.coef = temperature, staleness_coef

    def weights(self):
        order = np.lexsort((self.numbers, -self.scores))
        ranks = np.empty(len(order))
        ranks[order] = np.arange(1, len(order) + 1)
        score_part = ranks ** (-1 / self.temperature)
        return (1 - self.coef) * score_part / score_part.sum() + self.coef * (
            self.staleness / self.staleness.sum()
        )

    def draw(self, slot):
        self.staleness += 1
        self.staleness[slot] = 0

    def insert(self, scores):
        """Returns how many of the batch are there at its end."""
        first = self.next_number
        for index, score in enumerate(scores):
            victim = self.weights().argmin()
            if self.scores[victim] <= score:
                self.scores[victim] = score
                self.numbers[victim] = self.next_number
                self.staleness[victim] = len(scores) - 1 - index
                self.next_number += 1
        return int((self.numbers >= first).sum())
