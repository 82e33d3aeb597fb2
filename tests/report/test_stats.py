"""The statistics are rliable's, and their intervals mean what they say."""

import json

import numpy as np
import pytest

from cenie.report import stats
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
    found = stats.estimate(INPUTS[name], STATISTICS[statistic], resamples=5000)
    np.testing.assert_allclose([found.low, found.high], GOLDEN["intervals"][name][statistic], atol=0.02)


def test_the_interval_of_an_improvement_agrees_with_that_of_rliable():
    found = stats.estimate_improvement(INPUTS["rates"], INPUTS["others"], resamples=5000)
    expected = GOLDEN["intervals"]["pair"]["probability_of_improvement"]
    np.testing.assert_allclose([found.low, found.high], expected, atol=0.02)


def test_the_bootstrap_is_stratified():
    """Tasks that differ and runs that do not: whatever is drawn, each task is in it once."""
    equal_runs = np.tile(np.array([0.1, 0.5, 0.9]), (4, 1))
    found = stats.estimate(equal_runs, stats.mean)
    assert found.low == found.high == pytest.approx(0.5)


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    samples = rng.uniform(size=(200, 10, 6))
    ends = [stats.estimate(each, stats.mean, resamples=400, seed=3) for each in samples]
    held = np.mean([each.low <= 0.5 <= each.high for each in ends])
    assert 0.85 < held < 0.99


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
    found = stats.estimate(runs, stats.cvar)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_cvar_counts_the_last_level_in_part():
    assert float(stats.cvar(np.array([[0.0, 1.0, 5.0]]), 0.5)) == pytest.approx((0.0 + 0.5 * 1.0) / 1.5)


def test_a_profile_falls_and_lies_within_its_interval():
    found = stats.estimate_profile(INPUTS["rates"], np.linspace(0, 1, 11), resamples=500)
    assert (np.diff(found["value"]) <= 0).all()
    assert (found["low"] <= found["value"]).all()
    assert (found["value"] <= found["high"]).all()
