"""Levels are ranked by any number of scores, each under its own name and with its own weight."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cenie
from cenie import settings
from cenie.command.configs import typed
from cenie.experiment.build import build, place
from cenie.experiment.presets import preset
from cenie.replay import buffer as buffers
from cenie.replay import weight
from cenie.replay.columns import NOVELTY, name_problem, parse_weighted, score_columns
from cenie.replay.config import Adaptive, Constant, PriorityConfig, ReplayConfig
from cenie.replay.scores import SCORES, Score
from cenie.replay.weight import WeightState
from cenie.rundir.checkpoint import digest
from cenie.rundir.levels import LevelTable, read_levels
from cenie.teach import teacher
from cenie.teach.curriculum import Column, Curriculum, Replay
from cenie.teach.cycle import init
from cenie.teach.novelty import Novelty
from cenie.teach.source import RandomSource
from cenie.xla.parts import CompiledCycles
from tests.tiny import tiny
from tests.unchecked import unchecked

PLAIN = unchecked("cenie.experiment.build")
CYCLES = 12


def surprise(inputs):
    return cenie.episode_mean(inputs, jnp.abs(inputs.advantages.error))


def played(config, parts=None, cycles=CYCLES):
    """The state after some cycles, and the last row of the log."""
    _, setup = build(config, parts)
    state, log = place(setup, init(setup, 3)), {}
    advance = CompiledCycles(setup, 1)
    for _ in range(cycles):
        state, _, metrics, record = advance(state, updates=1000)
        log = {name: np.asarray(values)[0] for name, values in metrics.items()}
        log |= {f"levels/{name}": np.asarray(values)[0, 0] for name, values in record.levels.items()}
    return state, log


def ranked_alone(scores, ids, temperature):
    """P_k of one column: rank ** (-1 / temperature), normalised."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], ids[i]))
    weights = np.empty(len(scores))
    for rank, place_of in enumerate(order, 1):
        weights[place_of] = rank ** (-1.0 / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("alpha", [None, 0.0, 0.3, 1.0])
def test_any_number_of_scores_share_what_novelty_leaves(alpha):
    """P = (1 - rho) sum_k w_k P_k + rho P_staleness, written out in NumPy."""
    rng, count, rho, beta = np.random.default_rng(0), 7, 0.4, 0.5
    raw = {"mine": 3.0, "pvl": 1.0, "only-recorded": 0.0}
    columns = tuple(Column(name, SCORES["pvl"], value) for name, value in raw.items())
    config = ReplayConfig(capacity=count, priority=PriorityConfig(temperature=beta, staleness_coef=rho))
    novelty = None if alpha is None else NoNovelty()
    curriculum = Curriculum(
        RandomSource(lambda key: jnp.int32(0)),
        False,
        Replay(config, columns),
        novelty=novelty,
        alpha=Constant(value=alpha or 0.0),
    )
    names = ("mine", "pvl", "only-recorded", *(() if alpha is None else (NOVELTY,)))
    assert curriculum.columns == names
    scores = rng.normal(size=(count, len(names))).astype(np.float32)
    last_played, clock, ids = rng.integers(0, 20, count), 20, np.arange(count)
    state = teacher.init(curriculum, 2, jax.random.key(0))
    mix = np.asarray(teacher.current_mix(curriculum, state))
    shares = np.array([0.75, 0.25, 0.0])
    expected_mix = shares if alpha is None else np.append((1 - alpha) * shares, alpha)
    np.testing.assert_allclose(mix, expected_mix, rtol=1e-6)
    buffer = dataclasses.replace(
        state.buffers[0],
        scores=jnp.asarray(scores),
        ids=jnp.asarray(ids, jnp.int32),
        last_played=jnp.asarray(last_played, jnp.int32),
        clock=jnp.int32(clock),
        size=jnp.int32(count),
    )
    found = buffers.probabilities(buffer, jnp.asarray(mix), config.priority)
    stale = (clock - last_played) / (clock - last_played).sum()
    by_scores = sum(w * ranked_alone(column, ids, beta) for w, column in zip(expected_mix, scores.T))
    np.testing.assert_allclose(found, (1 - rho) * by_scores + rho * stale, rtol=2e-6)


class NoNovelty:
    """A novelty that says nothing."""

    def init(self, points_shape):
        return ()

    def score(self, state, play, buffer):
        return jnp.zeros(play.points.values.shape[0])

    learn = rescore = metrics = score


assert isinstance(NoNovelty(), Novelty)


@pytest.fixture(scope="module")
def alone():
    return played(tiny("accel"))


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ({"one": "pvl", "same": "pvl"}, {"one": 0.5, "same": 0.5}),
        ({"regret": "pvl", "surprise": surprise}, {"regret": 1.0, "surprise": 0.0}),
    ],
    ids=["halves of one score", "a score that is only recorded"],
)
def test_scores_that_add_nothing_change_nothing(alone, scores, weights):
    """The student, the source and what is stored have the bits of the run with one score."""
    state, log = played(tiny("accel"), cenie.Parts(scores=scores, weights=weights))
    before, after = alone[0].teacher.buffer, state.teacher.buffer
    assert after.columns == tuple(scores)
    np.testing.assert_array_equal(after.scores[:, 0], before.scores[:, 0])
    assert digest(state.students) == digest(alone[0].students)
    for name in ("levels", "ids", "last_played", "parents", "size", "clock"):
        assert digest(getattr(after, name)) == digest(getattr(before, name)), name
    assert {f"teacher/{name}" for name in scores} <= log.keys()


def test_two_scores_and_novelty_rank_together_and_are_all_logged():
    """Each kept its own name; an adaptive weight of novelty, edits and a recorded score are there too."""
    changes = {"teacher.alpha.kind": "adaptive", "teacher.edit.parents": "easy"}
    config = settings.replace(tiny("accel-cenie"), changes)
    parts = cenie.Parts(scores={"surprise": surprise, "maxmc": "maxmc"})
    state, log = played(config, parts)
    buffer = state.teacher.buffer
    assert buffer.columns == ("surprise", "maxmc", "novelty")
    for name in buffer.columns:
        assert {f"teacher/{name}", f"teacher/{name}_weighted", f"teacher/{name}_total"} <= log.keys()
        assert f"levels/{name}" in log
    correlations = {name for name in log if "_correlation" in name}
    assert correlations == {
        f"teacher/novelty_{other}_correlation" for other in ("surprise", "maxmc", "age", "outdated")
    }
    assert not any("regret" in name for name in log)
    alpha = float(log["teacher/alpha"])
    mix = teacher.current_mix(build(config, parts)[1].curriculum, state.teacher)
    np.testing.assert_allclose(mix, [(1 - alpha) / 2, (1 - alpha) / 2, alpha], rtol=1e-5)


def test_a_correction_is_added_to_the_leading_score():
    parts = cenie.Parts(scores={"first": "pvl", "second": "pvl"}, weights={"first": 1.0, "second": 0.0})
    one, _ = played(tiny("traced"))
    two, _ = played(tiny("traced"), parts)
    found, expected = two.teacher.buffer, one.teacher.buffer
    np.testing.assert_array_equal(found.column("first"), expected.column("regret"))
    assert float(jnp.abs(found.column("first") - found.column("second")).max()) > 0
    assert digest(two.students) == digest(one.students)


def test_the_adaptive_weight_compares_novelty_with_the_mix_of_the_scores():
    """Level 0 is what the scores together would draw, though the second one alone would not."""
    example = jax.ShapeDtypeStruct((), jnp.int32)
    buffer = buffers.init(example, 3, ("a", "b", NOVELTY))
    scores = jnp.array([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0], [0.0, 9.0, 0.0]])
    buffer = dataclasses.replace(buffer, scores=scores, size=jnp.int32(3), ids=jnp.arange(3))

    def moved(shares):
        return float(
            weight.adapt(
                Adaptive(rate=0.1),
                PriorityConfig(temperature=0.1),
                WeightState(jnp.int32(0), jnp.float32(0.0)),
                buffer=buffer,
                shares=jnp.array(shares),
                replayed=jnp.asarray(True),
                slots=jnp.array([0, 1]),
                change=jnp.array([1.0, 1.0]),
            ).log_odds
        )

    assert moved([1.0, 0.0]) == pytest.approx(0.0, abs=1e-3)
    assert moved([0.0, 1.0]) == pytest.approx(0.05, rel=0.01)


def test_scores_of_one_name_are_replaced_together():
    buffer = buffers.init(jax.ShapeDtypeStruct((), jnp.int32), 2, ("a", "b"))
    changed = buffer.with_column("b", jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(changed.scores, [[0.0, 1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(changed.column("b"), [1.0, 2.0])


def test_scores_of_the_settings_have_weights():
    config = tiny("plr-robust", teacher__scores=["maxmc:0.75", "learnability:0.25"])
    _, setup = build(config)
    replay = setup.curriculum.replay
    assert replay is not None
    assert [(each.name, each.score.name) for each in replay.scores] == [
        ("maxmc", "maxmc"),
        ("learnability", "learnability"),
    ]
    assert replay.shares == (0.75, 0.25)
    assert parse_weighted("td") == ("td", 1.0)
    options = {"teacher.scores": "maxmc:0.75,learnability:0.25"}
    assert typed("maze", "plr-robust", options) == {"teacher.scores": ["maxmc:0.75", "learnability:0.25"]}
    # One score that the settings name is called regret, as ever.
    assert build(tiny("plr-robust"))[1].curriculum.columns == ("regret",)


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (["maxmc:0.5", "mine:0.5"], "must be of pvl, .*, got 'mine:0.5'"),
        (["maxmc:much"], "must be NAME or NAME:WEIGHT: the weight must be a number of at least 0"),
        (["maxmc:-1", "td"], "the weight must be a number of at least 0"),
        (["maxmc:nan", "td"], "the weight must be a number of at least 0"),
        (["maxmc", "maxmc:2"], "names a score twice"),
        (["maxmc:0"], "needs a weight above 0"),
    ],
)
def test_wrong_scores_in_settings_are_refused(scores, says):
    with pytest.raises(cenie.SettingsError, match=f"teacher.scores: .*{says}"):
        preset("maze", "plr-robust", overrides={"teacher.scores": scores})


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"scores": {}}, "scores: needs at least one score"),
        ({"scores": {"return": "pvl"}}, "scores.return: is the name of something else"),
        ({"scores": {"novelty": "pvl"}}, "scores.novelty: is the name of something else"),
        ({"scores": {"a_weighted": "pvl"}}, "scores.a_weighted: is the name of something else"),
        ({"scores": {"a,b": "pvl"}}, "scores.a,b: must begin with a letter"),
        ({"score": Score("level/x", surprise)}, "scores.level/x: must begin with a letter"),
        ({"scores": {"a": "pvll"}}, "scores.a: must be one of pvl, "),
        ({"scores": {"a": 3}}, "scores.a: must be one of pvl, "),
        ({"scores": ["pvl"]}, "scores: must be a dict by the names of scores"),
        (
            {"scores": {"a": "pvl"}, "weights": {"b": 1.0}},
            "weights.b: is no name of a score\nweights.a: is missing",
        ),
        ({"scores": {"a": "pvl"}, "weights": {"a": -1.0}}, "weights.a: must be a number of at least 0"),
        ({"scores": {"a": "pvl"}, "weights": {"a": 0.0}}, "weights: one must be above 0"),
        ({"weights": {"a": 0.0}}, "weights: need scores"),
        ({"scores": {"a": "pvl"}, "score": SCORES["pvl"]}, "scores: are there beside score"),
    ],
)
def test_wrong_scores_from_python_are_refused(parts, says):
    with pytest.raises(cenie.SettingsError) as refused:
        PLAIN.Parts(**parts)
    assert says in str(refused.value)


def test_parts_say_in_words_which_scores_they_have():
    parts = cenie.Parts(scores={"regret": "pvl", "own": surprise}, weights={"regret": 1.0, "own": 2.5})
    assert parts.names == ("scores regret: pvl, own: surprise", "weights regret: 1.0, own: 2.5")
    with pytest.raises(cenie.SettingsError, match="scores: is of no use to dr, which replays no levels"):
        build(tiny("dr"), parts)


def test_columns_of_a_curriculum_made_by_hand_are_checked():
    with pytest.raises(ValueError, match="the name of a score is the name of something else"):
        Column("probability", SCORES["pvl"])
    with pytest.raises(ValueError, match="the weight of a score must be a number"):
        Column("a", SCORES["pvl"], float("inf"))
    twice = (Column("a", SCORES["pvl"]), Column("a", SCORES["td"]))
    with pytest.raises(ValueError, match="scores of different names"):
        Replay(ReplayConfig(), twice)
    with pytest.raises(ValueError, match="a weight above 0"):
        Replay(ReplayConfig(), (Column("a", SCORES["pvl"], 0.0),))


def test_tables_have_scores_under_their_own_names(tmp_path):
    columns = ("level/walls", "novelty", "surprise", "kind", "length", "a")
    numbers = {name: np.zeros((1, 1, 2), int if name == "kind" else float) for name in columns}
    LevelTable(tmp_path / "levels.csv").write([1], numbers)
    header, *_ = (tmp_path / "levels.csv").read_text().splitlines()
    assert header == "cycle,student,index,kind,novelty,length,a,surprise,level/walls"
    names = [name for name in read_levels(tmp_path / "levels.csv") if name in score_columns(columns)]
    assert names == ["novelty", "a", "surprise"]


def test_a_score_of_another_shape_is_named():
    """One number for each step, and not for each level, failed within JAX."""
    parts = cenie.Parts(scores={"steps": lambda inputs: inputs.rollout.reward})
    with pytest.raises(ValueError, match="the score steps must give one number for each of the 4 levels"):
        played(tiny("plr-robust"), parts, cycles=1)


def test_every_name_that_is_logged_or_stored_beside_the_scores_is_taken():
    for method in ("accel-cenie", "diplr", "traced"):
        _, log = played(tiny(method), cycles=1)
        stored = {name.removeprefix("levels/") for name in log if name.startswith("levels/")}
        logged = {name.removeprefix("teacher/") for name in log if name.startswith("teacher/")}
        assert [name for name in sorted(stored | logged) if name_problem(name) is None] == ["regret"]
        assert set(score_columns(stored)) == stored & {"regret", "novelty"}
