"""Methods as recipes: each function turns a domain and its settings into a `Curriculum`."""

from cenie.envs.base import Domain
from cenie.teach.curriculum import Curriculum, Editing, Replay, Score
from cenie.teach.methods import Accel, DomainRandomisation, Learnability, LevelReplay
from cenie.teach.scores import SCORES


def dr(domain: Domain, settings: DomainRandomisation) -> Curriculum:
    """Domain randomisation: one random level per environment and cycle, repeated until the cycle ends."""
    return Curriculum(generate=domain.generators[settings.generator], learn_on_new=True)


def plr(domain: Domain, settings: LevelReplay) -> Curriculum:
    """Prioritised level replay: gradient steps on new and on replayed levels."""
    return _replaying(domain, settings, learn_on_new=True)


def plr_robust(domain: Domain, settings: LevelReplay) -> Curriculum:
    """PLR-perp: new levels are only scored; gradient steps on replayed levels only."""
    return _replaying(domain, settings, learn_on_new=False)


def accel(domain: Domain, settings: Accel) -> Curriculum:
    """PLR-perp from simple levels, plus edits of the levels that were just replayed."""
    return Curriculum(
        generate=domain.generators[settings.generator],
        learn_on_new=False,
        replay=Replay(settings.replay, (Score("regret", SCORES[settings.score]),)),
        editing=Editing(domain.edit, settings.edit_prob, settings.parents),
    )


def sfl(domain: Domain, settings: Learnability) -> Curriculum:
    """PLR-perp whose score is how often a level is solved times how often it is not."""
    return Curriculum(
        generate=domain.generators[settings.generator],
        learn_on_new=False,
        replay=Replay(settings.replay, (Score("learnability", SCORES["learnability"]),)),
    )


def _replaying(domain: Domain, settings: LevelReplay, *, learn_on_new: bool) -> Curriculum:
    return Curriculum(
        generate=domain.generators[settings.generator],
        learn_on_new=learn_on_new,
        replay=Replay(settings.replay, (Score("regret", SCORES[settings.score]),)),
    )
