"""The level sampler in plain Python, written from the specification and not from the library.

It favours being obviously right: everything is recomputed from a list of entries at every step, in double
precision. `rank` with stable or average ties and `power` are covered; a level is a hashable value.
"""

import math
from dataclasses import dataclass, field


@dataclass
class Entry:
    level: object
    scores: list[float]
    max_return: float
    last: int
    number: int
    parent: int
    generation: int


@dataclass
class Sampler:
    capacity: int
    mix: list[float]
    temperature: float
    staleness_coef: float
    ties: str = "stable"
    transform: str = "rank"
    insertion: str = "mixture"
    repeated: str = "average"
    victim: str = "least-likely"
    clock: int = 0
    next_number: int = 0
    entries: list[Entry] = field(default_factory=list)

    # -- probabilities ---------------------------------------------------------------------------------

    def column(self, pairs):
        """Probabilities of (score, number) pairs by one score."""
        if self.transform == "power":
            offset = 0.0 if self.staleness_coef > 0 else 1e-3
            weights = [(max(score, 0.0) + offset) ** (1 / self.temperature) for score, _ in pairs]
        else:
            weights = [self.rank(pairs, i) ** (-1 / self.temperature) for i in range(len(pairs))]
        total = math.fsum(weights)  # exact, so that the order of the levels cannot break a tie
        return [w / total for w in weights] if total > 0 else [1 / len(pairs)] * len(pairs)

    def rank(self, pairs, i):
        score, number = pairs[i]
        above = sum(other > score for other, _ in pairs)
        equal = [n for other, n in pairs if other == score]
        if self.ties == "average":
            return above + (len(equal) + 1) / 2
        return above + 1 + sum(n < number for n in equal)

    def mixture(self, candidates):
        """Sum of the columns, for (scores, number) candidates."""
        columns = [
            self.column([(scores[j], number) for scores, number in candidates]) for j in range(len(self.mix))
        ]
        return [sum(w * c[i] for w, c in zip(self.mix, columns)) for i in range(len(candidates))]

    def probabilities(self):
        if not self.entries:
            return []
        score_part = self.mixture([(e.scores, e.number) for e in self.entries])
        ages = [self.clock - e.last for e in self.entries]
        total = sum(ages)
        n = len(ages)
        stale_part = [age / total for age in ages] if total > 0 else [1 / n] * n
        c = self.staleness_coef
        return [(1 - c) * s + c * a for s, a in zip(score_part, stale_part)]

    # -- replay ----------------------------------------------------------------------------------------

    def draw(self, slot, uniform):
        """Check that `slot` is what `uniform` draws, up to rounding at the borders, and age the buffer."""
        p = self.probabilities()
        low, high = sum(p[:slot]), sum(p[: slot + 1])
        assert p[slot] > 0
        assert low - 1e-5 <= 1 - uniform <= high + 1e-5
        self.clock += 1
        self.entries[slot].last = self.clock

    def update(self, slots, scores, valid, returns):
        for slot in set(slots):
            plays = [i for i, s in enumerate(slots) if s == slot]
            best = [returns[i] for i in plays if math.isfinite(returns[i])]
            self.entries[slot].max_return = max([self.entries[slot].max_return, *best])
            score = self.combine([scores[i] for i in plays], [valid[i] for i in plays])
            if score is not None:
                self.entries[slot].scores = score

    def combine(self, scores, valid, which=-1):
        """One score of several plays, or None if none of them counts."""
        good = [s for s, v in zip(scores, valid) if v and all(map(math.isfinite, s))]
        if not good:
            return None
        if self.repeated == "last":
            return list(good[which])
        return [sum(column) / len(good) for column in zip(*good)]

    # -- insertion -------------------------------------------------------------------------------------

    def insert(self, levels, scores, valid, returns, parents, generations, first_scores=None):
        """Returns the slot of each level after the batch, or None."""
        first_scores = scores if first_scores is None else first_scores
        # A level that has to leave and comes back in the same batch keeps its best return.
        known = {entry.level: entry.max_return for entry in self.entries}
        for i, level in enumerate(levels):
            plays = [j for j, other in enumerate(levels) if other == level]
            if plays[0] == i:
                score = self.combine([scores[j] for j in plays], [valid[j] for j in plays])
                entry = score
                if self.repeated == "last":
                    entry = self.combine([first_scores[j] for j in plays], [valid[j] for j in plays], 0)
                reached = [returns[j] for j in plays if math.isfinite(returns[j])]
                best = max([known.get(level, -math.inf), *reached])
                behind = len(levels) - 1 - i
                self.offer(level, score, entry, best, parents[i], generations[i], self.clock - behind)
        stored = [e.level for e in self.entries]
        return [stored.index(level) if level in stored else None for level in levels]

    def offer(self, level, score, entry_score, best, parent, generation, seen):
        for entry in self.entries:
            if entry.level == level:
                entry.last = seen
                entry.max_return = max(entry.max_return, best)
                entry.scores = entry.scores if score is None else score
                return
        victim = None
        if score is not None and len(self.entries) == self.capacity:
            victim = self.worst()
            if not self.beats(entry_score, victim):
                score = None
        if score is None:
            return
        new = Entry(level, score, best, seen, self.next_number, parent, generation)
        self.next_number += 1
        if victim is None:
            self.entries.append(new)
        else:
            self.entries[victim] = new

    def worst(self):
        """The slot of the lowest probability; of equal ones the worst ranked."""
        p = self.probabilities()
        if self.victim == "lowest-priority":
            p = self.mixture([(e.scores, e.number) for e in self.entries])
        lowest = [slot for slot, chance in enumerate(p) if chance <= min(p) * (1 + 1e-9)]
        columns = [[(e.scores[j], e.number) for e in self.entries] for j in range(len(self.mix))]

        def depth(slot):
            return sum(w * self.rank(pairs, slot) for w, pairs in zip(self.mix, columns))

        return max(lowest, key=depth)

    def beats(self, score, victim):
        if self.insertion == "raw":
            return score[0] >= self.entries[victim].scores[0]
        candidates = [(e.scores, e.number) for e in self.entries] + [(score, self.next_number)]
        mixture = self.mixture(candidates)
        return mixture[-1] > mixture[victim]
