"""Where a run begins or goes on: its parts, its state, and what the checkpoint says of the run so far."""

import functools
from dataclasses import dataclass
from pathlib import Path

from cenie.envs.base import Domain
from cenie.experiment.build import Parts, build, program_settings
from cenie.experiment.config import Config
from cenie.rundir import checkpoint
from cenie.rundir.checkpoint import Loaded
from cenie.rundir.evaluations import check_format
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.plays import PLAYS, Plays, read_plays
from cenie.rundir.resume import (
    CheckpointFacts,
    Decay,
    check_belongs,
    check_checkpoints,
    check_unused,
    decay_note,
    decays,
    read_facts,
    with_decay,
)
from cenie.teach.cycle import Counters, Setup, TrainState, init, state_shapes
from cenie.training.progress import Progress
from cenie.xla.devices import to_host
from cenie.xla.parts import CompiledCycles, init_later


@dataclass(frozen=True)
class Counts:
    """The counters of a run as Python numbers, which do not overflow."""

    cycles: int
    rollouts: int
    updates: int

    @staticmethod
    def of(counters: Counters, index: tuple[int, ...] = ()) -> "Counts":
        values = to_host((counters.cycles, counters.rollouts, counters.updates))
        return Counts(*(int(value[index]) for value in values))


@dataclass(frozen=True)
class Built:
    """The parts built from a config: the domain, the parts of the cycle, and its compiled chunks."""

    config: Config
    domain: Domain
    setup: Setup
    cycles: CompiledCycles


@dataclass(frozen=True)
class Start:
    """The first state of a run, after which cycle it is, and what the checkpoint says of the run before."""

    built: Built
    state: TrainState
    cycle: int = 0
    facts: CheckpointFacts | None = None
    plays: list[Plays] | None = None


def build_all(config: Config, parts: Parts | None, kept: Path | None) -> Built:
    """Build what a config says.

    Args:
        config: of the run.
        parts: what is passed from Python; None means that no script is there at all.
        kept: where compiled programs are kept, if anywhere.
    """
    domain, setup = build(config, parts)
    cycles = CompiledCycles(
        setup,
        config.run.cycles_per_chunk,
        settings=program_settings(config, parts),
        # A script may have changed our own modules: what it runs is traced.
        directory=kept if parts is None else None,
    )
    return Built(config, domain, setup, cycles)


def begun(built: Built, directory: RunDirectory) -> Start:
    """A run at its beginning. Its programs are compiled while its first state is made."""
    check_unused(directory)  # Once more, as nobody else writes here now.
    shapes, make = init_later(built.setup, built.config.seed)
    if not built.config.is_over(0, 0):
        built.cycles.begin(shapes)
    return Start(built, make())


def resumed(
    built: Built,
    directory: RunDirectory,
    progress: Progress,
    *,
    decay: Decay | None,
    parts: Parts | None,
    kept: Path | None,
) -> Start:
    """A run at its newest checkpoint; at its beginning if there is none yet.

    Raises `RunDirectoryError`, before anything is touched, if the directory is another run's.
    """
    config = built.config
    check_format(directory.evaluations)
    check_checkpoints(config, directory)
    loaded = checkpoint.load_newest(
        directory.checkpoints, state_shapes(built.setup), functools.partial(check_belongs, config)
    )
    if loaded is None:
        progress.note("no checkpoint yet: starting from the beginning")
        _tell_decay(config, progress, decay)
        longer = with_decay(config, decay or "keep", 0)
        return Start(_again(built, longer, parts, kept), init(built.setup, config.seed))
    for message in loaded.skipped:
        progress.note(message)
    facts, updates = read_facts(loaded.facts), _updates(loaded)
    progress.note(f"resuming after cycle {loaded.step}")
    progress.resumed(updates)
    if config.updates > facts.settings.get("updates", 0):
        _tell_decay(config, progress, decay)
    longer = with_decay(config, decay or "keep", updates)
    plays = read_plays(loaded.path / PLAYS, built.setup.curriculum.buffers)
    return Start(_again(built, longer, parts, kept), loaded.tree, loaded.step, facts, plays)


def _again(built: Built, config: Config, parts: Parts | None, kept: Path | None) -> Built:
    """The program of a config that may have another schedule of the learning rate."""
    return built if config == built.config else build_all(config, parts, kept)


def _updates(loaded: Loaded) -> int:
    """The updates of the state of a checkpoint, if its counters come from training."""
    counters = Counts.of(loaded.tree.counters)
    if counters.cycles != loaded.step or not 0 <= counters.updates <= counters.cycles:
        raise RunDirectoryError(
            f"the checkpoint of cycle {loaded.step} counts {counters.cycles} cycles and {counters.updates} "
            "updates: it was not written by a training"
        )
    return counters.updates


def _tell_decay(config: Config, progress: Progress, decay: Decay | None) -> None:
    """Say what a longer run should know of its learning rate, unless its user has chosen."""
    if decay is None and (note := decay_note(config)):
        progress.note(note)
    if decay is not None and not decays(config):
        progress.note("the learning rate of this run does not fall: --decay changes nothing")
