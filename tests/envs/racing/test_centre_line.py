"""Circuits of users: GeoJSON and CSV, read strictly, and driven in the order of their points."""

import json
import math

import jax
import numpy as np
import pytest

from cenie.envs.racing.centre_line import METRES_PER_UNIT, read_centre_line
from cenie.envs.racing.circuits import user_circuit, user_limit
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.suites import suite_of_file, suites
from cenie.envs.suite_files import is_file_suite
from cenie.experiment.config import evaluation_request
from cenie.experiment.presets import preset
from cenie.settings import SettingsError
from tests.envs.racing import oracle

RADIUS = 200.0
ANGLES = np.linspace(0, 2 * math.pi, 60, endpoint=False)
CIRCLE = np.stack([RADIUS * np.cos(ANGLES), 0.6 * RADIUS * np.sin(ANGLES)], axis=1)
LENGTH = oracle.length_of(CIRCLE.T)


def csv(points=CIRCLE, header="x,y\n", scale=1.0):
    return header + "".join(f"{scale * x:.9f},{scale * y:.9f}\n" for x, y in points)


def geojson(points=CIRCLE, closed=True, **facts):
    """The circle near Monza, a unit of which is some metres."""
    metres = METRES_PER_UNIT * np.concatenate([points, points[:1]] if closed else [points])
    latitude = 45.62 + np.degrees(metres[:, 1] / 6_371_000)
    longitude = 9.28 + np.degrees(metres[:, 0] / 6_371_000) / math.cos(math.radians(45.62))
    line = {"type": "LineString", "coordinates": np.stack([longitude, latitude], axis=1).tolist()}
    feature = {"type": "Feature", "properties": facts, "geometry": line}
    return {"type": "FeatureCollection", "features": [feature]}


def test_all_formats_give_the_same_line():
    expected = read_centre_line("a.csv", csv())
    texts = {
        "b.csv": csv(header=""),
        "c.csv": csv(header="# x_m, y_m\n", scale=METRES_PER_UNIT),
        "d.geojson": json.dumps(geojson(length=METRES_PER_UNIT * LENGTH)),
        "e.json": json.dumps(geojson()["features"][0]["geometry"]),
        "f.csv": csv(np.concatenate([CIRCLE, CIRCLE[:1]])),
    }
    for name, text in texts.items():
        line = read_centre_line(name, text)
        assert line.name == name[0]
        assert len(line.points) == 60
        assert line.length == pytest.approx(expected.length, rel=1e-3)
        middle = (line.points.max(0) + line.points.min(0)) / 2
        np.testing.assert_allclose(line.points - middle, CIRCLE, atol=0.5)


def test_the_car_drives_in_the_order_of_the_points():
    line = read_centre_line("circle.csv", csv())
    circuit = user_circuit(line, 128, user_limit(line.length))
    nodes, angle = np.asarray(circuit.nodes), float(circuit.normal[0])
    np.testing.assert_allclose(nodes[:, 0], CIRCLE[0], atol=0.5)
    ahead = np.array([-math.sin(angle), math.cos(angle)])
    assert ahead @ (CIRCLE[1] - CIRCLE[0]) > 0
    assert oracle.length_of(nodes) == pytest.approx(LENGTH, rel=0.01)
    assert user_limit(2036.0) == 2000


def test_a_large_circuit_has_a_larger_field():
    line = read_centre_line("large.csv", csv(5 * CIRCLE))
    assert float(user_circuit(line, 128, 1000).playfield) > 1000


def test_a_file_is_a_suite_of_one_entry():
    suite = suite_of_file(RacingConfig(circuit_tiles=64), "some/where/Oval 1.geojson", json.dumps(geojson()))
    assert suite.name.startswith("file:Oval 1.geojson@")
    (entry,) = suite.entries
    level = entry.draw(np.random.default_rng(0))
    assert entry.bounds == pytest.approx((-0.1 * int(level.time_limit), 1000 - 0.1 * int(level.time_limit)))
    assert {leaf.dtype.kind for leaf in jax.tree.leaves(level)} == {"f", "i"}


@pytest.mark.parametrize("name", ["f1", "f1-monitor", "vanilla", "bezier"])
def test_a_file_that_is_called_like_a_suite_is_not_taken_for_it(name):
    config = RacingConfig(circuit_tiles=64)
    one, other = (suite_of_file(config, f"{name}.csv", csv(scale=scale)).name for scale in (1, 1.1))
    assert one not in suites(config)
    assert is_file_suite(one)
    assert one != other, "files of one name and different contents are different suites"
    assert not any(map(is_file_suite, suites(config)))


HALF = CIRCLE[:30]
BAD = {
    "is no centre line": ("a.txt", csv()),
    "empty": ("a.csv", ""),
    "header must name": ("a.csv", csv(header="lon,lat\n")),
    "two columns": ("a.csv", "1,2,3\n4,5,6\n"),
    "row 2 has no two numbers": ("a.csv", "x,y\n1,2\n3,zwei\n"),
    "not finite": ("a.csv", csv() + "nan,1\n"),
    "at least 3 different points": ("a.csv", "x,y\n0,0\n100,0\n0,0\n"),
    "not closed": ("a.csv", csv(HALF)),
    "units long": ("a.csv", csv(scale=1e-3)),
    "measures": ("a.csv", csv(CIRCLE * [1, 0.01])),
    "no JSON": ("a.geojson", "{"),
    "no GeoJSON": ("a.geojson", "[]"),
    "one LineString": ("a.geojson", json.dumps({"type": "FeatureCollection", "features": []})),
    "pairs": ("a.geojson", json.dumps({"type": "LineString", "coordinates": [1, 2]})),
    "must be a list": ("a.geojson", json.dumps({"type": "LineString", "coordinates": 3})),
    "is empty": ("a.geojson", json.dumps({"type": "LineString", "coordinates": []})),
    "finite number": ("a.geojson", json.dumps({"type": "LineString", "coordinates": [[None, 1]]})),
    "longitudes": ("a.geojson", json.dumps({"type": "LineString", "coordinates": CIRCLE.tolist()})),
    "the file says": ("a.geojson", json.dumps(geojson(length=5.8))),
    "more than a degree": (
        "a.geojson",
        json.dumps({"type": "LineString", "coordinates": [[0, 0], [5, 0], [5, 5], [0, 0]]}),
    ),
}


@pytest.mark.parametrize("reason", BAD)
def test_files_that_are_no_circuits_are_refused(reason):
    with pytest.raises(ValueError, match=reason):
        read_centre_line(*BAD[reason])


def test_a_suite_may_be_a_file_where_the_domain_reads_such_files(tmp_path):
    circuit, broken = tmp_path / "mine.csv", tmp_path / "broken.geojson"
    circuit.write_text(csv())
    broken.write_text("{}")
    racing, maze = preset("racing", "dr"), preset("maze", "dr")
    assert evaluation_request(racing, {"suite": str(circuit)}).suite == str(circuit)
    assert evaluation_request(racing, {"suite": "f1"}).suite == "f1"
    for suite, reason in {
        str(broken): "cannot be played: the file is no GeoJSON",
        str(tmp_path / "none.csv"): "cannot read it",
        str(tmp_path): "cannot read it",
        "f2": r"must be one of f1, .* \(or a file\), got 'f2'",
    }.items():
        with pytest.raises(SettingsError, match=reason):
            evaluation_request(racing, {"suite": suite})
    with pytest.raises(SettingsError, match="must be one of cenie8"):
        evaluation_request(maze, {"suite": str(circuit)})
