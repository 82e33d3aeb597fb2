"""The score on the worst levels of a suite, against the definition told by loops."""

import io

import numpy as np
import pytest
from rich.console import Console

from cenie.envs.base import Suite, SuiteEntry
from cenie.experiment.rows import EvaluationRow
from cenie.rundir.evaluate import score_table
from cenie.rundir.evaluations import Evaluation, episodes_of
from cenie.rundir.worst import FEWEST_ENTRIES, worst_levels


def played(rates, plays, seed=0):
    """Entries and scores of some plays of each entry, which is solved with its own probability."""
    rng = np.random.default_rng(seed)
    entries = [("band", number) for number in range(len(rates)) for _ in range(plays)]
    return entries, (rng.random(len(entries)) < np.repeat(rates, plays)).astype(float)


def expected(entries, scores, worst):
    """The definition: with ties in random order, averaged over many orders."""
    plays = {}
    for entry, score in zip(entries, scores, strict=True):
        plays.setdefault(entry, []).append(score)
    halves = [(np.mean(each[0::2]), np.mean(each[1::2])) for each in plays.values()]
    rng, results = np.random.default_rng(1), []
    count = round(worst * len(halves))
    for _ in range(4000):
        shuffled = [halves[number] for number in rng.permutation(len(halves))]
        for find, count_by in ((0, 1), (1, 0)):
            chosen = sorted(shuffled, key=lambda each, find=find: each[find])[:count]
            results.append(np.mean([each[count_by] for each in chosen]))
    return np.mean(results)


@pytest.mark.parametrize("plays", [2, 5, 8])
def test_worst_levels_are_found_by_other_plays_than_those_that_count(plays):
    rates = np.random.default_rng(plays).beta(1.0, 0.5, 120)
    entries, scores = played(rates, plays)
    assert worst_levels(entries, scores) == pytest.approx(expected(entries, scores, 0.1), abs=0.006)


def test_levels_of_one_rate_have_it_on_their_worst_too():
    """Counted by the plays that find them, the worst tenth of equal levels would have next to 0."""
    entries, scores = played(np.full(4000, 0.5), 6)
    assert worst_levels(entries, scores) == pytest.approx(0.5, abs=0.03)
    assert np.sort(scores.reshape(-1, 6).mean(axis=1))[:400].mean() < 0.2


def test_the_worst_tenth_of_levels_that_are_solved_or_not_is_those_that_are_not():
    rates = np.repeat([0.0, 1.0], [15, 285])
    assert worst_levels(*played(rates, 4)) == pytest.approx(0.5)
    assert worst_levels(*played(rates, 4), worst=0.05) == 0.0


def test_the_order_of_entries_says_nothing_but_that_of_plays_does():
    entries, scores = played(np.random.default_rng(2).random(150), 4)
    order = np.argsort([number % 4 for number in range(len(entries))], kind="stable")
    shuffled = worst_levels([entries[number] for number in order], scores[order])
    assert shuffled == pytest.approx(worst_levels(entries, scores))


def test_small_suites_and_single_plays_have_no_worst_levels():
    assert worst_levels(*played(np.full(FEWEST_ENTRIES - 1, 0.5), 4)) is None
    assert worst_levels(*played(np.full(FEWEST_ENTRIES, 0.5), 1)) is None
    assert worst_levels(*played(np.full(FEWEST_ENTRIES, 0.5), 2)) is not None
    assert worst_levels([], []) is None


def test_a_score_that_is_nan_is_not_hidden():
    entries, scores = played(np.full(200, 0.5), 2)
    scores[7] = np.nan
    assert np.isnan(worst_levels(entries, scores))


@pytest.mark.parametrize(("count", "said"), [(60, True), (45, False)])
def test_cenie_evaluate_prints_the_worst_tenth_of_a_large_suite(count, said):
    suite = Suite(
        "large", [SuiteEntry(f"band {n % 2}", f"{n // 2}", lambda rng: None) for n in range(2 * count)]
    )
    rows = [
        # Every fifth level of the first band is never solved, and all others always are.
        EvaluationRow("large", entry.level, entry.variant, episode, 0.0, solved, float(solved), 9)
        for number, entry in enumerate(suite.entries)
        for solved in [number % 10 != 0]
        for episode in range(2)
    ]
    text = io.StringIO()
    Console(file=text, width=100).print(score_table(suite, episodes_of([Evaluation(1, 1, 1, rows)])))
    lines = text.getvalue().splitlines()
    assert any("band 0" in line and "0.80" in line for line in lines)
    assert any("mean" in line and "0.900" in line for line in lines)
    assert any("worst 10% of 120 levels (CVaR)" in line and "0.000" in line for line in lines) == said
