"""Settings of coverage: one record for each way to model the density of experience. Imports no JAX.

All have a window of experience and a regulariser. Defaults come from the paper's mazes. Where the paper gives
none, they come from PyCave, the software that it used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cenie.settings import Problem, read, setting

CovarianceName = Literal["diag", "full"]

_MOST_COLUMNS = 20_000
"""All sizes begin side by side: more components than this take gigabytes, and minutes to compile."""

_WINDOW = "Plays of levels that the window holds, each with all its steps."
_MAX_POINTS = "A fit sees at most this many points of the window, drawn uniformly; null: all."
_LIKE_MIXTURES = "paper, for its mixtures"


@dataclass(frozen=True)
class MixtureConfig:
    """Gaussian mixtures of several sizes; the best one is kept. The method of the paper."""

    kind: Literal["mixture"] = "mixture"
    window: int = setting(32, minimum=1, maximum=10**6, help=_WINDOW, source="paper")
    max_points: int | None = setting(
        16384, minimum=1, maximum=10**8, help=_MAX_POINTS, source="ours; the paper fits all"
    )
    reg: float = setting(
        1e-2, above=0.0, maximum=1e30, help="A number that is added to every variance.", source="paper, mazes"
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
        help="The covariance of a component: a variance for each column (diag), or a whole matrix (full).",
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
        "silhouette", help="The criterion that chooses the number of components.", source="paper"
    )
    silhouette_rows: int | None = setting(
        256,
        minimum=1,
        maximum=10**8,
        help="Points, drawn uniformly, for which exact silhouettes are computed; the mean over all points is "
        "estimated with a cheaper score as control variate; null: all.",
        source="ours; the paper takes all",
    )
    screening_steps: int | None = setting(
        2,
        minimum=1,
        maximum=10**6,
        help="Steps of EM that every size takes before only the best go on; null: all go on.",
        source="ours; in the paper all go on",
    )
    screening_points: int = setting(
        2048,
        minimum=1,
        maximum=10**8,
        help="Points, drawn uniformly, by which sizes are compared after these steps.",
        source="ours",
    )
    screening_candidates: int = setting(
        4, minimum=1, maximum=1000, help="The most sizes that go on.", source="ours"
    )
    screening_margin: float = setting(
        0.05,
        minimum=0.0,
        maximum=1e30,
        help="A size goes on only if its rough silhouette is at most this far below the best.",
        source="ours",
    )
    warm_start: bool = setting(
        False,
        help="Whether a fit starts from the previous mixture of the same size instead of new centres.",
        source="PyCave",
    )
    pca_dimensions: int | None = setting(
        None,
        minimum=1,
        maximum=10**5,
        help="Principal axes to which points are reduced, with equal noise off them; null: no reduction.",
        source="paper",
    )

    def check(self) -> Iterator[Problem]:
        """Yield the problems between settings; the bounds of single settings are in the fields.

        Returns:
            The problems; none if the settings fit each other.
        """
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
    """The distance from the k-th nearest point of the window. Not in the paper."""

    kind: Literal["neighbours"] = "neighbours"
    window: int = setting(32, minimum=1, maximum=10**6, help=_WINDOW, source=_LIKE_MIXTURES)
    max_points: int | None = setting(16384, minimum=1, maximum=10**8, help=_MAX_POINTS, source="ours")
    reg: float = setting(
        1e-2, above=0.0, maximum=1e30, help="A number that is added to every squared distance.", source="ours"
    )
    rank: int = setting(
        8, minimum=1, maximum=10**6, help="The rank k of the neighbour whose distance counts.", source="ours"
    )
    kept: int = setting(
        4096,
        minimum=1,
        maximum=10**6,
        help="Points of the window that serve as neighbours.",
        source="ours",
    )


CoverageConfig = MixtureConfig | NeighboursConfig
"""Settings of the models of the library."""


def read_coverage(given: Mapping[str, Any]) -> CoverageConfig:
    """Read settings by name.

    Args:
        given: The settings; without a `kind` they are a mixture's. Numbers and arrays of NumPy are read as
            plain ones, and one number of `components` is both the fewest and the most.

    Returns:
        The record of settings.

    Raises:
        SettingsError: With everything that is wrong.
    """
    plain = {name: plain_value(value) for name, value in given.items()}
    if type(plain.get("components")) is int:
        plain["components"] = [plain["components"]] * 2
    return read(CoverageConfig, {"kind": "mixture", **plain})


def plain_value(value: Any) -> Any:
    """A number or an array of NumPy as a plain value; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value
