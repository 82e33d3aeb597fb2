"""Settings of coverage. Imports nothing but the standard library."""

import contextlib
import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ModelName = Literal["mixture", "pca", "neighbours", "distillation"]
CovarianceName = Literal["diag", "full", "tied", "spherical"]

_MOST_COLUMNS = 20_000
"""Components of all sizes together, which are fitted side by side: gigabytes, and minutes to compile."""

_UNREADABLE: Any = object()
"""Stands for a value that could not be read, so that other settings can still be checked."""


class Problem(NamedTuple):
    """One thing that is wrong with a setting: where, and what is allowed."""

    path: str
    message: str


def _setting(
    default: Any,
    *,
    minimum: int | float | None = None,
    maximum: int | float | None = None,
    above: float | None = None,
) -> Any:
    """A field with bounds: `minimum <= value <= maximum` and `value > above`."""
    bounds = {"minimum": minimum, "maximum": maximum, "above": above}
    return dataclasses.field(default=default, metadata=bounds)


@dataclass(frozen=True)
class CoverageConfig:
    """What is remembered of the student's experience, and how its density is modelled.

    Defaults are those of the paper's mazes wherever it gives them.
    """

    # What estimates the density. All but the mixture are alternatives to the paper's method.
    model: ModelName = "mixture"
    window: int = _setting(32, minimum=1, maximum=10**6)  # level trajectories in the window Gamma
    # The fit sees at most so many points of the window, drawn uniformly; None: all.
    max_points: int | None = _setting(16384, minimum=1, maximum=10**8)

    # The fewest and the most components of a mixture; every number in between is tried.
    components: tuple[int, int] = _setting((6, 15), minimum=1, maximum=1000)
    covariance: CovarianceName = "diag"  # the default of the paper's software; the paper does not say
    # Added to every variance. The paper: 1e-2 in mazes, 1e-6 for walkers, 1e-1 for cars.
    reg: float = _setting(1e-2, above=0.0, maximum=1e30)
    # A fit ends when the mean negative log-likelihood per point falls by less than this.
    tolerance: float = _setting(1e-3, minimum=0.0, maximum=1e30)
    max_iterations: int = _setting(100, minimum=1, maximum=10**6)
    # How the number of components is chosen; the paper takes the silhouette.
    selection: Literal["silhouette", "aic", "bic"] = "silhouette"
    # The silhouette is computed for so many points, drawn uniformly, from which (and from a cheap relative of
    # it that is known for all points) its mean over all is estimated; None: for all, as in the paper.
    silhouette_rows: int | None = _setting(256, minimum=1, maximum=10**8)
    # Every size is first fitted to so many points, drawn uniformly, and only those whose silhouette comes
    # within the margin of the best are fitted to all, from the same centres; None: all are, as in the paper.
    screening_points: int | None = _setting(1024, minimum=1, maximum=10**8)
    screening_margin: float = _setting(0.04, minimum=0.0, maximum=1e30)
    # Start each fit from the previous one with as many components instead of from new centres.
    warm_start: bool = False

    # Read by `pca`: dimensions left before the mixture.
    pca_dimensions: int = _setting(16, minimum=1, maximum=10**5)
    # Read by `neighbours`: which nearest point gives the distance, and points of the window to compare with.
    neighbours: int = _setting(8, minimum=1, maximum=10**6)
    neighbours_kept: int = _setting(4096, minimum=1, maximum=10**6)
    # Read by `distillation`: gradient steps per fit, points per step, units per layer of both networks.
    distillation_steps: int = _setting(256, minimum=1, maximum=10**6)
    distillation_batch: int = _setting(256, minimum=1, maximum=10**6)
    distillation_size: int = _setting(64, minimum=1, maximum=10**4)
    distillation_rate: float = _setting(1e-3, above=0.0, maximum=1e30)

    def check(self) -> Iterator[Problem]:
        """Rules between settings; bounds of single ones are in the fields."""
        fewest, most = self.components
        columns = (most + fewest) * (most - fewest + 1) // 2
        if fewest > most:
            yield Problem("components", f"the fewest must not exceed the most, got {fewest} and {most}")
        elif columns > _MOST_COLUMNS:
            yield Problem(
                "components",
                f"every number from {fewest} to {most} is tried, {columns} components in all; "
                f"at most {_MOST_COLUMNS} are allowed",
            )
        if self.selection == "silhouette" and most < 2:
            yield Problem("components", "a silhouette needs at least 2 components; or select by 'bic'")
        if self.model in ("mixture", "pca") and self.max_points is not None and self.max_points < fewest:
            yield Problem(
                "max_points",
                f"must be at least {fewest}, the fewest components, got {self.max_points}: "
                "no fit to so few points can succeed",
            )


def read(given: Mapping[str, Any]) -> tuple[CoverageConfig, list[Problem]]:
    """Settings of plain Python values from those that somebody gave, and everything that is wrong with them.

    Numbers and arrays of NumPy are welcome. The settings are of no use if there is any problem.
    """
    kinds = typing.get_type_hints(CoverageConfig)
    config, problems = object.__new__(CoverageConfig), []
    for field in dataclasses.fields(CoverageConfig):
        value = given.get(field.name, field.default)
        try:
            value = plain(kinds[field.name], value, field.metadata)
        except ValueError as error:
            problems.append(Problem(field.name, str(error)))
            value = _UNREADABLE
        # Behind the back of the constructor, lest it check the types of what is unreadable.
        object.__setattr__(config, field.name, value)
    # A rule that touches an unreadable setting fails; what was found before still counts.
    with contextlib.suppress(TypeError) if problems else contextlib.nullcontext():
        for problem in config.check():
            problems.append(problem)
    return config, problems


def plain(kind: Any, value: Any, bounds: Mapping[str, Any]) -> Any:
    """The value as a plain Python one of this kind, or a `ValueError` that says what is allowed."""
    choices = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        if isinstance(value, str) and value in choices:
            return value
        raise ValueError(f"must be one of {', '.join(choices)}, got {_shown(value)}")
    if isinstance(kind, types.UnionType):
        return None if value is None else plain(choices[0], value, bounds)
    if typing.get_origin(kind) is tuple:
        return _pair(choices[0], value, bounds)
    return _in_bounds(_SCALARS[kind](value), bounds)


def _pair(kind: Any, value: Any, bounds: Mapping[str, Any]) -> tuple[Any, Any]:
    entries = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes) or len(entries) != 2:
        raise ValueError(f"expected two numbers, the fewest and the most, got {_shown(value)}")
    fewest, most = (plain(kind, entry, bounds) for entry in entries)
    return fewest, most


def _whole(value: Any) -> int:
    # bool is a subclass of int, but True is no number.
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    raise ValueError(f"expected a whole number, got {_shown(value)}")


def _finite(value: Any) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ValueError(f"expected a number, got {_shown(value)}")
    with contextlib.suppress(OverflowError):
        if math.isfinite(value):
            return float(value)
    raise ValueError(f"must be a finite number, got {_shown(value)}")


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected True or False, got {_shown(value)}")


_SCALARS: dict[type, Callable[[Any], Any]] = {int: _whole, float: _finite, bool: _yes_or_no}


def _in_bounds(number: Any, bounds: Mapping[str, Any]) -> Any:
    minimum, maximum, above = (bounds.get(name) for name in ("minimum", "maximum", "above"))
    if minimum is not None and number < minimum:
        raise ValueError(f"must be at least {minimum}, got {_shown(number)}")
    if above is not None and number <= above:
        raise ValueError(f"must be greater than {above}, got {_shown(number)}")
    if maximum is not None and number > maximum:
        raise ValueError(f"must be at most {maximum}, got {_shown(number)}")
    return number


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # integers of thousands of digits, and whatever a class of somebody's does
        return f"a value of {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
