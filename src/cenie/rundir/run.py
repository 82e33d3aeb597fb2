"""A run directory, opened in Python: for users (`cenie.load_run`) and for the report (`open_run`).

Tables are columns of NumPy. JAX is loaded when something is asked for that needs it: the domain, the state,
the students, the level buffer. Only `evaluate` adds to the directory, so that a run may go on meanwhile.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cenie.envs.domains import find_domain
from cenie.experiment.config import Config, evaluation_request
from cenie.rundir.documents import load_config, read_settings, read_summary
from cenie.rundir.evaluations import Episodes, read_evaluations
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.levels import read_levels
from cenie.rundir.manifest import newest_first, step_of
from cenie.rundir.metrics import PLACES, read_curves, read_metrics
from cenie.rundir.resume import check_belongs, check_checkpoints, check_evaluation
from cenie.rundir.snapshots import Snapshot, read_snapshot, snapshots_of
from cenie.rundir.tables import first_line
from cenie.settings import Problem, SettingsError

if TYPE_CHECKING:
    from cenie.envs.base import Domain
    from cenie.experiment.build import Parts
    from cenie.rundir.checkpoint import Loaded
    from cenie.student.networks.base import Network
    from cenie.teach.buffer_view import StoredLevels
    from cenie.teach.cycle import Setup, TrainState


@dataclass(frozen=True, eq=False)
class Run:
    """The data that a run has left behind so far. Every part is read when it is first asked for, and kept.

    A file that is not there is empty. One that is damaged raises `RunDirectoryError` with the reason; the
    others can still be read. Of `later_evaluations`, `snapshots` and `curves` what is damaged is left out,
    and `damage` says so. Newer checkpoints that could not be used are named in `passed_over`.

    Attributes:
        path: The run directory.
    """

    path: Path
    parts: "Parts | None" = None
    """The parts the run was begun with in Python, if any."""
    entry: "Domain | None" = None
    """The domain, if it is one of the user's own: no code is run because a file says so."""
    devices: int | None = None
    """On how many devices to open the state; None for as many as the config says."""
    damage: list[str] = field(default_factory=list)
    """Notes on damage that was found so far, and left out."""

    @property
    def files(self) -> RunDirectory:
        """Where the files of the run are."""
        return RunDirectory(self.path)

    # What was run

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The content of `config.json`, as plain data, also if the run is not ours to go on with."""
        return read_settings(self.files.config)

    @functools.cached_property
    def config(self) -> Config:
        """The config. Raises `SettingsError` if this version of the library would not run it."""
        return load_config(self.files.config, self.entry)

    @property
    def domain_name(self) -> str:
        """The domain as the config names it."""
        return self.settings["domain"]

    @property
    def method(self) -> str:
        """The method as the config names it."""
        return self.settings["method"]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.settings["seed"]

    @property
    def budget(self) -> int:
        """The updates that it was to have."""
        return self.settings["updates"]

    @functools.cached_property
    def summary(self) -> dict[str, Any] | None:
        """The final result of the run; None while it is not finished."""
        return read_summary(self.files.summary)

    @property
    def version(self) -> str | None:
        """The version of cenie; None while the run is not finished."""
        return None if self.summary is None else str(self.summary.get("version"))

    # Its tables

    @functools.cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """All columns of `metrics.jsonl`: a row for each training cycle, NaN where there is no number."""
        return read_metrics(self.files.metrics)

    def curves(self, names: Sequence[str], places: int = PLACES) -> dict[str, np.ndarray]:
        """Columns of `metrics.jsonl` as curves, with their counters.

        A table of many rows is not read as a whole; see `cenie.rundir.metrics.read_curves`.

        Args:
            names: The names of the columns.
            places: The largest number of points of a curve.

        Returns:
            Columns by name, `cycle`, `updates` and `env_steps` among them, float64 [p] each; a column that no
            row has is NaN throughout.
        """
        key = tuple(names), places
        if key not in self._curves:
            try:
                self._curves[key] = read_curves(self.files.metrics, names, places)
            except RunDirectoryError as error:
                self._leave_out(error)
                self._curves[key] = {name: np.empty(0) for name in ("cycle", "updates", "env_steps", *names)}
        return self._curves[key]

    @functools.cached_property
    def _curves(self) -> dict[tuple[tuple[str, ...], int], dict[str, np.ndarray]]:
        return {}

    @functools.cached_property
    def played_levels(self) -> dict[str, np.ndarray]:
        """The columns of `levels.csv`: a row for each level that was played in a recorded cycle."""
        return read_levels(self.files.levels)

    def sample_of_played_levels(self, limit: int = 2**22) -> dict[str, np.ndarray]:
        """Read `levels.csv`.

        Args:
            limit: Of a file of more bytes than this, a sample over all of training is read.

        Returns:
            The columns by name, each an array [rows].
        """
        return read_levels(self.files.levels, limit)

    @functools.cached_property
    def evaluations(self) -> Episodes:
        """The episodes on held-out levels that were played before, during and after training."""
        return read_evaluations(self.files.evaluations)

    @functools.cached_property
    def evaluations_by_suite(self) -> dict[str, Episodes]:
        """The same for each suite."""
        return {suite: self.evaluations.of(suite) for suite in self.evaluations.suites()}

    @functools.cached_property
    def later_evaluations(self) -> dict[str, Episodes]:
        """The episodes of `cenie evaluate`, by suite: for each suite the file of the latest checkpoint."""
        found: dict[str, Episodes] = {}
        for file in sorted(self.path.glob("evaluation-*.csv")):
            try:
                episodes = read_evaluations(file)
            except RunDirectoryError as error:
                self._leave_out(error)
                continue
            for suite in episodes.suites():
                known = found.get(suite)
                if known is None or known.cycle.max() <= episodes.cycle.max():
                    found[suite] = episodes.of(suite)
        return found

    @functools.cached_property
    def suites(self) -> list[str]:
        """Every suite that its students have played."""
        return list(dict.fromkeys([*self.evaluations.suites(), *self.later_evaluations]))

    def final_episodes(self, suite: str) -> Episodes:
        """The final episodes on a suite: from `cenie evaluate`, or else from the run's own last evaluation.

        Args:
            suite: The name of the suite.

        Returns:
            The episodes; empty if the suite was not played.
        """
        later = self.later_evaluations.get(suite)
        return self.evaluations.of(suite).last() if later is None else later

    @functools.cached_property
    def snapshots(self) -> dict[int, Path]:
        """The snapshots of points and level buffer by their cycles, the first one first."""
        try:
            return snapshots_of(self.files.snapshots)
        except RunDirectoryError as error:
            self._leave_out(error)
            return {}

    def snapshot(self, cycle: int | None = None, *, buffers: bool = True) -> Snapshot | None:
        """Read a snapshot.

        Args:
            cycle: The cycle; by default the last one whose snapshot can be read.
            buffers: Whether to read the level buffers too. Without them, only the points are read, which
                takes a fraction of the time.

        Returns:
            The snapshot; None if there is none.

        Raises:
            RunDirectoryError: The snapshot of the cycle is damaged.
        """
        if cycle is not None:
            path = self.snapshots.get(cycle)
            return None if path is None else read_snapshot(path, buffers=buffers)
        for path in reversed(self.snapshots.values()):
            try:
                return read_snapshot(path, buffers=buffers)
            except RunDirectoryError:
                continue
        return None

    def _leave_out(self, error: RunDirectoryError) -> None:
        sentence = f"left out: {error}"
        if sentence not in self.damage:
            self.damage.append(sentence)

    # What needs JAX

    @functools.cached_property
    def _built(self) -> "tuple[Domain, Setup]":
        from cenie.experiment.build import build

        config = self.config
        if self.devices is not None:
            config = replace(config, run=replace(config.run, devices=self.devices))
        return build(config, self.parts)

    @property
    def domain(self) -> "Domain":
        """The domain of the run, built."""
        return self._built[0]

    @property
    def setup(self) -> "Setup":
        """The fixed parts of the training cycle, for `cenie.cycles(run.setup, run.state, ...)`."""
        return self._built[1]

    @functools.cached_property
    def _loaded(self) -> "Loaded":
        return self.load()

    def load(self, cycle: int | None = None) -> "Loaded":
        """Read a checkpoint.

        Args:
            cycle: The cycle; by default the newest one whose checkpoint can be used.

        Returns:
            The checkpoint, with arrays on the host.

        Raises:
            RunDirectoryError: There is none, or the checkpoint of the cycle is damaged.
        """
        from cenie.rundir import checkpoint
        from cenie.teach.cycle import state_shapes

        loaded = None
        # The shapes take seconds to trace: only if there is anything to compare them with.
        if check_checkpoints(self.config, self.files):
            belongs = functools.partial(check_belongs, self.config)
            shapes = state_shapes(self.setup)
            loaded = checkpoint.load_newest(self.files.checkpoints, shapes, belongs, cycle)
        if loaded is None:
            steps = [step_of(path) for path in newest_first(self.files.checkpoints)]
            if not steps:
                raise RunDirectoryError(f"{self.path} has no checkpoint yet: there is no state to load")
            there = ", ".join(map(str, steps))
            raise RunDirectoryError(f"{self.path} has no checkpoint of cycle {cycle}; there are {there}")
        return loaded

    @functools.cached_property
    def state(self) -> "TrainState":
        """Everything the run knew at its newest checkpoint. Raises `RunDirectoryError` if there is none."""
        from cenie.experiment.build import place

        return place(self.setup, self._loaded.tree)

    @property
    def passed_over(self) -> list[str]:
        """Which newer checkpoints are damaged, and how."""
        return self._loaded.skipped

    @property
    def network(self) -> "Network":
        """The student; the first one, if there are several."""
        return self.networks[0]

    @property
    def networks(self) -> "tuple[Network, ...]":
        """All students."""
        from cenie.student.partition import whole

        return tuple(whole(student.network) for student in self.state.students)

    @functools.cached_property
    def buffer(self) -> "StoredLevels | None":
        """The level buffer at the newest checkpoint; None if the method has none."""
        from cenie.teach.buffer_view import stored_levels

        return stored_levels(self.setup.curriculum, self.state.teacher)

    def evaluate(
        self,
        suite: str | None = None,
        *,
        episodes: int = 10,
        checkpoints: int = 1,
        seed: int = 0,
        quiet: bool = False,
    ) -> Episodes:
        """Play a suite with the newest students, as `cenie evaluate` does.

        What was played is written beside the run's own table too.

        Args:
            suite: its name, or a file of held-out levels; by default the run's own.
            episodes: how many are played on each entry of the suite.
            checkpoints: how many of the newest checkpoints play.
            seed: of the episodes.
            quiet: print nothing.

        Returns:
            Every episode, from the oldest checkpoint on.

        Raises:
            SettingsError: the suite or a number is not one that can be played.
            RunDirectoryError: there is no checkpoint that can be played.
            WriteError: the disk refuses the table.
        """
        from cenie.rundir.evaluate import evaluate_run

        given = {"episodes": episodes, "checkpoints": checkpoints, "seed": seed}
        request = evaluation_request(self.config, given if suite is None else {"suite": suite, **given})
        check_evaluation(self.config, self.files, request)
        return evaluate_run(self.config, self.files, request, self.parts, quiet=quiet)


def load_run(path: str | Path, parts: "Parts | None" = None, *, domain: "str | Domain | None" = None) -> Run:
    """Open a run directory, finished or not: config, domain, students, level buffer, tables.

    Args:
        path: the run directory.
        parts: what the run was begun with in Python, if anything.
        domain: the domain of a run of your own. One that the config names as `module:attribute` must be named
            here too, since no code is run because a file says so.

    Returns:
        The run; what is damaged besides its config is said when it is asked for.

    Raises:
        SettingsError: the config cannot be read, or does not fit.
    """
    entry = None
    if domain is not None:
        from cenie.envs.loading import checked

        entry = find_domain(domain) if isinstance(domain, str) else checked(domain)
    run = Run(Path(path), parts, entry)
    load_config(run.files.config, entry, domain)
    begun_with = tuple(part for part in run.config.from_python if not part.startswith("domain "))
    names = () if parts is None else parts.names
    if begun_with != names:
        wanted, given = (", ".join(each) or "none" for each in (begun_with, names))
        raise SettingsError([Problem("parts", f"the run was begun with {wanted}, got {given}")])
    return run


def open_run(path: Path) -> Run:
    """Open a run directory to report on it, whatever its config says and however far it is.

    Args:
        path: The run directory.

    Returns:
        The run.

    Raises:
        RunDirectoryError: There is nothing to show: no config.json that names the run, a damaged summary or
            table of evaluations, or nothing written yet.
    """
    run = Run(path)
    if not path.is_dir():
        raise RunDirectoryError("there is no such directory")
    if not run.files.config.exists():
        raise RunDirectoryError(
            "it has no config.json, so it is no run directory, or one that was never begun"
        )
    wanted = {"domain": str, "method": str, "seed": int, "updates": int}
    for name, kind in wanted.items():
        if not isinstance(run.settings, dict) or type(run.settings.get(name)) is not kind:
            raise RunDirectoryError(f"{run.files.config} does not say the {name} of the run")
    run.summary  # noqa: B018
    if not len(run.evaluations) and not run.later_evaluations and not first_line(run.files.metrics):
        raise RunDirectoryError("nothing has been written yet: no evaluation and no training cycle")
    return run
