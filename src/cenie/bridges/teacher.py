"""A curriculum for your own training loop: NumPy in, NumPy out, and no environment of ours.

Levels are generated and edited by ordinary Python. `ask_and_tell` makes the decisions with the functions of
our own training cycle, `steps` reads what happened in your loop, and `levels` keeps levels as rows of bytes.
"""

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from cenie import settings as typed_settings
from cenie.bridges import ask_and_tell
from cenie.bridges.arguments import Arguments
from cenie.bridges.levels import LevelCodec
from cenie.bridges.steps import Layout, PerStep, padded, read_points, read_steps
from cenie.methods.cenie import CenieNovelty
from cenie.methods.cenie_controls import ShuffledNovelty
from cenie.methods.family import Family
from cenie.methods.table import METHODS
from cenie.replay.config import ReplayConfig
from cenie.replay.play import EDIT, NEW, REPLAY, Play
from cenie.replay.scores import Score
from cenie.rundir import checkpoint
from cenie.rundir import manifest as manifests
from cenie.rundir.manifest import Unusable
from cenie.settings import Problem, SettingsError
from cenie.teach import teacher
from cenie.teach.buffer_view import stored_levels
from cenie.teach.curriculum import Assignment, Column, Curriculum, TeacherState
from cenie.teach.measure import Metrics, apart
from cenie.training.warnings import Watch
from cenie.xla.cache import kept_programs

OFFERED = tuple(name for name, method in METHODS.items() if method.settings.needs_levels_alone)
"""The methods that a loop of your own can use: they need not know how levels are made, what students see, or
what levels look like."""

CAPACITY_PER_LEVEL = 32
"""Places of the level buffer for each level of a task, by default: with a `min_fill` of one half, 16 tasks of
new levels come before the first that is replayed."""

_LARGEST_CAPACITY = ReplayConfig().capacity
"""The paper's capacity. The default is smaller for small tasks."""

_MIN_STEPS = 1024
"""Rows are filled up to this, so that most loops compile for one length only."""

_LARGEST_SEED = 2**32 - 1
"""JAX would silently use only the last 32 bits."""

_KINDS = {NEW: "new", REPLAY: "replay", EDIT: "edit"}

_REMEDY = (
    "Play each level until an episode has ended (terminated or truncated), or pass "
    "settings={'replay.unfinished': 'score'} to score what was played of an episode"
)

_log = logging.getLogger("cenie.teacher")


@dataclass(frozen=True)
class Task:
    """A request of the teacher: play these levels, and train on what you saw only if `learn` says so."""

    kind: Literal["new", "replay", "edit"]
    learn: bool
    levels: list[Any]


@dataclass(frozen=True)
class StoredLevel:
    """A level of the buffer: its scores by name, its probability of being replayed next, and its lineage."""

    level: Any
    scores: dict[str, float]
    probability: float
    id: int
    parent: int
    generation: int


class Teacher:
    """A method of the library as two calls: `ask` for levels, `tell` what happened on them.

    A level is an array, a number, or nested dicts, lists and tuples of these. `ask` returns the same task
    until it was told about; everything depends on the seed and on what was told, so that a saved teacher goes
    on as if it had never stopped.

    A level buffer has room for 32 tasks, at most 4,000 levels, unless `replay.capacity` says otherwise.
    Nothing is replayed before half of it (`replay.min_fill`) is filled; until then `tell` returns how many
    levels are missing (`levels_until_replay`), and the logger `cenie.teacher` says so once.

    What takes long to compile is kept in the user's cache directory for the next run. `CENIE_CACHE_DIR`
    names another directory, or switches this `off`; if you have set up JAX's own cache, that one is used.

    Args:
        method: The name of a method that a loop of your own can use, such as `plr-cenie`.
        generate: Returns a new level for a `numpy.random.Generator`.
        edit: Returns a slightly changed level for a generator and a level; for the methods that edit.
        num_levels: The number of levels of a task.
        gamma: Your student's discount.
        gae_lambda: Your student's lambda of generalised advantage estimation.
        settings: The method's settings to change, by their paths, e.g.
            `{"replay.capacity": 500, "score": "maxmc"}`.
        scores: Rank the levels in the place of the method's own score, by names of your choice: one of
            ours by its name, a `cenie.Score`, or a function of `cenie.Play`.
        weights: How much each ranking counts, by the names of `scores`; all alike by default. Novelty keeps
            its own weight (`alpha`).
        features: The number of features of a step, for the methods that measure novelty.
        points_per_level: The largest number of steps of a level whose features are looked at (evenly spaced,
            if there are more).
        seed: A whole number from 0 to 2^32 - 1.

    Raises:
        SettingsError: With everything that is wrong with the arguments and settings.
        ValueError: The method needs `edit` or `features`, or levels are not made of numbers.
    """

    def __init__(
        self,
        method: str = "plr-robust",
        *,
        generate: Callable[[np.random.Generator], Any],
        edit: Callable[[np.random.Generator, Any], Any] | None = None,
        num_levels: int = 16,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        settings: Mapping[str, Any] | None = None,
        scores: Mapping[str, str | Score | Callable[[Play], Array]] | None = None,
        weights: Mapping[str, float] | None = None,
        features: int | None = None,
        points_per_level: int = 256,
        seed: int = 0,
    ):
        read = Arguments()
        read.choice("method", method, OFFERED)
        read.function("generate", generate)
        if edit is not None:
            read.function("edit", edit)
        num_levels = read.whole("num_levels", num_levels, 1)
        points_per_level = read.whole("points_per_level", points_per_level, 1)
        features = None if features is None else read.whole("features", features, 1)
        seed = read.whole("seed", seed, 0, _LARGEST_SEED)
        gamma, gae_lambda = read.share("gamma", gamma), read.share("gae_lambda", gae_lambda)
        changes = read.changes("settings", settings)
        columns = read.columns(scores, weights)
        read.finish()
        self._method, self._generate, self._edit = method, generate, edit
        self._num_levels, self._gamma, self._gae_lambda, self._seed = num_levels, gamma, gae_lambda, seed
        self._points_shape = (points_per_level, features or 0)
        self._codec = LevelCodec(generate(np.random.default_rng(seed)))
        chosen = _chosen_settings(METHODS[method].settings, changes, num_levels)
        self._curriculum = _with_columns(
            ask_and_tell.curriculum_of(chosen, self._codec.size), columns, method
        )
        self._check_curriculum()
        self._state = teacher.init(self._curriculum, num_levels, jax.random.key(seed), self._points_shape)
        self._told = 0
        self._pending: tuple[Task, Assignment, TeacherState] | None = None
        self._steps = _MIN_STEPS
        self._compiled: set[str] = set()
        self._watch = Watch(self._curriculum.replay, _REMEDY)
        self._said_filling = False
        self._facts = {
            "method": method,
            "settings": typed_settings.to_data(chosen),
            "scores": None
            if columns is None
            else [[column.name, column.score.name, column.weight] for column in columns],
            "num_levels": num_levels,
            "points_shape": list(self._points_shape),
            "gamma": gamma,
            "gae_lambda": gae_lambda,
            "seed": seed,
            "levels": self._codec.description(),
        }

    def ask(self) -> Task:
        """The levels to play next. They are also kept here: `tell` needs no levels.

        Returns:
            The task: n levels, whether to learn from them, and where they come from.
        """
        if self._pending is None:
            self._say_filling()
            with self._compiling("ask"):
                assignment, state = ask_and_tell.ask(
                    self._curriculum, self._state, self._key(0), self._num_levels
                )
            kind = int(assignment.kind)
            (batch,) = assignment.batches
            foreign = self._levels(kind, np.asarray(batch.levels))
            rows = np.stack([self._codec.encode(level) for level in foreign])
            # Decoded, so that new levels have the same types as replayed ones.
            levels = [self._codec.decode(row) for row in rows]
            task = Task(_KINDS[kind], bool(assignment.students_learn), levels)  # pyright: ignore[reportArgumentType]
            batch = dataclasses.replace(batch, levels=jnp.asarray(rows))
            self._pending = task, dataclasses.replace(assignment, batches=(batch,)), state
        return self._pending[0]

    def tell(
        self,
        *,
        reward: PerStep,
        value: PerStep,
        terminated: PerStep,
        truncated: PerStep,
        solved: PerStep | None = None,
        final_value: PerStep | None = None,
        advantage: PerStep | None = None,
        entropy: PerStep | None = None,
        features: PerStep | None = None,
        layout: Layout | None = None,
    ) -> dict[str, int | float]:
        """Take in the steps made on the levels of the last task, in their order.

        Everything is an array [level, step], or a list with a row for each level, of any lengths. Tensors of
        PyTorch are read as they are, with or without a gradient, on any device.

        Each row is one level: any number of episodes one after another, all of that level. Steps after the
        last end of an episode are ignored, so that shorter rows may be padded with anything finite. A level
        without any end has no score and cannot be replayed, unless the setting `replay.unfinished` is
        "score"; a warning says so if that is the rule.

        Args:
            reward: What each step earned.
            value: Your critic's estimate before each step.
            terminated: True at the last step of an episode that came to its end.
            truncated: True at the last step of an episode that was cut off.
            solved: True at the end of a solved episode; the score `learnability` needs it.
            final_value: The critic's estimate after a time-out, to bootstrap from.
            advantage: Your own estimates instead of ours.
            entropy: The entropy of the policy; the score `entropy` needs it.
            features: A row of numbers for each step, usually state and action side by side; methods that
                measure novelty need it. Discrete actions belong there as one column per action, see
                `cenie.state_action_features`.
            layout: "time-first" for arrays [step, level], as vector environments and PyTorch buffers have
                them. The default is "levels-first", which must be said only if there are as many steps as
                levels and an array could be either.

        Returns:
            What to log, by name.

        Raises:
            RuntimeError: No task was asked for.
            ValueError: Something does not fit; the teacher is as before.
        """
        if self._pending is None:
            raise RuntimeError("tell() without a task: call ask() first")
        given = {
            "reward": reward,
            "value": value,
            "terminated": terminated,
            "truncated": truncated,
            "solved": solved,
            "final_value": final_value,
            "advantage": advantage,
            "entropy": entropy,
        }
        log = self._take_in(given, features, layout)
        unscored, equal = log.get("unscored", 0), log.get("equal_scores", False)
        for message in self._watch.look(self._num_levels, unscored, equal):
            warnings.warn(message, stacklevel=2)
        return log

    def stored(self) -> list[StoredLevel]:
        """Look into the level buffer.

        Returns:
            The levels, the likeliest to be replayed first; empty if the method has no buffer.
        """
        stored = stored_levels(self._curriculum, self._state)
        if stored is None:
            return []
        return [
            StoredLevel(
                level=self._codec.decode(stored.levels[place]),
                scores={name: column[place].item() for name, column in stored.scores.items()},
                probability=stored.probabilities[place].item(),
                id=stored.ids[place].item(),
                parent=stored.parents[place].item(),
                generation=stored.generations[place].item(),
            )
            for place in range(len(stored))
        ]

    def save(self, directory: str | Path) -> Path:
        """Write everything the teacher remembers; a task that was not told about will be asked for again.

        Checkpoints replace each other, so that every teacher needs a directory of its own.

        Args:
            directory: Where this teacher's checkpoints are, or nothing yet.

        Returns:
            The checkpoint.

        Raises:
            ValueError: The directory belongs to another teacher or to a run; nothing is removed.
        """
        for path in manifests.newest_first(Path(directory)):
            with contextlib.suppress(Unusable):  # Said by `load`; a damaged one is never removed.
                if different := self._differences(manifests.read(path)["facts"]):
                    raise ValueError(f"{directory} holds the checkpoints of another teacher: {different}")
        # The length that rows are filled up to is remembered too: it may decide about a last bit.
        facts = {**self._facts, "steps": self._steps}
        return checkpoint.save(Path(directory), self._state, step=self._told, facts=facts)

    def load(self, directory: str | Path) -> None:
        """Go on from the newest valid checkpoint that a teacher made with the same arguments has written.

        Args:
            directory: Where this teacher's checkpoints are.

        Raises:
            ValueError: There is no checkpoint, or another teacher has written it.
        """
        loaded = checkpoint.load_newest(Path(directory), self._state)
        if loaded is None:
            raise ValueError(f"{directory} holds no checkpoint of a teacher")
        if different := self._differences(loaded.facts):
            raise ValueError(f"{directory} was saved by another teacher: {different}")
        self._state, self._told, self._pending = loaded.tree, loaded.step, None
        self._steps = int(loaded.facts.get("steps", _MIN_STEPS))

    # Inside

    def _take_in(
        self, given: Mapping[str, PerStep | None], features: PerStep | None, layout: Layout | None
    ) -> dict[str, Any]:
        """Read the steps of the pending task, give them to the method, and return what to log."""
        assert self._pending is not None
        _, assignment, state = self._pending
        replay = self._curriculum.replay
        for column in replay.scores if replay else ():
            for name in column.score.needs:
                if given[name] is None:
                    raise ValueError(f"{name}: this teacher's score needs it")
        if layout is not None and layout not in get_args(Layout):
            raise ValueError(f"layout: must be one of {', '.join(get_args(Layout))}, got {layout!r}")
        points = None
        if self._curriculum.novelty is not None:
            if features is None:
                raise ValueError("features: this teacher measures novelty and needs them")
            per_level, size = self._points_shape
            points = read_points(features, self._num_levels, layout, points_per_level=per_level, size=size)
        unfinished = replay is not None and replay.config.unfinished == "score"
        steps = read_steps(given, self._num_levels, layout, score_unfinished=unfinished)
        # The length only ever grows: each one is compiled for, and a shorter one would gain nothing.
        while self._steps < max(len(row) for row in steps["reward"]):
            self._steps *= 2
        metrics: Metrics = {"kind": assignment.kind}
        if replay is not None:
            with self._compiling(f"tell {self._steps}"):
                state, metrics = ask_and_tell.tell(
                    self._curriculum,
                    state,
                    assignment,
                    steps=padded(steps, self._steps),
                    points=points,
                    key=self._key(1),
                    gamma=self._gamma,
                    gae_lambda=self._gae_lambda,
                )
        self._state, self._pending, self._told = state, None, self._told + 1
        log = {name: number.item() for name, number in apart(jax.device_get(metrics)).items()}
        return log if replay is None else log | {"levels_until_replay": self._missing()}

    def _check_curriculum(self) -> None:
        """Refuse a method that needs what was not given, or what a loop of one's own cannot give."""
        curriculum = self._curriculum
        if curriculum.editing is not None and self._edit is None:
            raise ValueError(
                f"the method {self._method} edits levels: give edit=..., a function (rng, level) -> level"
            )
        if curriculum.novelty is not None and not self._points_shape[1]:
            raise ValueError(
                f"features: {self._method} measures novelty and needs the number of features of a step"
            )
        if curriculum.features != "memory":
            message = "describe steps by what you pass as features; the setting is for our own students"
            raise SettingsError([Problem("novelty.features", message)])
        novelty = curriculum.novelty
        novelty = novelty.inner if isinstance(novelty, ShuffledNovelty) else novelty
        if isinstance(novelty, CenieNovelty) and novelty.measure == "first-episode":
            message = "first-episode needs the ends of episodes; choose mean or highest"
            raise SettingsError([Problem("novelty.measure", message)])

    def _differences(self, facts: Mapping[str, Any]) -> str:
        """In what a checkpoint's facts differ from this teacher's own; empty if in nothing."""
        return "; ".join(
            f"{name} was {facts.get(name)!r} and is {value!r}"
            for name, value in self._facts.items()
            if facts.get(name) != value
        )

    def _levels(self, kind: int, stored: np.ndarray) -> list[Any]:
        # Not the seed alone: the example of the constructor came from that stream.
        rng = np.random.default_rng((self._seed, self._told))
        if kind == NEW:
            return [self._generate(rng) for _ in range(self._num_levels)]
        levels = [self._codec.decode(row) for row in stored]
        if kind == EDIT:
            assert self._edit is not None
            return [self._edit(rng, level) for level in levels]
        return levels

    def _missing(self) -> int:
        """The number of levels that the buffer lacks before any is replayed."""
        replay, buffer = self._curriculum.replay, self._state.buffer
        if replay is None or buffer is None:
            return 0
        return max(0, max(1, replay.config.levels_before_replay) - int(buffer.size))

    def _say_filling(self) -> None:
        if self._said_filling or not (missing := self._missing()):
            return
        self._said_filling = True
        idle = "" if self._curriculum.learn_on_new else "; until then task.learn is False"
        # A level of logging that is shown where nobody has set it up: silence was taken for a fault.
        _log.warning(
            "%s fills its level buffer first: %d more levels, %d in a task, before any is replayed%s "
            "(settings replay.capacity and replay.min_fill)",
            self._method,
            missing,
            self._num_levels,
            idle,
        )

    def _compiling(self, what: str) -> contextlib.AbstractContextManager[object]:
        """Keep what is compiled inside, the first time that this is done."""
        if what in self._compiled:
            return contextlib.nullcontext()
        self._compiled.add(what)
        return kept_programs()

    def _key(self, purpose: int) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self._seed), self._told), purpose)


def _chosen_settings(settings: Family, changes: Mapping[str, Any], num_levels: int) -> Family:
    """The changed settings. The level buffer fits the size of a task unless its capacity is given."""
    fitting = {}
    if settings.level_buffer is not None and not {"replay", "replay.capacity"} & changes.keys():
        capacity = min(CAPACITY_PER_LEVEL * num_levels, _LARGEST_CAPACITY)
        fitting = {"replay.capacity": max(num_levels, capacity)}
    return typed_settings.replace(settings, {**fitting, **changes})


def _with_columns(made: Curriculum, columns: tuple[Column, ...] | None, method: str) -> Curriculum:
    """The curriculum with scores that were passed in the place of its own."""
    if columns is None:
        return made
    if made.replay is None:
        raise SettingsError([Problem("scores", f"are of no use to {method}, which replays no levels")])
    return dataclasses.replace(made, replay=dataclasses.replace(made.replay, scores=columns))
