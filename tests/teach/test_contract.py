"""What every method must keep, whatever it is: run over the whole table of methods, in every domain."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.domains import DOMAINS
from cenie.experiment.build import build, place
from cenie.methods.paired import DesignerSource
from cenie.methods.table import METHODS
from cenie.replay.play import EDIT, NEW, REPLAY
from cenie.rundir.checkpoint import digest
from cenie.teach.cycle import TrainState, init, state_shapes
from cenie.teach.recording import PointSample
from cenie.teach.source import PopulationSource
from tests.kept import programs
from tests.teach import golden
from tests.teach.compilation import AS_USERS_COMPILE_IT
from tests.teach.exchanges import exchanges, exchanges_in_loops
from tests.tiny import tiny

CYCLES = 12
MANY_UPDATES = 1000
MAY_BE_NAN = (
    "student/",
    "student1/",
    "teacher/source/",
    "teacher/fit/scores/",
    *(f"teacher/novelty_{name}_correlation" for name in ("regret", "age", "outdated")),
)
"""Metrics of what did not happen or does not exist: an update of a student or a source, a mixture, a
correlation of equal scores."""


@contextlib.contextmanager
def count_compilations(on_compilation: Callable[[], None]) -> Iterator[None]:
    """Calls back for every program that is compiled (or fetched from the compilation cache)."""

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            on_compilation()

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class Played:
    """A few single cycles of a method, with the state after each."""

    def __init__(self, method: str, domain: str = "maze"):
        self.method, self.domain = method, domain
        self.setup, self.advance = programs(tiny(method, domain))
        self.states: list[TrainState] = [place(self.setup, init(self.setup, 3))]
        self.rows: list[dict[str, np.ndarray]] = []
        self.levels: list[dict[str, np.ndarray]] = []
        self.points: list[PointSample | None] = []
        self.compiled: list[int] = []
        for cycle in range(CYCLES):
            with count_compilations(functools.partial(self.compiled.append, cycle)):
                state, _, metrics, record = self.advance(self.states[-1], updates=MANY_UPDATES)
            self.states.append(state)
            self.rows.append({name: np.asarray(values)[0] for name, values in metrics.items()})
            self.levels.append({name: np.asarray(values)[0, 0] for name, values in record.levels.items()})
            self.points.append(record.points)

    @property
    def kinds(self) -> list[int]:
        return [int(row["teacher/kind"]) for row in self.rows]

    def learned(self, cycle: int) -> bool:
        before, after = (int(state.counters.updates) for state in self.states[cycle : cycle + 2])
        return after > before


def chosen(domain: str, method: str) -> Any:
    """The daggers differ from their methods by one number, `plr-learnability` by the score, `minimax` from
    `paired` by what it leaves out, and most novelties do with PLR-perp what they do with ACCEL, where they
    meet edits too. Other domains than the maze compile for long, so that one method of all parts must do for
    them; `make test-all` runs the rest."""
    like_others = ("diplr", "plr-poet", "plr-epoet")
    twin = method.endswith(("dagger", "learnability", "minimax")) or method in like_others
    often = method == "accel-cenie" or (domain == "maze" and not twin)
    return pytest.param(domain, method, id=f"{domain}-{method}", marks=() if often else pytest.mark.slow)


CHOSEN = [chosen(domain, method) for domain in DOMAINS for method in sorted(METHODS)]


@pytest.fixture(scope="module", params=[pytest.param(p.values, id=p.id, marks=p.marks) for p in CHOSEN])
def played(request: pytest.FixtureRequest) -> Played:
    domain, method = request.param
    return Played(method, domain)


def test_golden_micro_run(played: Played):
    """The curriculum of a dozen cycles, step by step, as it was when the figures were stored."""
    if played.domain != "maze":
        pytest.skip("figures are stored for mazes only")
    stored = json.loads(golden.PATH.read_text())[played.method]
    found = golden.figures(played.rows)
    assert found.keys() == stored.keys()
    for name, column in stored.items():
        for cycle, (expected, value) in enumerate(zip(column, found[name], strict=True)):
            close = expected if expected is None else pytest.approx(expected, rel=1e-3, abs=1e-4)
            assert value == close, (name, cycle)


def test_state_keeps_its_structure_shapes_and_types(played: Played):
    def describe(state: TrainState):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)

    assert describe(played.states[0]) == describe(played.states[-1])


def test_cycles_are_compiled_once(played: Played):
    """The compiler once chose another placement for the results, and compiled again for the second call."""
    assert set(played.compiled) == {0}


def texts_of_programs(played: Played) -> list[str]:
    """The parts of a cycle, as they were compiled."""
    return [part.compiled.as_text() or "" for part in played.advance.programs(played.states[0]).values()]


def test_no_device_asks_another_whether_a_loop_goes_on(played: Played):
    """Two such loops, in the statistics and in the look-up of known levels, once stopped a run for ever."""
    if played.setup.mesh is None:
        pytest.skip("the tiny run of this method has one device")
    texts = texts_of_programs(played)
    assert any(map(exchanges, texts))
    with_loops = [text for text in texts if "condition=" in text]
    assert with_loops
    assert [line for text in with_loops for line in exchanges_in_loops(text, "condition")] == []


def test_devices_exchange_nothing_in_loops_but_gradients(played: Played):
    """The memory of a student once went around at every step of a rollout, while another student learned."""
    if played.setup.mesh is None:
        pytest.skip("the tiny run of this method has one device")
    texts = texts_of_programs(played)
    with_loops = [text for text in texts if "condition=" in text]
    found = [line for text in with_loops for line in exchanges_in_loops(text, "body")]
    assert len(found) == played.setup.curriculum.students
    assert all("jit(learn)" in line and "psum" in line for line in found)


@pytest.mark.parametrize(("domain", "method"), CHOSEN)
def test_no_leaf_of_a_new_state_is_weakly_typed(domain: str, method: str):
    """Three to five were: made of Python numbers, and so of another type than what a checkpoint holds."""
    _, setup = build(tiny(method, domain))
    named = jax.tree_util.tree_leaves_with_path(state_shapes(setup))
    assert [jax.tree_util.keystr(path) for path, leaf in named if leaf.weak_type] == []


def test_a_cycle_returns_exactly_the_types_it_was_given(played: Played):
    """And the placement of each array; the mesh in its abstract value is lost where a module was exported."""

    def types(state: TrainState):
        return jax.tree.map(
            lambda leaf: (leaf.shape, leaf.dtype, leaf.aval.weak_type, leaf.sharding, leaf.committed), state
        )

    assert types(played.states[0]) == types(played.states[1]) == types(played.states[-1])


def test_a_resumed_run_does_not_compile_the_cycle_again(played: Played):
    """The state takes the way of a checkpoint: to the host as NumPy arrays, and back to the devices."""
    key = played.states[0].key
    arrays = jax.device_get(eqx.tree_at(lambda s: s.key, played.states[0], jax.random.key_data(key)))
    restored = eqx.tree_at(lambda s: s.key, arrays, jax.random.wrap_key_data(jnp.asarray(arrays.key)))
    compiled: list[int] = []
    placed = place(played.setup, restored)
    played.advance(played.states[0], updates=MANY_UPDATES)  # its program may have been forgotten meanwhile
    with count_compilations(lambda: compiled.append(1)):
        state, _, _, _ = played.advance(placed, updates=MANY_UPDATES)
    assert compiled == []
    assert digest(state) == digest(played.states[1])


def test_student_changes_exactly_in_the_cycles_that_learn(played: Played):
    if isinstance(played.setup.curriculum.source, PopulationSource):
        pytest.skip("which student is evaluated may change in any cycle: test_population.py")
    for cycle in range(CYCLES):
        before, after = (digest(state.student) for state in played.states[cycle : cycle + 2])
        assert (before != after) == played.learned(cycle)


def test_student_metrics_are_measured_exactly_in_the_cycles_that_learn(played: Played):
    for cycle, row in enumerate(played.rows):
        assert np.isfinite(row["student/loss"]) == played.learned(cycle)
        assert all(np.isfinite(value) for name, value in row.items() if not name.startswith(MAY_BE_NAN))


def test_counters_count(played: Played):
    last = played.states[-1].counters
    assert int(last.cycles) == CYCLES
    assert int(last.rollouts) == CYCLES * played.setup.curriculum.students
    assert int(last.updates) == sum(played.learned(cycle) for cycle in range(CYCLES)) > 0


@pytest.fixture
def chunked(played: Played, request: pytest.FixtureRequest) -> Played:
    """Chunks are a matter of `cycles`, not of the method: one that edits too will do, unless all run."""
    usual = played.domain == "maze" and played.method == "accel"
    if not usual and request.config.getoption("markexpr"):
        pytest.skip("compiles the method once more: make test-all")
    return played


@functools.cache
def optimised(played: Played) -> tuple[Callable[..., Any], list[TrainState], list[Any]]:
    """Cycles as users compile them; and the states and solved rates of single ones."""
    _, advance = programs(tiny(played.method, played.domain), AS_USERS_COMPILE_IT)
    states, solved = [played.states[0]], []
    for _ in range(CYCLES):
        state, _, metrics, _ = advance(states[-1], updates=MANY_UPDATES)
        states.append(state)
        solved.append(metrics["solved"][0])
    return advance, states, solved


def test_a_chunk_of_cycles_equals_single_cycles_bit_for_bit(chunked: Played):
    advance, states, solved = optimised(chunked)
    state, _, metrics, _ = advance(states[0], updates=MANY_UPDATES, count=CYCLES)
    assert digest(state) == digest(states[-1])
    np.testing.assert_array_equal(metrics["solved"], solved)


def test_cycles_stop_at_the_number_of_updates(chunked: Played):
    advance, states, _ = optimised(chunked)
    enough = 2
    state, history, _, _ = advance(states[0], updates=enough, count=CYCLES)
    reached = next(c for c in range(CYCLES + 1) if int(states[c].counters.updates) == enough)
    assert digest(state) == digest(states[reached])
    assert int(history.cycles[-1]) == reached


def test_the_levels_of_a_cycle_are_recorded_one_by_one(played: Played):
    """They add up to the metrics of the cycle, which are counted without them."""
    columns = {"kind", "id", "parent", "generation", "episodes", "solved", "return", "length"}
    columns |= {name for name in played.rows[0] if name.startswith("level/")}
    curriculum = played.setup.curriculum
    columns |= set() if curriculum.replay is None else set(curriculum.columns)
    for row, levels in zip(played.rows, played.levels, strict=True):
        assert levels.keys() == columns
        assert {column.shape for column in levels.values()} == {(4,)}
        assert set(levels["kind"]) == {row["teacher/kind"]}
        assert levels["episodes"].sum() == row["episodes"] > 0
        for name in ("solved", "return", "length"):
            total = np.nansum(levels[name] * levels["episodes"])
            assert total / levels["episodes"].sum() == pytest.approx(row[name], rel=1e-5, abs=1e-6)
        for name in (name for name in columns if name.startswith("level/")):
            assert levels[name].mean() == pytest.approx(row[name], rel=1e-6)


def test_recorded_lineage_and_scores_are_those_of_the_buffer(played: Played):
    curriculum = played.setup.curriculum
    if curriculum.replay is None:
        assert all((levels["id"] == -1).all() for levels in played.levels)
        return
    born: dict[int, tuple[int, int]] = {}
    for cycle, levels in enumerate(played.levels):
        buffer = jax.device_get(played.states[cycle + 1].teacher.buffer)
        stored = {int(id): slot for slot, id in enumerate(buffer.ids[: buffer.size])}
        for id, parent, generation in zip(levels["id"], levels["parent"], levels["generation"], strict=True):
            if id < 0:
                assert played.kinds[cycle] != REPLAY
                continue
            # A level may also be edited into one that is stored already: the first play made the lineage.
            born.setdefault(int(id), (int(parent), int(generation)))
            assert born[int(id)] == (buffer.parents[stored[int(id)]], buffer.generations[stored[int(id)]])
            assert (parent >= 0) == (generation > 0)
        alone = {int(id) for id in levels["id"] if id >= 0 and (levels["id"] == id).sum() == 1}
        for row, id in enumerate(levels["id"]):
            # A correction may add to the score of a level once it is stored.
            if curriculum.replay.correction is None and id in alone and np.isfinite(levels["regret"][row]):
                assert levels["regret"][row] == buffer.scores[stored[int(id)], 0]
    assert len(born) >= 4
    assert all(parent < id for id, (parent, _) in born.items())


def test_points_are_sampled_for_every_method_from_what_was_played(played: Played):
    # Memory and one-hot action of the small maze student; what the walker sees, and its torques; what the
    # convolution of the small racing student makes of its frames (3 x 3 of four channels), and its action.
    width = {"maze": 8 + 3, "walker": 24 + 4, "racing": 36 + 3}[played.domain]
    for cycle, points in enumerate(played.points):
        assert points is not None
        assert points.values.shape == (512, width)
        assert np.isfinite(np.asarray(points.values)).all()
        assert set(np.asarray(points.cycle)) == {cycle + 1}
        assert set(np.asarray(points.kind)) == {played.kinds[cycle]}
        places = {*zip(np.asarray(points.level).tolist(), np.asarray(points.step).tolist(), strict=True)}
        # Of 64 places each is missed once in 3,000 times.
        assert places <= {(level, step) for level in range(4) for step in range(16)}
        assert len(places) > 60
        if played.domain == "maze":
            np.testing.assert_array_equal(np.asarray(points.values[:, 8:]).sum(axis=1), 1.0)


def test_a_chunk_samples_all_its_cycles_alike(chunked: Played):
    played = chunked
    _, _, _, record = played.advance(played.states[0], updates=MANY_UPDATES, count=CYCLES)
    for name, column in record.levels.items():
        np.testing.assert_array_equal(column[:, 0], [levels[name] for levels in played.levels])
    assert record.points is not None
    shares = np.bincount(np.asarray(record.points.cycle), minlength=CYCLES + 1)[1:]
    # 512 / 12 points of each; five standard deviations on either side.
    assert shares.min() > 10
    assert shares.max() < 76


def test_another_seed_plays_other_levels(played: Played):
    other, _, metrics, _ = played.advance(place(played.setup, init(played.setup, 4)), updates=MANY_UPDATES)
    assert digest(other.teacher) != digest(played.states[1].teacher) or any(
        float(values[0]) != float(played.rows[0][name])
        for name, values in metrics.items()
        if name.startswith("level/")
    )


def test_learning_follows_the_kind_of_level(played: Played):
    curriculum = played.setup.curriculum
    for cycle, kind in enumerate(played.kinds):
        learns_on_new = bool(curriculum.learns_on_new(played.states[cycle].teacher.source))
        assert played.learned(cycle) == {NEW: learns_on_new, REPLAY: True, EDIT: False}[kind]


def test_a_source_learns_from_new_levels_only(played: Played):
    """A designer must not be paid for levels that it did not make in this cycle."""
    for cycle, kind in enumerate(played.kinds):
        before, after = (digest(state.teacher.source) for state in played.states[cycle : cycle + 2])
        assert kind == NEW or before == after
        if isinstance(played.setup.curriculum.source, DesignerSource):
            assert (kind == NEW) == (before != after)


def test_edits_follow_replays_and_only_in_methods_that_edit(played: Played):
    editing = played.setup.curriculum.editing
    if editing is None:
        assert EDIT not in played.kinds
    else:
        assert EDIT in played.kinds
        followers = [after for before, after in zip(played.kinds, played.kinds[1:]) if before == REPLAY]
        assert set(followers) == {EDIT}
        assert all(before == REPLAY for before, after in zip(played.kinds, played.kinds[1:]) if after == EDIT)


def test_buffer_fills_with_valid_levels_and_finite_scores(played: Played):
    buffer = played.states[-1].teacher.buffer
    if played.setup.curriculum.replay is None:
        assert buffer is None
        return
    assert buffer is not None
    size = int(buffer.size)
    assert size == int(played.rows[-1]["teacher/buffer_size"]) > 0
    assert np.isfinite(np.asarray(buffer.scores)).all()
    assert len(set(np.asarray(buffer.ids)[:size].tolist())) == size
