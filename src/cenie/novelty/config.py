"""Settings of coverage: one record for each way to model the density of experience. Imports no JAX.

All have a window of experience and a regulariser. Defaults are the paper's in mazes wherever it gives them;
PyCave is the software it used, whose defaults stand where it says nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cenie.settings import Problem, read, setting

CovarianceName = Literal["diag", "full", "tied", "spherical"]

_MOST_COLUMNS = 20_000
"""Components of all sizes together, which begin side by side: gigabytes, and minutes to compile."""

_WINDOW = "How many plays of levels are remembered, each with all its steps."
_MAX_POINTS = "A fit sees at most this many points of the window, drawn uniformly; null: all."
_LIKE_MIXTURES = "paper, for its mixtures"


@dataclass(frozen=True)
class MixtureConfig:
    """Gaussian mixtures of several sizes, of which the best is kept: the paper's method."""

    kind: Literal["mixture"] = "mixture"
    window: int = setting(32, minimum=1, maximum=10**6, help=_WINDOW, source="paper")
    max_points: int | None = setting(
        16384, minimum=1, maximum=10**8, help=_MAX_POINTS, source="ours; the paper fits all"
    )
    reg: float = setting(
        1e-2, above=0.0, maximum=1e30, help="What is added to every variance.", source="paper, mazes"
    )

    components: tuple[int, int] = setting(
        (6, 15),
        minimum=1,
        maximum=1000,
        help="The fewest and the most components of a mixture; every number in between is tried.",
        source="paper",
    )
    covariance: CovarianceName = setting(
        "diag",
        help="What covariances may be: of each component its own variances (diag), or its own matrix (full), "
        "one matrix for all (tied), or one variance for each (spherical).",
        source="PyCave; the paper does not say",
    )
    tolerance: float = setting(
        1e-3,
        minimum=0.0,
        maximum=1e30,
        help="A fit ends when a step changes the mean log-likelihood of a point by less than this.",
        source="paper",
    )
    max_iterations: int = setting(
        100, minimum=1, maximum=10**6, help="Steps of EM in a fit, at most.", source="PyCave"
    )
    selection: Literal["silhouette", "aic", "bic"] = setting(
        "silhouette", help="By what the number of components is chosen.", source="paper"
    )
    silhouette_rows: int | None = setting(
        256,
        minimum=1,
        maximum=10**8,
        help="The silhouette is computed for this many points, drawn uniformly, from which (and from a cheap "
        "relative of it that is known for all points) its mean over all is estimated; null: for all.",
        source="ours; the paper takes all",
    )
    screening_steps: int | None = setting(
        2,
        minimum=1,
        maximum=10**6,
        help="Every number of components takes this many steps of EM first, and only the best go on; null: "
        "all go on.",
        source="ours; in the paper all go on",
    )
    screening_points: int = setting(
        2048,
        minimum=1,
        maximum=10**8,
        help="By how many points, drawn uniformly, they are compared after these steps.",
        source="ours",
    )
    screening_candidates: int = setting(
        4, minimum=1, maximum=1000, help="How many go on, at most.", source="ours"
    )
    screening_margin: float = setting(
        0.05,
        minimum=0.0,
        maximum=1e30,
        help="How far below the best rough silhouette those may be that go on.",
        source="ours",
    )
    warm_start: bool = setting(
        False,
        help="Whether each fit starts from the previous one with as many components, and not from new "
        "centres.",
        source="PyCave",
    )
    pca_dimensions: int | None = setting(
        None,
        minimum=1,
        maximum=10**5,
        help="Mixtures of this many principal axes, with equal noise off them; null: of the points as they "
        "are.",
        source="paper",
    )

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

    kind: Literal["neighbours"] = "neighbours"
    window: int = setting(32, minimum=1, maximum=10**6, help=_WINDOW, source=_LIKE_MIXTURES)
    max_points: int | None = setting(16384, minimum=1, maximum=10**8, help=_MAX_POINTS, source="ours")
    reg: float = setting(
        1e-2, above=0.0, maximum=1e30, help="What is added to every squared distance.", source="ours"
    )
    rank: int = setting(
        8, minimum=1, maximum=10**6, help="Which of the nearest points gives the distance.", source="ours"
    )
    kept: int = setting(
        4096,
        minimum=1,
        maximum=10**6,
        help="With how many points of the window others are compared.",
        source="ours",
    )


@dataclass(frozen=True)
class DistillationConfig:
    """The error of a network that learns on the window to predict a random one. Not in the paper."""

    kind: Literal["distillation"] = "distillation"
    steps: int = setting(256, minimum=1, maximum=10**6, help="Gradient steps of a fit.", source="ours")
    batch: int = setting(256, minimum=1, maximum=10**6, help="Points of a gradient step.", source="ours")
    size: int = setting(
        64, minimum=1, maximum=10**4, help="Units of each layer of both networks.", source="ours"
    )
    learning_rate: float = setting(
        1e-3, above=0.0, maximum=1e30, help="The size of Adam's steps.", source="ours"
    )
    warm_start: bool = setting(
        False,
        help="Whether each fit starts from the previous predictor, and not from a new one.",
        source="ours",
    )
    window: int = setting(32, minimum=1, maximum=10**6, help=_WINDOW, source=_LIKE_MIXTURES)
    max_points: int | None = setting(16384, minimum=1, maximum=10**8, help=_MAX_POINTS, source="ours")
    reg: float = setting(
        1e-2,
        above=0.0,
        maximum=1e30,
        help="What is added to the variance by which a column is scaled.",
        source="ours",
    )


CoverageConfig = MixtureConfig | NeighboursConfig | DistillationConfig
"""What is remembered of the student's experience, and how its density is modelled."""


def read_coverage(given: Mapping[str, Any]) -> CoverageConfig:
    """The settings that somebody gave, a mixture's unless they say another `kind`.

    Numbers and arrays of NumPy are welcome, and one number of `components` stands for the fewest and the
    most. `SettingsError` with everything that is wrong.
    """
    plain = {name: plain_value(value) for name, value in given.items()}
    if type(plain.get("components")) is int:
        plain["components"] = [plain["components"]] * 2
    return read(CoverageConfig, {"kind": "mixture", **plain})


def plain_value(value: Any) -> Any:
    """A number or an array of NumPy as a plain value; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value
