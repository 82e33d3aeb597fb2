"""PAIRED, minimax and REPAIRED: a designer of levels that learns from the utility of what it made.

The designer is a source of levels. It plays the design environment of the domain (Dennis et al., 2020).
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.envs.base import Design, Domain, Environment
from cenie.envs.reset import step_only
from cenie.methods.family import Family, LevelFactory, generator_problems
from cenie.methods.plr import buffer_problems
from cenie.methods.table import Method
from cenie.records import Level, Rollout
from cenie.replay.config import ReplayConfig
from cenie.replay.outcomes import Outcomes, in_first_episode
from cenie.replay.scores import SCORES, ScoreName
from cenie.settings import Problem, setting
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.networks.base import Network
from cenie.student.networks.memoryless import Memoryless
from cenie.student.networks.recurrent import Lstm
from cenie.student.networks.table import NetworkConfig, make_network
from cenie.student.ppo import StudentState, init_student, learn
from cenie.student.returns import scale_rewards
from cenie.student.rollout import collect
from cenie.teach.curriculum import Curriculum, Replay, ranked_by
from cenie.xla import devices

Utility = Literal["regret", "mean-regret", "flexible-regret", "minus-return", "minus-best-return"]
"""The utility of a level to its designer, from completed episodes only.

`regret` (displayed equation of PAIRED): the antagonist's best return minus the student's mean return.
`mean-regret` (listing of PAIRED): the same with the antagonist's mean return. `flexible-regret` (dcd):
`regret` with the better of both as the antagonist; of equals the student. `minus-return` (Minimax): minus the
student's mean return, and `minus-best-return` (Minimax in dcd) minus its best one.
"""


@dataclass(frozen=True)
class DesignerConfig:
    """A learned designer of levels: its network, and how it learns from the utility of what it designed."""

    network: NetworkConfig = setting(
        factory=Lstm,
        help="The network that designs and judges; board reads and chooses tiles as waves across an image.",
        source="original code, mazes: the designer of PAIRED",
    )
    ppo: PPOConfig = setting(factory=PPOConfig, help="The designer's learning from its levels.")
    paid: Literal["utility", "rank"] = setting(
        "utility",
        help="The reward for a level: its utility; or its rank by utility in the batch, from 0 to 1, so "
        "that the few levels on which a student failed by chance do not decide alone.",
        source="paper",
    )

    def check(self) -> Iterator[Problem]:
        yield from decay_problems(self.ppo, "ppo")


@dataclass(frozen=True)
class DesignerTeacher(Family):
    """A designer that learns to make levels of high utility; with or without level buffers."""

    replaces: str = setting(
        "random",
        help="The generator (or role) that the designer replaces: it has the same budget of walls, or the "
        "same ranges.",
        source="ours",
    )
    utility: Utility = setting(
        "regret",
        help="The utility of a level to its designer: the best return of the antagonist above the student's "
        "mean return (regret); its mean return above that (mean-regret); the first one with the better of "
        "both as the antagonist (flexible-regret); or minus the student's mean, or best, return.",
        source="paper: its equation of PAIRED",
    )
    clip_regret: bool = setting(
        True,
        help="Whether a regret below 0, where the antagonist did worse, counts as 0.",
        source="original code; not in the paper",
    )
    designer: DesignerConfig = setting(factory=DesignerConfig)
    antagonist: PPOConfig | None = setting(
        None,
        help="The antagonist's learning; null: as the student. It has the network and the rollouts of the "
        "student. Another one begins with the defaults, not with the student's settings.",
        source="paper: one column for all agents",
    )
    replay: ReplayConfig | None = setting(
        None,
        help="A level buffer for each student, who then learn from replayed levels only; null: none.",
        source="the method",
    )
    score: ScoreName = setting(
        "pvl",
        help="The score of a play of a level (docs/methods/scores.md); only read with replay.",
        source="ours: that of PLR-perp in the paper",
    )
    unfinished: Literal["ignore", "score"] = setting(
        "ignore",
        help="A level on which a student completed no episode: it has no utility (`ignore`), or the utility "
        "of the return so far (`score`). Only read without replay, which has a setting of this name itself.",
        source="ours",
    )

    @property
    def has_antagonist(self) -> bool:
        return not self.utility.startswith("minus")

    def check(self) -> Iterator[Problem]:
        if self.antagonist is not None:
            yield from decay_problems(self.antagonist, "antagonist")
            if not self.has_antagonist:
                yield Problem("antagonist", f"must be null: there is none with the utility {self.utility}")

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        replay = self.replay
        students = 2 if self.has_antagonist else 1
        return Curriculum(
            source=DesignerSource(
                design=domain.design_for(self.replaces),
                settings=self.designer,
                utility=self.utility,
                clip_regret=self.clip_regret,
                mesh=mesh,
            ),
            learn_on_new=replay is None,
            replay=None if replay is None else Replay(replay, ranked_by(SCORES[self.score])),
            students=students,
            own_levels=replay is not None and students > 1,
            unfinished=self.unfinished,
        )

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        unknown = list(generator_problems(entry, self.replaces, "teacher.replaces"))
        yield from unknown
        if self.replay is not None:
            yield from buffer_problems(self.replay, student)
        if entry.design is None:
            yield Problem("method", "must be another one: this domain has no design environment")
        if entry.design is not None and not unknown and env is not None:
            yield from self._problems_of_learning(entry, env, student)

    def _problems_of_learning(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        """Why the designer, or the antagonist, cannot learn from what it plays."""
        spec = entry.build(env).design_spec(self.replaces)
        designer = StudentConfig(self.designer.network, self.designer.ppo, student.num_levels, spec.steps)
        for problem in designer.check():
            yield Problem(f"teacher.designer.{problem.path}", problem.message)
        for problem in designer.network.misfits(spec.observation_parts, spec.action_space):
            yield Problem(f"teacher.designer.network.{problem.path}", problem.message)
        if self.antagonist is not None:
            for problem in self.students(student)[-1].check():
                yield Problem(f"teacher.antagonist.{problem.path.removeprefix('ppo.')}", problem.message)

    def students(self, student: StudentConfig) -> tuple[StudentConfig, ...]:
        """The student and, if the utility needs one, the antagonist."""
        if not self.has_antagonist:
            return (student,)
        return student, dataclasses.replace(student, ppo=self.antagonist or student.ppo)

    @property
    def level_buffer(self) -> ReplayConfig | None:
        return self.replay


def decay_problems(ppo: PPOConfig, path: str) -> Iterator[Problem]:
    """A decay that nobody fills in: designers and antagonists need not learn in every update of a run."""
    if ppo.final_learning_rate_fraction < 1.0 and ppo.decay_updates is None:
        message = "must be given where the learning rate falls (final_learning_rate_fraction below 1)"
        yield Problem(f"{path}.decay_updates", message)


Metrics = dict[str, Array]


@dataclass(frozen=True, eq=False)
class DesignerSource:
    """The state is a student's, whose environment is the `design`; the proposal is its rollout.

    Every device of the `mesh` designs and learns in full, which is little beside what students do: shared
    out, it would have collectives in loops, which XLA on CPU does not order against the students' ones.
    """

    design: Design
    settings: DesignerConfig
    utility: Utility
    clip_regret: bool = True
    mesh: Mesh | None = None

    def init(self, key: PRNGKeyArray) -> StudentState:
        environment = self.design.environment
        spaces = environment.observation_space, environment.action_space
        return init_student(self._config(1), make_network(self.settings.network, *spaces, key))

    def learner(self, state: StudentState, count: int) -> tuple[Environment, StudentConfig, Network]:
        """The designer as a student that makes `count` levels."""
        return self.design.environment, self._config(count), state.network

    def propose(self, state: StudentState, key: PRNGKeyArray, count: int) -> tuple[Level, Rollout]:
        """Levels that were designed with sampled actions, one design episode each. Consumes the key."""
        return devices.side_by_side(
            self.mesh, lambda _, state, key: self._design(state, key, count), state, key
        )

    def _design(self, state: StudentState, key: PRNGKeyArray, count: int) -> tuple[Level, Rollout]:
        environment, task = self.design.environment, self.design.task
        rollout = collect(
            environment,
            state.network,
            jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), task),
            key=key,
            num_steps=environment.max_steps,
            advance=step_only,
            keep_final_state=True,
        )
        levels = jax.vmap(self.design.finished_level)(rollout.final_state)
        return levels, dataclasses.replace(rollout, final_state=None)

    def learn(
        self, state: StudentState, proposal: Rollout, feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[StudentState, Metrics]:
        """One PPO update on the design episodes whose utility is known. Consumes the key."""
        utility, known = utility_of(self.utility, feedback, self.clip_regret)
        return devices.side_by_side(
            self.mesh, lambda _, *arguments: self._learn(*arguments), state, proposal, utility, known, key
        )

    def _learn(
        self,
        state: StudentState,
        proposal: Rollout,
        utility: Float[Array, " n"],
        known: Bool[Array, " n"],
        key: PRNGKeyArray,
    ) -> tuple[StudentState, Metrics]:
        mean = jnp.sum(utility) / jnp.sum(known)  # NaN if none is known
        best = jnp.max(jnp.where(known, utility, -jnp.inf))
        rows = _known_rows(known)
        played = jax.tree.map(lambda leaf: leaf[rows], proposal)
        worth = utility if self.settings.paid == "utility" else rank_among(utility, known)
        scale, paid = state.return_scale, worth[rows]
        if self.settings.ppo.normalise_returns:
            ends = jnp.ones((known.size, 1), bool)
            scale, scaled = scale_rewards(scale, paid[:, None], ends, self.settings.ppo.gamma)
            paid = scaled[:, 0]
        reward = rewards_of(played.terminated, paid, self.settings.ppo.gamma)
        before = eqx.tree_at(lambda student: student.return_scale, state, scale)
        after, metrics = learn(
            self._config(known.size),
            before,
            # What follows the end of a design changes nothing: no reward says what it is worth.
            dataclasses.replace(played, reward=reward, counts=in_first_episode(played.terminated)),
            key,
        )
        any_known = jnp.any(known)
        after = jax.tree.map(lambda new, old: jnp.where(any_known, new, old), after, state)
        return after, metrics | {
            "utility": mean,
            "best_utility": jnp.where(any_known, best, jnp.nan),
            "known": jnp.mean(known),
        }

    def _config(self, count: int) -> StudentConfig:
        """The designer as a student. `learn` above scales its one reward, so that zeros do not count."""
        ppo = dataclasses.replace(self.settings.ppo, normalise_returns=False, bootstrap_at_timeout=False)
        return StudentConfig(self.settings.network, ppo, count, self.design.environment.max_steps)


def utility_of(
    utility: Utility, feedback: tuple[Outcomes, ...], clip_regret: bool = True
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """The utility of each level to its designer, and whether it is known; where it is not, it is 0.

    Only completed episodes count: a level on which a student that matters completed none has no utility.
    """
    student = feedback[0]
    if utility == "minus-return":
        value, known = -student.mean_return, student.completed
    elif utility == "minus-best-return":
        value, known = -student.max_return, student.completed
    else:
        antagonist = feedback[1]
        known = student.completed & antagonist.completed
        value = _regret(utility, student, antagonist)
        value = jnp.maximum(value, 0.0) if clip_regret else value
    return jnp.where(known, value, 0.0), known


def _regret(utility: Utility, student: Outcomes, antagonist: Outcomes) -> Float[Array, " n"]:
    """PAIRED's regret of the student: what the antagonist achieved beyond it.

    max U(antagonist) - mean U(student), over the completed episodes of each on a level: the equation of the
    paper. `mean-regret` is its listing, mean minus mean.
    """
    if utility == "mean-regret":
        return antagonist.mean_return - student.mean_return
    regret = antagonist.max_return - student.mean_return
    if utility == "flexible-regret":
        # The better one is the antagonist of the other; of equals it is the student, as in dcd.
        turned = student.max_return - antagonist.mean_return
        return jnp.where(student.max_return >= antagonist.max_return, turned, regret)
    return regret


def rewards_of(terminated: Bool[Array, "n t"], paid: Float[Array, " n"], gamma: float) -> Float[Array, "n t"]:
    """Each design is paid where it is finished: later steps change nothing, and get no credit for it.

    It is discounted as if it were paid at the last step all the same. Otherwise a level would be worth more
    the sooner it is finished.
    """
    finished = terminated & (jnp.cumsum(terminated, axis=1) == 1)
    later = jnp.arange(terminated.shape[1])[::-1]
    return jnp.where(finished, paid[:, None] * gamma**later, 0.0)


def rank_among(utility: Float[Array, " n"], known: Bool[Array, " n"]) -> Float[Array, " n"]:
    """The share of the other known levels that are worth less; equal ones share their mean rank."""
    below = ((utility[:, None] > utility) & known).sum(axis=1)
    equal = ((utility[:, None] == utility) & known).sum(axis=1) - 1
    return jnp.where(known, (below + 0.5 * equal) / jnp.maximum(known.sum() - 1, 1), 0.0)


def _known_rows(known: Bool[Array, " n"]) -> Array:
    """All rows that are known, each at its place; in the places of the others known ones, in turn."""
    first = jnp.argsort(~known, stable=True)
    places = jnp.arange(known.size)
    spare = jnp.cumsum(~known) - 1
    return jnp.where(known, places, first[spare % jnp.maximum(jnp.sum(known), 1)])


_PAPERS = {"dennis2020emergent": "PAIRED and minimax: designers that learn"}
_WITHOUT_MEMORY = DesignerConfig(network=Memoryless())  # dcd: only the designer of PAIRED has an LSTM

METHODS = (
    Method(
        "minimax",
        "Minimax",
        "#8c564b",
        DesignerTeacher(utility="minus-return", designer=_WITHOUT_MEMORY),
        papers=_PAPERS,
    ),
    Method("paired", "PAIRED", "#e377c2", DesignerTeacher(), papers=_PAPERS),
    Method(
        "repaired",
        "REPAIRED",
        "#9b4f96",
        DesignerTeacher(designer=_WITHOUT_MEMORY, replay=ReplayConfig(replay_prob=0.95)),  # dcd
        papers=_PAPERS | {"jiang2021replay": "REPAIRED"},
    ),
)
