"""A run directory, opened in Python. Only `evaluate` adds to it, so that a run may go on meanwhile."""

import functools
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cenie.envs.base import Domain
from cenie.experiment.build import Parts, build, place
from cenie.experiment.config import Config, evaluation_request
from cenie.rundir import checkpoint
from cenie.rundir.checkpoint import Loaded
from cenie.rundir.evaluate import evaluate_run
from cenie.rundir.files import RunDirectory, RunDirectoryError, read_json
from cenie.rundir.levels import read_levels, snapshots_of
from cenie.rundir.metrics import Evaluation, read_evaluations, read_rows
from cenie.rundir.resume import check_belongs, check_checkpoints, check_evaluation
from cenie.student.networks import Network
from cenie.student.partition import whole
from cenie.teach.buffer_view import StoredLevels, stored_levels
from cenie.teach.cycle import Setup, TrainState, state_shapes


@dataclass(frozen=True, eq=False)
class Run:
    """What a run has left behind so far. Every part is read when it is first asked for, and kept.

    A part that is damaged raises `RunDirectoryError` with the reason; the others can still be read. Newer
    checkpoints that could not be used are named in `passed_over`.
    """

    path: Path
    config: Config
    parts: Parts = field(default_factory=Parts)

    @property
    def _directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    @functools.cached_property
    def _built(self) -> tuple[Domain, Setup]:
        return build(self.config, self.parts)

    @property
    def domain(self) -> Domain:
        return self._built[0]

    @property
    def setup(self) -> Setup:
        """The fixed parts of the training cycle, for `cenie.cycles(run.setup, run.state, ...)`."""
        return self._built[1]

    @functools.cached_property
    def _loaded(self) -> Loaded:
        directory, config = self._directory, self.config
        # The shapes take seconds to trace: only if there is anything to compare them with.
        found = check_checkpoints(config, directory)
        belongs = functools.partial(check_belongs, config)
        loaded = (
            checkpoint.load_newest(directory.checkpoints, state_shapes(self.setup), belongs)
            if found
            else None
        )
        if loaded is None:
            raise RunDirectoryError(f"{self.path} has no checkpoint yet: there is no state to load")
        return loaded

    @functools.cached_property
    def state(self) -> TrainState:
        """Everything the run knew at its newest checkpoint."""
        return place(self.setup, self._loaded.tree)

    @property
    def passed_over(self) -> list[str]:
        """Which newer checkpoints are damaged, and how."""
        return self._loaded.skipped

    @property
    def network(self) -> Network:
        """The student; the first one, if there are several."""
        return self.networks[0]

    @property
    def networks(self) -> tuple[Network, ...]:
        return tuple(whole(student.network) for student in self.state.students)

    @functools.cached_property
    def buffer(self) -> StoredLevels | None:
        """The level buffer at the newest checkpoint; None if the method has none."""
        return stored_levels(self.setup.curriculum, self.state.teacher)

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """A row for each training cycle. What was not finite, which the file writes as null, is NaN."""
        rows = read_rows(self._directory.metrics)
        return [{name: math.nan if value is None else value for name, value in row.items()} for row in rows]

    @functools.cached_property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations before, during and after training, each with a row for every episode."""
        return read_evaluations(self._directory.evaluations)

    def evaluate(
        self,
        suite: str | None = None,
        *,
        episodes: int = 10,
        checkpoints: int = 1,
        seed: int = 0,
        quiet: bool = False,
    ) -> list[Evaluation]:
        """Play a suite (by default the run's own) with the newest students, as `cenie evaluate` does.

        The rows of each checkpoint, the oldest first, are written beside the run's own table too.
        """
        given = {"episodes": episodes, "checkpoints": checkpoints, "seed": seed}
        request = evaluation_request(self.config, given if suite is None else {"suite": suite, **given})
        check_evaluation(self.config, self._directory, request)
        return evaluate_run(self.config, self._directory, request, self.parts, quiet=quiet)

    @functools.cached_property
    def later_evaluations(self) -> dict[str, list[Evaluation]]:
        """Those of `evaluate` and `cenie evaluate`, by the names of their files."""
        return {file.name: read_evaluations(file) for file in sorted(self.path.glob("evaluation-*.csv"))}

    @functools.cached_property
    def played_levels(self) -> dict[str, np.ndarray]:
        """The columns of `levels.csv`: a row for each level that was played in a recorded cycle."""
        return read_levels(self._directory.levels)

    @property
    def snapshots(self) -> dict[int, Path]:
        """The snapshots of points and level buffer by their cycles; `cenie.read_snapshot` opens one."""
        return snapshots_of(self._directory.snapshots)

    @functools.cached_property
    def summary(self) -> dict[str, Any] | None:
        """What the run came to; None while it is not finished."""
        path = self._directory.summary
        return read_json(path) if os.path.lexists(path) else None
