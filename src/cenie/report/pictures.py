"""Pictures of the levels that a run has stored, as its domain draws them. Loads JAX."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cenie.envs.base import Domain
from cenie.report.runs import LoggedRun
from cenie.report.shown_levels import buffer_scenes, renderer_of
from cenie.rundir.config_file import load_config
from cenie.rundir.run import Run
from cenie.settings import SettingsError


class CannotDraw(Exception):
    """Why there are no pictures."""


def stored_levels(
    run: LoggedRun,
    chosen: Iterable[tuple[dict[str, np.ndarray], Sequence[int] | np.ndarray]],
    domains: Mapping[str, Domain],
) -> list[list[np.ndarray]]:
    """For each buffer of a snapshot a picture of each of its rows. Raises `CannotDraw` with the reason.

    A domain that is no part of the library must be among the `domains`: none is imported because a file
    names it.
    """
    try:
        domain = Run(run.path, load_config(run.files.config, domains.get(run.domain))).domain
        draw = renderer_of(domain).level
        return [
            [draw(scene.level) for scene in buffer_scenes(domain, buffer, [int(row) for row in rows])]
            for buffer, rows in chosen
        ]
    except SettingsError as error:
        raise CannotDraw("; ".join(map(str, error.problems))) from error
    except Exception as error:  # A domain of somebody else's draws here, from levels that may be damaged.
        raise CannotDraw(str(error) or type(error).__name__) from error
