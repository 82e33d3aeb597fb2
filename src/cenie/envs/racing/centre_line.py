"""Centre lines of circuits from GeoJSON or CSV, read strictly. Imports no JAX."""

import csv
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenie.envs import level_json

FILES = (".geojson", ".json", ".csv")
METRES_PER_UNIT = 2.3
"""Metres of a real circuit to a unit of length: the mean of the benchmark's circuits."""

_EARTH_RADIUS = 6_371_000.0
_MOST_POINTS = 100_000
_SHORTEST, _LONGEST = 100.0, 20_000.0
"""Between what the length of a circuit must lie, in units."""
_NARROWEST = 20.0
"""The least size of a circuit in its shorter direction: the road is 13 wide."""
_LENGTH_TOLERANCE = 0.1
"""The largest difference between a length in a file and the length of its line."""


@dataclass(frozen=True, eq=False)
class CentreLine:
    """A closed line, in units of length: every point once, in the order in which it is driven."""

    name: str
    points: np.ndarray
    length: float


def read_centre_line(name: str, text: str) -> CentreLine:
    """The centre line in a file of this name and content. Raises `ValueError` with the reason if it has none.

    GeoJSON has one LineString (or a Polygon of one ring) of longitudes and latitudes. CSV has the columns
    `x` and `y` in units of length, or `x_m` and `y_m` in metres, or no header and two columns in units.
    """
    stem, dot, kind = name.replace("\\", "/").rsplit("/", 1)[-1].rpartition(".")
    if f"{dot}{kind.lower()}" not in FILES:
        raise ValueError(f"{name!r} is no centre line: its name must end in {', '.join(FILES)}")
    points = _from_csv(text) if kind.lower() == "csv" else _from_geojson(text)
    title = "".join(letter if letter.isprintable() else "_" for letter in stem)
    return _checked(title or "circuit", points)


def _checked(name: str, points: np.ndarray) -> CentreLine:
    if not np.all(np.isfinite(points)):
        raise ValueError("the centre line has coordinates that are not finite")
    steps = np.hypot(*np.diff(points, axis=0).T)
    distinct = points[np.concatenate([[True], steps > 1e-9])]
    gap = math.dist(distinct[0], distinct[-1])
    # The first point may be there again at the end.
    closes = gap <= 1e-6 * (1 + float(np.max(np.abs(distinct))))
    line = distinct[:-1] if closes and len(distinct) > 1 else distinct
    if len(np.unique(line, axis=0)) < 3:
        raise ValueError("the centre line needs at least 3 different points")
    longest = float(np.max(np.hypot(*np.diff(line, axis=0).T)))
    if not closes and gap > 2 * longest:
        raise ValueError(
            f"the centre line is not closed: its ends are {gap:.4g} units apart, and its longest step is "
            f"{longest:.4g}"
        )
    length = float(np.sum(np.hypot(*(np.roll(line, -1, axis=0) - line).T)))
    if not _SHORTEST <= length <= _LONGEST:
        raise ValueError(
            f"the centre line is {length:.4g} units long, and must have {_SHORTEST:g} .. {_LONGEST:g} "
            f"(a unit is {METRES_PER_UNIT} m): are its coordinates in other units?"
        )
    sides = np.ptp(line, axis=0)
    if float(np.min(sides)) < _NARROWEST:
        raise ValueError(
            f"the centre line measures {sides[0]:.4g} x {sides[1]:.4g} units, and must have {_NARROWEST:g} "
            "or more in both directions, as the road is 13 wide"
        )
    return CentreLine(name, line, length)


def _from_csv(text: str) -> np.ndarray:
    rows = [row for row in csv.reader(text.splitlines()) if row and any(cell.strip() for cell in row)]
    if not rows:
        raise ValueError("the file is empty")
    header = [cell.strip().lstrip("#").strip().lower() for cell in rows[0]]
    scale = 1.0
    if all(map(_is_number, header)):
        columns = (0, 1)
        if len(header) != 2:
            raise ValueError(
                f"a file without a header must have two columns, x and y; this has {len(header)}"
            )
    else:
        for names, divisor in ((("x", "y"), 1.0), (("x_m", "y_m"), METRES_PER_UNIT)):
            if set(names) <= set(header):
                columns, scale = (header.index(names[0]), header.index(names[1])), divisor
                break
        else:
            raise ValueError("the header must name the columns x and y (units), or x_m and y_m (metres)")
        rows = rows[1:]
    _check_number(len(rows))
    points = []
    for number, row in enumerate(rows, 1):
        cells = [row[column].strip() if column < len(row) else "" for column in columns]
        if not all(map(_is_number, cells)):
            raise ValueError(f"row {number} has no two numbers: {', '.join(row)[:60]!r}")
        points.append([float(cell) / scale for cell in cells])
    return np.array(points).reshape(-1, 2)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_number(count: int) -> None:
    if count > _MOST_POINTS:
        raise ValueError(f"the centre line has {count} points; {_MOST_POINTS} are the most")


def _from_geojson(text: str) -> np.ndarray:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is no JSON: {str(error)[:80]}") from error
    geometries = list(_geometries(data, {}))
    lines = [(line, facts) for geometry, facts in geometries for line in _lines(geometry)]
    if len(lines) != 1:
        raise ValueError(f"the file must have one LineString, or Polygon of one ring; it has {len(lines)}")
    (line, facts), degrees = lines[0], []
    if not isinstance(line, list):
        raise ValueError(f"'coordinates' must be a list, got {level_json.kind_of(line)}")
    _check_number(len(line))
    for place in line:
        if not isinstance(place, list) or len(place) < 2:
            raise ValueError("'coordinates' must be a list of pairs [longitude, latitude]")
        degrees.append([level_json.number(value, "coordinates") for value in place[:2]])
    if not degrees:
        raise ValueError("'coordinates' is empty")
    metres = _metres(np.array(degrees))
    _check_length(metres, facts.get("length") if isinstance(facts, dict) else None)
    return metres / METRES_PER_UNIT


def _geometries(data: Any, facts: Any) -> Any:
    """The geometries of an object of GeoJSON, each with the properties of its feature."""
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "FeatureCollection" and isinstance(data.get("features"), list):
        for feature in data["features"]:
            if isinstance(feature, dict) and feature.get("type") == "Feature":
                yield from _geometries(feature, {})
    elif kind == "Feature":
        yield from _geometries(data.get("geometry"), data.get("properties"))
    elif isinstance(data, dict) and "coordinates" in data:
        yield data, facts
    elif not isinstance(data, dict) or kind is None:
        raise ValueError(
            f"the file is no GeoJSON: expected an object with a type, got {level_json.kind_of(data)}"
        )


def _lines(geometry: dict[str, Any]) -> list[Any]:
    """The coordinates of the lines of a geometry; points and areas with holes are none."""
    coordinates = geometry["coordinates"]
    if geometry.get("type") == "LineString":
        return [coordinates]
    if geometry.get("type") == "Polygon" and isinstance(coordinates, list) and len(coordinates) == 1:
        return [coordinates[0]]
    return []


def _metres(degrees: np.ndarray) -> np.ndarray:
    """East and north of the middle, on a plane that touches the earth there."""
    longitude, latitude = degrees.T
    if np.any(np.abs(longitude) > 180) or np.any(np.abs(latitude) > 90):
        raise ValueError("coordinates of GeoJSON are longitudes (-180 .. 180) and latitudes (-90 .. 90)")
    if np.ptp(longitude) > 1 or np.ptp(latitude) > 1:
        raise ValueError("the line spans more than a degree: no circuit does")
    middle = np.mean(degrees, axis=0)
    east = (longitude - middle[0]) * math.cos(math.radians(middle[1]))
    return np.radians(np.stack([east, latitude - middle[1]], axis=1)) * _EARTH_RADIUS


def _check_length(metres: np.ndarray, length: Any) -> None:
    """A length in the file must agree with the line, or one of them is in other units."""
    if type(length) not in (int, float) or not 0 < length < 1e9:
        return
    found = float(np.sum(np.hypot(*np.diff(np.concatenate([metres, metres[:1]]), axis=0).T)))
    if abs(found - length) > _LENGTH_TOLERANCE * length:
        raise ValueError(f"the line is {found:.4g} m long, and the file says {length:.4g}")
