"""SFL: scout many levels, then train on the most learnable of them (Rutherford et al., 2024)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.envs.base import Domain
from cenie.methods.family import UNFINISHED, Family, LevelFactory, generator_problems, generator_setting
from cenie.methods.table import Method
from cenie.records import Level
from cenie.replay.outcomes import Outcomes
from cenie.replay.scores import common_spread, solved_variance
from cenie.settings import Problem, setting
from cenie.student.config import StudentConfig
from cenie.teach.curriculum import Curriculum
from cenie.teach.source import RandomSource, Source, SourceState


@dataclass(frozen=True)
class SflTeacher(Family):
    """Scouts many random levels without learning, and trains on the most learnable of them for a while.

    The numbers are those that SFL was published with for mazes, where a batch has 256 levels.
    """

    generator: str = generator_setting("random", source="SFL's code")
    scouted: int = setting(
        25_000,
        minimum=1,
        maximum=100_000_000,
        help="Levels scouted in a phase.",
        source="SFL's code",
    )
    plays: int = setting(
        8,
        minimum=1,
        maximum=100_000,
        help="Columns of a batch that play each scouted level.",
        source="ours; SFL's code plays each for 2,000 steps, which is 8 episodes or more",
    )
    kept: int = setting(
        1000,
        minimum=1,
        maximum=10_000_000,
        help="Scouted levels that are kept, the most learnable ones.",
        source="SFL's code",
    )
    kept_share: float = setting(
        0.5,
        minimum=0.0,
        maximum=1.0,
        help="The share of the kept levels in each batch; the rest are new ones.",
        source="SFL's code",
    )
    updates: int = setting(
        100,
        minimum=1,
        maximum=100_000_000,
        help="Updates on the kept levels before others are scouted.",
        source="SFL's code",
    )

    score: Literal["learnability", "generalised-learnability"] = setting(
        "learnability",
        help="The learnability of a level: p (1 - p) of its success (learnability); or, where success is "
        "rare or is not the score, the deviation of its returns, weighted by how common their mean is among "
        "the scouted levels (generalised-learnability).",
        source="SFL; generalised: Monette et al. (2025)",
    )
    unfinished: Literal["ignore", "score"] = setting("ignore", help=UNFINISHED, source="ours")

    def check(self) -> Iterator[Problem]:
        if self.kept > self.scouted:
            yield Problem("kept", f"must not exceed scouted ({self.scouted}), got {self.kept}")

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        source = SflSource(RandomSource(domain.generator(self.generator)), self)
        return Curriculum(source, learn_on_new=source.is_training, unfinished=self.unfinished)

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        yield from generator_problems(entry, self.generator)
        if student.num_levels % self.plays:
            message = f"must divide student.num_levels ({student.num_levels}), got {self.plays}"
            yield Problem("teacher.plays", message)


class Returns(eqx.Module):
    """The returns of students on the levels that are kept, and on all levels of the phase.

    `mean` and `deviation` are those of the episodes on each kept level. Of the levels that were scouted,
    `known` completed an episode; `centre` is the mean over them of their means, and `squares` the sum of the
    squared distances from it.
    """

    mean: Float[Array, " k"]
    deviation: Float[Array, " k"]
    known: Int[Array, ""]
    centre: Float[Array, ""]
    squares: Float[Array, ""]


class SflState(eqx.Module):
    """The present phase: the most learnable levels so far, the best first, and the progress in counts.

    `size` of the `k` places hold a level. In a phase, `scouted` levels are counted first, and then `updates`.
    `random` is the state of the source that is scouted. `returns` is there if learnability is
    computed from returns.
    """

    levels: Level
    learnability: Float[Array, " k"]
    size: Int[Array, ""]
    scouted: Int[Array, ""]
    updates: Int[Array, ""]
    random: SourceState
    returns: Returns | None = None


class SflProposal(eqx.Module):
    """Levels to scout, if it is `scouting`: each one was proposed as often as it is played."""

    scouting: Bool[Array, ""]
    levels: Level


@dataclass(frozen=True)
class SflSource:
    """Phases of scouting, in which no student learns, and of training on what was found.

    A level is scouted in several columns of a batch side by side, and its learnability counts all episodes
    that were completed there: p (1 - p) of their success; or, generalised, the deviation of their returns,
    weighted by how common their mean is among all levels of the phase so far. In training, a share of each
    batch is drawn uniformly from the levels that were kept, and the rest is new.
    """

    random: Source
    settings: SflTeacher

    def init(self, key: PRNGKeyArray) -> SflState:
        random, kept = self.random.init(key), self.settings.kept
        example = jax.eval_shape(lambda: self.random.propose(random, key, kept)[0])
        return SflState(
            levels=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example),
            learnability=jnp.zeros(kept),
            size=jnp.zeros((), jnp.int32),
            scouted=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
            random=random,
            returns=_no_returns(kept) if self.settings.score == "generalised-learnability" else None,
        )

    def is_training(self, state: SflState) -> Bool[Array, ""]:
        """Whether the levels that are proposed now are for students to learn from."""
        return state.scouted >= self.settings.scouted

    def propose(self, state: SflState, key: PRNGKeyArray, count: int) -> tuple[Level, SflProposal]:
        new_key, place_key = jax.random.split(key)
        new, _ = self.random.propose(state.random, new_key, count)
        rows, plays = jnp.arange(count), self.settings.plays
        scouted = jax.tree.map(lambda leaf: leaf[: max(count // plays, 1)], new)
        repeated = jax.tree.map(lambda leaf: leaf[jnp.minimum(rows // plays, len(leaf) - 1)], scouted)
        places = jax.random.randint(place_key, (count,), 0, jnp.maximum(state.size, 1))
        is_kept = rows < round(self.settings.kept_share * count)

        def choose(kept: Array, new: Array, repeated: Array) -> Array:
            mask = is_kept.reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(training, jnp.where(mask, kept[places], new), repeated)

        training = self.is_training(state)
        return jax.tree.map(choose, state.levels, new, repeated), SflProposal(~training, scouted)

    def learn(
        self, state: SflState, proposal: SflProposal, feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[SflState, dict[str, Array]]:
        after = jax.lax.cond(
            proposal.scouting,
            lambda: self._scouted(state, proposal.levels, feedback[0]),
            lambda: self._trained(state),
        )
        held = jnp.arange(self.settings.kept) < after.size
        mean = jnp.sum(jnp.where(held, after.learnability, 0.0)) / jnp.maximum(after.size, 1)
        return after, {"scouting": proposal.scouting, "kept": after.size, "learnability": mean}

    def _scouted(self, state: SflState, levels: Level, outcomes: Outcomes) -> SflState:
        """The best of what was kept so far and of the levels that were just played."""
        count = jax.tree.leaves(levels)[0].shape[0]
        of_each = (count, outcomes.finished.shape[0] // count)
        kept = jnp.arange(self.settings.kept) < state.size
        returns = state.returns
        if returns is None:
            solved, finished = (
                part.reshape(of_each).sum(axis=1) for part in (outcomes.solved, outcomes.finished)
            )
            learnability = jnp.concatenate([state.learnability, solved_variance(solved, finished)])
        else:
            returns = _with_returns(returns, jax.tree.map(lambda part: part.reshape(of_each), outcomes))
            variance = returns.squares / jnp.maximum(returns.known, 1)
            learnability = common_spread(returns.deviation, returns.mean, returns.centre, variance)
        known = jnp.concatenate([kept, jnp.ones(count, bool)])
        # Of equal ones the earlier stays.
        best, place = jax.lax.top_k(jnp.where(known, learnability, -1.0), self.settings.kept)
        if returns is not None:
            returns = eqx.tree_at(
                lambda r: (r.mean, r.deviation), returns, (returns.mean[place], returns.deviation[place])
            )
        merged = jax.tree.map(lambda old, new: jnp.concatenate([old, new])[place], state.levels, levels)
        return SflState(
            levels=merged,
            learnability=jnp.maximum(best, 0.0),
            size=jnp.sum(best >= 0.0, dtype=jnp.int32),
            scouted=state.scouted + count,
            updates=state.updates,
            random=state.random,
            returns=returns,
        )

    def _trained(self, state: SflState) -> SflState:
        """After an update; after the last one of a phase, nothing is kept any more."""
        updates = state.updates + 1
        going_on = updates < self.settings.updates
        left = (jnp.where(going_on, part, 0) for part in (state.size, state.scouted, updates))
        returns = jax.tree.map(lambda part: jnp.where(going_on, part, 0), state.returns)
        return eqx.tree_at(
            lambda s: (s.size, s.scouted, s.updates, s.returns),
            state,
            (*left, returns),
            is_leaf=lambda leaf: leaf is None,
        )


def _no_returns(kept: int) -> Returns:
    zero, zeros = jnp.zeros(()), jnp.zeros(kept)
    return Returns(mean=zeros, deviation=zeros, known=jnp.zeros((), jnp.int32), centre=zero, squares=zero)


def _with_returns(returns: Returns, outcomes: Outcomes) -> Returns:
    """The same with a batch: its levels behind the kept ones, and counted in the phase.

    Args:
        returns: What is known, of k kept levels.
        outcomes: What was played, [n, plays] for each level and column.

    Returns:
        What is known of k + n levels.
    """
    finished, episodes = outcomes.finished, outcomes.finished.sum(axis=1)
    share = finished / jnp.maximum(episodes, 1)[:, None]
    mean = jnp.sum(share * outcomes.mean_return, axis=1)
    squares = outcomes.return_variance + jnp.square(outcomes.mean_return - mean[:, None])
    deviation = jnp.sqrt(jnp.sum(share * squares, axis=1))

    is_known = episodes > 0
    known = returns.known + is_known.sum(dtype=jnp.int32)
    total = returns.known * returns.centre + jnp.where(is_known, mean, 0.0).sum()
    centre = total / jnp.maximum(known, 1)
    before = returns.squares + returns.known * jnp.square(returns.centre - centre)
    return Returns(
        mean=jnp.concatenate([returns.mean, mean]),
        deviation=jnp.concatenate([returns.deviation, deviation]),
        known=known,
        centre=centre,
        squares=before + jnp.where(is_known, jnp.square(mean - centre), 0.0).sum(),
    )


METHODS = (
    Method(
        "sfl", "SFL", "#17a2b8", SflTeacher(), papers={"rutherford2024no": "SFL: sampling for learnability"}
    ),
)
