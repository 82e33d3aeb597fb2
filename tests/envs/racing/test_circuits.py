"""The circuits of the benchmark, gym's classic tracks, and splines through points."""

import math

import jax
import numpy as np
import pytest
from benchmarks.circuit_shapes import difference, original_lines

from cenie.envs.racing.circuits import (
    DCD_LIMITS,
    LIMITS,
    f1_circuit,
    stack_circuits,
    vanilla_circuit,
)
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.spline import closed_line
from cenie.envs.racing.suites import suites
from cenie.envs.racing.track import HALF_WIDTH, track_of_circuit
from tests.envs.racing import oracle

# Length, 4 pi A / P^2, whether the nodes go counter-clockwise, and the paper's time limit.
BENCHMARK = {
    "Australia": (1687, 0.47, True, 1500),
    "Austria": (1928, 0.29, True, 1500),
    "Bahrain": (2790, 0.21, True, 2500),
    "Belgium": (2167, 0.24, True, 1500),
    "Brazil": (2838, 0.27, False, 2000),
    "China": (3035, 0.16, True, 2000),
    "France": (1922, 0.16, True, 2000),
    "Germany": (2302, 0.16, True, 2000),
    "Hungary": (1932, 0.35, True, 2000),
    "Italy": (2036, 0.36, True, 1500),
    "Malaysia": (3257, 0.19, True, 2500),
    "Mexico": (2004, 0.38, True, 3000),
    "Monaco": (1746, 0.15, True, 1500),
    "Netherlands": (2578, 0.15, True, 2000),
    "Portugal": (2735, 0.22, True, 2500),
    "Russia": (1849, 0.18, False, 2000),
    "Singapore": (2154, 0.23, False, 2000),
    "Spain": (2372, 0.21, False, 2000),
    "UK": (1961, 0.32, False, 2000),
    "USA": (1861, 0.19, False, 2000),
}

# Width, height, and the direction of the nodes at the start, in degrees.
OUTER = {
    "Australia": (613, 371, 43.3),
    "Austria": (554, 355, 165.8),
    "Bahrain": (616, 396, 179.9),
    "Belgium": (625, 381, 144.8),
    "Brazil": (693, 435, -15.6),
    "China": (739, 474, -67.7),
    "France": (686, 427, -142.7),
    "Germany": (767, 397, -145.9),
    "Hungary": (397, 429, -179.6),
    "Italy": (798, 392, 178.4),
    "Malaysia": (680, 560, 175.0),
    "Mexico": (667, 437, -179.1),
    "Monaco": (459, 445, -128.2),
    "Netherlands": (587, 498, -66.9),
    "Portugal": (712, 299, -180.0),
    "Russia": (607, 353, -22.2),
    "Singapore": (615, 363, -94.5),
    "Spain": (697, 206, -91.7),
    "UK": (544, 416, 107.2),
    "USA": (477, 497, 12.7),
}


@pytest.mark.parametrize("name", BENCHMARK)
def test_circuits_are_those_of_the_benchmark(name):
    length, roundness, counter_clockwise, limit = BENCHMARK[name]
    circuit = f1_circuit(name, 1024, LIMITS[name])
    nodes = np.asarray(circuit.nodes, float)
    x, y = nodes
    found = oracle.length_of(nodes)
    area = np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) / 2
    assert found == pytest.approx(length, rel=0.025)
    assert 4 * math.pi * abs(area) / found**2 == pytest.approx(roundness, abs=0.025)
    assert (area > 0) == counter_clockwise
    assert int(circuit.time_limit) == limit
    np.testing.assert_allclose(nodes.max(1) + nodes.min(1), 0, atol=1e-3)
    steps = np.hypot(*(np.roll(nodes, -1, axis=1) - nodes))
    assert steps.min() > 0.9 * steps.max()  # chords of equal arcs


@pytest.mark.parametrize("name", OUTER)
def test_circuits_measure_what_those_of_the_benchmark_do_within_a_roads_width(name):
    sides = np.ptp(np.asarray(f1_circuit(name, 1024, LIMITS[name]).nodes, float), axis=1)
    wide = 18 if name == "Monaco" else 2 * HALF_WIDTH
    np.testing.assert_allclose(sides, OUTER[name][:2], rtol=0, atol=wide)


@pytest.mark.parametrize("name", OUTER)
def test_cars_start_in_the_direction_of_the_benchmark(name):
    """Monaco and the USA were turned by 20 degrees; Monaco's line still bends otherwise there."""
    ahead = math.degrees(float(f1_circuit(name, 1024, LIMITS[name]).normal[0])) - 90
    turned = (ahead - OUTER[name][2] + 180) % 360 - 180
    assert abs(turned) < (12.5 if name == "Monaco" else 6)


@pytest.mark.parametrize("name", OUTER)
def test_circuits_are_smooth_where_their_ends_meet(name):
    nodes = np.asarray(f1_circuit(name, 4096, LIMITS[name]).nodes, float)
    way = np.roll(nodes, -1, axis=1) - nodes
    assert np.hypot(*way).max() < 1
    heading = np.arctan2(way[1], way[0])
    turn = (heading[0] - heading[-1] + math.pi) % (2 * math.pi) - math.pi
    assert abs(turn) < math.radians(2)


def test_gaps_between_lines_are_measured_both_ways():
    angle = np.linspace(0, 2 * math.pi, 2000, endpoint=False)
    circle = 100 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    same = difference(circle, circle)
    np.testing.assert_allclose(same, 0, atol=1e-9)
    shifted = difference(circle, np.roll(circle, 1000, axis=0) + np.array([3, 0]))
    assert shifted.largest == pytest.approx(3, abs=0.2)
    assert shifted.start == pytest.approx(197)
    assert abs(shifted.turned) == pytest.approx(180)
    bulge = circle + np.where(np.abs(angle - 1) < 0.1, 40, 0)[:, None] * circle / 100
    assert difference(circle, bulge).largest == pytest.approx(40, abs=0.5)
    assert difference(bulge, circle).largest == pytest.approx(40, abs=0.5)


def test_lines_of_the_original_code_are_read_and_not_executed():
    text = "raise SystemExit\nA = Track(name='A', xy=[[0, 0], [4, 0], [4, 2], [0, 0]], bounds=3)\n"
    lines = original_lines(text)
    assert list(lines) == ["A"]
    np.testing.assert_array_equal(lines["A"], [[-2, -1], [2, -1], [2, 1]])


def test_suites_have_the_limits_and_ranges_of_the_paper():
    made = suites(RacingConfig())
    f1 = made["f1"]()
    assert [entry.level for entry in f1.entries] == list(BENCHMARK)
    for entry in f1.entries:
        limit = BENCHMARK[entry.level][3]
        assert entry.bounds == pytest.approx((-limit / 10, 1000 - limit / 10))
    assert [entry.level for entry in made["f1-monitor"]().entries] == [
        "Italy",
        "Singapore",
        "Germany",
        "Vanilla",
    ]
    assert f1.measure == "score"
    assert all(make().environment.config.shaping is False for make in made.values())
    china = next(e for e in suites(RacingConfig(limits="dcd"))["f1"]().entries if e.level == "China")
    assert china.bounds == pytest.approx((-250, 750))
    assert {name for name in LIMITS if LIMITS[name] != DCD_LIMITS[name]} == {"China"}


def test_bezier_tracks_are_held_out_and_stay_the_same():
    entries = suites(RacingConfig())["bezier"]().entries
    first = [np.asarray(entry.draw(np.random.default_rng(0)).points) for entry in entries]
    again = [np.asarray(entry.draw(np.random.default_rng(9)).points) for entry in entries]
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first, axis=0)) == len(entries) == 10


def test_a_spline_through_points_of_a_circle_is_nearly_one():
    angle = 2 * math.pi / 40 * (np.arange(40) + np.random.default_rng(0).uniform(-0.2, 0.2, 40))
    points = 100 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x, y = closed_line(points, 500)
    np.testing.assert_allclose(np.hypot(x, y), 100, atol=0.5)
    np.testing.assert_allclose((x[0], y[0]), points[0], atol=1e-9)


def test_splines_are_those_of_scipy():
    interpolate = pytest.importorskip("scipy.interpolate")
    points = np.random.default_rng(1).uniform(-100, 100, (12, 2))
    closed = np.concatenate([points, points[:1]])
    knots = np.concatenate([[0], np.cumsum(np.sqrt(np.hypot(*np.diff(closed, axis=0).T)))])
    spline = interpolate.CubicSpline(knots, closed, bc_type="periodic")
    fine = spline(np.linspace(0, knots[-1], 200_001))
    for node in closed_line(points, 50).T:
        assert np.min(np.hypot(*(fine - node).T)) < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_classic_tracks_are_those_of_gymnasium(seed):
    racing = pytest.importorskip("gymnasium.envs.box2d.car_racing")
    environment = racing.CarRacing()
    environment.np_random = np.random.default_rng(seed)
    environment.road_poly = []
    while not environment._create_track():
        environment.road_poly = []
    circuit = vanilla_circuit(np.random.default_rng(seed))
    count = int(circuit.count)
    theirs = np.array(environment.track)
    assert count == len(theirs)
    np.testing.assert_allclose(circuit.nodes[:, :count].T, theirs[:, 2:], atol=1e-4)
    np.testing.assert_allclose(circuit.normal[:count], theirs[:, 1], atol=1e-5)
    made = jax.jit(track_of_circuit)(circuit)
    np.testing.assert_array_equal(made.kerbed[:count], oracle.kerbs(theirs[:, 1], 0.062))
    quads = np.moveaxis(np.asarray(made.road), -1, 0).swapaxes(1, 2)[:count]
    roads = [
        polygon for polygon, colour in environment.road_poly if len(set(colour)) == 1 and colour[0] < 200
    ]
    np.testing.assert_allclose(quads, np.array(roads), atol=1e-3)
    # All kerbs are drawn where gymnasium draws them.
    theirs = [polygon for polygon, colour in environment.road_poly if colour[0] == 255]
    kerbs = np.moveaxis(np.asarray(made.kerb), -1, 0).swapaxes(1, 2)[np.asarray(made.kerbed)]
    np.testing.assert_allclose(kerbs, np.array(theirs).reshape(-1, 4, 2), atol=1e-3)


def test_circuits_of_different_lengths_are_stacked():
    stacked = stack_circuits([f1_circuit("Italy", 600, 1500), vanilla_circuit(np.random.default_rng(0))])
    assert stacked.nodes.shape == (2, 2, 600)
    made = jax.jit(jax.vmap(track_of_circuit))(stacked)
    assert made.exists.sum(1).tolist() == [600, int(stacked.count[1])]
    assert np.isfinite(made.road).all()
