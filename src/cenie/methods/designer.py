"""A learned designer as a source of levels: it plays the design environment, and learns from its utility."""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cenie.envs.base import Design
from cenie.envs.reset import step_only
from cenie.methods.config import DesignerConfig, Utility
from cenie.records import Level, Rollout
from cenie.replay.outcomes import Outcomes, in_first_episode
from cenie.student.config import StudentConfig
from cenie.student.networks import make_network
from cenie.student.ppo import StudentState, init_student, learn
from cenie.student.returns import scale_rewards
from cenie.student.rollout import collect
from cenie.xla import devices

Metrics = dict[str, Array]


@dataclass(frozen=True, eq=False)
class DesignerSource:
    """The state is that of a student whose environment is the `design`; the proposal is its rollout.

    Every device of the `mesh` designs and learns in full, which is little beside what students do: shared
    out, it would exchange in loops, which XLA on CPU does not order against the exchanges of the students.
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
        return devices.side_by_side(
            self.mesh, lambda _, *arguments: self._learn(*arguments), state, proposal, feedback, key
        )

    def _learn(
        self, state: StudentState, proposal: Rollout, feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[StudentState, Metrics]:
        utility, known = utility_of(self.utility, feedback, self.clip_regret)
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
    """What each level is worth to its designer, and whether that is known; where it is not, it is 0.

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
    """The regret of the student, by what the antagonist achieved."""
    if utility == "mean-regret":
        return antagonist.mean_return - student.mean_return
    regret = antagonist.max_return - student.mean_return
    if utility == "flexible-regret":
        # Whoever did better at best is the antagonist of the other; of equals it is the student, as in dcd.
        turned = student.max_return - antagonist.mean_return
        return jnp.where(student.max_return >= antagonist.max_return, turned, regret)
    return regret


def rewards_of(terminated: Bool[Array, "n t"], paid: Float[Array, " n"], gamma: float) -> Float[Array, "n t"]:
    """Each design is paid where it is finished: what comes after changes nothing, and is not praised for it.

    Discounted as if it were paid at the last step all the same, lest a level be worth more the sooner it is
    finished.
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
