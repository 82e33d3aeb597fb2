"""The configuration of a run: what to train, on what, for how long. Imports no JAX.

A config is read strictly (`cenie.settings`): every problem is reported at once, with the path of its
field, before anything is compiled. It is stored as JSON beside the results.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cenie import settings
from cenie.envs.domains import DOMAINS
from cenie.run.directory import RunDirectoryError, read_json
from cenie.run.sinks import SINK_MODULES
from cenie.settings import Problem, SettingsError, setting, show
from cenie.student.config import StudentConfig
from cenie.teach.methods import METHODS, RandomTeacher, ReplayTeacher, Teacher

DECAY = ("student.ppo.decay_from", "student.ppo.decay_updates")
"""When the learning rate falls. A run that is made longer may want another schedule from there on."""

MAY_CHANGE_ON_RESUME = ("updates", "run", *DECAY)
"""All other settings say which experiment a run is: they are fixed with its first checkpoint."""

CHANGES_BITS = (*DECAY, "run.devices", "run.recorded_points")
"""What may change on resume, but leaves a run that no uninterrupted run of one config would repeat."""

EPISODES_AT_ONCE = 1024
"""Episodes of an evaluation that are played side by side, at most: what bounds its memory."""

_LARGEST_FILE = 2**20
"""Bytes of a config file, at most; ours have some 3,000."""


@dataclass(frozen=True)
class RunConfig:
    """What the host loop does around the training cycles."""

    suite: str = "cenie8-sym"
    """Held-out suite used for evaluation during and after training."""
    evaluate_every: int = setting(100, minimum=1)
    """Evaluate after this many student updates; also before the first and after the last."""
    episodes: int = setting(2, minimum=1, maximum=100_000)
    """Episodes for each entry of the suite in an evaluation during training."""
    final_episodes: int = setting(10, minimum=1, maximum=100_000)
    """Episodes for each entry of the suite in the first and the last evaluation."""
    evaluation_seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    """Decides the draws of all evaluations during training: every run is tested on the same episodes."""
    checkpoint_every: int = setting(50, minimum=1)
    """Write a checkpoint after this many student updates; also after the last."""
    keep_checkpoints: int = setting(2, minimum=1, maximum=1_000_000)
    cycles_per_chunk: int = setting(10, minimum=1, maximum=100_000)
    """Training cycles between two looks of the host loop; results do not depend on it."""
    devices: int = setting(0, minimum=0, maximum=1024)
    """Devices to split the levels over; 0 takes as many as there are and divide the levels."""
    recorded_cycles: int = setting(5000, minimum=0)
    """Cycles whose levels are all recorded; of so many more one in two, then one in four, and so on."""
    recorded_evaluations: int = setting(200, minimum=0)
    """Evaluations with each of which a snapshot is written; later ones are thinned out in the same way."""
    recorded_points: int = setting(512, minimum=0, maximum=1_000_000)
    """State-action points of training in a snapshot."""
    sinks: tuple[str, ...] = ()
    """Further places for the metrics: tensorboard, wandb."""

    def check(self) -> Iterator[Problem]:
        for index, name in enumerate(self.sinks):
            if name not in SINK_MODULES:
                yield Problem(
                    f"sinks[{index}]", f"must be one of {', '.join(SINK_MODULES)}, got {show(name)}"
                )


@dataclass(frozen=True)
class Config:
    """A run. The types of `env` and `teacher` depend on the domain and the method."""

    domain: str
    method: str
    preset: str
    seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    updates: int = setting(1000, minimum=0, maximum=2**31 - 1)
    """Student gradient updates (cycles that learn); the budget by which methods are compared."""
    env: Any = None
    student: StudentConfig = field(default_factory=StudentConfig)
    teacher: Teacher = field(default_factory=RandomTeacher)
    run: RunConfig = field(default_factory=RunConfig)

    def check(self) -> Iterator[Problem]:
        wrong = name_problems(self.domain, self.method)
        if wrong:
            yield from wrong
            return
        entry, method = DOMAINS[self.domain], METHODS[self.method]
        if type(self.teacher) is not type(method.settings):
            yield Problem("method", "cannot be changed alone: the settings of the teacher depend on it")
            return
        allowed = (
            ("run.suite", self.run.suite, entry.suites),
            ("teacher.generator", self.teacher.generator, (*entry.roles, *entry.generators)),
        )
        for path, name, names in allowed:
            if name not in names:
                yield Problem(path, f"must be one of {', '.join(names)}, got {show(name)}")
        if isinstance(self.teacher, ReplayTeacher):
            yield from self._replay_problems(self.teacher)
        levels = self.student.levels_per_minibatch
        if self.run.devices and levels % self.run.devices:
            yield Problem("run.devices", f"must divide the levels of a minibatch ({levels}), or be 0")
        for problem in self.student.network.misfits(self.env.observation_parts):
            yield Problem(f"student.network.{problem.path}", problem.message)

    def _replay_problems(self, teacher: ReplayTeacher) -> Iterator[Problem]:
        replay, edit, batch = teacher.replay, teacher.edit, self.student.num_levels
        if edit is not None and batch % edit.children:
            yield Problem(
                "teacher.edit.children", f"must divide student.num_levels ({batch}), got {edit.children}"
            )
        if replay.capacity < batch:
            yield Problem(
                "teacher.replay.capacity",
                f"must be at least student.num_levels ({batch}), got {replay.capacity}",
            )
        if replay.replay_prob == 0:
            yield Problem("teacher.replay.replay_prob", "must be above 0; `dr` is training without replay")
        # A method that edits fills its buffer with edited levels.
        if replay.replay_prob == 1 and replay.min_fill == 0 and edit is None:
            yield Problem(
                "teacher.replay.min_fill",
                "must be above 0 with a replay_prob of 1: otherwise the first batch is replayed for ever",
            )

    def devices_of(self, available: int) -> int:
        """Over how many devices the level axis is split: as many as share it evenly, or fewer if told so."""
        wanted = min(self.run.devices or available, available)
        return max(n for n in range(1, wanted + 1) if self.student.levels_per_minibatch % n == 0)


@dataclass(frozen=True)
class EvaluationRequest:
    """What `cenie evaluate` is asked for."""

    suite: str
    episodes: int = setting(10, minimum=1, maximum=100_000)
    seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    checkpoints: int = setting(1, minimum=1, maximum=100_000)


@functools.cache
def config_type(domain: str, method: str) -> type[Config]:
    """`Config` with the field types of one domain and one method."""
    env, teacher = DOMAINS[domain].settings, METHODS[method].settings
    fields = [("env", env, field(default_factory=env)), ("teacher", type(teacher), field(default=teacher))]
    made = dataclasses.make_dataclass("Config", fields, bases=(Config,), frozen=True)
    made.__doc__ = f"Settings of {method} on {domain}."
    return made


def read_config(data: Any) -> Config:
    """A config from plain data (as stored in `config.json`); raises `SettingsError`."""
    if not isinstance(data, Mapping):
        raise SettingsError([Problem("config", "expected a JSON object")])
    check_names(data.get("domain"), data.get("method"))
    return settings.read(config_type(data["domain"], data["method"]), data)


def check_names(domain: Any, method: Any) -> None:
    """Raise `SettingsError` unless both names are in the tables."""
    problems = name_problems(domain, method)
    if problems:
        raise SettingsError(problems)


def name_problems(domain: Any, method: Any) -> list[Problem]:
    """What is wrong with the names of a domain and a method, which may be values of any type."""
    return [
        Problem(path, f"must be one of {', '.join(table)}, got {show(value)}")
        for path, value, table in (("domain", domain, DOMAINS), ("method", method, METHODS))
        if not isinstance(value, str) or value not in table
    ]


def load_config(path: Path) -> Config:
    """The config of a run directory; raises `SettingsError` if the file cannot be read."""
    try:
        data = read_json(path, _LARGEST_FILE)
    except RunDirectoryError as error:
        raise SettingsError([Problem("config.json", str(error))]) from error
    return read_config(data)
