"""The interface between a method's settings and a run. Nothing outside of this room asks which method it
is."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import Design, Domain, Environment, TaskSpace
from cenie.records import Level
from cenie.replay.config import ReplayConfig
from cenie.settings import Problem, setting, show
from cenie.student.config import StudentConfig
from cenie.teach.curriculum import Curriculum
from cenie.teach.novelty import Novelty


@runtime_checkable
class LevelFactory(Protocol):
    """The functions of a domain that a method needs: to generate, edit, design and play levels."""

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Level]:
        """The generator of a name, or of a role (`random`, `simple`)."""
        ...

    @property
    def environment(self) -> Environment | None:
        """The environment that levels are played in, if it is ours."""
        ...

    @property
    def tasks(self) -> TaskSpace | None:
        """Kinds of levels as points of a box, if the domain has such a space."""
        ...

    @property
    def edit(self) -> Callable[[PRNGKeyArray, Level], Level]: ...

    def design_for(self, name: str) -> Design:
        """The design environment in the place of the generator of a name, or of a role."""
        ...

    @property
    def redraw(self) -> Callable[[PRNGKeyArray, Level], Level]:
        """Another level of the same encoding."""
        ...

    @property
    def encoding(self) -> Callable[[Level], Float[Array, " d"]] | None:
        """Levels as a few numbers, if they can be written so."""
        ...


class Family:
    """Settings of a family of methods: a frozen dataclass derived from this class, which has no fields.

    A family defines `curriculum`, and overrides what else does not hold for it.
    """

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        """The parts that these settings describe.

        Args:
            domain: What the levels are of.
            mesh: The devices over which levels are split, for sources that compute on all of them.

        Returns:
            The curriculum, which the training cycle interprets.

        Raises:
            SettingsError: The domain lacks something that the method needs.
        """
        raise NotImplementedError

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        """Yield the problems of these settings in a run; problems of the settings themselves are found by
        `check`.

        Args:
            entry: What the domain offers.
            env: The settings of the domain; None if they could not be read.
            student: The settings of the student.

        Returns:
            The problems, with paths that begin at the config of the run.
        """
        return iter(())

    def students(self, student: StudentConfig) -> tuple[StudentConfig, ...]:
        """The settings of each student that plays: by default there is one."""
        return (student,)

    @property
    def level_buffer(self) -> ReplayConfig | None:
        """The settings of the level buffer (one for each student), if levels are replayed."""
        return None

    @property
    def needs_levels_alone(self) -> bool:
        """Whether nothing is asked of a domain but levels, so that `cenie.Teacher` can use the method."""
        return False


class NoveltySettings:
    """Settings of a novelty: a frozen dataclass with its own `kind`, derived from this class."""

    needs_levels_alone: ClassVar[bool] = False
    """As in `Family`."""

    @property
    def step_features(self) -> Literal["memory", "observation"]:
        """The description of a step for the novelty, beside its action."""
        return "memory"

    def novelty(self, domain: LevelFactory, generator: str, capacity: int) -> Novelty:
        """The novelty that these settings describe.

        Args:
            domain: What the levels are of.
            generator: The generator of new levels, or its role.
            capacity: How many levels the buffer has room for.

        Raises:
            SettingsError: The domain lacks something that the novelty needs.
        """
        raise NotImplementedError


def generator_setting(default: str, *, source: str) -> Any:
    """The setting `generator` of a family."""
    text = "The generator of new levels: one of the domain, or its role (random or simple)."
    return setting(default, help=text, source=source)


def generator_problems(entry: Domain, name: str, path: str = "teacher.generator") -> Iterator[Problem]:
    """Whether the domain has a generator, or a role, of this name."""
    known = (*entry.roles, *entry.generators)
    if name not in known:
        yield Problem(path, f"must be one of {', '.join(known)}, got {show(name)}")


UNFINISHED = "A level without a completed episode: ignore it, or score its return so far."
"""The meaning of the setting `unfinished` of several families."""
