"""The parts that a domain must provide: an environment, and the record that bundles them."""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt8

from cenie.envs.shared_presets import ANY_DOMAIN
from cenie.envs.suite_files import is_file_suite
from cenie.records import EnvState, Level, Observation, Prepared, Step
from cenie.spaces import DesignSpec, Space


class Environment(eqx.Module):
    """A family of tasks indexed by a level. Pure: all randomness comes from the keys.

    What is played is an argument of `step` rather than a part of the state, because it never changes during
    an episode: a rollout can then keep it outside the loop that carries the state.
    Functions take one level and one state; callers `vmap` over the level axis.

    A caller prepares a level once and passes the result to every `reset` and `step`. Teachers store and
    edit levels only, so whatever is costly to derive from one (a track's tiles, a terrain) belongs there.
    """

    max_steps: eqx.AbstractVar[int]
    """An upper bound on the length of a training episode."""

    observation_space: eqx.AbstractVar[PyTree]
    """A pytree of `Space` with the structure of the observation."""

    action_space: eqx.AbstractVar[Space]
    """The space of one action."""

    def prepare(self, level: Level) -> Prepared:
        """Derive what `reset` and `step` take in the place of the level.

        Args:
            level: One level.

        Returns:
            A tree of arrays; the level itself by default.
        """
        return level

    @abc.abstractmethod
    def reset(self, key: PRNGKeyArray, level: Prepared) -> tuple[Observation, EnvState]:
        """Begin an episode.

        Args:
            key: Consumed.
            level: One level, as `prepare` returns it.

        Returns:
            The first observation in the shapes of `observation_space`, and the first state.
        """

    @abc.abstractmethod
    def step(self, key: PRNGKeyArray, level: Prepared, state: EnvState, action: Array) -> Step:
        """Advance one step. A finished episode is not restarted.

        Args:
            key: Consumed.
            level: One level, as `prepare` returns it.
            state: The state before the step.
            action: One action in the shape of `action_space`.

        Returns:
            The result of the step.
        """


def spaces_of(kind: type, parts: Sequence[Space]) -> PyTree:
    """The spaces of an observation that is a record, whose constructor takes arrays only.

    Args:
        kind: The class of the observation.
        parts: The spaces of its fields, in their order.

    Returns:
        An observation with spaces in the place of arrays.
    """
    blank = jax.eval_shape(lambda: kind(*(jnp.zeros(part.shape, part.dtype) for part in parts)))
    return jax.tree.unflatten(jax.tree.structure(blank), parts)


def parts_of(environment: Environment) -> tuple[Space, ...]:
    """The spaces that an observation is made of: the leaves of the tree."""
    return tuple(jax.tree.leaves(environment.observation_space))


@dataclass(frozen=True)
class SuiteEntry:
    """One row of a test suite.

    Attributes:
        level: The name of the level; entries may share it.
        variant: Tells apart the entries that share a level name.
        draw: Returns the level of one evaluation episode for a NumPy generator, which fixed levels ignore.
        bounds: Two returns. The score of an episode is its return on a scale on which the first one is 0 and
            the second one 1 (returns outside are not clipped, which would bias the means). Without them it is
            1 if the episode was solved and 0 if not.

    Raises:
        ValueError: The bounds are not two finite numbers, the lower one first.
    """

    level: str
    variant: str
    draw: Callable[[np.random.Generator], Level]
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        low, high = self.bounds or (0.0, 1.0)
        if not -math.inf < low < high < math.inf:
            raise ValueError(
                f"bounds of {self.level!r} must be two finite numbers, the lower one first, got {self.bounds}"
            )

    def score(self, episode_return: float, solved: bool) -> float:
        """The score of an episode, for means over levels.

        Args:
            episode_return: The return.
            solved: Whether it was solved.

        Returns:
            The score.
        """
        if self.bounds is None:
            return float(solved)
        low, high = self.bounds
        return (episode_return - low) / (high - low)


@dataclass(frozen=True)
class Suite:
    """A named set of held-out levels. Its score is the mean over level names of the mean over variants.

    Attributes:
        name: The name of the suite.
        entries: The levels.
        environment: The environment in which the levels are played, if not the one that students train in:
            one whose rewards are not shaped, say. Both must have the same spaces.
    """

    name: str
    entries: Sequence[SuiteEntry]
    environment: Environment | None = None

    @property
    def measure(self) -> Literal["solved", "score"]:
        """The kind of its scores, in a word: rates of `solved` episodes, or normalised returns among them."""
        return "solved" if all(entry.bounds is None for entry in self.entries) else "score"

    def draw(self, seed: int, episodes: int) -> tuple[list[tuple[str, str, int]], list[Level]]:
        """Draw levels for all episodes of an evaluation.

        The draw depends on the seed, the entry and the episode only, so that methods and checkpoints are
        compared on the same levels, and asking for more episodes keeps the first ones.

        Args:
            seed: A whole number of at least 0.
            episodes: The number of episodes on each entry.

        Returns:
            The (level, variant, episode) labels, and the levels.
        """
        labels, levels = [], []
        for number, entry in enumerate(self.entries):
            for episode in range(episodes):
                labels.append((entry.level, entry.variant, episode))
                levels.append(entry.draw(np.random.default_rng((seed, number, episode))))
        return labels, levels


@dataclass(frozen=True)
class Design:
    """Making a level step by step: an environment that a learned teacher plays.

    An episode is played for `environment.max_steps` steps, without restarts: steps after its end change
    nothing.

    Attributes:
        environment: The environment in which levels are made.
        task: Its level.
        finished_level: From the last state to a level that the domain's own environment can play.
    """

    environment: Environment
    task: Level
    finished_level: Callable[[EnvState], Level]


@dataclass(frozen=True)
class ParameterSpace:
    """Levels as points of a box, for teachers that search it. `decode(encode(level))` is the level.

    Attributes:
        low: The lower bounds [d].
        high: The upper bounds [d].
        encode: From a level to a point [d].
        decode: From any point of the box [d] to a valid level.

    Raises:
        ValueError: The bounds are not two finite vectors of one length, the lower one first.
    """

    low: np.ndarray
    high: np.ndarray
    encode: Callable[[Level], Float[Array, " d"]]
    decode: Callable[[Float[Array, " d"]], Level]

    def __post_init__(self) -> None:
        _check_box(self.low, self.high)

    def scaled(self, level: Level) -> Float[Array, " d"]:
        """The point of a level on a scale on which every lower bound is 0 and every upper one 1.

        Args:
            level: A level.

        Returns:
            The point [d].
        """
        return (self.encode(level) - self.low) / (self.high - self.low)


@dataclass(frozen=True, eq=False)
class TaskSpace:
    """Kinds of levels as points of a box of few dimensions, for teachers that learn where in it to look.

    Attributes:
        low: The lower bounds [d].
        high: The upper bounds [d].
        draw: From a key and a point [d] to a level of this kind; whatever the point leaves open is random.

    Raises:
        ValueError: The bounds are not two finite vectors of one length, the lower one first.
    """

    low: np.ndarray
    high: np.ndarray
    draw: Callable[[PRNGKeyArray, Float[Array, " d"]], Level]

    def __post_init__(self) -> None:
        _check_box(self.low, self.high)


def _check_box(low: np.ndarray, high: np.ndarray) -> None:
    if np.ndim(low) != 1 or np.shape(low) != np.shape(high):
        raise ValueError(
            f"low and high must be vectors of one length, got the shapes {np.shape(low)} and {np.shape(high)}"
        )
    wrong = ~(np.isfinite(low) & np.isfinite(high) & (np.asarray(low) < high))
    if np.any(wrong):
        places = np.flatnonzero(wrong).tolist()
        raise ValueError(f"low must be below high, both finite; not so at {places}")


@dataclass(frozen=True)
class Renderer:
    """Pictures as arrays of pixels, made on the host.

    Attributes:
        level: From a level to a picture, uint8 [height, width, 3].
        episode: From a level and the states of one episode, with a leading axis of time, to pictures of equal
            size, uint8 [time, height, width, 3].
    """

    level: Callable[[Level], UInt8[np.ndarray, "height width 3"]]
    episode: Callable[[Level, EnvState], UInt8[np.ndarray, "time height width 3"]]


def cannot_edit(key: PRNGKeyArray, level: Level) -> Level:
    """The edit of a domain that has none."""
    raise ValueError("this domain has no edit: methods that edit levels cannot be used with it")


def same_level(key: PRNGKeyArray, level: Level) -> Level:
    """The redraw of a domain in which nothing is left to chance."""
    return level


def no_statistics(level: Level) -> dict[str, Array]:
    """The statistics of a domain that has none."""
    return {}


def stack_same_shapes(levels: Sequence[Level]) -> Level:
    """Levels of equal shapes along a new leading axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *levels)


@dataclass(frozen=True)
class NoSettings:
    """The settings of a domain that has none."""


@dataclass(frozen=True, eq=False)
class Domain:
    """Everything the library needs to know of a domain, with certain settings of it.

    The first four parts are needed; what else is left out cannot be used (edits, by the methods that edit).
    A domain with settings is a function of them that returns a `Domain`; `cenie.envs.domains.find_domain`
    calls it with their defaults, and `build` with others.

    Raises:
        ValueError: A suite has the name of a file, or a role names no generator.
    """

    name: str
    """The name of the domain."""
    environment: Environment
    """The environment that students train in."""
    generators: Mapping[str, Callable[[PRNGKeyArray], Level]]
    """Named level generators; each draws one level from a key."""
    suites: Mapping[str, Callable[[], Suite]]
    """Named held-out suites, built on demand."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Names of generators by what they are for: `random` levels, and `simple` ones to begin with. A role that
    is not given is the first generator's."""
    suite_of_file: Callable[[str, str], Suite] | None = None
    """The suite in a file of a name and a content, if there are such files; raises `ValueError`."""
    edit: Callable[[PRNGKeyArray, Level], Level] = cannot_edit
    """A small random change of a level that keeps it valid."""
    redraw: Callable[[PRNGKeyArray, Level], Level] = same_level
    """Another level of the same encoding, in which all that the encoding leaves to a seed is drawn anew; the
    level itself by default."""
    statistics: Callable[[Level], dict[str, Array]] = no_statistics
    """Scalars that describe a level, for the logs."""
    stack: Callable[[Sequence[Level]], Level] = stack_same_shapes
    """Stack levels along a new leading axis; where sizes differ, padding them to a common shape."""
    to_json: Callable[[Level], Any] | None = None
    """From a level to a plain JSON value, if levels can be written so."""
    from_json: Callable[[Any], Level] | None = None
    """From such a value to a level; raises `ValueError` with a readable reason."""
    from_text: Callable[[str], Level] | None = None
    """The level of a drawing in characters, if levels can be drawn so; raises `ValueError` likewise."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named sets of settings by their dotted paths (see `settings.Where`); the first is the usual one. A
    domain without any gets one that fits every domain."""
    summary: str = ""
    """The domain in a line, for the list of domains."""
    papers: Mapping[str, str] = field(default_factory=dict)
    """The papers that `cenie cite` names for the domain: keys of `report/references.bib`, each with what it
    is cited for."""
    design: Callable[[str], Design] | None = None
    """The design environment that can take the place of the generator of a name, if the domain has any."""
    parameters: ParameterSpace | None = None
    """Levels as points of a box, if they can be written so."""
    tasks: TaskSpace | None = None
    """Kinds of levels as points of a box of few dimensions; by default all `parameters`, if there are any."""
    encoding: Callable[[Level], Float[Array, " d"]] | None = None
    """A level in a few numbers between 0 and 1, by which it is told how different levels are. By default its
    point in `parameters`, if there are any."""
    render: Renderer | None = None
    """Pictures of levels and of episodes, if there are any."""
    xla_flags: tuple[str, ...] = ()
    """Flags that make the domain's programs faster on a CPU. The command line passes these flags to XLA,
    which reads them once for the whole process, when its backend starts."""
    settings: Any = NoSettings()
    """The settings that this domain was made with: a frozen dataclass with a default for every field."""
    make: "Callable[[Any], Domain] | None" = None
    """The domain as a function of its settings. `find_domain` fills in both if they are left out."""

    def __post_init__(self) -> None:
        if not self.presets:
            object.__setattr__(self, "presets", {"default": ANY_DOMAIN})
        first = next(iter(self.generators), "")
        object.__setattr__(self, "roles", {"random": first, "simple": first, **self.roles})
        if self.encoding is None and self.parameters is not None:
            object.__setattr__(self, "encoding", self.parameters.scaled)
        taken = [name for name in self.suites if is_file_suite(name)]
        if taken:
            raise ValueError(f"suites of {self.name!r} have names of files: {', '.join(taken)}")
        unknown = [name for name in self.roles.values() if name not in self.generators]
        if unknown and self.generators:
            raise ValueError(f"roles of {self.name!r} name unknown generators: {', '.join(unknown)}")
        parameters = self.parameters
        if self.tasks is None and parameters is not None:
            tasks = TaskSpace(parameters.low, parameters.high, lambda key, point: parameters.decode(point))
            object.__setattr__(self, "tasks", tasks)

    @property
    def edits(self) -> bool:
        """Whether levels can be edited."""
        return self.edit is not cannot_edit

    def build(self, settings: Any) -> "Domain":
        """The domain with other settings.

        Args:
            settings: A record of the type of `self.settings`.

        Returns:
            The domain itself if these are its settings, or if it has none.

        Raises:
            SettingsError: A domain from outside of the library cannot be made with these settings.
        """
        return self if self.make is None or settings == self.settings else self.make(settings)

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Level]:
        """Find a generator.

        Args:
            name: The name of a generator, or a role.

        Returns:
            The generator: from a key to a level.

        Raises:
            KeyError: There is no such generator.
        """
        return self.generators[self.roles.get(name, name)]

    def design_for(self, name: str) -> Design:
        """Find the design environment in the place of a generator.

        Args:
            name: The name of a generator, or a role.

        Returns:
            The design environment.

        Raises:
            ValueError: The domain has none.
        """
        if self.design is None:
            raise ValueError(f"{self.name} has no design environment: nobody can learn to design its levels")
        return self.design(self.roles.get(name, name))

    @property
    def observation_parts(self) -> tuple[Space, ...]:
        """The spaces that an observation is made of."""
        return parts_of(self.environment)

    def design_spec(self, name: str) -> DesignSpec:
        """The spaces of the design environment in the place of a generator, and its number of steps.

        Args:
            name: The name of a generator, or a role.

        Returns:
            Spaces and steps.

        Raises:
            ValueError: The domain has no design environment.
        """
        environment = self.design_for(name).environment
        return DesignSpec(parts_of(environment), environment.action_space, environment.max_steps)
