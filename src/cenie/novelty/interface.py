"""What a model of coverage is: three functions. Everything else about coverage is shared."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Fitted(NamedTuple):
    """A new model, whether it may be used, and what is worth knowing of the fit.

    The shapes of model and diagnostics depend on the settings and the number of dimensions only.
    """

    model: Any
    ok: jax.Array
    diagnostics: dict[str, jax.Array]


class CoverageModel(NamedTuple):
    """One way to estimate how dense the student's experience is at a point.

    Its settings are a record of its own.
    `init(config, dimensions)` is a model before any fit: any finite values of the right shapes.
    `fit(config, key, points [n, d], *, valid [n], previous)` never raises and may look at the previous model.
    Points are finite, and zero where they are not valid; there may be no valid point at all.
    `unfitted(config)` are zeros in the place of its diagnostics: a fit takes long to trace for their shapes.
    `log_density(config, model, points [p, d])` are log-densities [p], up to a constant; it need not be
    finite for points that are not.
    """

    init: Callable[[Any, int], Any]
    fit: Callable[..., Fitted]
    unfitted: Callable[[Any], dict[str, jax.Array]]
    log_density: Callable[[Any, Any, jax.Array], jax.Array]
