"""A curriculum for your own training loop: NumPy in, NumPy out, and no environment of ours.

The decisions are those of `cenie.teach.teacher`, the same functions that our own training cycle calls; this
file only carries levels and rollouts to them and back. Levels are generated and edited by ordinary Python.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from cenie import settings as typed_settings
from cenie.bridges.levels import LevelCodec
from cenie.run import checkpoint
from cenie.settings import Problem, SettingsError
from cenie.student.advantage import gae
from cenie.teach import buffer as buffers
from cenie.teach import recipes, scores, teacher
from cenie.teach.curriculum import EDIT, NEW, REPLAY, Assignment, Curriculum, TeacherState
from cenie.teach.methods import METHODS
from cenie.teach.novelty import Points
from cenie.types import Advantages, Rollout

PerStep = np.ndarray | Sequence[Any]
"""A number for each step of each level: an array [n, t], or n rows of any lengths."""

_KINDS = {NEW: "new", REPLAY: "replay", EDIT: "edit"}


@dataclass(frozen=True)
class Task:
    """What the teacher asks for: play these levels, and train on what you saw only if `learn` says so."""

    kind: Literal["new", "replay", "edit"]
    learn: bool
    levels: list[Any]


@dataclass(frozen=True)
class StoredLevel:
    """A level of the buffer: its scores by name, its chance to be drawn next, and its lineage."""

    level: Any
    scores: dict[str, float]
    chance: float
    id: int
    parent: int
    generation: int


class Teacher:
    """Any method of the library as two calls: `ask` for levels, `tell` what happened on them.

    `generate(rng)` returns a new level, `edit(rng, level)` a slightly changed one (for the methods that
    edit); `rng` is a `numpy.random.Generator`. A level is an array, a number, or nested dicts, lists and
    tuples of these. `settings` changes the method's settings by their paths, e.g.
    `{"replay.capacity": 500, "score": "maxmc"}`; `gamma` and `gae_lambda` are those of your student. The
    methods that measure novelty need the number of `features` of a step, and look at no more than
    `points_per_level` steps of a level (evenly spaced, if there are more).

    `ask` returns the same task until it was told about; everything depends on the seed and on what was
    told, so that a saved teacher goes on as if it had never stopped.
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
        features: int | None = None,
        points_per_level: int = 256,
        seed: int = 0,
    ):
        whole = {"num_levels": num_levels, "points_per_level": points_per_level, "features": features or 1}
        _check_arguments(method, whole, gamma, gae_lambda, seed)
        self._generate, self._edit = generate, edit
        self._codec = LevelCodec(generate(np.random.default_rng(seed)))
        chosen = typed_settings.replace(METHODS[method].settings(), settings or {})
        self._curriculum = _curriculum(method, chosen, self._codec.size)
        if self._curriculum.editing is not None and edit is None:
            raise ValueError(
                f"the method {method} edits levels: give edit=..., a function (rng, level) -> level"
            )
        if self._curriculum.novelty is not None and features is None:
            raise ValueError(
                f"features: {method} measures novelty and needs the number of features of a step"
            )
        self._num_levels, self._seed, self._told = num_levels, seed, 0
        self._points_shape = (points_per_level, features or 0)
        self._gamma, self._gae_lambda = gamma, gae_lambda
        self._state = teacher.init(self._curriculum, num_levels, self._points_shape)
        self._pending: tuple[Task, Assignment, TeacherState] | None = None
        self._facts = {
            "method": method,
            "settings": typed_settings.to_data(chosen),
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
            assignment, state = _ask(self._curriculum, self._state, self._key(0), self._num_levels)
            kind = int(assignment.kind)
            made = self._levels(kind, np.asarray(assignment.levels))
            rows = np.stack([self._codec.encode(level) for level in made])
            # Decoded, so that new levels have the same types as replayed ones.
            levels = [self._codec.decode(row) for row in rows]
            task = Task(_KINDS[kind], bool(assignment.learn), levels)  # pyright: ignore[reportArgumentType]
            self._pending = task, dataclasses.replace(assignment, levels=jnp.asarray(rows)), state
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
        features: np.ndarray | Sequence[Any] | None = None,
    ) -> dict[str, int | float]:
        """Take in the steps made on the levels of the last task, in their order; returns what to log.

        Each row is one level: any number of episodes one after another, all of that level. `terminated` or
        `truncated` is true at the last step of an episode; steps after the last of these are ignored, so
        that shorter rows may be padded with anything finite. `value` is your critic's estimate before each
        step. Optional: `solved` (true at the end of a solved episode; the score `learnability` needs it),
        `final_value` (the critic's estimate after a time-out, to bootstrap from), `advantage` (your own
        estimates instead of ours), `entropy` (of the policy; the score `entropy` needs it), `features` (a row
        of numbers for each step, e.g. state and action side by side; methods that measure novelty need it).
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
        points = None
        if self._curriculum.novelty is not None:
            if features is None:
                raise ValueError("features: this teacher measures novelty and needs them")
            points = _read_points(features, self._num_levels, *self._points_shape)
        steps = _read_steps(
            {name: rows for name, rows in given.items() if rows is not None}, self._num_levels
        )
        _, assignment, state = self._pending
        rules = self._curriculum, self._gamma, self._gae_lambda
        self._state, metrics = _tell(*rules, state, assignment, steps, points, self._key(1))
        self._pending, self._told = None, self._told + 1
        return {name: number.item() for name, number in jax.device_get(metrics).items()}

    def stored(self) -> list[StoredLevel]:
        """The levels of the buffer, the likeliest to be replayed first."""
        replay, state = self._curriculum.replay, self._state.replay
        if replay is None or state is None:
            return []
        buffer = state.buffer
        mix = teacher.current_mix(self._curriculum, self._state)
        chances = np.asarray(buffers.probabilities(buffer, mix, replay.config.priority))
        host = jax.device_get(buffer)
        return [
            StoredLevel(
                level=self._codec.decode(host.levels[slot]),
                scores=dict(zip(buffer.score_names, host.scores[slot].tolist())),
                chance=chances[slot].item(),
                id=host.ids[slot].item(),
                parent=host.parents[slot].item(),
                generation=host.generations[slot].item(),
            )
            for slot in np.argsort(-chances[: int(host.size)], kind="stable")
        ]

    def save(self, directory: str | Path) -> Path:
        """Write everything the teacher remembers; a task that was not told about will be asked for again."""
        return checkpoint.save(Path(directory), self._state, step=self._told, facts=self._facts)

    def load(self, directory: str | Path) -> None:
        """Go on from the newest valid checkpoint that a teacher made with the same arguments has written."""
        loaded = checkpoint.load_newest(Path(directory), self._state)
        if loaded is None:
            raise ValueError(f"{directory} holds no checkpoint of a teacher")
        different = [
            f"{name} was {loaded.facts.get(name)!r} and is {value!r}"
            for name, value in self._facts.items()
            if loaded.facts.get(name) != value
        ]
        if different:
            raise ValueError(f"{directory} was saved by another teacher: {'; '.join(different)}")
        self._state, self._told, self._pending = loaded.tree, loaded.step, None

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

    def _key(self, use: int) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self._seed), self._told), use)


@dataclass(frozen=True)
class _HostLevels:
    """Stands in for a domain: levels are made by Python outside, so that inside they are just rows."""

    generators: Mapping[str, Callable[[PRNGKeyArray], Array]]
    edit: Callable[[PRNGKeyArray, Array], Array]


@functools.cache
def _curriculum(method: str, settings: Any, size: int) -> Curriculum:
    """The method's curriculum, in which new levels are blank and edits change nothing yet.

    One object for equal arguments: what is compiled for one teacher then serves all others like it.
    """
    source = _HostLevels({settings.generator: lambda key: jnp.zeros(size, jnp.uint8)}, lambda key, row: row)
    return getattr(recipes, METHODS[method].recipe)(source, settings)


_ask = jax.jit(teacher.ask, static_argnums=(0, 3))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _tell(
    curriculum: Curriculum,
    gamma: float,
    gae_lambda: float,
    state: TeacherState,
    assignment: Assignment,
    steps: dict[str, Array],
    points: Points | None,
    key: PRNGKeyArray,
) -> tuple[TeacherState, dict[str, Array]]:
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
        advantages = Advantages(steps["advantage"], steps["advantage"] + rollout.value)
    return teacher.tell(curriculum, state, assignment, rollout, advantages, gamma, key, points)


def _check_arguments(
    method: str, counts: Mapping[str, int], gamma: float, gae_lambda: float, seed: int
) -> None:
    problems = []
    if method not in METHODS:
        problems.append(Problem("method", f"must be one of {', '.join(METHODS)}, got {method!r}"))
    for name, value in {**counts, "seed": seed}.items():
        smallest = 0 if name == "seed" else 1
        if not isinstance(value, int) or value < smallest:
            problems.append(Problem(name, f"must be a whole number of at least {smallest}, got {value!r}"))
    for name, value in (("gamma", gamma), ("gae_lambda", gae_lambda)):
        if not 0.0 <= value <= 1.0:
            problems.append(Problem(name, f"must be between 0 and 1, got {value!r}"))
    if problems:
        raise SettingsError(problems)


def _check_needs(curriculum: Curriculum, given: Mapping[str, PerStep | None]) -> None:
    computed = [score.compute for score in curriculum.replay.scores] if curriculum.replay else []
    for name, score in (("entropy", scores.entropy), ("solved", scores.learnability)):
        if score in computed and given[name] is None:
            raise ValueError(f"{name}: this teacher's score needs it")


_FLAGS = {"terminated", "truncated", "solved"}


def _read_steps(given: Mapping[str, PerStep], num_levels: int) -> dict[str, np.ndarray]:
    """The rows as arrays [n, t], padded to a power of two so that few lengths are ever compiled."""
    rows = {name: _read_rows(name, values, num_levels) for name, values in given.items()}
    lengths = {name: [len(row) for row in part] for name, part in rows.items()}
    for name, found in lengths.items():
        if found != lengths["reward"]:
            raise ValueError(f"{name}: rows of {found} steps, but those of reward have {lengths['reward']}")
    longest = max(1, *lengths["reward"])
    steps = 1 << (longest - 1).bit_length()
    arrays = {
        name: np.stack([np.pad(row, (0, steps - len(row))) for row in part]) for name, part in rows.items()
    }
    # Gymnasium's time limit may set both at once.
    return arrays | {"truncated": arrays["truncated"] & ~arrays["terminated"]}


def _read_points(
    features: np.ndarray | Sequence[Any], num_levels: int, steps: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """At most `steps` points of each level, and which of them exist."""
    if len(features) != num_levels:
        raise ValueError(
            f"features: expected one array for each of the {num_levels} levels, got {len(features)}"
        )
    points, valid = np.zeros((num_levels, steps, size), np.float32), np.zeros((num_levels, steps), bool)
    for index, row in enumerate(map(np.asarray, features)):
        if row.ndim != 2 or row.shape[1] != size or row.dtype.kind not in "biuf":
            raise ValueError(
                f"features[{index}]: expected {size} numbers for each step, got {row.dtype}{list(row.shape)}"
            )
        if not np.isfinite(row).all():
            raise ValueError(f"features[{index}]: not finite")
        count = min(len(row), steps)
        chosen = np.linspace(0, len(row) - 1, count).round().astype(int)
        points[index, :count], valid[index, :count] = row[chosen], True
    return points, valid


def _read_rows(name: str, values: PerStep, num_levels: int) -> list[np.ndarray]:
    if len(values) != num_levels:
        raise ValueError(f"{name}: expected one row for each of the {num_levels} levels, got {len(values)}")
    rows = []
    for index, row in enumerate(map(np.asarray, values)):
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
