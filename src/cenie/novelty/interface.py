"""A model of coverage is four functions. Everything else about coverage is shared."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from cenie.novelty.config import CoverageConfig


class Fitted(NamedTuple):
    """The result of a fit. Its shapes depend on the settings and the number of columns only.

    Attributes:
        model: The new model, a tree of arrays.
        ok: Whether it may be used; a boolean array [].
        diagnostics: Numbers that describe the fit, by name.
    """

    model: Any
    ok: jax.Array
    diagnostics: dict[str, jax.Array]


class CoverageModel(NamedTuple):
    """One way to estimate how dense the student's experience is at a point.

    Each model has settings of its own: the record `config` below.

    Attributes:
        init: `init(config, dimensions)` gives a model before any fit: finite values of the right shapes.
        fit: `fit(config, key, points [n, d], *, valid [n], previous)` gives a `Fitted`. It never raises, and
            may look at the previous model. Points are finite, and zero where they are not valid. All points
            may be missing.
        unfitted: `unfitted(config)` gives zeros in the place of the diagnostics of a fit, which takes long to
            trace for their shapes.
        log_density: `log_density(config, model, points [p, d])` gives log-densities [p], up to a constant.
            They need not be finite for points that are not.
    """

    init: Callable[[Any, int], Any]
    fit: Callable[..., Fitted]
    unfitted: Callable[[Any], dict[str, jax.Array]]
    log_density: Callable[[Any, Any, jax.Array], jax.Array]


@runtime_checkable
class OwnCoverage(Protocol):
    """Settings of a coverage model of your own: a frozen, hashable record that names its model.

    Attributes:
        window: How many plays of levels are remembered.
        max_points: The most points of the window that a fit sees; None: all.
        model: The functions of the model.
    """

    @property
    def window(self) -> int: ...
    @property
    def max_points(self) -> int | None: ...
    @property
    def model(self) -> CoverageModel: ...


AnyCoverage = CoverageConfig | OwnCoverage
"""Settings of a model of the library, or of your own."""
