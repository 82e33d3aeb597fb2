"""From a config, and what is passed from Python, to the parts of a run."""

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.stages import Compiled, Lowered
from jaxtyping import PRNGKeyArray, PyTree

from cenie import devices
from cenie.envs.base import Domain
from cenie.run.compilation import give_back_memory
from cenie.run.config import Config
from cenie.run.devices import is_known
from cenie.settings import Problem, SettingsError, show
from cenie.spaces import Space
from cenie.student.networks import Network
from cenie.teach.curriculum import Curriculum
from cenie.teach.cycle import (
    Counters,
    Metrics,
    Setup,
    TrainState,
    Turn,
    after_turn,
    cycles,
    play_turn,
    tell_turn,
)
from cenie.teach.methods import OWN, OwnTeacher
from cenie.teach.novelty import Novelty
from cenie.teach.recipes import curriculum
from cenie.teach.record import Record
from cenie.teach.scores import Score
from cenie.teach.source import Source


@dataclass(frozen=True)
class Parts:
    """What a run takes from Python in the place of what its settings name; None leaves that as it is.

    `source`, `score` and `novelty` change the curriculum of the config's method. `curriculum` replaces it
    altogether; the method is then "own". `network(observation_space, action_space, key)` makes the network of
    a student.
    """

    source: Source | None = None
    score: Score | None = None
    novelty: Novelty | None = None
    curriculum: Curriculum | None = None
    network: Callable[[PyTree[Space], Space, PRNGKeyArray], Network] | None = None

    def __post_init__(self) -> None:
        problems = [
            Problem(name, f"must be a cenie.{kind.__name__}, got {show(getattr(self, name))}")
            for name, kind in _KINDS.items()
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kind)
        ]
        if self.network is not None and not callable(self.network):
            problems.append(Problem("network", "must be a function of two spaces and a key"))
        changes = [name for name in ("source", "score", "novelty") if getattr(self, name) is not None]
        if self.curriculum is not None and changes:
            problems.append(Problem("curriculum", f"has its own {', '.join(changes)}: pass either"))
        if problems:
            raise SettingsError(problems)

    @property
    def names(self) -> tuple[str, ...]:
        """What was passed, in words, for the files of a run."""
        given = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return tuple(f"{part} {_name(value)}" for part, value in given if value is not None)


_KINDS: dict[str, Any] = {"source": Source, "score": Score, "novelty": Novelty, "curriculum": Curriculum}


def _name(value: Any) -> str:
    own = value.name if isinstance(value, Score) else getattr(value, "__name__", None)
    return own if isinstance(own, str) else type(value).__name__


def build(config: Config, parts: Parts | None = None) -> tuple[Domain, Setup]:
    """The domain and the fixed parts of the training cycle. Raises `SettingsError` if `parts` do not fit."""
    parts = parts or Parts()
    domain = config.entry.build(config.env)
    mesh = devices.level_mesh(config.device_count(jax.device_count()))
    teacher = _curriculum(config, domain, parts, mesh)
    setup = Setup(
        environment=domain.environment,
        statistics=domain.statistics,
        students=config.students if parts.curriculum is None else (config.student,) * teacher.students,
        curriculum=teacher,
        mesh=mesh,
        network=parts.network,
        recorded_points=config.run.recorded_points,
    )
    return domain, setup


def _curriculum(config: Config, domain: Domain, parts: Parts, mesh: Mesh | None) -> Curriculum:
    own, batch = parts.curriculum, config.student.num_levels
    if isinstance(config.teacher, OwnTeacher):
        if own is None:
            raise SettingsError([Problem("curriculum", f"is needed for the method {show(OWN)}")])
        if own.replay is not None and own.replay.config.capacity < batch:
            raise SettingsError(
                [Problem("curriculum", f"needs room for student.num_levels ({batch}) levels")]
            )
        return own
    if own is not None:
        message = f"must be {show(OWN)} with a curriculum of your own, got {show(config.method)}"
        raise SettingsError([Problem("method", message)])
    made = curriculum(domain, config.teacher, mesh)
    for name in ("score", "novelty"):
        if made.replay is None and getattr(parts, name) is not None:
            raise SettingsError([Problem(name, f"is of no use to {config.method}, which replays no levels")])
    if made.replay is not None and parts.score is not None:
        made = dataclasses.replace(made, replay=dataclasses.replace(made.replay, score=parts.score))
    return dataclasses.replace(
        made, source=parts.source or made.source, novelty=parts.novelty or made.novelty
    )


_NEWER_KERNELS = "xla_cpu_use_fusion_emitters"
"""XLA's newer way to write kernels. Without it the second half of a cycle runs as fast, and takes two thirds
of the time and half of the memory to compile; the first half, where students learn, is slower by a tenth."""


class CompiledCycles:
    """`cycles` of a setup: a function of a state, placed as `place` does it, and the number of updates.

    Up to `count` cycles at a time, compiled when they are first needed, with these `options` of XLA's. The
    two halves of a cycle are compiled side by side, since XLA compiles each program on one core.
    """

    def __init__(self, setup: Setup, count: int, options: dict[str, Any] | None = None):
        self._setup, self._count, self._options = setup, count, options
        self._halves: tuple[Compiled, Compiled] | None = None

    def _compiled(
        self, pool: ThreadPoolExecutor, state: TrainState
    ) -> tuple[Future[Compiled], Future[Compiled]]:
        setup, mesh = self._setup, self._setup.mesh
        lowered = pool.submit(play_turn.lower, setup, state)

        def compile_second() -> Compiled:
            expected = functools.partial(devices.expected, mesh)
            shapes: Turn = lowered.result().out_info  # pyright: ignore[reportAssignmentType]
            turn = shapes.placed(
                functools.partial(expected, split=True), functools.partial(expected, split=False)
            )
            plain = jax.default_backend() == "cpu" and is_known(_NEWER_KERNELS)
            options = {_NEWER_KERNELS: False} if plain else {}
            return self._finished(tell_turn.lower(setup, state.teacher, turn), options)

        first = pool.submit(lambda: self._finished(lowered.result(), {}))
        return first, pool.submit(compile_second)

    def _finished(self, lowered: Lowered, options: dict[str, Any]) -> Compiled:
        program = lowered.compile(options | (self._options or {}))
        give_back_memory()
        return program

    def programs(self, state: TrainState) -> tuple[Compiled, Compiled]:
        """Both halves, for states like this one; waits for the compiler the first time."""
        if self._halves is None:
            with ThreadPoolExecutor(2, "compiling") as pool:
                first, second = self._compiled(pool, state)
            self._halves = first.result(), second.result()
        return self._halves

    def _run(self, _: Setup, state: TrainState) -> tuple[TrainState, Metrics, Record]:
        play, tell = self.programs(state)
        turn = play(state)
        return after_turn(state, turn, tell(state.teacher, turn))

    def __call__(
        self, state: TrainState, updates: int, most: int | None = None
    ) -> tuple[TrainState, Counters, dict[str, np.ndarray], Record]:
        """With `most`, no more cycles than that."""
        count = self._count if most is None else min(self._count, most)
        return cycles(self._setup, state, count, updates, self._run)


def place(setup: Setup, state: TrainState) -> TrainState:
    """Put a state on every device of the run."""
    return devices.place(setup.mesh, state)
