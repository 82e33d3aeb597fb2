"""The configuration of a run: what to train, on what, for how long. Loads JAX with the first
domain that a config is of, and starts no backend.

A config is read strictly (`cenie.settings`): every problem is reported at once, with the path of its
field, before anything is compiled. It is stored as JSON beside the results.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cenie import settings
from cenie.envs.domains import find_domain, is_ours, is_reference
from cenie.methods.table import METHODS, OWN, find_method
from cenie.replay.config import ReplayConfig
from cenie.settings import Problem, SettingsError, setting, show
from cenie.student.config import StudentConfig
from cenie.system.durable import explain, read_limited

if TYPE_CHECKING:
    from cenie.envs.base import Domain

DECAY_SETTINGS = ("student.ppo.decay_from", "student.ppo.decay_updates")
"""When the learning rate falls. A run that is made longer may want another schedule from there on."""

MAY_CHANGE_ON_RESUME = ("updates", "run", *DECAY_SETTINGS)
"""All other settings say which experiment a run is: they are fixed with its first checkpoint."""

CHANGES_BITS = (*DECAY_SETTINGS, "run.devices", "run.recorded_points")
"""Settings that may change on resume, but leave a run that no uninterrupted run of one config would
repeat."""

MAX_PARALLEL_EPISODES = 1024
"""Episodes of an evaluation that are played side by side, at most: what bounds its memory."""

MAX_FILE_BYTES = 2**20
"""Bytes of a config file, at most; ours have some 3,000."""


SINK_MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""The module that each sink imports. The extra of the package that installs it has the name of the sink."""


@dataclass(frozen=True)
class RunConfig:
    """Settings of the host loop around the training cycles."""

    suite: str = setting(
        "",
        help="Held-out suite used for evaluation during and after training; in a preset that names none, the "
        "first one of the domain.",
        source="ours",
    )
    env_steps: int | None = setting(
        None,
        minimum=1,
        help="End the run after this many environment steps, even if it has not had all its updates: methods "
        "play different numbers of rollouts for an update. null: no such end.",
        source="ours",
    )
    evaluate_every: int = setting(
        100,
        minimum=1,
        help="Evaluate after this many student updates; also before the first and after the last.",
        source="paper, walker and racing",
    )
    episodes: int = setting(
        2,
        minimum=1,
        maximum=100_000,
        help="Episodes for each entry of the suite in an evaluation before and during training.",
        source="ours",
    )
    final_episodes: int = setting(
        10,
        minimum=1,
        maximum=100_000,
        help="Episodes for each entry of the suite in the last evaluation.",
        source="ours",
    )
    evaluation_seed: int = setting(
        0,
        minimum=0,
        maximum=2**31 - 1,
        help="Decides the draws of all evaluations during training: every run is tested on the same "
        "episodes.",
        source="ours",
    )
    checkpoint_every: int = setting(
        50,
        minimum=1,
        help="Write a checkpoint after this many student updates; also after the last.",
        source="ours",
    )
    keep_checkpoints: int = setting(
        2, minimum=1, maximum=1_000_000, help="Checkpoints that are kept, the latest.", source="ours"
    )
    cycles_per_chunk: int = setting(
        10,
        minimum=1,
        maximum=100_000,
        help="Training cycles between two looks of the host loop; results do not depend on it.",
        source="ours",
    )
    devices: int = setting(
        0,
        minimum=0,
        maximum=1024,
        help="Devices to split the levels over; 0 takes as many as there are and divide the levels.",
        source="ours",
    )
    recorded_cycles: int = setting(
        5000,
        minimum=0,
        help="All levels of the first N cycles are recorded, then of every 2nd of the next N cycles, of "
        "every 4th of the next 2N, and so on; 0: none.",
        source="ours",
    )
    recorded_evaluations: int = setting(
        200,
        minimum=0,
        help="All of the first N evaluations have a snapshot; those of later ones are thinned out in the "
        "same way.",
        source="ours",
    )
    recorded_points: int = setting(
        512,
        minimum=0,
        maximum=1_000_000,
        help="State-action points of training in a snapshot.",
        source="ours",
    )
    sinks: tuple[str, ...] = setting(
        (), help=f"Further places for the metrics: {', '.join(SINK_MODULES)}.", source="ours"
    )

    def check(self) -> Iterator[Problem]:
        for index, name in enumerate(self.sinks):
            if name not in SINK_MODULES:
                yield Problem(
                    f"sinks[{index}]", f"must be one of {', '.join(SINK_MODULES)}, got {show(name)}"
                )


@dataclass(frozen=True)
class Config:
    """A run. The types of `env` and `teacher` depend on the domain and the method: a `teacher` is a
    `cenie.methods.family.Family`. `entry` is the `Domain` with its default settings."""

    entry: ClassVar[Any]

    domain: str = setting(help="The domain in which the student trains.")
    method: str = setting(help="The method that chooses levels.")
    preset: str = setting(help="The starting point, which other options change.")
    seed: int = setting(
        0,
        minimum=0,
        maximum=2**31 - 1,
        help="The seed of everything random in the run, except the draws of evaluations.",
        source="ours",
    )
    updates: int = setting(
        1000,
        minimum=0,
        maximum=2**31 - 1,
        help="Student gradient updates (cycles that learn); the budget by which methods are compared.",
        source="ours",
    )
    env: Any = None
    student: StudentConfig = setting(factory=StudentConfig)
    teacher: Any = None
    run: RunConfig = setting(factory=RunConfig)
    from_python: tuple[str, ...] = setting(
        (),
        help="Parts that were passed from Python and stand in no file, such as `score spread`: to go on, "
        "they must be passed again.",
        source="ours",
    )

    def is_over(self, updates: int, env_steps: int) -> bool:
        """Whether a run that has come so far is finished.

        Args:
            updates: The number of updates.
            env_steps: The number of environment steps.

        Returns:
            Whether its budget is used up.
        """
        budget = self.run.env_steps
        return updates >= self.updates or (budget is not None and env_steps >= budget)

    @property
    def built_domain(self) -> "Domain":
        """The domain with the settings of this run. Raises `SettingsError` if it cannot be made with them."""
        return self.entry.build(self.env)

    @property
    def replay(self) -> ReplayConfig | None:
        """The settings of the level buffers, if the method has any."""
        return self.teacher.level_buffer

    @property
    def students(self) -> tuple[StudentConfig, ...]:
        """The settings of each student; a second one, if there is any, is the antagonist."""
        return self.teacher.students(self.student)

    @property
    def levels_per_minibatch(self) -> int:
        """The largest number of devices that can share the levels and every minibatch of all students
        evenly."""
        return math.gcd(*(student.levels_per_minibatch for student in self.students))

    def check(self) -> Iterator[Problem]:
        """Yield the problems between settings.

        Returns:
            The problems; none if the settings fit each other.
        """
        if problems := method_problems(self.method):
            yield from problems
            return
        entry = self.entry
        if is_ours(entry) and self.domain != entry.name:
            yield Problem("domain", "cannot be changed alone: its settings depend on it")
            return
        if type(self.teacher) is not type(default_teacher(self.method)):
            yield Problem("method", "cannot be changed alone: the settings of the teacher depend on it")
            return
        if self.run.suite not in entry.suites:
            known = ", ".join(entry.suites)
            yield Problem("run.suite", f"must be one of {known}, got {show(self.run.suite)}")
        env = self.env if settings.is_readable(self.env) else None
        if env is not None:
            try:
                domain = self.built_domain
            except SettingsError as error:  # a domain from elsewhere that cannot be built with these settings
                yield from error.problems
                env = None
            else:
                actions = domain.environment.action_space
                for problem in self.student.network.misfits(domain.observation_parts, actions):
                    yield Problem(f"student.network.{problem.path}", problem.message)
        yield from self.teacher.problems(entry, env, self.student)
        levels = self.levels_per_minibatch
        if self.run.devices and levels % self.run.devices:
            yield Problem("run.devices", f"must divide the levels of a minibatch ({levels}), or be 0")

    def device_count(self, available: int) -> int:
        """Over how many devices the level axis is split: as many as share it evenly, or fewer if told so.

        Args:
            available: The number of devices that there are.

        Returns:
            The number of devices that are used.
        """
        wanted = min(self.run.devices or available, available)
        return max(n for n in range(1, wanted + 1) if self.levels_per_minibatch % n == 0)


@dataclass(frozen=True)
class EvaluationRequest:
    """The request of `cenie evaluate`."""

    suite: str
    episodes: int = setting(10, minimum=1, maximum=100_000)
    seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    checkpoints: int = setting(1, minimum=1, maximum=100_000)


def evaluation_request(config: Config, given: Mapping[str, Any]) -> EvaluationRequest:
    """The request with defaults filled in: the run's own suite unless another is named. Raises
    `SettingsError`.

    In a domain that reads held-out levels from files the suite may be one, which is read and checked here.
    """
    request = settings.read(EvaluationRequest, {"suite": config.run.suite, **given})
    domain, suite = config.built_domain, request.suite
    if suite in domain.suites:
        return request
    if domain.suite_of_file is None or not ("." in suite or os.sep in suite):
        named = ", ".join(domain.suites) + (" (or a file)" if domain.suite_of_file else "")
        raise SettingsError([Problem("suite", f"must be one of {named}, got {show(suite)}")])
    try:
        domain.suite_of_file(suite, read_suite_file(suite))
    except ValueError as error:
        raise SettingsError([Problem("suite", f"{show(suite)} cannot be played: {error}")]) from error
    return request


def read_suite_file(name: str) -> str:
    """The content of a file of held-out levels. Raises `ValueError` with the reason if that is impossible."""
    try:
        return read_limited(Path(name), MAX_FILE_BYTES).decode()
    except OSError as error:
        raise ValueError(f"cannot read it: {explain(error)}") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is no text in UTF-8") from error


@functools.lru_cache(maxsize=256)
def config_type(entry: "Domain", method: str) -> type[Config]:
    """`Config` with the field types of one domain and one method."""
    env, teacher = entry.settings, default_teacher(method)
    fields = [("env", type(env), setting(env)), ("teacher", type(teacher), setting(teacher))]
    config_class = dataclasses.make_dataclass(
        "Config", fields, bases=(Config,), namespace={"entry": entry}, frozen=True
    )
    config_class.__doc__ = f"Settings of {method}."
    return config_class


def default_teacher(method: str) -> Any:
    """The settings of a method by default, a `cenie.methods.family.Family`. Loads the file of the method."""
    found = find_method(method)
    assert found is not None
    return found.settings


def read_config(data: Any, entry: "Domain | None" = None) -> Config:
    """A config from plain data (as stored in `config.json`); raises `SettingsError`.

    The domain is `entry`, or the one in the table that the data names. Code that a file names is not
    run: a domain from elsewhere must be given.
    """
    if not isinstance(data, Mapping):
        raise SettingsError([Problem("config", "expected a JSON object")])
    domain, method = data.get("domain"), data.get("method")
    if entry is None and _is_from_python(data):
        raise SettingsError([Problem("domain", _not_stored(domain))])
    if entry is None and is_reference(domain):
        raise SettingsError([Problem("domain", _not_imported(domain))])
    return settings.read(config_type(*find_domain_and_method(domain, method, entry)), data)


def _not_imported(domain: Any) -> str:
    return (
        f"is {show(domain)}, which is not part of cenie, and code that a run directory names is not run "
        f"unless you name it too: add --domain {domain} (in Python: domain={show(domain)})"
    )


def _not_stored(domain: Any) -> str:
    return (
        f"{show(domain)} was passed from Python, so that no file says how to build it; open the run there, "
        "with cenie.load_run(DIR, domain=...), or go on with cenie.train(..., resume=True)"
    )


def _is_from_python(data: Mapping[str, Any]) -> bool:
    """Whether the domain is none that could be found by its name."""
    passed = data.get("from_python")
    return isinstance(passed, list | tuple) and any(str(part).startswith("domain ") for part in passed)


def find_domain_and_method(domain: Any, method: Any, entry: "Domain | None" = None) -> "tuple[Domain, str]":
    """The domain (unless it is given) and the method of these names; `SettingsError` if one is unknown."""
    problems = method_problems(method)
    try:
        entry = entry or find_domain(domain)
    except SettingsError as error:
        problems = error.problems + problems
    if entry is None or problems:
        raise SettingsError(problems)
    return entry, method


def method_problems(method: Any) -> list[Problem]:
    """The problems with the name of a method, which may be a value of any type."""
    if isinstance(method, str) and (method in METHODS or method == OWN):
        return []
    return [Problem("method", f"must be one of {', '.join(METHODS)}, got {show(method)}")]
