"""From settings to a teacher: each family of methods is a function that builds a `Curriculum`."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import Design, Environment, TaskSpace
from cenie.methods.alp_gmm import AlpGmmSource
from cenie.methods.cenie import CenieNovelty
from cenie.methods.cenie_controls import AgeNovelty, ShuffledNovelty
from cenie.methods.config import Cenie, Diplr, Epoet, NoveltyConfig, Poet, Traced
from cenie.methods.designer import DesignerSource
from cenie.methods.diplr import DiplrNovelty
from cenie.methods.epoet_novelty import EpoetNovelty, first_returns
from cenie.methods.poet import PoetSource
from cenie.methods.poet_novelty import PoetNovelty
from cenie.methods.sfl import SflSource
from cenie.methods.table import (
    AlpGmmTeacher,
    DesignerTeacher,
    PoetTeacher,
    RandomTeacher,
    ReplayTeacher,
    SflTeacher,
    Teacher,
)
from cenie.methods.traced import TracedCorrection
from cenie.records import Level
from cenie.replay.columns import name_problem, parse_weighted, weight_problem
from cenie.replay.scores import SCORES, Score
from cenie.settings import Problem, SettingsError, show
from cenie.student.encoders import parts_of
from cenie.teach.curriculum import Column, Curriculum, Editing, Replay, ranked_by
from cenie.teach.novelty import Novelty
from cenie.teach.source import RandomSource


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

    @property
    def redraw(self) -> Callable[[PRNGKeyArray, Level], Level]:
        """Another level of the same encoding."""
        ...

    @property
    def encoding(self) -> Callable[[Level], Float[Array, " d"]] | None:
        """Levels as a few numbers, if they can be written so."""
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
            return Curriculum(scout, learn_on_new=scout.is_training, unfinished=settings.unfinished)
        case AlpGmmTeacher():
            if domain.tasks is None:
                raise ValueError("ALP-GMM needs a domain with a space of tasks (Domain.tasks)")
            source = AlpGmmSource(domain.tasks, settings)
            return Curriculum(source, learn_on_new=True, unfinished=settings.unfinished)
        case PoetTeacher():
            return _poet_curriculum(domain, settings, mesh)


def _replay_curriculum(domain: LevelFactory, source: RandomSource, settings: ReplayTeacher) -> Curriculum:
    editing = None
    if settings.edit is not None:
        edit = settings.edit
        editing = Editing(domain.edit, edit.probability, edit.parents, edit.children)
    return Curriculum(
        source=source,
        learn_on_new=settings.learn_on_new,
        replay=Replay(settings.replay, _columns(settings), _correction(domain, settings.correction)),
        editing=editing,
        novelty=None if settings.novelty is None else _novelty(domain, settings, settings.novelty),
        alpha=settings.alpha,
        features=settings.novelty.features if isinstance(settings.novelty, Cenie) else "memory",
    )


def _columns(settings: ReplayTeacher) -> tuple[Column, ...]:
    """The scores that the settings name: one, which is called regret, or several under their own names."""
    if not settings.scores:
        return ranked_by(SCORES[settings.score])
    weights = dict(map(parse_weighted, settings.scores))
    return named_columns({name: name for name in weights}, weights)


def named_columns(scores: Mapping[str, Any], weights: Mapping[str, Any] | None = None) -> tuple[Column, ...]:
    """The columns of scores that were passed by their names; the first one leads (see `Replay`).

    Args:
        scores: One of our scores by its name, a `Score`, or a function from `ScoreInputs` to a number [n] for
            each level; by the names that their columns are to have.
        weights: How much each ranking counts, by the same names; all alike by default.

    Raises:
        SettingsError: With every problem, below `scores` and `weights`.
    """
    given = dict.fromkeys(scores, 1.0) if weights is None else weights
    problems = [Problem(f"weights.{name}", "is no name of a score") for name in given if name not in scores]
    problems += [Problem(f"weights.{name}", "is missing") for name in scores if name not in given]
    if not scores:
        problems.append(Problem("scores", "needs at least one score"))
    columns = []
    for name, score in scores.items():
        known: Any = SCORES.get(score) if isinstance(score, str) else score
        weight = given.get(name, 0.0)
        problem, weight_is = name_problem(name), weight_problem(weight)
        if problem is not None:
            problems.append(Problem(f"scores.{name}", problem))
        elif not isinstance(known, Score) and not callable(known):
            kinds = f"one of {', '.join(SCORES)}, a cenie.Score or a function"
            problems.append(Problem(f"scores.{name}", f"must be {kinds}, got {show(score)}"))
        elif weight_is is not None:
            problems.append(Problem(f"weights.{name}", f"{weight_is}, got {show(weight)}"))
        else:
            if not isinstance(known, Score):
                compute: Any = known
                known = Score(name, compute)
            columns.append(Column(name, known, float(weight)))
    if not problems and not sum(column.weight for column in columns) > 0:
        problems.append(Problem("weights", "one must be above 0"))
    if problems:
        raise SettingsError(problems)
    return tuple(columns)


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
        replay=None if replay is None else Replay(replay, ranked_by(SCORES[settings.score])),
        students=students,
        own_levels=replay is not None and students > 1,
        unfinished=settings.unfinished,
    )


def _poet_curriculum(domain: LevelFactory, settings: PoetTeacher, mesh: Mesh | None) -> Curriculum:
    if domain.encoding is None:
        raise SettingsError(
            [Problem("method", "poet compares encodings of levels, and this domain has none")]
        )
    missing = [name for name in ("reproduce_at", "criterion") if getattr(settings, name) is None]
    if missing:
        why = "must be given: what a good return is depends on the domain, whose presets do not say it"
        raise SettingsError([Problem(f"teacher.{name}", why) for name in missing])
    source = PoetSource(
        generate=domain.generator(settings.generator),
        edit=domain.edit,
        encode=domain.encoding,
        redraw=domain.redraw,
        settings=settings,
        mesh=mesh,
    )
    return Curriculum(source, learn_on_new=source.is_learning, unfinished=settings.unfinished)


def _correction(domain: LevelFactory, settings: Traced | None) -> TracedCorrection | None:
    if settings is None:
        return None
    environment = domain.environment
    if environment is None:
        raise ValueError("correction: must be null, because nothing is known of what the student sees")
    return TracedCorrection(settings, parts_of(environment.observation_space), environment.action_space)


def _novelty(domain: LevelFactory, teacher: ReplayTeacher, settings: NoveltyConfig) -> Novelty:
    capacity = teacher.replay.capacity
    match settings:
        case Cenie():
            novelty = CenieNovelty(
                coverage=settings.coverage,
                refit_every=settings.refit_every,
                stored=settings.stored,
                measure=settings.measure,
                window_takes=settings.window_takes,
            )
            if settings.control == "age":
                return AgeNovelty()
            return ShuffledNovelty(novelty) if settings.control == "shuffled" else novelty
        case Diplr():
            return DiplrNovelty(capacity, settings.distance, settings.neighbours)
        case Poet():
            encode, generate = domain.encoding, domain.generator(teacher.generator)
            if encode is None:
                raise _refusal(settings, "compares encodings of levels, and this domain has none")
            (numbers,) = jax.eval_shape(lambda: encode(generate(jax.random.key(0)))).shape
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
