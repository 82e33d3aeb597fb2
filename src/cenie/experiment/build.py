"""From a config, and what is passed from Python, to the parts of a run."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from cenie.envs.base import Domain
from cenie.envs.domains import is_ours
from cenie.experiment.config import Config
from cenie.methods.plr import named_columns
from cenie.methods.table import OWN
from cenie.replay.play import Play
from cenie.replay.scores import Score
from cenie.settings import Problem, SettingsError, show, to_data
from cenie.spaces import Space
from cenie.student.networks.base import Network
from cenie.teach.curriculum import Column, Curriculum
from cenie.teach.cycle import Setup, TrainState
from cenie.teach.novelty import Novelty
from cenie.teach.source import Source
from cenie.xla import devices


@dataclass(frozen=True)
class Parts:
    """The parts that a run takes from Python in the place of its settings; None leaves a setting as it is.

    Attributes:
        source: The source of new levels of the config's method.
        score: The score of the config's method. It keeps its own name in logs, tables and the page.
        scores: Several scores, by the names of their columns: one of ours by its name, a `Score`, or a
            function of `Play`.
        weights: How much the ranking by each of `scores` counts, by the same names; all alike by default.
        novelty: The novelty of the config's method.
        curriculum: The whole method, which is then "own".
        network: `network(observation_space, action_space, key)` makes the network of a student.

    Raises:
        SettingsError: A part is of another kind, or parts exclude each other.
    """

    source: Source | None = None
    score: Score | None = None
    scores: Mapping[str, str | Score | Callable[[Play], Array]] | None = None
    weights: Mapping[str, float] | None = None
    novelty: Novelty | None = None
    curriculum: Curriculum | None = None
    network: Callable[[PyTree[Space], Space, PRNGKeyArray], Network] | None = None

    def __post_init__(self) -> None:
        problems = [
            Problem(name, f"must be {_kind_name(kind)}, got {show(getattr(self, name))}")
            for name, kind in _KINDS.items()
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kind)
        ]
        if self.network is not None and not callable(self.network):
            problems.append(Problem("network", "must be a function of two spaces and a key"))
        changes = [name for name in ("source", *_OF_REPLAY) if getattr(self, name) is not None]
        if self.curriculum is not None and changes:
            problems.append(Problem("curriculum", f"has its own {', '.join(changes)}: pass either"))
        if self.score is not None and self.scores is not None:
            problems.append(Problem("scores", "are there beside score: pass either"))
        if self.weights is not None and self.scores is None:
            problems.append(Problem("weights", "need scores"))
        if not problems:
            problems += _problems_of_columns(self)
        if problems:
            raise SettingsError(problems)

    @property
    def columns(self) -> tuple[Column, ...] | None:
        """The score or scores as columns of the level buffer; None if none was passed."""
        if self.scores is not None:
            return named_columns(self.scores, self.weights)
        return None if self.score is None else named_columns({self.score.name: self.score})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the passed parts, for the files of a run."""
        given = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return tuple(f"{part} {_name(value)}" for part, value in given if value is not None)


_KINDS: dict[str, Any] = {
    "source": Source,
    "score": Score,
    "scores": Mapping,
    "weights": Mapping,
    "novelty": Novelty,
    "curriculum": Curriculum,
}
_OF_REPLAY = ("score", "scores", "novelty")
"""Parts that only methods with a level buffer have."""


def _kind_name(kind: Any) -> str:
    return "a dict by the names of scores" if kind is Mapping else f"a cenie.{kind.__name__}"


def _problems_of_columns(parts: Parts) -> list[Problem]:
    try:
        parts.columns  # noqa: B018
    except SettingsError as error:
        return list(error.problems)
    return []


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_name(part)}" for name, part in value.items())
    if isinstance(value, str | int | float):
        return str(value)
    own = value.name if isinstance(value, Score) else getattr(value, "__name__", None)
    return own if isinstance(own, str) else type(value).__name__


def build(config: Config, parts: Parts | None = None) -> tuple[Domain, Setup]:
    """Make a run's domain, and the fixed parts of its training cycle.

    Args:
        config: The settings of the run.
        parts: What is passed from Python in the place of what they name.

    Returns:
        The domain and the setup. Without `parts`, the last results are kept: the check of a run's memory
        and its training share one setup, which is traced once.

    Raises:
        SettingsError: The parts do not fit the settings.
    """
    if parts is None or not parts.names:
        return _built(dataclasses.replace(config, seed=0))
    return _build(config, parts)


@functools.lru_cache(maxsize=4)
def _built(config: Config) -> tuple[Domain, Setup]:
    return _build(config, Parts())


def _build(config: Config, parts: Parts) -> tuple[Domain, Setup]:
    domain = config.built_domain
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
    if config.method == OWN and own is not None:
        if own.replay is not None and own.replay.config.capacity < batch:
            raise SettingsError(
                [Problem("curriculum", f"needs room for student.num_levels ({batch}) levels")]
            )
        return own
    if own is not None:
        message = f"must be {show(OWN)} with a curriculum of your own, got {show(config.method)}"
        raise SettingsError([Problem("method", message)])
    made = config.teacher.curriculum(domain, mesh)
    for name in _OF_REPLAY:
        if made.replay is None and getattr(parts, name) is not None:
            raise SettingsError([Problem(name, f"is of no use to {config.method}, which replays no levels")])
    if made.replay is not None and parts.columns is not None:
        made = dataclasses.replace(made, replay=dataclasses.replace(made.replay, scores=parts.columns))
    return dataclasses.replace(
        made, source=parts.source or made.source, novelty=parts.novelty or made.novelty
    )


def place(setup: Setup, state: TrainState) -> TrainState:
    """Put a state on every device of the run."""
    return devices.place(setup.mesh, state)


def program_settings(config: Config, parts: Parts | None) -> Any:
    """All of a config that the programs of its cycle depend on, as plain data.

    None if they depend on more: on something that was passed from Python, or on a domain that is not ours. If
    the devices belong to several processes, too: a program of one of these is not one of another.
    """
    own = parts is None or not parts.names
    if not own or config.from_python or not is_ours(config.entry):
        return None
    if config.method == OWN or jax.process_count() > 1:
        return None
    data = to_data(config)
    chosen = {name: data[name] for name in ("domain", "method", "env", "student", "teacher")}
    return chosen | {"recorded_points": config.run.recorded_points}
