"""From settings to a teacher: each family of methods is a function that builds a `Curriculum`."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import Environment
from cenie.settings import Problem, SettingsError
from cenie.teach.cenie import CenieNovelty
from cenie.teach.config import Cenie, Diplr, Epoet, NoveltyConfig, Poet
from cenie.teach.curriculum import Curriculum, Editing, Replay
from cenie.teach.diplr import DiplrNovelty
from cenie.teach.epoet import EpoetNovelty, first_returns
from cenie.teach.methods import RandomTeacher, ReplayTeacher, Teacher
from cenie.teach.novelty import Novelty
from cenie.teach.poet import PoetNovelty
from cenie.teach.scores import SCORES
from cenie.teach.source import RandomSource
from cenie.types import Level


@runtime_checkable
class LevelFactory(Protocol):
    """What a recipe needs of a domain: how levels are generated and edited."""

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Level]:
        """The generator of a name, or of a role (`random`, `simple`)."""
        ...

    @property
    def edit(self) -> Callable[[PRNGKeyArray, Level], Level]: ...

    @property
    def environment(self) -> Environment | None:
        """Where levels can be played by a teacher, if they can."""
        ...

    @property
    def encoding(self) -> Callable[[Level], Float[Array, " d"]] | None:
        """Levels as a few numbers, if they can be written so."""
        ...


def curriculum(domain: LevelFactory, settings: Teacher) -> Curriculum:
    """The teacher that the settings describe."""
    source = RandomSource(domain.generator(settings.generator))
    match settings:
        case RandomTeacher():
            return Curriculum(source, learn_on_new=True)
        case ReplayTeacher():
            return _replay_curriculum(domain, source, settings)


def _replay_curriculum(domain: LevelFactory, source: RandomSource, settings: ReplayTeacher) -> Curriculum:
    editing = None
    if settings.edit is not None:
        edit = settings.edit
        editing = Editing(domain.edit, edit.probability, edit.parents, edit.children)
    return Curriculum(
        source=source,
        learn_on_new=settings.learn_on_new,
        replay=Replay(settings.replay, SCORES[settings.score]),
        editing=editing,
        novelty=None if settings.novelty is None else _novelty(domain, settings, settings.novelty),
        alpha=settings.alpha,
    )


def _novelty(domain: LevelFactory, teacher: ReplayTeacher, settings: NoveltyConfig) -> Novelty:
    capacity = teacher.replay.capacity
    match settings:
        case Cenie():
            return CenieNovelty(settings.coverage, settings.refit_every, settings.stored)
        case Diplr():
            return DiplrNovelty(capacity, settings.distance, settings.neighbours)
        case Poet():
            encode, generate = domain.encoding, domain.generator(teacher.generator)
            if encode is None:
                raise _refusal(settings, "compares encodings of levels, and this domain has none")
            (numbers,) = jax.eval_shape(lambda key: encode(generate(key)), jax.random.key(0)).shape
            return PoetNovelty(encode, numbers, capacity, settings.neighbours, settings.archive)
        case Epoet():
            if domain.environment is None:
                raise _refusal(settings, "plays levels with past students, which only an environment allows")
            longest = domain.environment.max_steps
            steps = min(settings.max_steps or longest, longest)
            return EpoetNovelty(
                play=first_returns(domain.environment, steps),
                capacity=capacity,
                neighbours=settings.neighbours,
                students=settings.students,
                snapshot_every=settings.snapshot_every,
                bounds=(settings.lowest_return, settings.highest_return),
            )


def _refusal(settings: NoveltyConfig, reason: str) -> SettingsError:
    return SettingsError([Problem("teacher.novelty", f"{settings.kind} {reason}")])
