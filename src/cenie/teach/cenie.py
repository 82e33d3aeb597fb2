"""CENIE's novelty: how unlikely a level's trajectory is under a model of the student's latest experience.

The order in a cycle matters: levels are scored under the model of earlier experience, and only then enter
the window themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.novelty import coverage
from cenie.novelty.config import CoverageConfig
from cenie.novelty.coverage import CoverageState
from cenie.teach.buffer import BufferState, Remembered
from cenie.teach.novelty import Experience


class CenieState(eqx.Module):
    """The window and its model; `pushes` counts the batches that entered the window."""

    coverage: CoverageState
    pushes: Int[Array, ""]


@dataclass(frozen=True)
class CenieNovelty:
    """A window of experience, the model fitted to it, and how often it is fitted."""

    coverage: CoverageConfig
    refit_every: int = 1

    def remembered(self, points_shape: tuple[int, int]) -> Mapping[str, Remembered]:
        return {}

    def init(self, points_shape: tuple[int, int]) -> CenieState:
        return CenieState(coverage.init(self.coverage, *points_shape), jnp.zeros((), jnp.int32))

    def score(self, state: CenieState, experience: Experience, buffer: BufferState) -> Float[Array, " n"]:
        """How unlikely each level's trajectory is under the present model; 0 before the first fit."""
        return coverage.novelty(
            self.coverage, state.coverage, experience.points.values, experience.points.valid
        )

    def memory(self, state: CenieState, experience: Experience) -> dict[str, Float[Array, "n ..."]]:
        return {}

    def learn(
        self,
        state: CenieState,
        experience: Experience,
        *,
        slots: Int[Array, " n"],
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> CenieState:
        """Let a batch into the window if it `enters`, and fit again if that is due."""

        def push() -> CenieState:
            window = coverage.push(state.coverage, experience.points.values, experience.points.valid)
            due = (state.pushes % self.refit_every) == 0
            fitted = jax.lax.cond(due, lambda: coverage.fit(self.coverage, window, key, mesh), lambda: window)
            return CenieState(fitted, state.pushes + 1)

        return jax.lax.cond(enters, push, lambda: state)

    def rescore(self, state: CenieState, buffer: BufferState) -> Float[Array, " c"] | None:
        return None

    def metrics(self, state: CenieState, buffer: BufferState) -> dict[str, Array]:
        """The last fit, number by number."""
        window = state.coverage
        found = {"fitted": window.fitted, "failed_fits": window.failed_fits}
        for name, value in window.diagnostics.items():
            if value.ndim == 0:
                found[f"fit/{name}"] = value
            else:
                sizes = range(self.coverage.components[0], self.coverage.components[1] + 1)
                found |= {f"fit/{name}/{size}": value[index] for index, size in enumerate(sizes)}
        return found
