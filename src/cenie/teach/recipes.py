"""From settings to a teacher: each family of methods is a function that builds a `Curriculum`."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from cenie.envs.base import Design, Environment, TaskSpace
from cenie.student.encoders import parts_of
from cenie.teach.alp import AlpGmmSource
from cenie.teach.cenie import CenieNovelty
from cenie.teach.config import Cenie, Traced
from cenie.teach.curriculum import Curriculum, Editing, Replay
from cenie.teach.designer import DesignerSource
from cenie.teach.methods import (
    AlpGmmTeacher,
    DesignerTeacher,
    RandomTeacher,
    ReplayTeacher,
    SflTeacher,
    Teacher,
)
from cenie.teach.novelty import Novelty
from cenie.teach.scores import SCORES
from cenie.teach.sfl import SflSource
from cenie.teach.source import RandomSource
from cenie.teach.traced import TracedCorrection
from cenie.types import Level


@runtime_checkable
class LevelFactory(Protocol):
    """What a recipe needs of a domain: how levels are generated, edited, designed and played."""

    def generator(self, name: str) -> Callable[[PRNGKeyArray], Level]:
        """The generator of a name, or of a role (`random`, `simple`)."""
        ...

    @property
    def environment(self) -> Environment | None:
        """What levels are played in, if that is ours."""
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


def curriculum(domain: LevelFactory, settings: Teacher, mesh: Mesh | None = None) -> Curriculum:
    """The teacher that the settings describe; a designer works on every device of the `mesh`."""
    match settings:
        case RandomTeacher():
            return Curriculum(RandomSource(domain.generator(settings.generator)), learn_on_new=True)
        case ReplayTeacher():
            return _replay_curriculum(domain, RandomSource(domain.generator(settings.generator)), settings)
        case DesignerTeacher():
            return _designer_curriculum(domain, settings, mesh)
        case SflTeacher():
            scout = SflSource(RandomSource(domain.generator(settings.generator)), settings)
            return Curriculum(scout, learn_on_new=scout.is_training)
        case AlpGmmTeacher():
            if domain.tasks is None:
                raise ValueError("ALP-GMM needs a domain with a space of tasks (Domain.tasks)")
            source = AlpGmmSource(domain.tasks, settings)
            return Curriculum(source, learn_on_new=True, unfinished=settings.unfinished)


def _replay_curriculum(domain: LevelFactory, source: RandomSource, settings: ReplayTeacher) -> Curriculum:
    editing = None
    if settings.edit is not None:
        edit = settings.edit
        editing = Editing(domain.edit, edit.probability, edit.parents, edit.children)
    return Curriculum(
        source=source,
        learn_on_new=settings.learn_on_new,
        replay=Replay(settings.replay, SCORES[settings.score], _correction(domain, settings.correction)),
        editing=editing,
        novelty=_novelty(settings.novelty),
        alpha=settings.alpha,
    )


def _designer_curriculum(domain: LevelFactory, settings: DesignerTeacher, mesh: Mesh | None) -> Curriculum:
    replay = settings.replay
    students = 2 if settings.has_antagonist else 1
    return Curriculum(
        source=DesignerSource(
            design=domain.design_for(settings.replaces),
            settings=settings.designer,
            utility=settings.utility,
            clip_regret=settings.clip_regret,
            mesh=mesh,
        ),
        learn_on_new=replay is None,
        replay=None if replay is None else Replay(replay, SCORES[settings.score]),
        students=students,
        own_levels=replay is not None and students > 1,
    )


def _correction(domain: LevelFactory, settings: Traced | None) -> TracedCorrection | None:
    if settings is None:
        return None
    environment = domain.environment
    if environment is None:
        raise ValueError("correction: must be null, because nothing is known of what the student sees")
    return TracedCorrection(settings, parts_of(environment.observation_space), environment.action_space)


def _novelty(settings: Cenie | None) -> Novelty | None:
    match settings:
        case None:
            return None
        case Cenie():
            return CenieNovelty(settings.coverage, settings.refit_every, settings.stored)
