"""The statistics are rliable's, and their intervals mean what they say."""

import json

import numpy as np
import pytest
from scipy.stats import sem
from scipy.stats import t as student

from cenie.report.measure import stats
from tests.report.golden import PATH, THRESHOLDS, scores

GOLDEN = json.loads(PATH.read_text())
INPUTS = {name: np.array(values) for name, values in GOLDEN["inputs"].items()}
STATISTICS = {
    "iqm": stats.iqm,
    "median": stats.median,
    "mean": stats.mean,
    "optimality_gap": stats.optimality_gap,
    "optimality_gap 0.95": lambda values: stats.optimality_gap(values, 0.95),
}


def test_the_stored_inputs_are_those_of_the_script():
    for name, values in scores().items():
        np.testing.assert_allclose(INPUTS[name], values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_aggregates_are_those_of_rliable(name, statistic):
    expected = GOLDEN["aggregates"][name][statistic]
    assert float(STATISTICS[statistic](INPUTS[name])) == pytest.approx(expected, rel=0, abs=1e-6)


def test_the_probability_of_improvement_is_that_of_rliable():
    ours, others = INPUTS["rates"], INPUTS["others"]
    expected = GOLDEN["probability_of_improvement"]
    assert float(stats.probability_of_improvement(ours, others)) == pytest.approx(expected, abs=1e-6)
    assert float(stats.probability_of_improvement(others, ours)) == pytest.approx(1 - expected, abs=1e-6)


@pytest.mark.parametrize("name", INPUTS)
def test_profiles_are_those_of_rliable(name):
    profile = stats.score_profile(INPUTS[name], np.array(THRESHOLDS))
    np.testing.assert_allclose(profile, GOLDEN["profiles"][name], rtol=0, atol=1e-6)


def test_resamples_with_the_same_indices_are_those_of_rliable():
    indices = np.array([each["indices"] for each in GOLDEN["resamples"]])
    drawn = stats.resampled(INPUTS["rates"], indices)
    for name, statistic in STATISTICS.items():
        expected = [each[name] for each in GOLDEN["resamples"]]
        np.testing.assert_allclose(statistic(drawn), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["rates", "returns"])
@pytest.mark.parametrize("statistic", ["iqm", "optimality_gap"])
def test_intervals_agree_with_those_of_rliable(name, statistic):
    """Both are drawn at random: of 3 to 5 runs the ends are known to about two hundredths."""
    found = stats.estimate(INPUTS[name], getattr(stats, statistic), stratified=True, resamples=5000)
    np.testing.assert_allclose([found.low, found.high], GOLDEN["intervals"][name][statistic], atol=0.02)


def test_the_interval_of_an_improvement_agrees_with_that_of_rliable():
    found = stats.estimate_improvement(INPUTS["rates"], INPUTS["others"], stratified=True, resamples=5000)
    expected = GOLDEN["intervals"]["pair"]["probability_of_improvement"]
    np.testing.assert_allclose([found.low, found.high], expected, atol=0.02)


def test_equal_runs_have_no_spread_whatever_their_tasks_are():
    """Tasks that differ and runs that do not: whatever is drawn, each task is in it once."""
    equal_runs = np.tile(np.array([0.1, 0.5, 0.9]), (4, 1))
    for stratified in (False, True):
        for statistic in stats.AGGREGATES.values():
            found = stats.estimate(equal_runs, statistic, stratified=stratified)
            assert found.low == pytest.approx(found.value) == pytest.approx(found.high)


def runs_good_as_a_whole(rng, count, runs, levels=8):
    """Samples of runs that differ as a whole twice as much as on a level; their true mean is 0.5."""
    own = rng.normal(0.0, 0.2, (count, runs, 1)) + rng.normal(0.0, 0.1, (count, runs, levels))
    return 0.5 + np.linspace(-0.3, 0.3, levels) + own


def held(statistic, runs, count, **options):
    samples = runs_good_as_a_whole(np.random.default_rng(runs), count, runs)
    ends = [stats.estimate(each, statistic, resamples=800, **options) for each in samples]
    return np.mean([each.low <= 0.5 <= each.high for each in ends])


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_an_interval_of_a_mean_holds_the_truth_as_often_as_it_says(runs):
    """Runs that were drawn for each level by itself held it in about half of the cases."""
    assert 0.92 < held(stats.mean, runs, 600) < 0.98


@pytest.mark.parametrize("statistic", [stats.iqm, stats.median])
def test_an_interval_of_whole_runs_holds_the_truth_about_as_often_as_it_says(statistic):
    """By symmetry the truth of both is 0.5. Fewer runs hold it less often, and a sentence says so."""
    assert 0.9 < held(statistic, stats.FEW, 900) < 0.98
    assert held(statistic, 2, 300) < 0.9
    assert stats.few_runs(2)
    assert not stats.few_runs(stats.FEW)


def test_the_stratified_interval_of_rliable_is_far_too_narrow_for_runs_that_are_good_as_a_whole():
    """Why it is an option and no default."""
    assert held(stats.iqm, 5, 150, stratified=True) < 0.75


def test_an_improvement_over_equals_is_held_by_the_interval_of_whole_runs():
    rng = np.random.default_rng(4)
    pairs = zip(runs_good_as_a_whole(rng, 150, 5), runs_good_as_a_whole(rng, 150, 5))
    ends = [stats.estimate_improvement(one, other, resamples=500) for one, other in pairs]
    assert np.mean([each.low <= 0.5 <= each.high for each in ends]) > 0.88


@pytest.mark.parametrize("name", ["rates", "returns", "others"])
def test_the_interval_of_a_mean_is_students(name):
    found, means = stats.estimate(INPUTS[name], stats.mean), INPUTS[name].mean(axis=1)
    expected = student.interval(0.95, len(means) - 1, means.mean(), sem(means))
    np.testing.assert_allclose([found.low, found.high], expected, rtol=1e-9)


def test_a_score_that_is_nan_makes_every_statistic_nan():
    """Sorting puts NaN last: the inter-quartile mean cut it off, and was a number."""
    scores = INPUTS["rates"].copy()
    scores[1, 2] = np.nan
    for found in stats.aggregate(scores).values():
        assert np.isnan([found.value, found.low, found.high]).all()
    for pair in ((scores, INPUTS["others"]), (INPUTS["others"], scores)):
        found = stats.estimate_improvement(*pair)
        assert np.isnan([found.value, found.low, found.high]).all()
    profile = stats.estimate_profile(scores, np.array(THRESHOLDS))
    assert np.isnan(np.stack(list(profile.values()))).all()


def test_chunks_of_resamples_are_all_resamples(monkeypatch):
    monkeypatch.setattr(stats, "_CHUNK", 1000)
    assert len(stats.bootstrap(INPUTS["rates"], stats.iqm, resamples=77)) == 77


def test_one_run_has_a_value_and_no_interval():
    found = stats.aggregate(INPUTS["rates"][:1])
    assert set(found) == set(stats.AGGREGATES)
    assert all(np.isfinite(each.value) and np.isnan([each.low, each.high]).all() for each in found.values())
    assert np.isnan(stats.standard_error(np.ones((1, 3)))).all()
    assert np.isnan(stats.estimate_improvement(INPUTS["rates"][:1], INPUTS["others"]).low)
    assert np.isnan(stats.estimate_profile(INPUTS["rates"][:1], np.array([0.5]))["low"]).all()


@pytest.mark.parametrize(
    ("worst", "expected"), [(0.25, 0.15), (0.5, 0.25), (1.0, 0.45), (0.125, 0.1), (0.375, 0.2)]
)
def test_cvar_is_the_mean_of_the_worst_levels_of_each_run(worst, expected):
    levels = np.array([0.7, 0.1, 0.4, 0.8, 0.3, 0.2, 0.6, 0.5])
    run = np.array([levels, levels[::-1]])
    assert float(stats.cvar(run, worst)) == pytest.approx(expected)


def test_the_worst_levels_are_those_of_whole_runs():
    """Two runs that fail on one level each: mixed with each other they would fail on both or on none."""
    runs = np.array([[0.0, 1.0], [1.0, 0.0]])
    for stratified in (False, True):
        found = stats.estimate(runs, stats.cvar, stratified=stratified)
        assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_cvar_counts_the_last_level_in_part():
    assert float(stats.cvar(np.array([[0.0, 1.0, 5.0]]), 0.5)) == pytest.approx((0.0 + 0.5 * 1.0) / 1.5)


def test_a_profile_falls_and_lies_within_its_interval():
    found = stats.estimate_profile(INPUTS["rates"], np.linspace(0, 1, 11), resamples=500)
    assert (np.diff(found["value"]) <= 0).all()
    assert (found["low"] <= found["value"]).all()
    assert (found["value"] <= found["high"]).all()
