"""Prioritised level replay: a level buffer, and when and by what its levels are played again.

PLR learns from new levels too (Jiang et al., 2021a), PLR-perp from replayed ones only (2021b). ACCEL adds
edits, CENIE, DIPLR, POET and Enhanced POET a novelty beside the score, TRACED a correction of the score: each
is `ReplayTeacher` with other values, in a file of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh

from cenie.envs.base import Domain
from cenie.methods.accel import EditConfig
from cenie.methods.cenie import Cenie
from cenie.methods.diplr import Diplr
from cenie.methods.epoet_novelty import Epoet
from cenie.methods.family import Family, LevelFactory, generator_problems, generator_setting
from cenie.methods.poet_novelty import Poet
from cenie.methods.table import Method
from cenie.methods.traced import Traced
from cenie.replay.columns import name_problem, parse_weighted, problems_of_weighted, weight_problem
from cenie.replay.config import Alpha, Constant, ReplayConfig
from cenie.replay.scores import SCORES, Score, ScoreName
from cenie.settings import Problem, SettingsError, setting, show
from cenie.student.config import StudentConfig
from cenie.teach.curriculum import Column, Curriculum, Replay, ranked_by
from cenie.teach.source import RandomSource

NoveltyConfig = Cenie | Diplr | Poet | Epoet


@dataclass(frozen=True)
class ReplayTeacher(Family):
    """A level buffer, replayed by score; with or without edits, with or without novelty."""

    generator: str = generator_setting("random", source="paper, for PLR-perp")
    learn_on_new: bool = setting(
        False,
        help="Whether the student learns from new levels too, which are only scored otherwise.",
        source="paper, for PLR-perp",
    )
    score: ScoreName = setting(
        "pvl", help="The score of a play of a level (docs/methods/scores.md).", source="paper"
    )
    scores: tuple[str, ...] = setting(
        (),
        help="Several scores in the place of that one, each with the weight of its ranking, as in "
        "maxmc:0.5,learnability:0.5 (docs/guides/own-score-and-novelty.md). The first one leads.",
        source="ours; the paper has one",
    )
    replay: ReplayConfig = setting(factory=ReplayConfig)
    edit: EditConfig | None = setting(None, help="Edits of replayed levels; null: none.", source="the method")
    novelty: NoveltyConfig | None = setting(
        None, help="The novelty that counts beside the score; null: none.", source="the method"
    )
    alpha: Alpha = setting(
        factory=Constant, help="The weight of novelty beside the score, if there is any.", source="paper"
    )
    correction: Traced | None = setting(
        None,
        help="The correction of the score by a transition model and the progress of other levels; null: "
        "none.",
        source="the method",
    )

    def check(self) -> Iterator[Problem]:
        for problem in problems_of_weighted(self.scores, tuple(SCORES)):
            yield Problem("scores", problem)
        if self.edit is not None and self.edit.children > 1 and self.novelty is None:
            yield Problem("edit.children", "must be 1 without novelty, by which the best child is chosen")

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        novelty = self.novelty
        return Curriculum(
            source=RandomSource(domain.generator(self.generator)),
            learn_on_new=self.learn_on_new,
            replay=Replay(
                self.replay,
                scores=self._columns(),
                correction=None if self.correction is None else self.correction.correction(domain),
            ),
            editing=None if self.edit is None else self.edit.editing(domain),
            novelty=None
            if novelty is None
            else novelty.novelty(domain, self.generator, self.replay.capacity),
            alpha=self.alpha,
            features="memory" if novelty is None else novelty.step_features,
        )

    def _columns(self) -> tuple[Column, ...]:
        """The scores that are named: one, which is called regret, or several under their own names."""
        if not self.scores:
            return ranked_by(SCORES[self.score])
        weights = dict(map(parse_weighted, self.scores))
        return named_columns({name: name for name in weights}, weights)

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        yield from generator_problems(entry, self.generator)
        if self.edit is not None and not entry.edits:
            yield Problem("teacher.edit", "must be null: this domain has no edit of levels")
        if self.edit is not None and student.num_levels % self.edit.children:
            yield Problem(
                "teacher.edit.children",
                f"must divide student.num_levels ({student.num_levels}), got {self.edit.children}",
            )
        # Edited levels fill the buffer too.
        yield from buffer_problems(self.replay, student, fills_by_edits=self.edit is not None)

    @property
    def level_buffer(self) -> ReplayConfig:
        return self.replay

    @property
    def needs_levels_alone(self) -> bool:
        return self.correction is None and (self.novelty is None or self.novelty.needs_levels_alone)


def buffer_problems(
    replay: ReplayConfig, student: StudentConfig, *, fills_by_edits: bool = False
) -> Iterator[Problem]:
    """Why levels could not be replayed from such a buffer, with paths that begin at the config of the run."""
    batch = student.num_levels
    if replay.capacity < batch:
        message = f"must be at least student.num_levels ({batch}), got {replay.capacity}"
        yield Problem("teacher.replay.capacity", message)
    if replay.replay_prob == 0:
        yield Problem("teacher.replay.replay_prob", "must be above 0; `dr` is training without replay")
    if replay.replay_prob == 1 and replay.min_fill == 0 and not fills_by_edits:
        yield Problem(
            "teacher.replay.min_fill",
            "must be above 0 with a replay_prob of 1: otherwise the first batch is replayed for ever",
        )


def named_columns(scores: Mapping[str, Any], weights: Mapping[str, Any] | None = None) -> tuple[Column, ...]:
    """The columns of scores that were passed by their names; the first one leads (see `Replay`).

    Args:
        scores: One of our scores by its name, a `Score`, or a function from a `Play` to a number [n] for
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


_PLR = {"jiang2021prioritized": "Prioritized Level Replay (PLR)"}
_PLR_PERP = {"jiang2021replay": "PLR-perp: learning from replayed levels only"}

METHODS = (
    Method("plr", "PLR", "#56b4e9", ReplayTeacher(learn_on_new=True), papers=_PLR),
    Method("plr-robust", "PLR⊥", "#0072b2", ReplayTeacher(), papers=_PLR | _PLR_PERP),
    Method("plr-learnability", "PLR⊥ (learnability)", "#2a9d8f", "plr-robust", {"score": "learnability"}),
)
