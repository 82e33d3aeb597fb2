"""SFL: scout many levels, then train on the most learnable of them (Rutherford et al., 2024)."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.teach.methods import SflTeacher
from cenie.teach.played import Outcomes
from cenie.teach.scores import solved_variance
from cenie.teach.source import Source, SourceState
from cenie.types import Level


class SflState(eqx.Module):
    """Of the present phase: the most learnable levels so far, the best first, and how far it has come.

    `size` of the `k` places hold a level. In a phase, `scouted` levels are counted first, and then `updates`.
    `random` is the state of the source that is scouted.
    """

    levels: Level
    learnability: Float[Array, " k"]
    size: Int[Array, ""]
    scouted: Int[Array, ""]
    updates: Int[Array, ""]
    random: SourceState


class SflProposal(eqx.Module):
    """Levels to scout, if it is `scouting`: each one was proposed as often as it is played."""

    scouting: Bool[Array, ""]
    levels: Level


@dataclass(frozen=True)
class SflSource:
    """Phases of scouting, in which no student learns, and of training on what was found.

    A level is scouted in several columns of a batch side by side, and its learnability p (1 - p) counts all
    episodes that were completed there. In training, a share of each batch is drawn uniformly from the levels
    that were kept, and the rest is new.
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
        solved, finished = (
            part.reshape(of_each).sum(axis=1) for part in (outcomes.solved, outcomes.finished)
        )
        known = jnp.where(jnp.arange(self.settings.kept) < state.size, state.learnability, -1.0)
        # Of equal ones the earlier stays.
        best, place = jax.lax.top_k(
            jnp.concatenate([known, solved_variance(solved, finished)]), self.settings.kept
        )
        merged = jax.tree.map(lambda old, new: jnp.concatenate([old, new])[place], state.levels, levels)
        return SflState(
            levels=merged,
            learnability=jnp.maximum(best, 0.0),
            size=jnp.sum(best >= 0.0, dtype=jnp.int32),
            scouted=state.scouted + count,
            updates=state.updates,
            random=state.random,
        )

    def _trained(self, state: SflState) -> SflState:
        """After an update; after the last one of a phase, nothing is kept any more."""
        updates = state.updates + 1
        going_on = updates < self.settings.updates
        left = (jnp.where(going_on, part, 0) for part in (state.size, state.scouted, updates))
        return eqx.tree_at(lambda s: (s.size, s.scouted, s.updates), state, tuple(left))
