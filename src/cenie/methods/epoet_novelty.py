"""Enhanced POET's novelty (PATA-EC): how differently a level ranks a population of students.

There is one student here, so that the population is a ring of its own past. Every new level is played by all
of them. When the present student joins, all stored levels are played by it, so that all vectors of ranks are
those of one population.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from cenie.envs.base import Environment
from cenie.envs.reset import step_and_restart
from cenie.methods.family import LevelFactory, NoveltySettings
from cenie.methods.nearest import euclidean, last_of_each, nearest_others, or_largest
from cenie.methods.table import Method
from cenie.records import Level
from cenie.replay import identity
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.play import Play
from cenie.settings import Problem, SettingsError, setting
from cenie.student.networks.base import Network
from cenie.student.rollout import collect
from cenie.teach.novelty import Novelty
from cenie.xla import devices


@dataclass(frozen=True)
class Epoet(NoveltySettings):
    """Enhanced POET's novelty (PATA-EC): how far the ranks of past students on a level are from those on the
    nearest stored levels."""

    kind: Literal["epoet"] = "epoet"
    neighbours: int = setting(
        5,
        minimum=1,
        maximum=1000,
        help="The nearest levels over which the distance is averaged; more are less noisy.",
        source="Enhanced POET's code",
    )
    students: int = setting(
        8, minimum=2, maximum=1000, help="Past students that play every new level.", source="ours"
    )
    snapshot_every: int = setting(
        100,
        minimum=1,
        help="Batches that are learned from until the present student takes the place of the oldest one, "
        "and plays all stored levels.",
        source="ours",
    )
    max_steps: int | None = setting(
        None,
        minimum=1,
        maximum=1_000_000,
        help="An episode is cut after this many steps; null: never.",
        source="Enhanced POET's code",
    )
    lowest_return: float = setting(
        -1e9,
        help="Returns below count as this before they are ranked, so that two complete failures are equal.",
        source="ours",
    )
    highest_return: float = setting(
        1e9, help="Returns above count as this before they are ranked.", source="ours"
    )

    def check(self) -> Iterator[Problem]:
        if self.lowest_return >= self.highest_return:
            yield Problem("highest_return", f"must be above lowest_return ({self.lowest_return:g})")

    def novelty(self, domain: LevelFactory, generator: str, capacity: int) -> Novelty:
        if domain.environment is None:
            message = "epoet plays levels with past students, which only an environment allows"
            raise SettingsError([Problem("teacher.novelty", message)])
        longest = domain.environment.max_steps
        return EpoetNovelty(
            returns_of=first_returns(domain.environment, min(self.max_steps or longest, longest)),
            capacity=capacity,
            neighbours=self.neighbours,
            students=self.students,
            snapshot_every=self.snapshot_every,
            bounds=(self.lowest_return, self.highest_return),
        )


Returns = Callable[[Network, Level], Float[Array, " n"]]
"""The return of a network on each level of a batch, which depends on no other level."""


class Population(eqx.Module):
    """Past students along a leading axis, which is the `newest`, and their returns on all stored levels."""

    students: Any
    newest: Int[Array, ""]
    returns: Float[Array, "c p"]


class EpoetState(eqx.Module):
    """`learned` counts the batches that were learned from since the newest student joined."""

    population: Population
    learned: Int[Array, ""]


class Examined(eqx.Module):
    """The population of the moment, whether it has just changed, and its returns on the levels of a batch."""

    population: Population
    changed: Bool[Array, ""]
    returns: Float[Array, "n p"]


@dataclass(frozen=True)
class EpoetNovelty:
    """The mean distance between the ranks of `students` on a level and on the nearest `neighbours`.

    Returns are clipped to `bounds` first, so that students who failed alike are equal.
    """

    returns_of: Returns
    capacity: int
    neighbours: int
    students: int
    snapshot_every: int
    bounds: tuple[float, float]

    def init(self, points_shape: tuple[int, int]) -> EpoetState:
        returns = jnp.zeros((self.capacity, self.students))
        return EpoetState(Population(None, jnp.zeros((), jnp.int32), returns), jnp.zeros((), jnp.int32))

    def with_student(self, state: EpoetState, student: Network) -> EpoetState:
        """At first the whole population is the student that has learned nothing: all ranks are equal."""
        copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.students), student)
        return eqx.tree_at(lambda s: s.population.students, state, copies, is_leaf=lambda x: x is None)

    def examine(
        self,
        state: EpoetState,
        play: Play,
        buffer: BufferState,
        *,
        student: Network | None = None,
        mesh: Mesh | None = None,
    ) -> Examined:
        """Let the present student join if it is time, and the population play what it has not played yet."""
        before, slots = state.population, play.slot
        changed = state.learned >= self.snapshot_every
        newest = jnp.where(changed, (before.newest + 1) % self.students, before.newest)
        students = jax.tree.map(
            lambda kept, new: jnp.where(changed, kept.at[newest].set(new), kept),
            before.students,
            student,
        )
        n = slots.shape[0]
        batches = -(-self.capacity // n)
        # Where too few are stored, the last one is played again.
        in_batches = jnp.minimum(
            jnp.arange(batches) * n + jnp.arange(n)[:, None], jnp.maximum(buffer.size - 1, 0)
        )
        stored = jax.tree.map(lambda leaf: leaf[in_batches], buffer.levels)
        # First all stored levels in batches, by the newest student alone; then this batch, by each of them.
        first = batches - jnp.where(changed, -(-buffer.size // n), 0)
        last = batches + jnp.where((slots < 0).any(), self.students, 0)

        def on_each(shares: devices.Devices | None, levels: Level, stored: Level, *who: Any) -> Array:
            return devices.shared(shares, lambda *rows: self._returns(*rows, *who), levels, stored)

        who = students, newest, first, last
        played = devices.side_by_side(mesh, on_each, play.levels, stored, *who)
        of_newest = played[:, :batches].T.reshape(-1)[: self.capacity]
        of_stored = jnp.where(changed, before.returns.at[:, newest].set(of_newest), before.returns)
        of_batch = jnp.where((slots >= 0)[:, None], of_stored[slots], played[:, batches:])
        return Examined(Population(students, newest, of_stored), changed, of_batch)

    def _returns(
        self,
        levels: Level,
        stored: Level,
        students: Any,
        newest: Int[Array, ""],
        first: Int[Array, ""],
        last: Int[Array, ""],
    ) -> Float[Array, "r jobs"]:
        """The returns of the jobs from `first` to `last`, and 0 for the others.

        The first jobs play the `stored` batches with the newest student, from the last batch to the first.
        The others play the `levels` with each student. One loop does both, because an environment takes long
        to compile.
        """
        rows, batches = jax.tree.leaves(stored)[0].shape[:2]

        def play(job: Int[Array, ""], returns: Float[Array, "r jobs"]) -> Float[Array, "r jobs"]:
            is_stored, batch = job < batches, jnp.maximum(batches - 1 - job, 0)
            chosen = jax.tree.map(lambda old, new: jnp.where(is_stored, old[:, batch], new), stored, levels)
            player = jax.tree.map(lambda leaf: leaf[jnp.where(is_stored, newest, job - batches)], students)
            return returns.at[:, jnp.where(is_stored, batch, job)].set(self.returns_of(player, chosen))

        return lax.fori_loop(first, last, play, jnp.zeros((rows, batches + self.students)))

    def score(self, state: EpoetState, play: Play, buffer: BufferState) -> Float[Array, " n"]:
        """The mean distance of each level from the nearest others that are stored."""
        found: Examined = play.findings
        distances = euclidean(self.ranks(found.returns), self.ranks(found.population.returns))
        novelty = nearest_others(distances, play.slot, buffer.mask, self.neighbours)
        return or_largest(novelty, jnp.where(buffer.mask, buffer.column(NOVELTY), -jnp.inf))

    def learn(
        self,
        state: EpoetState,
        play: Play,
        *,
        enters: Bool[Array, ""],
        key: PRNGKeyArray,
        mesh: Mesh | None = None,
    ) -> EpoetState:
        """Keep the returns on the levels that are stored now."""
        found: Examined = play.findings
        places = last_of_each(play.stored_in, self.capacity)
        returns = found.population.returns.at[places].set(found.returns, mode="drop")
        population = eqx.tree_at(lambda p: p.returns, found.population, returns)
        return EpoetState(population, jnp.where(found.changed, 0, state.learned) + enters)

    def rescore(
        self, state: EpoetState, buffer: BufferState, *, mesh: Mesh | None = None
    ) -> Float[Array, " c"]:
        """The mean distance of every stored level from the nearest others of today."""

        def on_each(
            shares: devices.Devices | None, ranks: Float[Array, "c p"], stored: Bool[Array, " c"]
        ) -> Float[Array, " c"]:
            def measure(own_ranks: Float[Array, "r p"], own: Int[Array, " r"]) -> Float[Array, " r"]:
                return nearest_others(euclidean(own_ranks, ranks), own, stored, self.neighbours)

            return devices.shared(shares, measure, ranks, jnp.arange(self.capacity))

        ranks = self.ranks(state.population.returns)
        novelty = devices.side_by_side(mesh, on_each, ranks, buffer.mask)
        return or_largest(novelty, jnp.where(buffer.mask, novelty, -jnp.inf))

    def metrics(self, state: EpoetState, buffer: BufferState) -> dict[str, Array]:
        """The mean return of the newest member of the population on the stored levels."""
        share = buffer.mask / jnp.maximum(buffer.size, 1)
        newest = state.population.returns[:, state.population.newest]
        return {"newest_return": jnp.sum(share * newest)}

    def ranks(self, returns: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """The ranks of the students on each level, from -0.5 to 0.5; equal ones share their mean rank."""
        clipped = jnp.clip(returns, *self.bounds)
        below = (clipped[:, None] < clipped[:, :, None]).sum(axis=2)
        equal = (clipped[:, None] == clipped[:, :, None]).sum(axis=2) - 1
        return (below + 0.5 * equal) / (self.students - 1) - 0.5


def first_returns(environment: Environment, num_steps: int) -> Returns:
    """Play one episode of each level, or its first `num_steps` steps.

    A level always brings the same random numbers: students are compared on equal terms, at all times.
    """

    def play_one(network: Network, level: Level, number: UInt32[Array, ""]) -> Float[Array, ""]:
        rollout = collect(
            environment,
            network,
            jax.tree.map(lambda leaf: leaf[None], level),
            key=jax.random.fold_in(jax.random.key(0), number),
            num_steps=num_steps,
            advance=step_and_restart,
        )
        (done,), (reward,) = rollout.done, rollout.reward
        return jnp.where(jnp.cumsum(done) - done == 0, reward, 0.0).sum()

    def play(network: Network, levels: Level) -> Float[Array, " n"]:
        numbers = identity.fingerprint(identity.words(levels))
        return jax.vmap(play_one, (None, 0, 0))(network, levels, numbers)

    return play


_PAPERS = {"wang2020enhanced": "Enhanced POET: novelty by how past students fare"}

METHODS = (
    Method("plr-epoet", "PLR-EPOET", "#90a0f0", "plr-robust", {"novelty": Epoet()}, _PAPERS),
    Method("accel-epoet", "ACCEL-EPOET", "#4361ee", "accel", {"novelty": Epoet()}, _PAPERS),
)
