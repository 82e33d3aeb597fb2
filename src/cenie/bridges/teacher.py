"""A curriculum for your own training loop: NumPy in, NumPy out, and no environment of ours.

The decisions are made by `cenie.teach.teacher`, the same functions that our own training cycle calls; this
file only carries levels and rollouts to them and back. Levels are generated and edited by ordinary Python.
"""

import contextlib
import dataclasses
import functools
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from cenie import settings as typed_settings
from cenie.bridges.levels import LevelCodec
from cenie.envs.base import Design
from cenie.methods.cenie import CenieNovelty
from cenie.methods.cenie_controls import ShuffledNovelty
from cenie.methods.family import Family
from cenie.methods.plr import named_columns
from cenie.methods.table import METHODS
from cenie.novelty.tensors import from_tensor
from cenie.records import Rollout
from cenie.replay.config import ReplayConfig
from cenie.replay.outcomes import Points
from cenie.replay.play import EDIT, NEW, REPLAY, Play
from cenie.replay.scores import Score
from cenie.rundir import checkpoint
from cenie.rundir import manifest as manifests
from cenie.rundir.manifest import Unusable
from cenie.settings import Problem, SettingsError, show
from cenie.student.advantage import gae
from cenie.teach import teacher
from cenie.teach.buffer_view import stored_levels
from cenie.teach.curriculum import Assignment, Column, Curriculum, TeacherState
from cenie.teach.measure import Metrics, apart
from cenie.training.warnings import Watch
from cenie.xla.cache import kept_programs

PerStep = ArrayLike | Sequence[Any]
"""A number for each step of each level: an array of two axes, or a list of rows of any lengths. Tensors
of PyTorch are arrays here."""

Layout = Literal["levels-first", "time-first"]
"""The order of the first two axes: [level, step], or [step, level]."""


OFFERED = tuple(name for name, method in METHODS.items() if method.settings.needs_levels_alone)
"""The methods that a loop of your own can use: those that need not know how levels are made, what students
see, or what levels look like."""

_KINDS = {NEW: "new", REPLAY: "replay", EDIT: "edit"}

CAPACITY_PER_LEVEL = 32
"""Places of the level buffer for each level of a task, by default: with a `min_fill` of one half, 16 tasks of
new levels come before the first that is replayed."""

_LARGEST_CAPACITY = ReplayConfig().capacity
"""The paper's capacity. The default is smaller for small tasks."""

_log = logging.getLogger("cenie.teacher")

_MIN_STEPS = 1024
"""Rows are filled up to this, so that most loops compile for one length only."""

_LARGEST_SEED = 2**32 - 1
"""JAX would silently use only the last 32 bits."""


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

    `generate(rng)` returns a new level, `edit(rng, level)` a slightly changed one (for the methods that
    edit); `rng` is a `numpy.random.Generator`. A level is an array, a number, or nested dicts, lists and
    tuples of these. `settings` changes the method's settings by their paths, e.g.
    `{"replay.capacity": 500, "score": "maxmc"}`; `gamma` and `gae_lambda` are your student's. The
    methods that measure novelty need the number of `features` of a step, and look at no more than
    `points_per_level` steps of a level (evenly spaced, if there are more).

    `scores` rank the levels in the place of the method's own score: by the names that they are to have, one
    of ours by its name, a `cenie.Score`, or a function of `cenie.Play`. `weights` say by these names
    how much each ranking counts, all alike by default; novelty keeps its own weight (`alpha`).

    A level buffer has room for 32 tasks, at most 4,000 levels, unless `replay.capacity` says otherwise.
    Nothing is replayed before half of it (`replay.min_fill`) is filled; until then `tell` returns how many
    levels are missing (`levels_until_replay`), and the logger `cenie.teacher` says so once.

    `ask` returns the same task until it was told about; everything depends on the seed and on what was
    told, so that a saved teacher goes on as if it had never stopped.

    What takes long to compile is kept in the user's cache directory for the next run. `CENIE_CACHE_DIR`
    names another directory, or switches this `off`; if you have set up JAX's own cache, that one is used.
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
        read = _Arguments()
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
        if read.problems:
            raise SettingsError(read.problems)
        self._generate, self._edit = generate, edit
        self._codec = LevelCodec(generate(np.random.default_rng(seed)))
        defaults = _defaults(METHODS[method].settings, changes, num_levels)
        chosen = typed_settings.replace(METHODS[method].settings, defaults | changes)
        self._curriculum = _with_columns(_curriculum(chosen, self._codec.size), columns, method)
        if self._curriculum.editing is not None and edit is None:
            raise ValueError(
                f"the method {method} edits levels: give edit=..., a function (rng, level) -> level"
            )
        if self._curriculum.novelty is not None and features is None:
            raise ValueError(
                f"features: {method} measures novelty and needs the number of features of a step"
            )
        if self._curriculum.features != "memory":
            message = "describe steps by what you pass as features; the setting is for our own students"
            raise SettingsError([Problem("novelty.features", message)])
        novelty = self._curriculum.novelty
        novelty = novelty.inner if isinstance(novelty, ShuffledNovelty) else novelty
        if isinstance(novelty, CenieNovelty):
            _check_measure(novelty)
        self._num_levels, self._seed, self._told = num_levels, seed, 0
        self._steps = _MIN_STEPS
        self._compiled: set[str] = set()
        self._watch = Watch(self._curriculum.replay, _REMEDY)
        self._points_shape = (points_per_level, features or 0)
        self._gamma, self._gae_lambda = gamma, gae_lambda
        self._state = teacher.init(self._curriculum, num_levels, jax.random.key(seed), self._points_shape)
        self._pending: tuple[Task, Assignment, TeacherState] | None = None
        self._method, self._said_filling = method, False
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
        """The levels to play next. They are also kept here: `tell` needs no levels."""
        if self._pending is None:
            self._say_filling()
            with self._compiling("ask"):
                assignment, state = _ask(self._curriculum, self._state, self._key(0), self._num_levels)
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
        """Take in the steps made on the levels of the last task, in their order; returns what to log.

        Everything is an array [level, step], or a list with a row for each level, of any lengths. Arrays
        [step, level], as vector environments and PyTorch buffers have them, need `layout="time-first"`; the
        default is "levels-first", which must be said only if there are as many steps as levels and an array
        could be either. Tensors of PyTorch are read as they are, with or without a gradient, on any device.

        Each row is one level: any number of episodes one after another, all of that level. `terminated` or
        `truncated` is true at the last step of an episode; steps after the last of these are ignored, so that
        shorter rows may be padded with anything finite. A level without any end has no score and cannot be
        replayed, unless the setting `replay.unfinished` is "score"; a warning says so if that is the rule.
        `value` is your critic's estimate before each step. Optional: `solved` (true at the end of a solved
        episode; the score `learnability` needs it), `final_value` (the critic's estimate after a time-out, to
        bootstrap from), `advantage` (your own estimates instead of ours), `entropy` (of the policy; the score
        `entropy` needs it), `features` (a row of numbers for each step, usually state and action side by
        side; methods that measure novelty need it). Discrete actions belong there as one column per action,
        see `cenie.state_action_features`.
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
        _check_needs(self._curriculum, given)
        if layout is not None and layout not in get_args(Layout):
            raise ValueError(f"layout: must be one of {', '.join(get_args(Layout))}, got {layout!r}")
        points = None
        if self._curriculum.novelty is not None:
            if features is None:
                raise ValueError("features: this teacher measures novelty and needs them")
            rows = _rows("features", features, self._num_levels, layout)
            points = _read_points(rows, *self._points_shape)
        steps = _read_steps(
            {
                name: _rows(name, values, self._num_levels, layout)
                for name, values in given.items()
                if values is not None or name in _REQUIRED
            }
        )
        replay = self._curriculum.replay
        if replay is not None and replay.config.unfinished == "score":
            steps |= {"truncated": _with_ends(steps["terminated"], steps["truncated"])}
        longest = max(len(row) for row in steps["reward"])
        # The length only ever grows: each one is compiled for, and a shorter one would gain nothing.
        while self._steps < longest:
            self._steps *= 2
        padded = _padded(steps, self._steps)
        _, assignment, state = self._pending
        metrics: Metrics = {"kind": assignment.kind}
        if replay is not None:
            with self._compiling(f"tell {self._steps}"):
                (play,) = _locate(self._curriculum, state, points, assignment.batches)
                play = _scored(self._curriculum, self._gamma, self._gae_lambda, play, padded)
                state, metrics = _store_and_learn(self._curriculum, state, assignment, play, self._key(1))
        self._state, self._pending, self._told = state, None, self._told + 1
        log = {name: number.item() for name, number in apart(jax.device_get(metrics)).items()}
        if replay is not None:
            log["levels_until_replay"] = self._missing()
        for message in self._watch.look(
            self._num_levels, log.get("unscored", 0), log.get("equal_scores", False)
        ):
            warnings.warn(message, stacklevel=2)
        return log

    def stored(self) -> list[StoredLevel]:
        """The levels of the buffer, the likeliest to be replayed first."""
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

        Checkpoints replace each other, so that every teacher needs a directory of its own. Raises
        `ValueError`, and removes nothing, if the directory belongs to another teacher or to a run.
        """
        for path in manifests.newest_first(Path(directory)):
            with contextlib.suppress(Unusable):  # Said by `load`; a damaged one is never removed.
                if different := self._differences(manifests.read(path)["facts"]):
                    raise ValueError(f"{directory} holds the checkpoints of another teacher: {different}")
        # The length that rows are filled up to is remembered too: it may decide about a last bit.
        facts = {**self._facts, "steps": self._steps}
        return checkpoint.save(Path(directory), self._state, step=self._told, facts=facts)

    def load(self, directory: str | Path) -> None:
        """Go on from the newest valid checkpoint that a teacher made with the same arguments has written."""
        loaded = checkpoint.load_newest(Path(directory), self._state)
        if loaded is None:
            raise ValueError(f"{directory} holds no checkpoint of a teacher")
        if different := self._differences(loaded.facts):
            raise ValueError(f"{directory} was saved by another teacher: {different}")
        self._state, self._told, self._pending = loaded.tree, loaded.step, None
        self._steps = int(loaded.facts.get("steps", _MIN_STEPS))

    def _differences(self, facts: Mapping[str, Any]) -> str:
        """The differences between a checkpoint's facts and those of this teacher, in words; empty if there
        are none."""
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


@dataclass(frozen=True)
class _HostLevels:
    """Stands in for a domain: levels are made by Python outside, so that inside they are just rows."""

    size: int
    tasks: None = None
    environment: None = None
    encoding: None = None

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Array]:
        return lambda key: jnp.zeros(self.size, jnp.uint8)

    def edit(self, key: PRNGKeyArray, row: Array) -> Array:
        return row

    redraw = edit

    def design_for(self, name: str) -> Design:
        raise NotImplementedError  # refused before


@functools.cache
def _curriculum(settings: Family, size: int) -> Curriculum:
    """The method's curriculum, in which new levels are blank and edits change nothing yet.

    One object for equal arguments: what is compiled for one teacher then serves all others like it.
    """
    return settings.curriculum(_HostLevels(size))


def _defaults(settings: Family, changes: Mapping[str, Any], num_levels: int) -> dict[str, Any]:
    """Settings that depend on the size of a task, where nothing is said of them."""
    if settings.level_buffer is None or {"replay", "replay.capacity"} & changes.keys():
        return {}
    return {"replay.capacity": max(num_levels, min(CAPACITY_PER_LEVEL * num_levels, _LARGEST_CAPACITY))}


def _with_columns(made: Curriculum, columns: tuple[Column, ...] | None, method: str) -> Curriculum:
    """The curriculum with scores that were passed in the place of its own."""
    if columns is None:
        return made
    if made.replay is None:
        raise SettingsError([Problem("scores", f"are of no use to {method}, which replays no levels")])
    return dataclasses.replace(made, replay=dataclasses.replace(made.replay, scores=columns))


# Of the four steps of `tell` only `score` is compiled for each length; the others hold all that is large.
_ask = jax.jit(teacher.ask, static_argnums=(0, 3))


@functools.partial(jax.jit, static_argnums=0)
def _locate(
    curriculum: Curriculum, state: TeacherState, points: Points | None, asked: tuple[Play, ...]
) -> tuple[Play, ...]:
    return teacher.locate(
        curriculum, state, tuple(dataclasses.replace(play, points=points) for play in asked)
    )


@functools.partial(jax.jit, static_argnums=0)
def _store_and_learn(
    curriculum: Curriculum, state: TeacherState, assignment: Assignment, play: Play, key: PRNGKeyArray
) -> tuple[TeacherState, Metrics]:
    stored, plays, counts = teacher.store(curriculum, state, (play,), key)
    after, learned = teacher.learn(
        curriculum, state, stored=stored, assignment=assignment, plays=plays, key=key
    )
    return after, counts | learned


def _scored(
    curriculum: Curriculum, gamma: float, gae_lambda: float, play: Play, steps: Mapping[str, ArrayLike]
) -> Play:
    """A located play with its scores, whose steps are left behind."""
    # What `score` needs of it, so that nothing large goes through the program.
    small = Play((), kind=play.kind, leader=play.leader, best_return=play.best_return, scores=play.scores)
    scored = _score(curriculum, gamma, gae_lambda, small, dict(steps))
    return dataclasses.replace(
        play,
        outcomes=scored.outcomes,
        best_return=scored.best_return,
        scores=scored.scores,
        entry_scores=scored.entry_scores,
        valid=scored.valid,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _score(
    curriculum: Curriculum, gamma: float, gae_lambda: float, play: Play, steps: dict[str, Array]
) -> Play:
    reward, done = steps["reward"], steps["terminated"] | steps["truncated"]
    rollout = Rollout(
        observation=(),
        action=jnp.zeros(reward.shape, jnp.int32),
        log_prob=jnp.zeros_like(reward),
        value=steps["value"],
        reward=reward,
        terminated=steps["terminated"],
        truncated=steps["truncated"],
        solved=steps.get("solved", jnp.zeros_like(done)),
        start=jnp.roll(done, 1, axis=1).at[:, 0].set(True),
        memory=(),
        # Never used: only completed episodes are scored, and nothing follows their last step.
        last_value=jnp.zeros(reward.shape[0]),
        final_value=steps.get("final_value"),
        entropy=steps.get("entropy"),
    )
    advantages = gae(rollout, gamma, gae_lambda, False, rollout.final_value is not None)
    if "advantage" in steps:
        target = steps["advantage"] + rollout.value
        advantages = dataclasses.replace(advantages, advantage=steps["advantage"], target=target)
    scored = teacher.score(curriculum, dataclasses.replace(play, rollout=rollout, advantages=advantages))
    return dataclasses.replace(scored, rollout=None, advantages=None)


class _Arguments:
    """Reads arguments and collects what is wrong with them, so that all problems are told at once."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def choice(self, name: str, value: Any, choices: tuple[str, ...]) -> None:
        if not isinstance(value, str) or value not in choices:
            self._wrong(name, f"must be one of {', '.join(choices)}", value)

    def function(self, name: str, value: Any) -> None:
        if not callable(value):
            self._wrong(name, "must be a function", value)

    def whole(self, name: str, value: Any, smallest: int, largest: int | None = None) -> int:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if is_whole and smallest <= value and (largest is None or value <= largest):
            return int(value)
        limit = "" if largest is None else f" and at most {largest}"
        self._wrong(name, f"must be a whole number of at least {smallest}{limit}", value)
        return smallest

    def share(self, name: str, value: Any) -> float:
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if is_number and 0.0 <= value <= 1.0:
            return float(value)
        self._wrong(name, "must be between 0 and 1", value)
        return 0.0

    def changes(self, name: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(path, str) for path in value):
            self._wrong(name, "must be a dict of settings by their paths", value)
            return {}
        return {path: new.item() if isinstance(new, np.generic) else new for path, new in value.items()}

    def columns(self, scores: Any, weights: Any) -> tuple[Column, ...] | None:
        """The scores as columns of the level buffer; None if none were passed."""
        if scores is None:
            if weights is not None:
                self._wrong("weights", "need scores", weights)
            return None
        for name, value in (("scores", scores), ("weights", weights)):
            if value is not None and not isinstance(value, Mapping):
                self._wrong(name, "must be a dict by the names of scores", value)
                return None
        try:
            return named_columns(scores, weights)
        except SettingsError as error:
            self.problems += error.problems
            return None

    def _wrong(self, name: str, rule: str, value: Any) -> None:
        self.problems.append(Problem(name, f"{rule}, got {show(value)}"))


def _check_needs(curriculum: Curriculum, given: Mapping[str, PerStep | None]) -> None:
    for column in curriculum.replay.scores if curriculum.replay else ():
        for name in column.score.needs:
            if given[name] is None:
                raise ValueError(f"{name}: this teacher's score needs it")


_REMEDY = (
    "Play each level until an episode has ended (terminated or truncated), or pass "
    "settings={'replay.unfinished': 'score'} to score what was played of an episode"
)
_FLAGS = {"terminated", "truncated", "solved"}
_REQUIRED = {"reward", "value", "terminated", "truncated"}


def _rows(name: str, values: Any, num_levels: int, layout: Layout | None) -> list[np.ndarray]:
    """The row of each level, whatever the layout; raises `ValueError` if the shape does not fit it."""
    if isinstance(values, list | tuple) and layout != "time-first":
        rows = [_array(f"{name}[{index}]", row) for index, row in enumerate(values)]
        if len(rows) != num_levels:
            transposed = bool(rows) and all(row.shape[:1] == (num_levels,) for row in rows)
            raise ValueError(_wrong_levels(name, num_levels, len(rows), transposed))
        return rows
    array = _array(name, values)
    if array.ndim < 2:
        raise ValueError(f"{name}: expected an array [level, step] or a list of rows, got {show(values)}")
    steps, levels = array.shape[:2]
    if layout == "time-first":
        if levels != num_levels:
            hint = "; it looks levels-first" if steps == num_levels else ""
            raise ValueError(
                f"{name}: expected [step, level] with {num_levels} levels, got {list(array.shape)}{hint}"
            )
        return list(array.swapaxes(0, 1))
    if layout is None and steps == levels == num_levels > 1:
        raise ValueError(
            f"{name}: an array of as many steps as levels, {num_levels}, could have either of its axes "
            f"first: pass layout='levels-first' or layout='time-first'"
        )
    if array.shape[0] != num_levels:
        raise ValueError(_wrong_levels(name, num_levels, array.shape[0], array.shape[1] == num_levels))
    return list(array)


def _wrong_levels(name: str, num_levels: int, found: int, transposed: bool) -> str:
    hint = "; it looks time-first: pass layout='time-first'" if transposed else ""
    return f"{name}: expected one row for each of the {num_levels} levels, got {found}{hint}"


def _array(name: str, values: Any) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name}: masks are not read; give a list of rows of different lengths")
    try:
        array = np.asarray(from_tensor(values))
    except Exception as error:  # Ragged lists, tensors without data: each library has its own.
        raise ValueError(f"{name}: cannot be read as an array ({error})") from error
    # bfloat16 is no number to NumPy.
    is_foreign_float = array.dtype.kind == "V" and jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float32) if is_foreign_float else array


def _read_steps(given: Mapping[str, Sequence[np.ndarray]]) -> dict[str, list[np.ndarray]]:
    """The rows with their final types, all of the lengths of the rewards."""
    rows = {name: _read_rows(name, part) for name, part in given.items()}
    lengths = {name: [len(row) for row in part] for name, part in rows.items()}
    for name, found in lengths.items():
        if found != lengths["reward"]:
            raise ValueError(f"{name}: rows of {found} steps, but those of reward have {lengths['reward']}")
    # Gymnasium's time limit may set both at once.
    ends = zip(rows["truncated"], rows["terminated"])
    return rows | {"truncated": [truncated & ~terminated for truncated, terminated in ends]}


def _with_ends(terminated: Sequence[np.ndarray], truncated: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`truncated` with an end at the last step of every row that has none, so that it is scored."""
    last = [np.arange(len(row)) == len(row) - 1 for row in truncated]
    unfinished = [not (end | cut).any() for end, cut in zip(terminated, truncated)]
    return [row | (is_last & cut) for row, is_last, cut in zip(truncated, last, unfinished)]


def _padded(steps: Mapping[str, Sequence[np.ndarray]], length: int) -> dict[str, np.ndarray]:
    """Arrays [n, t] of the rows."""
    return {
        name: np.stack([np.pad(row, (0, length - len(row))) for row in part]) for name, part in steps.items()
    }


def _check_measure(novelty: CenieNovelty) -> None:
    """Points are told without the ends of episodes."""
    if novelty.measure == "first-episode":
        message = "first-episode needs the ends of episodes; choose mean or highest"
        raise SettingsError([Problem("novelty.measure", message)])


def _read_points(rows: Sequence[np.ndarray], steps: int, size: int) -> Points:
    """At most `steps` points of each level, and which of them exist."""
    points, valid = np.zeros((len(rows), steps, size), np.float32), np.zeros((len(rows), steps), bool)
    for index, row in enumerate(rows):
        if row.ndim != 2 or row.shape[1] != size or row.dtype.kind not in "biuf":
            raise ValueError(
                f"features[{index}]: expected {size} numbers for each step, got {row.dtype}{list(row.shape)}"
            )
        if not np.isfinite(row).all():
            raise ValueError(f"features[{index}]: not finite")
        count = min(len(row), steps)
        chosen = np.linspace(0, len(row) - 1, count).round().astype(int)
        points[index, :count], valid[index, :count] = row[chosen], True
    return Points(jnp.asarray(points), jnp.asarray(valid))


def _read_rows(name: str, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    rows = []
    for index, row in enumerate(values):
        if row.ndim != 1 or row.dtype.kind not in "biuf":
            raise ValueError(
                f"{name}[{index}]: expected one number per step, got {row.dtype}{list(row.shape)}"
            )
        if name in _FLAGS and not np.isin(row, (0, 1)).all():
            raise ValueError(f"{name}[{index}]: expected true or false for each step")
        with np.errstate(over="ignore"):
            rows.append(row.astype(bool if name in _FLAGS else np.float32))
        finite = np.isfinite(rows[-1])
        if not finite.all():
            raise ValueError(f"{name}[{index}]: not finite at step {int(np.argmin(finite))}")
    return rows
