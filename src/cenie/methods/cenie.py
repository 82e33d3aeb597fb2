"""CENIE's novelty: how unlikely a level's trajectory is under a model of the student's latest experience.

The order in a cycle matters: levels are scored under the model of earlier experience, and only then enter
the window themselves.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.methods.family import LevelFactory, NoveltySettings
from cenie.methods.nearest import last_of_each
from cenie.methods.table import Method
from cenie.novelty import coverage
from cenie.novelty.config import CoverageConfig, MixtureConfig
from cenie.novelty.coverage import CoverageState
from cenie.novelty.gmm import sizes_of
from cenie.novelty.interface import AnyCoverage
from cenie.novelty.points import chosen
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.config import Constant
from cenie.replay.outcomes import evenly_spread
from cenie.replay.play import Play
from cenie.settings import setting
from cenie.teach.measure import Metrics
from cenie.teach.novelty import Novelty
from cenie.xla.devices import Devices, shared, side_by_side
from cenie.xla.tricks import Several


@dataclass(frozen=True)
class AsPlayed:
    """A stored level keeps the novelty of its last play, as in the paper: it grows old with the model."""

    kind: Literal["as-played"] = "as-played"


@dataclass(frozen=True)
class Relative:
    """The novelty of a play is measured against the latest new levels, under the same model."""

    kind: Literal["relative"] = "relative"


@dataclass(frozen=True)
class Rescored:
    """All stored levels are measured again after each fit, by `points` of their last play.

    For points with a fixed meaning, such as observations; a memory that learns has none.
    """

    kind: Literal["rescored"] = "rescored"
    points: int = setting(
        32, minimum=1, maximum=100_000, help="Points that are kept of each level.", source="ours"
    )


@dataclass(frozen=True)
class Cenie(NoveltySettings):
    """CENIE's novelty: a model of what the student has met, and how often it is fitted again."""

    kind: Literal["cenie"] = "cenie"
    coverage: CoverageConfig = setting(
        factory=MixtureConfig, help="The model that is fitted to the student's experience.", source="paper"
    )
    refit_every: int = setting(
        1,
        minimum=1,
        help="Replays between two fits of the model; more is cheaper (the paper proposes it among its "
        "limitations).",
        source="paper",
    )
    measure: Literal["mean", "highest", "first-episode"] = setting(
        "mean",
        help="The novelty of a level: the mean over all steps of its rollout (Eq. 3), the highest step, "
        "or the mean over its first episode.",
        source="paper",
    )
    window_takes: Literal["replayed", "generated", "both"] = setting(
        "replayed",
        help="The trajectories that enter the window once the level buffer is filled: on replayed levels, "
        "on new and edited ones, or on all.",
        source="paper",
    )
    features: Literal["memory", "observation"] = setting(
        "memory",
        help="The description of a step beside its action: the memory of the student, or its observation.",
        source="paper",
    )
    control: Literal["none", "shuffled", "age"] = setting(
        "none",
        help="A control in the place of novelty, for experiments: novelties dealt out at random among the "
        "stored levels (shuffled), or when a level was last played (age).",
        source="ours",
    )
    stored: AsPlayed | Relative | Rescored = setting(
        factory=AsPlayed,
        help="The comparison of novelties that were measured at different times (docs/novelty.md).",
        source="paper",
    )

    needs_levels_alone = True

    @property
    def step_features(self) -> Literal["memory", "observation"]:
        return self.features

    def novelty(self, domain: LevelFactory, generator: str, capacity: int) -> Novelty:
        from cenie.methods.cenie_controls import AgeNovelty, ShuffledNovelty  # made of this file's novelty

        if self.control == "age":
            return AgeNovelty()
        novelty = CenieNovelty(
            coverage=self.coverage,
            capacity=capacity,
            refit_every=self.refit_every,
            stored=self.stored,
            measure=self.measure,
            window_takes=self.window_takes,
        )
        return ShuffledNovelty(novelty) if self.control == "shuffled" else novelty


class CenieState(eqx.Module):
    """The window and its model; `pushes` counts the batches that entered the window.

    `refitted`: the last batch changed the model. `reference`: the mean novelty of the latest new levels.
    `had_model` and `kept` are of the last play of the level in each slot: whether there was a model by then,
    and some of its points; each only if `stored` asks for it.
    """

    coverage: CoverageState
    pushes: Int[Array, ""]
    refitted: Bool[Array, ""]
    reference: Float[Array, ""]
    had_model: Bool[Array, " c"] | None = None
    kept: Float[Array, "c k d"] | None = None


@dataclass(frozen=True)
class CenieNovelty:
    """A window of experience, the model fitted to it, and what of a level is measured, taken in and stored.

    `capacity` is the number of slots of the level buffer.

    Model and student move together, so that the density of a trajectory drifts, and a novelty that was
    measured a while ago says more about the time than about the level. `stored` says what is done about it.
    """

    coverage: AnyCoverage
    capacity: int
    refit_every: int = 1
    stored: AsPlayed | Relative | Rescored = field(default_factory=AsPlayed)
    measure: Literal["mean", "highest", "first-episode"] = "mean"
    window_takes: Literal["replayed", "generated", "both"] = "replayed"

    def init(self, points_shape: tuple[int, int]) -> CenieState:
        return CenieState(
            coverage=coverage.init(self.coverage, *points_shape),
            pushes=jnp.zeros((), jnp.int32),
            refitted=jnp.zeros((), bool),
            reference=jnp.zeros(()),
            had_model=jnp.zeros(self.capacity, bool) if isinstance(self.stored, AsPlayed) else None,
            kept=jnp.zeros((self.capacity, self.stored.points, points_shape[1]))
            if isinstance(self.stored, Rescored)
            else None,
        )

    def score(self, state: CenieState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        """The novelty of each level: how unlikely its trajectory is under the present model (CENIE Eq. 3).

        Before the first fit all are 0.
        """
        measured = coverage.novelty(self.coverage, state.coverage, **self._what_counts(play))
        if isinstance(self.stored, Relative):
            return measured - self._reference(state, play, measured)
        return measured

    def learn(
        self,
        state: CenieState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> CenieState:
        """Let a batch into the window if it `enters`, and fit again if that is due.

        What a student plays without learning, while the buffer is filling, only fills the window for the
        first time: after that it would be a fit for every batch to what is known already.
        """
        pushed = coverage.push(state.coverage, play.points.values, play.points.valid)
        was_full, is_full = (coverage.is_full(window) for window in (state.coverage, pushed))
        enters = self._enters(play, enters, was_full)
        due = enters & ((is_full & ~was_full) | ((state.pushes % self.refit_every) == 0))
        reference = state.reference
        if isinstance(self.stored, Relative):
            measured = coverage.novelty(self.coverage, state.coverage, **self._what_counts(play))
            reference = self._reference(state, play, measured)

        # No condition may stand around the collectives of points or results.
        known = chosen(enters, pushed, state.coverage)
        known = coverage.fit(self.coverage, known, key, due=due, mesh=mesh)
        return CenieState(known, state.pushes + enters, due, reference, *self._kept(state, play))

    def _kept(self, state: CenieState, play: Play) -> tuple[Array | None, Array | None]:
        """The data kept of the stored levels, after their last plays."""
        places = last_of_each(play.stored_in, self.capacity)
        match self.stored:
            case AsPlayed():
                assert state.had_model is not None
                return state.had_model.at[places].set(state.coverage.fitted, mode="drop"), None
            case Relative():
                return None, None
            case Rescored():
                assert state.kept is not None
                points = evenly_spread(play.points, self.stored.points)
                return None, state.kept.at[places].set(points, mode="drop")

    def _enters(self, play: Play, enters: Bool[Array, ""], was_full: Bool[Array, ""]) -> Bool[Array, ""]:
        """Whether the window takes a batch, by what it is to hold."""
        learned, generated = play.learned, play.is_new
        replayed = enters if learned is None else enters & (learned | ~was_full)
        if learned is not None:
            generated |= ~learned
        # `enters` is true of a new batch only while the level buffer fills.
        generated &= ~enters | ~was_full
        match self.window_takes:
            case "replayed":
                return replayed
            case "generated":
                return generated
            case "both":
                return replayed | generated

    def rescore(
        self, state: CenieState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"] | None:
        """The novelty of all stored levels under a new model, by the points that were kept of them.

        Where none are kept, levels from before the first fit get the lowest novelty of the others: their 0
        is above all that is measured later.
        """
        stored = buffer.column(NOVELTY)
        match self.stored:
            case AsPlayed():
                assert state.had_model is not None
                measured = buffer.mask & state.had_model
                lowest = jnp.where(measured, stored, jnp.inf).min()
                return jnp.where(measured, stored, jnp.where(jnp.isfinite(lowest), lowest, 0.0))
            case Relative():
                return None
            case Rescored():
                return side_by_side(mesh, self._rescored, state, state.kept, stored)

    def _rescored(
        self, devices: Devices | None, state: CenieState, kept: Float[Array, "c k d"], stored: Array
    ) -> Float[Array, " c"]:
        def measure(kept: Float[Array, "r k d"], stored: Float[Array, " r"]) -> Float[Array, " r"]:
            exists = jnp.isfinite(kept).all(axis=2)
            measured = coverage.novelty(self.coverage, state.coverage, kept, exists)
            return jnp.where(exists.any(axis=1), measured, stored)

        def measure_if_due(*rows: Array) -> Float[Array, " r"]:
            # In here no device waits for another, because not all programs would.
            return jax.lax.cond(state.refitted, measure, lambda _, stored: stored, *rows)

        return shared(devices, measure_if_due, kept, stored)

    def _what_counts(self, play: Play) -> dict[str, Any]:
        """The points of each level that count, and how they make one number: the arguments of Eq. 3."""
        points, valid = play.points, play.points.valid
        if self.measure == "first-episode":
            if points.first_episode is None:
                raise ValueError("measure: the points do not say which of them are of the first episode")
            valid = valid & points.first_episode
        measure = "highest" if self.measure == "highest" else "mean"
        return {"features": points.values, "valid": valid, "measure": measure}

    def _reference(self, state: CenieState, play: Play, measured: Float[Array, " n"]) -> Float[Array, ""]:
        """The mean novelty of the latest new levels: this batch, if it is new."""
        return jnp.where(play.is_new, measured.mean(), state.reference)

    def metrics(self, state: CenieState, buffer: BufferState) -> Metrics:
        """The last fit, number by number."""
        window = state.coverage
        found: Metrics = {"fitted": window.fitted, "failed_fits": window.failed_fits}
        for name, value in window.diagnostics.items():
            if value.ndim == 0:
                found[f"fit/{name}"] = value
            elif isinstance(self.coverage, MixtureConfig):
                found[f"fit/{name}/"] = Several(tuple(map(str, sizes_of(self.coverage))), value)
        return found


_PAPERS = {"teoh2024cenie": "CENIE: coverage-based novelty"}
_ALONE = {"alpha": Constant(value=1.0)}
"""The paper's ablation, marked with a dagger: novelty ranks alone."""

METHODS = (
    Method("plr-cenie", "PLR-CENIE", "#d55e00", "plr-robust", {"novelty": Cenie()}, _PAPERS),
    Method("plr-cenie-dagger", "PLR-CENIE†", "#f2a65a", "plr-cenie", _ALONE),
    Method("accel-cenie", "ACCEL-CENIE", "#b5179e", "accel", {"novelty": Cenie()}, _PAPERS),
    Method("accel-cenie-dagger", "ACCEL-CENIE†", "#e39bd6", "accel-cenie", _ALONE),
)
