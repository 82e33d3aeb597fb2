"""TRACED: what a transition model and the progress of other levels add to a score (Cho et al., 2025)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cenie.methods.family import LevelFactory
from cenie.methods.table import Method
from cenie.records import Rollout
from cenie.replay.play import Play
from cenie.replay.scores import transition_mean
from cenie.settings import Problem, SettingsError, setting
from cenie.spaces import Space, is_image, numbers_in
from cenie.student.encoders import flatten, parts_of
from cenie.student.layers import Linear, uniform
from cenie.student.lstm import LSTM
from cenie.xla.devices import mean_over_devices, on_own_rows

if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class Traced:
    """TRACED's additions to a score: the error of a transition model, and co-learnability."""

    kind: Literal["traced"] = "traced"
    transition_weight: float = setting(
        1.0, minimum=0.0, help="The weight of the transition model's error.", source="TRACED's code"
    )
    colearnability_weight: float = setting(
        1.0, minimum=0.0, help="The weight of co-learnability.", source="TRACED's code"
    )
    memory_size: int = setting(
        128, minimum=1, maximum=100_000, help="Units of the model's memory.", source="TRACED's code"
    )
    learning_rate: float = setting(
        1e-3,
        above=0.0,
        help="The size of the model's one step for each batch.",
        source="ours; TRACED's code has one of 1e-4 for each episode",
    )

    def correction(self, domain: LevelFactory) -> "TracedCorrection":
        """The correction in an environment, whose observations it predicts.

        Raises:
            SettingsError: There is no environment of ours.
        """
        environment = domain.environment
        if environment is None:
            message = "must be null, because nothing is known of what the student sees"
            raise SettingsError([Problem("teacher.correction", message)])
        return TracedCorrection(self, parts_of(environment.observation_space), environment.action_space)


_MAX_GRADIENT, _WEIGHT_DECAY = 0.5, 1e-5
"""Constants of the original code's optimiser."""


class TransitionModel(eqx.Module):
    """Predicts the next observation from those so far and the actions, with a memory of its own."""

    memory: LSTM
    readout: Linear


class TracedState(eqx.Module):
    """The model and its optimiser; and what co-learnability compares.

    `regrets` has the last score of the level in each slot, without what was added to it later. `slots` are
    those of the replay before, and `ids` the levels that were there.
    """

    model: TransitionModel
    optimiser: PyTree
    regrets: Float[Array, " c"]
    slots: Int[Array, " n"]
    ids: Int[Array, " n"]


@dataclass(frozen=True)
class TracedCorrection:
    """Adds to the score of a level how badly its transitions are predicted; and, once the next batch was
    replayed, how much the scores of that batch have fallen meanwhile."""

    settings: Traced
    observation_spaces: tuple[Space, ...]
    action_space: Space

    def init(self, capacity: int, num_levels: int, key: PRNGKeyArray) -> TracedState:
        memory_key, readout_key = jax.random.split(key)
        seen, done = sum(map(numbers_in, self.observation_spaces)), numbers_in(self.action_space)
        size = self.settings.memory_size
        model = TransitionModel(LSTM(seen + done, size, 1.0, memory_key), uniform(readout_key, size, seen))
        nowhere = jnp.full(num_levels, -1, jnp.int32)
        optimiser = self._optimiser.init(eqx.filter(model, eqx.is_inexact_array))
        return TracedState(model, optimiser, jnp.zeros(capacity), nowhere, nowhere)

    def score(self, state: TracedState, play: Play, mesh: Mesh | None) -> Float[Array, " n"]:
        """The addition of the transition model to the score of each level, before it learns from them."""
        rollout = _rows(play).rollout
        errors = on_own_rows(mesh, lambda rollout: self.errors(state, rollout), rollout)
        return self.settings.transition_weight * transition_mean(play, errors)

    def errors(self, state: TracedState, rollout: Rollout) -> Float[Array, "n t"]:
        """The error of the predicted next observation at each step."""
        return self._errors(state.model, rollout)

    def learn(
        self,
        state: TracedState,
        play: Play,
        *,
        scores: Float[Array, " c"],
        ids: Int[Array, " c"],
        mesh: Mesh | None,
    ) -> tuple[TracedState, Float[Array, " c"], dict[str, Array]]:
        """Take in a play that is stored in `play.stored_in` (or -1), with these new scores of all slots.

        Returns the scores after co-learnability was added, too.
        """

        slots, replayed = play.stored_in, play.is_replayed

        def loss(model: TransitionModel, play: Play) -> Float[Array, ""]:
            return jnp.mean(transition_mean(play, self._errors(model, play.rollout)))

        error, gradient = mean_over_devices(mesh, jax.value_and_grad(loss), state.model, _rows(play))
        updates, optimiser = self._optimiser.update(
            gradient, state.optimiser, eqx.filter(state.model, eqx.is_inexact_array)
        )
        model = eqx.apply_updates(state.model, updates)

        capacity = len(scores)
        scored = jnp.where((slots >= 0) & play.outcomes.completed, slots, capacity)
        is_scored = jnp.zeros(capacity, bool).at[scored].set(True, mode="drop")
        fallen = jnp.sum(jnp.where(is_scored, state.regrets - scores, 0.0)) / jnp.maximum(is_scored.sum(), 1)
        progress = jnp.where(replayed, fallen, 0.0)
        still_there = (state.slots >= 0) & (ids[state.slots] == state.ids)
        before = (
            jnp.zeros(capacity, bool).at[jnp.where(still_there, state.slots, capacity)].set(True, mode="drop")
        )
        added = jnp.where(before, self.settings.colearnability_weight * progress, 0.0)
        after = TracedState(
            model=model,
            optimiser=optimiser,
            regrets=jnp.where(is_scored, scores, state.regrets),
            slots=jnp.where(replayed, slots, state.slots),
            ids=jnp.where(replayed, ids[slots], state.ids),
        )
        return after, scores + added, {"transition_error": error, "colearnability": progress}

    @property
    def _optimiser(self) -> "optax.GradientTransformation":
        import optax  # loaded where it is used, as in `student.ppo`

        rate = self.settings.learning_rate
        return optax.chain(
            optax.clip_by_global_norm(_MAX_GRADIENT), optax.adamw(rate, weight_decay=_WEIGHT_DECAY)
        )

    def _errors(self, model: TransitionModel, rollout: Rollout) -> Float[Array, "n t"]:
        """The error of the predicted next observation at each step; the last one means nothing.

        Absolute differences of images and squared ones of others, as in the original code.
        """
        seen = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (rollout.observation, rollout.action))
        observed = flatten(self.observation_spaces, seen[0])
        acted = flatten((self.action_space,), seen[1])
        state = model.memory.initial_state(observed.shape[2])
        memory = model.memory.sequence(state, jnp.concatenate([observed, acted]), rollout.start.T)
        difference = model.readout(memory) - jnp.roll(observed, -1, axis=1)
        has_image = any(map(is_image, self.observation_spaces))
        return jnp.mean(jnp.abs(difference) if has_image else jnp.square(difference), axis=0).T


def _rows(play: Play) -> Play:
    """The same without the student's memory, the only part of a rollout that has no leading axis of levels,
    and without what the teacher knows."""
    rollout = eqx.tree_at(lambda rollout: rollout.memory, play.rollout, ())
    return Play(play.levels, rollout, play.outcomes, play.advantages, episodes=play.episodes)


METHODS = (
    Method(
        "traced",
        "TRACED",
        "#c1121f",
        base="accel",
        changes={"correction": Traced()},
        papers={"cho2026traced": "TRACED"},
    ),
)
