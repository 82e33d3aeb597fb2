"""Methods as recipes: each function turns a source of levels and settings into a `Curriculum`."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from jaxtyping import PRNGKeyArray

from cenie.teach.config import AlphaConfig
from cenie.teach.curriculum import Curriculum, Editing, Novelty, Replay, Score
from cenie.teach.methods import (
    Accel,
    AccelCenie,
    AccelCenieDagger,
    DomainRandomisation,
    Learnability,
    LevelReplay,
    PlrCenie,
    PlrCenieDagger,
)
from cenie.teach.scores import SCORES, novelty
from cenie.types import Level


@runtime_checkable
class LevelSource(Protocol):
    """What a recipe needs of a domain: ways to make levels."""

    @property
    def generators(self) -> Mapping[str, Callable[[PRNGKeyArray], Level]]: ...

    @property
    def edit(self) -> Callable[[PRNGKeyArray, Level], Level]: ...


def dr(source: LevelSource, settings: DomainRandomisation) -> Curriculum:
    """Domain randomisation: one random level per environment and cycle, repeated until the cycle ends."""
    return Curriculum(generate=source.generators[settings.generator], learn_on_new=True)


def plr(source: LevelSource, settings: LevelReplay) -> Curriculum:
    """Prioritised level replay: gradient steps on new and on replayed levels."""
    return _replaying(source, settings, learn_on_new=True)


def plr_robust(source: LevelSource, settings: LevelReplay) -> Curriculum:
    """PLR-perp: new levels are only scored; gradient steps on replayed levels only."""
    return _replaying(source, settings, learn_on_new=False)


def accel(source: LevelSource, settings: Accel) -> Curriculum:
    """PLR-perp from simple levels, plus edits of the levels that were just replayed."""
    return Curriculum(
        generate=source.generators[settings.generator],
        learn_on_new=False,
        replay=Replay(settings.replay, (Score("regret", SCORES[settings.score]),)),
        editing=Editing(source.edit, settings.edit_prob, settings.parents),
    )


def plr_cenie(source: LevelSource, settings: PlrCenie) -> Curriculum:
    """PLR-perp that draws by novelty and regret."""
    return _with_novelty(source, settings, settings.alpha)


def plr_cenie_dagger(source: LevelSource, settings: PlrCenieDagger) -> Curriculum:
    """PLR-perp that draws by novelty alone."""
    return _with_novelty(source, settings, _NOVELTY_ALONE)


def accel_cenie(source: LevelSource, settings: AccelCenie) -> Curriculum:
    """ACCEL that draws by novelty and regret."""
    return _with_novelty(source, settings, settings.alpha, _novel_editing(source, settings))


def accel_cenie_dagger(source: LevelSource, settings: AccelCenieDagger) -> Curriculum:
    """ACCEL that draws by novelty alone."""
    return _with_novelty(source, settings, _NOVELTY_ALONE, _novel_editing(source, settings))


def sfl(source: LevelSource, settings: Learnability) -> Curriculum:
    """PLR-perp whose score is how often a level is solved times how often it is not."""
    return Curriculum(
        generate=source.generators[settings.generator],
        learn_on_new=False,
        replay=Replay(settings.replay, (Score("learnability", SCORES["learnability"]),)),
    )


def _replaying(source: LevelSource, settings: LevelReplay, *, learn_on_new: bool) -> Curriculum:
    return Curriculum(
        generate=source.generators[settings.generator],
        learn_on_new=learn_on_new,
        replay=Replay(settings.replay, (Score("regret", SCORES[settings.score]),)),
    )


_NOVELTY_ALONE = AlphaConfig(start=1.0)


def _with_novelty(
    source: LevelSource,
    settings: PlrCenie | PlrCenieDagger | AccelCenie | AccelCenieDagger,
    alpha: AlphaConfig,
    editing: Editing | None = None,
) -> Curriculum:
    scores = (Score("regret", SCORES[settings.score]), Score("novelty", novelty))
    return Curriculum(
        generate=source.generators[settings.generator],
        learn_on_new=False,
        replay=Replay(settings.replay, scores),
        editing=editing,
        novelty=Novelty(settings.novelty.coverage, settings.novelty.refit_every, alpha),
    )


def _novel_editing(source: LevelSource, settings: AccelCenie | AccelCenieDagger) -> Editing:
    return Editing(source.edit, settings.edit_prob, settings.parents, settings.children)
