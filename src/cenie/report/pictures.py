"""Pictures of the levels that a run has stored, as its domain draws them. Loads JAX."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cenie.report.scenes import buffer_scenes, renderer_of
from cenie.run.config import load_config
from cenie.run.directory import RunDirectory, RunDirectoryError
from cenie.run.opened import Run
from cenie.settings import SettingsError


class CannotDraw(Exception):
    """Why there are no pictures."""


def stored_levels(
    path: Path, chosen: Iterable[tuple[dict[str, np.ndarray], Sequence[int] | np.ndarray]]
) -> list[list[np.ndarray]]:
    """For each buffer of a snapshot a picture of each of its rows. Raises `CannotDraw` with the reason.

    A domain that is no part of the library is not imported because a file names it.
    """
    try:
        domain = Run(path, load_config(RunDirectory(path).config)).domain
        draw = renderer_of(domain).level
        return [
            [draw(scene.level) for scene in buffer_scenes(domain, buffer, [int(row) for row in rows])]
            for buffer, rows in chosen
        ]
    except SettingsError as error:
        raise CannotDraw("; ".join(map(str, error.problems))) from error
    except (RunDirectoryError, KeyError, ValueError) as error:
        raise CannotDraw(str(error)) from error
