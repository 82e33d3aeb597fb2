"""Settings of coverage. Imports nothing but the standard library."""

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ModelName = Literal["mixture", "pca", "neighbours", "distillation"]
CovarianceName = Literal["diag", "full", "tied", "spherical"]


class Problem(NamedTuple):
    """One thing that is wrong with a setting: where, and what is allowed."""

    path: str
    message: str


def _setting(
    default: Any,
    *,
    minimum: int | float | None = None,
    maximum: int | None = None,
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
    window: int = _setting(32, minimum=1, maximum=1_000_000)  # level trajectories in the window Gamma
    # The fit sees at most so many points of the window, drawn uniformly; None: all.
    max_points: int | None = _setting(16384, minimum=1)

    # The fewest and the most components of a mixture; every number in between is tried.
    components: tuple[int, int] = _setting((6, 15), minimum=1, maximum=1000)
    covariance: CovarianceName = "diag"  # the default of the paper's software; the paper does not say
    # Added to every variance. The paper: 1e-2 in mazes, 1e-6 for walkers, 1e-1 for cars.
    reg: float = _setting(1e-2, above=0.0)
    # A fit ends when the mean negative log-likelihood per point falls by less than this.
    tolerance: float = _setting(1e-3, minimum=0.0)
    max_iterations: int = _setting(100, minimum=1)
    # How the number of components is chosen; the paper takes the silhouette.
    selection: Literal["silhouette", "aic", "bic"] = "silhouette"
    # The silhouette is computed for so many points, drawn uniformly, from which (and from a cheap relative of
    # it that is known for all points) its mean over all is estimated; None: for all, as in the paper.
    silhouette_rows: int | None = _setting(256, minimum=1)
    # Every size is first fitted to so many points, drawn uniformly, and only those whose silhouette comes
    # within the margin of the best are fitted to all, from the same centres; None: all are, as in the paper.
    screening_points: int | None = _setting(1024, minimum=1)
    screening_margin: float = _setting(0.04, minimum=0.0)
    # Start each fit from the previous one with as many components instead of from new centres.
    warm_start: bool = False

    # Read by `pca`: dimensions left before the mixture.
    pca_dimensions: int = _setting(16, minimum=1, maximum=65_536)
    # Read by `neighbours`: which nearest point gives the distance, and points of the window to compare with.
    neighbours: int = _setting(8, minimum=1, maximum=1_000_000)
    neighbours_kept: int = _setting(4096, minimum=1, maximum=1_000_000)
    distillation_steps: int = _setting(256, minimum=1)  # read by `distillation`: gradient steps per fit
    distillation_batch: int = _setting(256, minimum=1, maximum=1_000_000)
    distillation_size: int = _setting(64, minimum=1, maximum=65_536)  # units per layer of both networks
    distillation_rate: float = _setting(1e-3, above=0.0)

    def check(self) -> Iterator[Problem]:
        """Rules between settings; bounds of single ones are in the fields."""
        fewest, most = self.components
        if fewest > most:
            yield Problem("components", f"the fewest must not exceed the most, got {fewest} and {most}")
        if self.selection == "silhouette" and most < 2:
            yield Problem("components", "a silhouette needs at least 2 components; or select by 'bic'")


def problems_of(config: CoverageConfig) -> list[Problem]:
    """Everything that is out of bounds or does not fit together."""
    found = []
    kinds = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        choices = typing.get_args(kinds[field.name])
        if typing.get_origin(kinds[field.name]) is Literal and value not in choices:
            found.append(Problem(field.name, f"must be one of {', '.join(choices)}, got {value!r}"))
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or not field.metadata:
                continue
            minimum, maximum, above = (field.metadata[name] for name in ("minimum", "maximum", "above"))
            if minimum is not None and number < minimum:
                found.append(Problem(field.name, f"must be at least {minimum}, got {number}"))
            if maximum is not None and number > maximum:
                found.append(Problem(field.name, f"must be at most {maximum}, got {number}"))
            if above is not None and number <= above:
                found.append(Problem(field.name, f"must be greater than {above}, got {number}"))
    return [*found, *config.check()]
