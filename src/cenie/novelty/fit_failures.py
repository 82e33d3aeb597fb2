"""Why a fit of an estimator has failed, in words that say what to do about it."""

import numpy as np

from cenie.novelty.config import CoverageConfig, MixtureConfig


def too_few(config: CoverageConfig, points: np.ndarray, total: int) -> str | None:
    """Say that there are too few points for any mixture.

    Args:
        config: The settings.
        points: The points of the fit [n, d].
        total: How many points the window has, if some were drawn.

    Returns:
        The reason and the remedy; None if there are enough points.
    """
    if not isinstance(config, MixtureConfig):
        return None
    fewest, count = config.components[0], len(points)
    # Almost always a few points are enough to see that there are enough.
    if count >= fewest and any(len(np.unique(some, axis=0)) >= fewest for some in (points[:256], points)):
        return None
    points_of = "points of the window" if count == total else f"points, drawn from the {total} of the window,"
    if count < fewest:
        found = f"the window holds {count} points"
    elif (points == points[0]).all():
        found = f"all {count} {points_of} are equal (as float32)"
    else:
        found = f"the {count} {points_of} have {len(np.unique(points, axis=0))} values (as float32)"
    return (
        f"{found}, and the smallest mixture has {fewest} components: push more, or allow fewer components, "
        "e.g. components=(1, 4)"
    )


def not_finite(config: CoverageConfig, points: np.ndarray, total: int) -> str:
    """Say what may be wrong with enough points that could not be fitted.

    Args:
        config: The settings.
        points: The points of the fit [n, d].
        total: How many points the window has, if some were drawn.

    Returns:
        The reason and the remedy.
    """
    span = np.ptp(points.astype(np.float64), axis=0).max()
    return (
        f"no finite density was found for {len(points)} of {total} points with numbers up to "
        f"{np.abs(points).max():.3g}, which differ by up to {span:.3g}, and reg={config.reg:g}: bring the "
        "features to a scale of 1, or raise reg" + (" or max_points" if len(points) < total else "")
    )
