"""ALP-GMM: levels of the kinds on which the student's returns change most (Portelas et al., 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.envs.base import Domain, TaskSpace
from cenie.methods.family import UNFINISHED, Family, LevelFactory
from cenie.methods.table import Method
from cenie.novelty import gmm
from cenie.novelty.config import MixtureConfig
from cenie.novelty.gmm import MixtureModel
from cenie.novelty.kmeans import weighted_draws
from cenie.novelty.mixture import Mixture
from cenie.records import Level
from cenie.replay.outcomes import Outcomes
from cenie.settings import Problem, SettingsError, setting, show
from cenie.student.config import StudentConfig
from cenie.teach.curriculum import Curriculum


@dataclass(frozen=True)
class AlpGmmTeacher(Family):
    """Levels of the kinds on which the student's returns change most, in the domain's space of tasks."""

    fit_every: int = setting(
        250,
        minimum=6,
        maximum=1_000_000,
        help="The mixture is fitted after this many tasks, and to this many; until then tasks are uniform.",
        source="original code",
    )
    database: int = setting(
        10_000,
        minimum=6,
        maximum=10_000_000,
        help="Past tasks among which the nearest one is looked for.",
        source="ours; the original code keeps all",
    )
    random_share: float = setting(
        0.2, minimum=0.0, maximum=1.0, help="The share of tasks that stay uniform.", source="original code"
    )
    components: tuple[int, int] = setting(
        (2, 20),
        minimum=1,
        maximum=100,
        help="The fewest and the most Gaussians of a mixture; AIC chooses.",
        source="original code",
    )
    reg: float = setting(
        1e-6,
        above=0.0,
        maximum=1e30,
        help="A number that is added to every variance, in a box of sides 1.",
        source="scikit-learn, with which the original code fits",
    )
    returns: tuple[float, float] | None = setting(
        None,
        help="The returns that count as 0 and as 1; others are clipped to this range. null: returns as they "
        "are.",
        source="original code, mazes",
    )
    unfinished: Literal["ignore", "score"] = setting("ignore", help=UNFINISHED, source="ours")

    def check(self) -> Iterator[Problem]:
        fewest, most = self.components
        if not fewest <= most <= self.fit_every:
            yield Problem(
                "components",
                f"the fewest must not exceed the most, nor these fit_every ({self.fit_every}), "
                f"got {fewest} and {most}",
            )
        if self.returns is not None and self.returns[0] >= self.returns[1]:
            yield Problem("returns", f"the first must be below the second, got {show(self.returns)}")

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        if domain.tasks is None:
            message = "alp-gmm needs a domain with a space of tasks (Domain.tasks)"
            raise SettingsError([Problem("method", message)])
        source = AlpGmmSource(domain.tasks, self)
        return Curriculum(source, learn_on_new=True, unfinished=self.unfinished)

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        if not entry.tasks:
            yield Problem("method", "must be another one: this domain has no space of tasks")


_FEWEST_KNOWN = 5
"""With no more tasks than this there is no progress yet, as in the original code."""


class AlpState(eqx.Module):
    """The tasks that the source was told about, as points of a unit box.

    `tasks` and `returns` are the last `m` of them, among which the nearest is looked for. `rows` are the
    last `w`, with the progress of each beside its task: those to which the mixture is fitted. `told` counts
    all. Before the first fit, `mixture` means nothing.
    """

    tasks: Float[Array, "m d"]
    returns: Float[Array, " m"]
    rows: Float[Array, "w e"]
    told: Int[Array, ""]
    mixture: Mixture
    fitted: Bool[Array, ""]


@dataclass(frozen=True)
class AlpGmmSource:
    """Draws tasks from a Gaussian mixture over tasks and learning progress.

    The absolute learning progress of a task is the difference of its return from the return of the nearest
    task before it. A component is chosen in proportion to its mean progress. A share of the tasks is
    uniform.
    """

    space: TaskSpace
    settings: AlpGmmTeacher

    def init(self, key: PRNGKeyArray) -> AlpState:
        dimensions, settings = len(self.space.low), self.settings
        return AlpState(
            tasks=jnp.zeros((settings.database, dimensions)),
            returns=jnp.zeros(settings.database),
            rows=jnp.zeros((settings.fit_every, dimensions + 1)),
            told=jnp.zeros((), jnp.int32),
            mixture=gmm.init(self._mixture_config, dimensions + 1).chosen,
            fitted=jnp.zeros((), bool),
        )

    def propose(self, state: AlpState, key: PRNGKeyArray, count: int) -> tuple[Level, Float[Array, "n d"]]:
        choice_key, uniform_key, mixture_key, level_key = jax.random.split(key, 4)
        is_random = jax.random.uniform(choice_key, (count,)) < self.settings.random_share
        uniform = jax.random.uniform(uniform_key, (count, len(self.space.low)))
        promising = _draw_promising(state.mixture, mixture_key, count)
        points = jnp.where((is_random | ~state.fitted)[:, None], uniform, promising)
        low, high = jnp.asarray(self.space.low, jnp.float32), jnp.asarray(self.space.high, jnp.float32)
        levels = jax.vmap(self.space.draw)(jax.random.split(level_key, count), low + points * (high - low))
        return levels, points

    def learn(
        self,
        state: AlpState,
        proposal: Float[Array, "n d"],
        feedback: tuple[Outcomes, ...],
        key: PRNGKeyArray,
    ) -> tuple[AlpState, dict[str, Array]]:
        """A task counts once, with the mean return of the episodes that the first student completed."""
        outcomes, told = feedback[0], state.told
        returns = self._scaled(outcomes.mean_return)
        progress = jnp.abs(returns - _nearest_return(state, proposal))
        progress = jnp.where(told > _FEWEST_KNOWN, progress, 0.0)
        rows = jnp.concatenate([proposal, progress[:, None]], axis=1)
        valid = outcomes.completed
        told_now = told + jnp.sum(valid, dtype=jnp.int32)
        state = AlpState(
            tasks=_appended(state.tasks, told, proposal, valid),
            returns=_appended(state.returns, told, returns, valid),
            rows=_appended(state.rows, told, rows, valid),
            told=told_now,
            mixture=state.mixture,
            fitted=state.fitted,
        )
        due = told_now // self.settings.fit_every > told // self.settings.fit_every
        state = jax.lax.cond(due, lambda: self._refitted(state, key), lambda: state)
        components = jnp.sum(state.mixture.log_weights > -jnp.inf)
        return state, {
            "progress": jnp.sum(jnp.where(valid, progress, 0.0)) / jnp.maximum(jnp.sum(valid), 1),
            "components": jnp.where(state.fitted, components, 0),
            "told": told_now,
        }

    @property
    def _mixture_config(self) -> MixtureConfig:
        return MixtureConfig(
            components=self.settings.components, covariance="full", selection="aic", reg=self.settings.reg
        )

    def _refitted(self, state: AlpState, key: PRNGKeyArray) -> AlpState:
        """The best mixture of the last tasks by AIC; the old one, if none could be fitted."""
        fitted = gmm.fit(
            self._mixture_config,
            key,
            state.rows,
            valid=jnp.ones(len(state.rows), bool),
            previous=MixtureModel(state.mixture, None),
        )
        mixture = jax.tree.map(
            lambda new, old: jnp.where(fitted.ok, new, old), fitted.model.chosen, state.mixture
        )
        return eqx.tree_at(lambda s: (s.mixture, s.fitted), state, (mixture, state.fitted | fitted.ok))

    def _scaled(self, returns: Float[Array, " n"]) -> Float[Array, " n"]:
        if self.settings.returns is None:
            return returns
        low, high = self.settings.returns
        return jnp.clip((returns - low) / (high - low), 0.0, 1.0)


def _draw_promising(mixture: Mixture, key: PRNGKeyArray, count: int) -> Float[Array, "n d"]:
    """Tasks of components chosen in proportion to their mean progress, whatever their weights."""
    component_key, place_key = jax.random.split(key)
    exists = mixture.log_weights > -jnp.inf
    progress = jnp.where(exists, jnp.maximum(mixture.means[:, -1], 0.0), 0.0)
    chances = jnp.where(jnp.any(progress > 0.0), progress, exists)
    component = weighted_draws(chances, jax.random.uniform(component_key, (count,)))
    white = jax.random.normal(place_key, (count, mixture.offsets.shape[1]))
    # Points times the whitening are white: solved for the points, by its transpose, a lower triangle.
    spread = jax.vmap(lambda whitening, row: solve_triangular(whitening.T, row, lower=True))(
        mixture.whitening[component], white
    )
    return jnp.clip(mixture.means[component] + spread, 0.0, 1.0)[:, :-1]


def _nearest_return(state: AlpState, points: Float[Array, "n d"]) -> Float[Array, " n"]:
    """The return of the nearest earlier task of each point; of equally near ones the latest.

    Points are clipped to their box, so that a corner of it is a task that comes again.
    """
    size = len(state.tasks)
    place = jnp.arange(size)
    distances = jnp.sum(jnp.square(points[:, None] - state.tasks), axis=-1)
    distances = jnp.where(place < state.told, distances, jnp.inf)
    age = (state.told - 1 - place) % size
    nearest = distances == distances.min(axis=1, keepdims=True)
    return state.returns[jnp.argmin(jnp.where(nearest, age, size), axis=1)]


def _appended(
    ring: Float[Array, "m ..."],
    count: Int[Array, ""],
    rows: Float[Array, "n ..."],
    valid: Bool[Array, " n"],
) -> Float[Array, "m ..."]:
    """The ring, to which `count` rows were written before, after the valid ones of these rows."""
    size, place = len(ring), jnp.cumsum(valid)
    # Of more rows than there is room for, only the last: no place is written twice.
    written = valid & (place > place[-1] - size)
    return ring.at[jnp.where(written, (count + place - 1) % size, size)].set(rows, mode="drop")


METHODS = (
    Method("alp-gmm", "ALP-GMM", "#6b8e23", AlpGmmTeacher(), papers={"portelas2019teacher": "ALP-GMM"}),
)
