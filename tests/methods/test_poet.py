"""POET: who plays what and when, which levels join, which students move, against a plain version of it."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.racing.dynamics import END_BONUS, LAP_REWARD
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.poet import ADAPT, LEARN, SCOUT, TRY, PoetSource, PoetState, PoetTeacher
from cenie.replay.outcomes import Outcomes
from cenie.settings import SettingsError
from cenie.student.networks.base import Network
from cenie.student.ppo import StudentState
from cenie.student.returns import initial_scale
from cenie.teach.cycle import state_shapes
from tests.tiny import tiny

PAIRS, CHILDREN, TURN, LOWEST, HIGHEST = 4, 6, 2, 25.0, 90.0
SETTINGS = PoetTeacher(
    pairs=PAIRS,
    turn=TURN,
    reproduce_at=60.0,
    children=CHILDREN,
    admitted=1,
    criterion=(LOWEST, HIGHEST),
    neighbours=2,
    archive=40,
)
COLUMNS = 16


class Skill(Network):
    """A student that is one number: the better, the nearer it is to that of a level."""

    skill: jax.Array
    recurrent = False

    def initial_memory(self, count):
        return ()

    def step(self, memory, observation, start):
        raise NotImplementedError

    def sequence(self, memory, observation, start):
        raise NotImplementedError


def student(skill=0.0):
    zero = jnp.zeros((), jnp.int32)
    return StudentState(Skill(jnp.asarray(skill)), (), initial_scale(), zero, zero, zero)


def source(**changes):
    def edit(key, level):
        return {"x": level["x"] + jax.random.uniform(key, minval=-0.4, maxval=0.4), "seed": level["seed"]}

    return PoetSource(
        generate=lambda key: {"x": jnp.zeros(()), "seed": jnp.zeros((), jnp.uint32)},
        edit=edit,
        encode=lambda level: encoding(level["x"]),
        redraw=lambda key, level: {"x": level["x"], "seed": jax.random.bits(key)},
        settings=dataclasses.replace(SETTINGS, **changes),
    )


def encoding(x):
    """A curve: on a line all places between two levels are equally far from both."""
    return jnp.stack([x, x**2])


def novelty(state, x):
    """The mean distance from the two nearest of all that were admitted."""
    archive = np.asarray(state.archive)[: int(state.tally.admitted)]
    return np.sort(np.linalg.norm(archive - np.asarray(encoding(x)), axis=1))[:2].mean()


def return_of(skill, x):
    return 100.0 * (1.0 - 2.0 * np.abs(skill - x))


@dataclasses.dataclass
class Cycle:
    before: PoetState
    player: StudentState
    levels: dict
    columns: np.ndarray
    after: PoetState
    metrics: dict

    @property
    def phase(self):
        return int(self.before.phase)


@functools.cache
def history(cycles=250, columns=COLUMNS, **changes):
    poet = source(**changes)
    propose, learn = jax.jit(poet.propose, static_argnums=2), jax.jit(poet.learn)
    player, taken_back = jax.jit(poet.player), jax.jit(poet.taken_back)
    state, rows = poet.with_student(poet.init(jax.random.key(0)), student()), []
    for step in range(cycles):
        key = jax.random.fold_in(jax.random.key(7), step)
        before, who = state, player(state)
        levels, proposal = propose(state, key, columns)
        x = np.asarray(levels["x"])
        one, nothing = jnp.ones(columns, jnp.int32), jnp.zeros(columns)
        returns = jnp.asarray(return_of(np.asarray(who.network.skill), x), jnp.float32)
        outcomes = Outcomes(one, one, returns, returns, nothing, nothing)
        assert bool(poet.is_learning(state)) == (int(state.phase) in (LEARN, ADAPT))
        if poet.is_learning(state):
            nearer = who.network.skill + 0.1 * (x[0] - who.network.skill)
            who = eqx.tree_at(lambda s: s.network.skill, who, nearer)
        state, metrics = learn(taken_back(state, who), proposal, (outcomes,), key)
        rows.append(Cycle(*jax.device_get((before, who, levels, proposal, state, metrics))))
    return rows


def skills(state):
    return np.asarray(state.students.network.skill)


def x_of(levels):
    return np.asarray(levels["x"])


def judged(rows):
    """The cycles after which the last student has been scouted."""
    return [row for row in rows if row.phase == SCOUT and int(row.after.phase) != SCOUT]


def test_a_population_grows_from_one_pair_until_its_places_are_taken():
    rows = history()
    pairs = [int(row.metrics["pairs"]) for row in rows]
    assert pairs[0] == 1
    assert max(pairs) == PAIRS
    assert pairs == sorted(pairs)
    last = rows[-1].after
    assert int(last.tally.admitted) > PAIRS + 3
    assert np.abs(last.archive[:, 0]).max() > 0.4  # further than one edit goes


def test_rounds_are_turns_of_learning_then_scouting_then_guests():
    rows = history()
    begin = next(i for i, row in enumerate(rows) if row.phase == LEARN and row.before.active.all())
    places = range(PAIRS)
    wanted = [(LEARN, place) for place in places for _ in range(TURN)]
    wanted += [(SCOUT, place) for place in places]
    wanted += [(phase, place) for place in places for phase in (ADAPT, TRY)]
    found = [(row.phase, int(row.before.place)) for row in rows[begin : begin + 2 * len(wanted)]]
    assert found == wanted * 2


def test_who_learns_plays_its_own_level_in_all_columns_and_draws_it_anew():
    for row in history():
        if row.phase == SCOUT:
            continue
        place = int(row.before.place)
        assert set(x_of(row.levels)) == {x_of(row.before.levels)[place]}
        assert len(set(row.levels["seed"])) == COLUMNS


def test_every_student_is_scouted_on_all_levels_and_candidates_with_equal_draws():
    draws = {}
    for row in (row for row in history() if row.phase == SCOUT):
        levels, candidates = x_of(row.before.levels), x_of(row.before.candidates)
        playable = {*levels[row.before.active], *candidates[row.before.parents >= 0]}
        assert set(x_of(row.levels)) == playable
        seeds = draws.setdefault(int(row.before.draws), row.levels["seed"])
        np.testing.assert_array_equal(seeds, row.levels["seed"])
    assert len(draws) > 3


@pytest.mark.parametrize("columns", [3, COLUMNS])
def test_returns_are_those_of_every_student_on_every_level(columns):
    """With fewer columns than levels, a student takes several batches."""
    for row in judged(history(columns=columns, cycles=250 if columns > 3 else 100)):
        active = row.before.active
        expected = return_of(skills(row.before)[:, None], x_of(row.before.levels))
        known = row.before.returns[:, :PAIRS].copy()
        if columns >= PAIRS + CHILDREN:
            known[int(row.before.place)] = expected[int(row.before.place)]
            np.testing.assert_allclose(
                known[np.ix_(active, active)], expected[np.ix_(active, active)], rtol=1e-4
            )
        else:
            others = active & (np.arange(PAIRS) != int(row.before.place))
            np.testing.assert_allclose(
                known[np.ix_(others, active)], expected[np.ix_(others, active)], rtol=1e-4
            )


def plainly_judged(state):
    """The levels and skills after mutation and transfers, and which candidate joined where."""
    levels, own, active = x_of(state.levels).copy(), state.own.copy(), state.active.copy()
    skill, born = skills(state).copy(), state.born.copy()
    candidates = x_of(state.candidates)
    allowed = []
    for number, (x, parent) in enumerate(zip(candidates, state.parents, strict=True)):
        if parent < 0:
            continue
        best = return_of(skill[active], x).max()
        if LOWEST <= return_of(skill[parent], x) <= HIGHEST and LOWEST <= best <= HIGHEST:
            allowed.append((novelty(state, x), number))
    joined = None
    if allowed:
        x = candidates[max(allowed)[1]]
        place = int(np.argmin(active)) if not active.all() else int(np.argmin(born))
        best = max(np.flatnonzero(active), key=lambda who: return_of(skill[who], x))
        levels[place], skill[place], own[place] = x, skill[best], return_of(skill[best], x)
        active[place] = True
        joined = x, place
    before = skill.copy()
    for place in np.flatnonzero(active):
        others = [who for who in np.flatnonzero(active) if who != place]
        if not others:
            continue
        best = max(others, key=lambda who: return_of(before[who], levels[place]))
        result = return_of(before[best], levels[place])
        if result > max(return_of(before[place], levels[place]), own[place]) + 1e-4:
            skill[place] = before[best]
    return levels, skill, active, joined


def test_admission_and_transfers_are_those_of_a_plain_version():
    rows = judged(history())
    joins = 0
    for row in rows:
        levels, skill, active, joined = plainly_judged(row.before)
        np.testing.assert_array_equal(active, row.after.active)
        np.testing.assert_allclose(x_of(row.after.levels)[active], levels[active], rtol=1e-6)
        np.testing.assert_allclose(skills(row.after)[active], skill[active], rtol=1e-4)
        joins += joined is not None
    first, last = rows[0].before.tally, rows[-1].after.tally
    assert last.admitted - first.admitted == joins > PAIRS
    assert last.transfers > 0
    assert last.too_hard + last.too_easy > 0


def test_only_levels_inside_the_minimal_criterion_join():
    """Not those that a parent's student already masters, nor those on which it is lost."""
    nothing_fits = history(cycles=40, criterion=(101.0, 102.0))[-1].after
    assert int(nothing_fits.tally.admitted) == 1
    assert int(nothing_fits.tally.too_hard) > CHILDREN
    all_too_easy = history(cycles=40, criterion=(-900.0, -800.0))[-1].after
    assert int(all_too_easy.tally.admitted) == 1
    assert int(all_too_easy.tally.too_easy) > CHILDREN


def test_the_most_novel_candidate_joins_first():
    for row in judged(history(cycles=120, admitted=2)):
        new = x_of(row.after.levels)[row.after.born >= int(row.before.tally.admitted)]
        waiting = set(x_of(row.before.candidates)[row.before.parents >= 0]) - set(new)
        parents = dict(zip(x_of(row.before.candidates), row.before.parents, strict=True))
        skill = skills(row.before)
        fitting = [
            x
            for x in waiting
            if return_of(skill[row.before.active], x).max() <= HIGHEST
            and LOWEST <= return_of(skill[parents[x]], x) <= HIGHEST
        ]
        if len(new) and fitting:
            assert min(novelty(row.before, x) for x in new) >= max(novelty(row.before, x) for x in fitting)


def test_the_oldest_pair_leaves_for_the_next():
    for row in judged(history()):
        if row.before.active.all() and int(row.after.tally.admitted) > int(row.before.tally.admitted):
            (place,) = np.flatnonzero(row.after.born != row.before.born)
            assert row.before.born[place] == row.before.born.min()
            assert row.after.born[place] == int(row.before.tally.admitted)


def test_a_level_that_is_in_the_archive_does_not_join_again():
    poet = dataclasses.replace(source(criterion=(-1e6, 1e6)), edit=lambda key, level: level)
    state = poet.with_student(poet.init(jax.random.key(0)), student())
    full = eqx.tree_at(
        lambda s: (s.parents, s.returns), state, (0 * state.parents, jnp.zeros_like(state.returns))
    )
    assert int(poet._admitted(full).tally.admitted) == 1
    moved = eqx.tree_at(lambda s: s.candidates["x"], full, full.candidates["x"] + 0.5)
    assert int(poet._admitted(moved).tally.admitted) == 2


def test_a_guest_stays_exactly_if_it_is_better_after_its_update():
    rows = [row for row in history() if row.phase in (ADAPT, TRY)]
    stayed = []
    for adapt, attempt in zip(rows[::2], rows[1::2], strict=False):
        place = int(adapt.before.place)
        x = x_of(adapt.before.levels)[place]
        others = [who for who in np.flatnonzero(adapt.before.active) if who != place]
        assert skills(adapt.before)[place] == skills(adapt.after)[place]
        best = max(others, key=lambda who: adapt.before.returns[who, place])
        learned = skills(adapt.before)[best] + 0.1 * (x - skills(adapt.before)[best])
        assert attempt.player.network.skill == pytest.approx(learned, rel=1e-5)
        to_beat = max(adapt.before.returns[place, place], adapt.before.own[place])
        better = return_of(learned, x) > to_beat + 1e-4
        stayed.append(better)
        expected = learned if better else skills(attempt.before)[place]
        assert skills(attempt.after)[place] == pytest.approx(expected, rel=1e-5)
    assert any(stayed)
    assert not all(stayed)
    assert sum(stayed) == int(rows[-1].after.tally.proposals)


def test_a_child_is_tried_after_an_update_of_its_best_student_on_it():
    """As in the original, where that decides about admission too. The guest is the one that was copied."""
    rows, tried = history(), 0
    for index, row in enumerate(rows):
        admitted = int(row.after.tally.admitted) > int(row.before.tally.admitted)
        if not (admitted and row.after.active.sum() > 1):
            continue
        child = int(np.argmax(row.after.born))
        following = rows[index + 1 :]
        guest = next((r for r in following if r.phase == ADAPT and int(r.before.place) == child), None)
        if guest is None:
            continue
        # The parent's generation of the oldest pair may have left for the child.
        copied = skills(row.after)[child] == np.delete(skills(row.after), child)
        if not copied.any():
            continue
        tried += 1
        x = x_of(guest.levels)[0]
        assert return_of(guest.player.network.skill, x) >= return_of(skills(row.after)[child], x) - 1e-3
    assert tried > 3


def test_without_proposals_nobody_adapts():
    assert {row.phase for row in history(cycles=100, proposals=False)} == {LEARN, SCOUT}


def test_the_student_that_does_best_on_all_levels_is_evaluated():
    for row in judged(history()):
        state, active = row.after, row.after.active
        means = return_of(skills(state)[:, None], x_of(state.levels)[active]).mean(axis=1)
        best = skills(state)[active][np.argmax(means[active])]
        assert skills(state)[int(state.champion)] == pytest.approx(best, rel=1e-5)


def test_learning_rates_follow_the_updates_of_the_whole_population():
    updates = 0
    for row in history():
        assert int(row.player.updates) == updates
        updates += row.phase in (LEARN, ADAPT)


def test_a_level_without_a_completed_episode_is_outside_of_every_criterion():
    poet = source(criterion=(-1e6, 1e6), reproduce_at=-1e9)
    state = poet.with_student(poet.init(jax.random.key(0)), student())
    nothing = jnp.zeros(COLUMNS)
    none = jnp.zeros(COLUMNS, jnp.int32)
    unfinished = (Outcomes(none, none, nothing, nothing - jnp.inf, nothing, nothing),)
    for _ in range(10):
        _, proposal = poet.propose(state, jax.random.key(1), COLUMNS)
        state, _ = poet.learn(state, proposal, unfinished, jax.random.key(1))
    assert int(state.tally.admitted) == 1


@pytest.mark.parametrize(("stairs", "numbers"), [(True, 8), (False, 5)])
def test_walkers_are_compared_by_their_parameters(stairs, numbers):
    _, setup = build(tiny("poet", "walker", env__stairs=stairs))
    assert state_shapes(setup).teacher.source.archive.shape == (8, numbers)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"teacher.criterion": (1.0, 0.5)}, r"teacher.criterion: the first must be below the second"),
        ({"teacher.admitted": 9}, r"teacher.admitted: must not exceed children \(8\), got 9"),
        ({"teacher.archive": 2}, r"teacher.archive: must be at least pairs"),
        ({"teacher.generator": "hard"}, r"teacher.generator: must be one of random, simple"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    with pytest.raises(SettingsError, match=reason):
        preset("walker", "poet", "quick", settings)


@pytest.mark.parametrize("name", ["quick", "paper", "dcd"])
@pytest.mark.parametrize("domain", ["maze", "walker", "racing"])
def test_growth_does_not_stop_where_students_are_good(domain, name):
    """Cars had the bounds of walkers, where 340 is more than any return; a lap of theirs is worth 1,000."""
    teacher = preset(domain, "poet", name).teacher
    lowest, highest = teacher.criterion
    good = {"maze": 0.9, "walker": 330.0, "racing": LAP_REWARD + END_BONUS}[domain]
    assert lowest < teacher.reproduce_at < good <= highest


@pytest.mark.parametrize("given", [(), ("reproduce_at",), ("criterion",)])
def test_a_domain_that_says_nothing_of_returns_is_refused(given):
    domain, _ = build(tiny("poet", "walker"))
    missing = {"reproduce_at", "criterion"} - {*given}
    settings = dataclasses.replace(SETTINGS, **dict.fromkeys(missing))
    with pytest.raises(SettingsError) as error:
        settings.curriculum(domain)
    assert {problem.path for problem in error.value.problems} == {f"teacher.{name}" for name in missing}


def test_a_domain_without_encodings_is_refused():
    domain, _ = build(tiny("poet", "walker"))
    blind = dataclasses.replace(domain, parameters=None, encoding=None)
    with pytest.raises(SettingsError, match="poet compares encodings"):
        SETTINGS.curriculum(blind)
