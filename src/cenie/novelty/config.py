"""Settings of coverage: one record for each way to model the density of experience. Imports no JAX.

All have a window of experience and a regulariser. Defaults are those of the paper's mazes wherever it gives
them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cenie.settings import Problem, read, setting

CovarianceName = Literal["diag", "full", "tied", "spherical"]

_MOST_COLUMNS = 20_000
"""Components of all sizes together, which begin side by side: gigabytes, and minutes to compile."""


@dataclass(frozen=True)
class MixtureConfig:
    """Gaussian mixtures of several sizes, of which the best is kept: the paper's method."""

    kind: Literal["mixture"] = "mixture"  # one of mixture, neighbours, distillation
    window: int = setting(32, minimum=1, maximum=10**6)  # level trajectories in the window Gamma
    # The fit sees at most so many points of the window, drawn uniformly; None: all.
    max_points: int | None = setting(16384, minimum=1, maximum=10**8)
    # Added to every variance. The paper: 1e-2 in mazes, 1e-6 for walkers, 1e-1 for cars.
    reg: float = setting(1e-2, above=0.0, maximum=1e30)

    # The fewest and the most components of a mixture; every number in between is tried.
    components: tuple[int, int] = setting((6, 15), minimum=1, maximum=1000)
    covariance: CovarianceName = "diag"  # the default of the paper's software; the paper does not say
    # A fit ends when the mean negative log-likelihood per point falls by less than this.
    tolerance: float = setting(1e-3, minimum=0.0, maximum=1e30)
    max_iterations: int = setting(100, minimum=1, maximum=10**6)
    # How the number of components is chosen; the paper takes the silhouette.
    selection: Literal["silhouette", "aic", "bic"] = "silhouette"
    # The silhouette is computed for so many points, drawn uniformly, from which (and from a cheap relative of
    # it that is known for all points) its mean over all is estimated; None: for all, as in the paper.
    silhouette_rows: int | None = setting(256, minimum=1, maximum=10**8)
    # All sizes take so many steps, and are compared by rough silhouettes of so many points, drawn uniformly.
    # Only the best go on: at most so many, and within the margin. None: all go on, as in the paper.
    screening_steps: int | None = setting(2, minimum=1, maximum=10**6)
    screening_points: int = setting(2048, minimum=1, maximum=10**8)
    screening_candidates: int = setting(4, minimum=1, maximum=1000)
    screening_margin: float = setting(0.05, minimum=0.0, maximum=1e30)
    # Start each fit from the previous one with as many components instead of from new centres.
    warm_start: bool = False
    # Mixtures of so many principal axes, with equal noise off them; None: of the points as they are.
    pca_dimensions: int | None = setting(None, minimum=1, maximum=10**5)

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
        if self.max_points is not None and self.max_points < fewest:
            yield Problem(
                "max_points",
                f"must be at least {fewest}, the fewest components, got {self.max_points}: "
                "no fit to so few points can succeed",
            )
        if self.warm_start and self.pca_dimensions is not None:
            yield Problem(
                "warm_start", "must be false with pca_dimensions: principal axes turn from fit to fit"
            )


@dataclass(frozen=True)
class NeighboursConfig:
    """The distance from a near point of the window. Not in the paper."""

    kind: Literal["neighbours"] = "neighbours"  # one of mixture, neighbours, distillation
    window: int = setting(32, minimum=1, maximum=10**6)
    max_points: int | None = setting(16384, minimum=1, maximum=10**8)
    # Added to every squared distance.
    reg: float = setting(1e-2, above=0.0, maximum=1e30)
    # Which nearest point gives the distance, and how many points of the window are compared with.
    rank: int = setting(8, minimum=1, maximum=10**6)
    kept: int = setting(4096, minimum=1, maximum=10**6)


@dataclass(frozen=True)
class DistillationConfig:
    """The error of a network that learns on the window to predict a random one. Not in the paper."""

    kind: Literal["distillation"] = "distillation"  # one of mixture, neighbours, distillation
    # Gradient steps per fit, points per step, units per layer of both networks.
    steps: int = setting(256, minimum=1, maximum=10**6)
    batch: int = setting(256, minimum=1, maximum=10**6)
    size: int = setting(64, minimum=1, maximum=10**4)
    learning_rate: float = setting(1e-3, above=0.0, maximum=1e30)
    # Start each fit from the previous predictor instead of from a new one.
    warm_start: bool = False
    window: int = setting(32, minimum=1, maximum=10**6)
    max_points: int | None = setting(16384, minimum=1, maximum=10**8)
    # Added to the variance by which a column is scaled.
    reg: float = setting(1e-2, above=0.0, maximum=1e30)


CoverageConfig = MixtureConfig | NeighboursConfig | DistillationConfig
"""What is remembered of the student's experience, and how its density is modelled."""


def read_coverage(given: Mapping[str, Any]) -> CoverageConfig:
    """The settings that somebody gave, a mixture's unless they say another `kind`.

    Numbers and arrays of NumPy are welcome. `SettingsError` with everything that is wrong.
    """
    plain = {name: plain_value(value) for name, value in given.items()}
    return read(CoverageConfig, {"kind": "mixture", **plain})


def plain_value(value: Any) -> Any:
    """A number or an array of NumPy as a plain value; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value
