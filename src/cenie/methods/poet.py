"""POET: a population of pairs, each a level and a student that learns on it (Wang et al., 2019).

Every cycle is the ordinary one: one student of the population plays one batch, and learns from it or not.
What POET does besides learning, which is to try students on levels of others, is made of cycles in which
nobody learns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from cenie.envs.base import Domain
from cenie.methods.family import UNFINISHED, Family, LevelFactory, generator_problems
from cenie.methods.nearest import euclidean, mean_of_finite, smallest
from cenie.methods.table import Method
from cenie.records import Level
from cenie.replay.outcomes import Outcomes
from cenie.settings import Problem, SettingsError, setting, show
from cenie.student.config import StudentConfig
from cenie.student.ppo import StudentState
from cenie.teach.curriculum import Curriculum
from cenie.xla import devices


@dataclass(frozen=True)
class PoetTeacher(Family):
    """A population of pairs, each a level and a student that learns on it, which has to prove itself on the
    levels of the others too.

    The numbers are those that POET was published with; its updates are steps of an evolution strategy. What a
    good and a bad return are depends on the domain, whose presets say it.
    """

    generator: str = setting(
        "simple",
        help="The generator of the first pair's level: one of the domain, or its role (random or simple). "
        "All others are edits of levels that were admitted.",
        source="POET's code",
    )
    pairs: int = setting(
        25,
        minimum=2,
        maximum=1000,
        help="The largest number of pairs: the oldest leaves for the next.",
        source="POET's code",
    )
    turn: int = setting(
        25,
        minimum=1,
        maximum=1_000_000,
        help="Updates of each pair in a round, after which students are tried on the levels of others.",
        source="POET's code",
    )
    reproduce_at: float | None = setting(
        None,
        help="A pair may have children if its student returns this much on its level. Must be given where the"
        " domain's presets name no value.",
        source="ours",
    )
    children: int = setting(
        8,
        minimum=1,
        maximum=1000,
        help="Children that are tried after each round.",
        source="POET's code",
    )
    admitted: int = setting(
        1, minimum=1, maximum=1000, help="Children that are admitted at most.", source="POET's code"
    )
    criterion: tuple[float, float] | None = setting(
        None,
        help="The minimal criterion: the range of the returns on a child, of its parent's student and of "
        "the best one. Must be given where the domain's presets name no values.",
        source="ours",
    )
    neighbours: int = setting(
        5,
        minimum=1,
        maximum=1000,
        help="Children are ranked by their distance from this many encodings, the nearest of all levels ever "
        "admitted.",
        source="POET's code",
    )
    archive: int = setting(
        2000,
        minimum=1,
        maximum=10_000_000,
        help="Admitted levels that are remembered for that, the latest.",
        source="ours; POET keeps all",
    )
    proposals: bool = setting(
        True,
        help="Whether the best student of the other pairs is also tried on a level after an update there.",
        source="ours; POET's code tries all of them",
    )
    unfinished: Literal["ignore", "score"] = setting("ignore", help=UNFINISHED, source="ours")

    def check(self) -> Iterator[Problem]:
        if self.criterion is not None and self.criterion[0] >= self.criterion[1]:
            yield Problem("criterion", f"the first must be below the second, got {show(self.criterion)}")
        if self.admitted > self.children:
            yield Problem("admitted", f"must not exceed children ({self.children}), got {self.admitted}")
        if self.archive < self.pairs:
            yield Problem("archive", f"must be at least pairs ({self.pairs}), got {self.archive}")

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        if domain.encoding is None:
            message = "poet compares encodings of levels, and this domain has none"
            raise SettingsError([Problem("method", message)])
        missing = [name for name in ("reproduce_at", "criterion") if getattr(self, name) is None]
        if missing:
            why = "must be given: what a good return is depends on the domain, whose presets do not say it"
            raise SettingsError([Problem(f"teacher.{name}", why) for name in missing])
        source = PoetSource(
            generate=domain.generator(self.generator),
            edit=domain.edit,
            encode=domain.encoding,
            redraw=domain.redraw,
            settings=self,
            mesh=mesh,
        )
        return Curriculum(source, learn_on_new=source.is_learning, unfinished=self.unfinished)

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        yield from generator_problems(entry, self.generator)
        if not entry.edits:
            yield Problem("method", "must be another one: this domain has no edit of levels")


LEARN, SCOUT, ADAPT, TRY = 0, 1, 2, 3
"""The purpose of a cycle: a pair learns; a student plays all levels and candidates; a student learns on the
level of another pair, as a guest; and plays there, to stay if it is better than the student that lives
there."""


class Tally(eqx.Module):
    """The record of candidates and students so far: admitted levels, candidates outside of the minimal
    criterion, and students that took another one's place as they were, and after an update."""

    admitted: Int[Array, ""]
    too_hard: Int[Array, ""]
    too_easy: Int[Array, ""]
    transfers: Int[Array, ""]
    proposals: Int[Array, ""]


class PoetState(eqx.Module):
    """The population: `p` places, with a pair in the `active` ones, and `c` candidates to join it.

    `born` numbers the pairs in the order of their admission. `own` is what each student returned when it last
    learned on its own level. `parents` are the places of the candidates' parents, -1 where there is no
    candidate. `returns` has a row for each student and a column for each level, the candidates last:
    -inf where it is not known. `archive` are the encodings of all levels that were ever admitted.

    `phase` says what the cycle is for, `place` whose turn it is, and `step` how often it had it. `draws`
    decides what is drawn anew of the levels, which must be the same for all students that are compared. The
    `champion` is the place of the student that is evaluated.
    """

    students: StudentState | None
    guest: StudentState | None
    levels: Level
    active: Bool[Array, " p"]
    born: Int[Array, " p"]
    own: Float[Array, " p"]
    candidates: Level
    parents: Int[Array, " c"]
    returns: Float[Array, "p l"]
    archive: Float[Array, "a d"]
    phase: Int[Array, ""]
    place: Int[Array, ""]
    step: Int[Array, ""]
    updates: Int[Array, ""]
    draws: UInt32[Array, ""]
    champion: Int[Array, ""]
    tally: Tally


@dataclass(frozen=True, eq=False)
class PoetSource:
    """Rounds of learning, of mutation and of transfers; a source that has students of its own.

    `redraw` draws anew what an encoding leaves open of a level, such as the seed of a terrain: POET's
    environments are such families of terrains. Like a designer, it works on every device of the `mesh` in
    full.
    """

    generate: Callable[[PRNGKeyArray], Level]
    edit: Callable[[PRNGKeyArray, Level], Level]
    encode: Callable[[Level], Float[Array, " d"]]
    redraw: Callable[[PRNGKeyArray, Level], Level]
    settings: PoetTeacher
    mesh: Mesh | None = None

    # What every source does.

    def init(self, key: PRNGKeyArray) -> PoetState:
        """One pair, on a level of the generator; it has no student yet."""
        pairs, children = self.settings.pairs, self.settings.children
        first = self.generate(key)
        encoding = self.encode(first)
        zero, zeros = jnp.zeros((), jnp.int32), jnp.zeros(pairs, jnp.int32)
        return PoetState(
            students=None,
            guest=None,
            levels=_copies(first, pairs),
            active=jnp.arange(pairs) == 0,
            born=zeros,
            own=jnp.full(pairs, -jnp.inf),
            candidates=_copies(first, children),
            parents=jnp.full(children, -1, jnp.int32),
            returns=jnp.full((pairs, pairs + children), -jnp.inf),
            archive=jnp.zeros((self.settings.archive, encoding.size)).at[0].set(encoding),
            phase=zero,
            place=zero,
            step=zero,
            updates=zero,
            draws=jnp.zeros((), jnp.uint32),
            champion=zero,
            tally=Tally(zero + 1, zero, zero, zero, zero),
        )

    def propose(self, state: PoetState, key: PRNGKeyArray, count: int) -> tuple[Level, Int[Array, " n"]]:
        """The level of one pair in all columns; or, to scout, all levels and candidates in turn. The proposal
        is which of them each column plays. Consumes the key."""
        arguments = state.levels, state.candidates, self._columns(state, count), self._draw_key(state, key)
        return devices.side_by_side(self.mesh, self._redrawn, *arguments), arguments[2]

    def learn(
        self, state: PoetState, proposal: Int[Array, " n"], feedback: tuple[Outcomes, ...], key: PRNGKeyArray
    ) -> tuple[PoetState, dict[str, Array]]:
        """Take in what the student of the cycle returned, and let the next one have its turn."""

        def learned(_: object, state: PoetState, *arguments: Array) -> PoetState:
            branches = [self._learned, self._scouted, self._adapted, self._tried]
            return lax.switch(state.phase, branches, state, *arguments)

        outcome = _mean_returns(feedback[0], proposal, state.returns.shape[1])
        count = jnp.asarray(proposal.size)
        phase, pair = state.phase, state.born[state.place]
        after = devices.side_by_side(self.mesh, learned, state, outcome, count, key)
        best = _mean_of_active(after)[after.champion]
        return after, vars(after.tally) | {
            "phase": phase,
            "pair": pair,
            "pairs": after.active.sum(),
            "champion": after.born[after.champion],
            # Until all are scouted, it is not known.
            "champion_return": jnp.where(jnp.isfinite(best) & (after.phase != SCOUT), best, jnp.nan),
        }

    # What a source with students of its own does besides.

    def with_student(self, state: PoetState, student: StudentState) -> PoetState:
        """All students begin as this one."""
        return eqx.tree_at(
            lambda s: (s.students, s.guest),
            state,
            (_copies(student, self.settings.pairs), student),
            is_leaf=lambda leaf: leaf is None,
        )

    def is_learning(self, state: PoetState) -> Bool[Array, ""]:
        """Whether the student that plays learns from it."""
        return (state.phase == LEARN) | (state.phase == ADAPT)

    def player(self, state: PoetState) -> StudentState:
        """The student that plays. The learning rate of each falls with the updates of all, at the pace of the
        run."""
        chosen = _row(state.students, jnp.where(state.phase == ADAPT, _best_guest(state), state.place))
        student = _where(state.phase == TRY, state.guest, chosen)
        return eqx.tree_at(lambda s: s.updates, student, state.updates)

    def taken_back(self, state: PoetState, student: StudentState) -> PoetState:
        """The state with what the one that played has learned."""
        students = _with_row(state.students, state.place, student, state.phase == LEARN)
        guest = _where(state.phase == ADAPT, student, state.guest)
        return eqx.tree_at(lambda s: (s.students, s.guest), state, (students, guest))

    def evaluated(self, state: PoetState) -> StudentState:
        """The student of the highest mean return on all active levels, when they were last scouted."""
        return _row(state.students, state.champion)

    # What is played.

    def _columns(self, state: PoetState, count: int) -> Int[Array, " n"]:
        playable = _playable(state)
        in_turn = (state.step * count + jnp.arange(count)) % playable.sum()
        scouted = jnp.argsort(~playable, stable=True)[in_turn]
        return jnp.where(state.phase == SCOUT, scouted, state.place)

    def _draw_key(self, state: PoetState, key: PRNGKeyArray) -> PRNGKeyArray:
        same_for_all = jax.random.fold_in(jax.random.key(state.draws), state.step)
        return jnp.where(state.phase == SCOUT, same_for_all, key)

    def _redrawn(
        self, _: object, levels: Level, candidates: Level, columns: Int[Array, " n"], key: PRNGKeyArray
    ) -> Level:
        chosen = jax.tree.map(lambda old, new: jnp.concatenate([old, new])[columns], levels, candidates)
        return jax.vmap(self.redraw)(jax.random.split(key, columns.size), chosen)

    # What follows from it. All take the state, the mean return on every level, the number of columns, a key.

    def _learned(self, state: PoetState, outcome: Array, count: Array, key: PRNGKeyArray) -> PoetState:
        """A pair has learned; after the last turn of the last one, candidates are made."""
        after = eqx.tree_at(
            lambda s: (s.own, s.updates),
            state,
            (state.own.at[state.place].set(outcome[state.place]), state.updates + 1),
        )
        after, round_over = _next_turn(after, state.step + 1 >= self.settings.turn)
        return lax.cond(round_over, lambda: self._mutated(after, key), lambda: after)

    def _mutated(self, state: PoetState, key: PRNGKeyArray) -> PoetState:
        """Children of the pairs that may have any; then all are scouted, if there is anything to find out."""
        assert self.settings.reproduce_at is not None
        choose_key, edit_key, draw_key = jax.random.split(key, 3)
        eligible = state.active & (state.own >= self.settings.reproduce_at)
        some, children = eligible.any(), self.settings.children
        chance = jax.random.uniform(choose_key, (children,))
        parents = jnp.argsort(~eligible, stable=True)[(chance * eligible.sum()).astype(jnp.int32)]
        candidates = jax.vmap(self.edit)(jax.random.split(edit_key, children), _row(state.levels, parents))
        scouts = some | (state.active.sum() > 1)
        return eqx.tree_at(
            lambda s: (s.candidates, s.parents, s.returns, s.draws, s.phase),
            state,
            (
                candidates,
                jnp.where(some, parents, -1).astype(jnp.int32),
                jnp.where(scouts, -jnp.inf, state.returns),
                jax.random.bits(draw_key),
                jnp.where(scouts, SCOUT, LEARN),
            ),
        )

    def _scouted(self, state: PoetState, outcome: Array, count: Array, key: PRNGKeyArray) -> PoetState:
        """A student has played as many levels as a batch has columns; once all have played all, they are
        judged."""
        row = jnp.where(jnp.isfinite(outcome), outcome, state.returns[state.place])
        after = eqx.tree_at(lambda s: s.returns, state, state.returns.at[state.place].set(row))
        after, all_over = _next_turn(after, (state.step + 1) * count >= _playable(state).sum())
        return lax.cond(all_over, lambda: self._judged(after), lambda: after)

    def _judged(self, state: PoetState) -> PoetState:
        """Admit candidates, and let students move to levels on which they are better than who lives there."""
        state = _transferred(self._admitted(state))
        # Who is left without a candidate's column is not scouted on it again.
        pairs = self.settings.pairs
        adapts = self.settings.proposals & (state.active.sum() > 1)
        return eqx.tree_at(
            lambda s: (s.parents, s.returns, s.champion, s.phase),
            state,
            (
                jnp.full_like(state.parents, -1),
                state.returns.at[:, pairs:].set(-jnp.inf),
                jnp.argmax(_mean_of_active(state)).astype(jnp.int32),
                jnp.where(adapts, ADAPT, LEARN),
            ),
        )

    def _admitted(self, state: PoetState) -> PoetState:
        """The most novel of the candidates inside the minimal criterion join; the oldest pairs leave for
        them."""
        assert self.settings.criterion is not None
        pairs, (lowest, highest) = self.settings.pairs, self.settings.criterion
        encodings = jax.vmap(self.encode)(state.candidates)
        known = jnp.arange(self.settings.archive) < state.tally.admitted
        distances = jnp.where(known, euclidean(encodings, state.archive), jnp.inf)
        novelty = mean_of_finite(smallest(distances, self.settings.neighbours))
        is_candidate = state.parents >= 0
        by_parent = state.returns[state.parents, pairs + jnp.arange(self.settings.children)]
        # By its parent here, and by the best of all students where it would enter.
        hard, easy = is_candidate & (by_parent < lowest), is_candidate & (by_parent > highest)
        waiting = is_candidate & ~hard & ~easy & (distances.min(axis=1) > 0.0)

        def admit(_: Array, carry: tuple[PoetState, Array]) -> tuple[PoetState, Array]:
            state, waiting = carry
            returns = jnp.where(state.active[:, None], state.returns[:, pairs:], -jnp.inf)
            fits = waiting & (returns.max(axis=0) >= lowest) & (returns.max(axis=0) <= highest)
            chosen = jnp.argmax(jnp.where(fits, novelty, -jnp.inf))
            enters = _with_pair(state, chosen, jnp.argmax(returns[:, chosen]), encodings[chosen])
            return _where(fits.any(), enters, state), waiting & (jnp.arange(waiting.size) != chosen)

        state, _ = lax.fori_loop(0, self.settings.admitted, admit, (state, waiting))
        refused = state.tally.too_hard + hard.sum(), state.tally.too_easy + easy.sum()
        return eqx.tree_at(lambda s: (s.tally.too_hard, s.tally.too_easy), state, refused)

    def _adapted(self, state: PoetState, outcome: Array, count: Array, key: PRNGKeyArray) -> PoetState:
        """A guest has learned on the level of its host; it plays there next."""
        phase = jnp.asarray(TRY, state.phase.dtype)
        return eqx.tree_at(lambda s: (s.phase, s.updates), state, (phase, state.updates + 1))

    def _tried(self, state: PoetState, outcome: Array, count: Array, key: PRNGKeyArray) -> PoetState:
        """The guest takes the place of the student that lives there, if it is better."""
        place, result = state.place, outcome[state.place]
        moves = result > _to_beat(state)[place]
        row = state.returns[_best_guest(state)].at[place].set(result)
        after = eqx.tree_at(
            lambda s: (s.students, s.returns, s.own, s.tally.proposals),
            state,
            (
                _with_row(state.students, place, state.guest, moves),
                _with_row(state.returns, place, row, moves),
                _with_row(state.own, place, result, moves),
                state.tally.proposals + moves,
            ),
        )
        after, all_over = _next_turn(after, jnp.ones((), bool))
        champion = jnp.argmax(_mean_of_active(after)).astype(jnp.int32)
        phase = jnp.where(all_over, LEARN, ADAPT)
        return eqx.tree_at(lambda s: (s.phase, s.champion), after, (phase, champion))


def _with_pair(state: PoetState, candidate: Array, student: Array, encoding: Float[Array, " d"]) -> PoetState:
    """The state after a candidate has joined with a copy of a student, in a free place or in the oldest's."""
    pairs, always = state.active.size, jnp.ones((), bool)
    place = jnp.argmin(jnp.where(state.active, state.born, -1))
    column = state.returns[:, pairs + candidate]
    returns = _with_row(state.returns, place, state.returns[student], always)
    number = state.tally.admitted
    return eqx.tree_at(
        lambda s: (s.students, s.levels, s.active, s.born, s.own, s.returns, s.archive, s.tally.admitted),
        state,
        (
            _with_row(state.students, place, _row(state.students, student), always),
            _with_row(state.levels, place, _row(state.candidates, candidate), always),
            state.active.at[place].set(True),
            state.born.at[place].set(number),
            state.own.at[place].set(column[student]),
            returns.at[:, place].set(column.at[place].set(column[student])),
            state.archive.at[number % len(state.archive)].set(encoding),
            number + 1,
        ),
    )


def _transferred(state: PoetState) -> PoetState:
    """Every level gets the student that returned most on it, if that is more than who lives there did."""
    pairs = state.active.size
    others = jnp.where(
        state.active[:, None] & ~jnp.eye(pairs, dtype=bool), state.returns[:, :pairs], -jnp.inf
    )
    best, result = jnp.argmax(others, axis=0), jnp.max(others, axis=0)
    moves = state.active & (result > _to_beat(state))
    who = jnp.where(moves, best, jnp.arange(pairs))
    return eqx.tree_at(
        lambda s: (s.students, s.returns, s.own, s.tally.transfers),
        state,
        (
            _row(state.students, who),
            state.returns[who],
            jnp.where(moves, result, state.own),
            state.tally.transfers + moves.sum(),
        ),
    )


def _to_beat(state: PoetState) -> Float[Array, " p"]:
    """The return that a newcomer must exceed on a level: the larger of the incumbent's scouted and training
    return. Taking the larger of two measurements keeps luck from deciding."""
    return jnp.maximum(jnp.diagonal(state.returns), state.own)


def _best_guest(state: PoetState) -> Int[Array, ""]:
    """The student of another pair that returned most on the level whose turn it is."""
    is_other = state.active & (jnp.arange(state.active.size) != state.place)
    return jnp.argmax(jnp.where(is_other, state.returns[:, state.place], -jnp.inf))


def _playable(state: PoetState) -> Bool[Array, " l"]:
    return jnp.concatenate([state.active, state.parents >= 0])


def _next_turn(state: PoetState, over: Bool[Array, ""]) -> tuple[PoetState, Bool[Array, ""]]:
    """The same place once more, or, if its turn is over, the next; and whether that is the first again."""
    places = jnp.arange(state.active.size)
    later = state.active & (places > state.place)
    all_over = over & ~later.any()
    following = jnp.argmax(jnp.where(later.any(), later, state.active)).astype(jnp.int32)
    place, step = jnp.where(over, following, state.place), jnp.where(over, 0, state.step + 1)
    return eqx.tree_at(lambda s: (s.place, s.step), state, (place, step)), all_over


def _mean_of_active(state: PoetState) -> Float[Array, " p"]:
    """The mean return of every student on the active levels, -inf for empty places. What is not known counts
    as the least that is."""
    returns = state.returns[:, : state.active.size]
    returns = jnp.where(
        jnp.isfinite(returns), returns, jnp.where(jnp.isfinite(returns), returns, jnp.inf).min()
    )
    mean = jnp.where(state.active, returns, 0.0).sum(axis=1) / state.active.sum()
    return jnp.where(state.active, mean, -jnp.inf)


def _mean_returns(outcomes: Outcomes, columns: Int[Array, " n"], levels: int) -> Float[Array, " l"]:
    """The mean return on each of `l` levels over the columns that completed an episode; -inf without any."""
    returns, completed = jnp.where(outcomes.completed, outcomes.mean_return, 0.0), outcomes.completed
    total, number = (jnp.zeros(levels).at[columns].add(value) for value in (returns, completed))
    return jnp.where(number > 0, total / jnp.maximum(number, 1.0), -jnp.inf)


def _copies(tree: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * count), tree)


def _row(tree: PyTree, index: Array) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _with_row(tree: PyTree, index: Array, row: PyTree, when: Bool[Array, ""]) -> PyTree:
    """The tree with another row at the index, where `when`."""
    return jax.tree.map(lambda leaf, new: leaf.at[index].set(jnp.where(when, new, leaf[index])), tree, row)


def _where(condition: Bool[Array, ""], first: PyTree, second: PyTree) -> PyTree:
    return jax.tree.map(lambda one, other: jnp.where(condition, one, other), first, second)


METHODS = (Method("poet", "POET", "#7b2cbf", PoetTeacher(), papers={"wang2019poet": "POET"}),)
