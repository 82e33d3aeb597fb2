"""The teacher for other people's loops: the same decisions, in NumPy."""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from cenie import Teacher, episode_mean
from cenie.bridges.teacher import OFFERED
from cenie.methods.table import METHODS
from cenie.settings import SettingsError
from tests.teach.test_contract import count_compilations
from tests.tensors import Tensor
from tests.unchecked import unchecked

PLAIN = unchecked("cenie.bridges.teacher")

N, T, D = 4, 12, 3
SMALL = {"replay.capacity": 12, "replay.min_fill": 0.5}
FEW = {"novelty.coverage.components": (2, 3), "novelty.coverage.window": 6}


def generate(rng):
    # Differences that 32 bits would lose.
    return {"size": 1e9 + rng.random(), "seed": rng.integers(2**60), "map": rng.random((2, 2)) < 0.5}


def edit(rng, level):
    return level | {"size": level["size"] + 1.0}


def make(method="plr-robust", kind=Teacher, **changes):
    settings = {} if method == "dr" else SMALL | FEW if "cenie" in str(method) else SMALL
    arguments = {"generate": generate, "edit": edit, "num_levels": N, "settings": settings, "seed": 5}
    arguments |= {"features": D, "points_per_level": 8}
    return kind(method, **{**arguments, **changes})


def steps(seed, n=N, t=T):
    """Random steps with several episodes, some of them cut off by the end."""
    rng = np.random.default_rng(seed)
    ends = rng.random((n, t)) < 0.3
    ends[:, t // 2] = True
    terminated = ends & (rng.random((n, t)) < 0.5)
    return {
        "reward": rng.normal(size=(n, t)),
        "value": rng.normal(size=(n, t)),
        "terminated": terminated,
        "truncated": ends & ~terminated,
        "solved": terminated,
        "features": rng.normal(size=(n, t, D)),
    }


def key_of(level):
    return level["size"].item(), level["seed"].item(), level["map"].tobytes()


def run(teacher, tasks, first=0):
    """The tasks that a teacher asked for, and what it logged."""
    asked, logged = [], []
    for number in range(first, first + tasks):
        asked.append(teacher.ask())
        logged.append(teacher.tell(**steps(number)))
    return asked, logged


def described(tasks):
    return [(task.kind, task.learn, [key_of(level) for level in task.levels]) for task in tasks]


QUICKLY = ("dr", "plr", "accel-cenie")
"""Together they use every part of a curriculum; `make test-all` runs the other methods too."""
SOME = [pytest.param(name, marks=() if name in QUICKLY else pytest.mark.slow) for name in sorted(OFFERED)]


@pytest.fixture(scope="module", params=SOME)
def method(request):
    return request.param


def test_every_method_asks_for_what_it_was_built_to_ask(method):
    teacher = make(method)
    seen, last_replay = set(), []
    for number in range(30):
        stored = {key_of(entry.level) for entry in teacher.stored()}
        task = teacher.ask()
        levels = [key_of(level) for level in task.levels]
        assert len(levels) == N
        if task.kind == "new":
            assert not seen & set(levels)
            assert task.learn == (method in ("dr", "plr"))
        elif task.kind == "replay":
            assert set(levels) <= stored
            assert task.learn
            last_replay = levels
        else:
            assert [(size - 1.0, *rest) for size, *rest in levels] == last_replay
            assert not task.learn
        seen |= set(levels)
        log = teacher.tell(**steps(number))
        assert all(isinstance(value, int | float) for value in log.values())
        assert len(teacher.stored()) == log.get("buffer_size", 0) <= SMALL["replay.capacity"]
    kinds = {"new"} if method == "dr" else {"new", "replay"}
    kinds |= {"edit"} if method.startswith("accel") else set()
    tasks, _ = run(teacher, 10, 30)
    assert {task.kind for task in tasks} <= kinds


def test_same_seed_same_tasks_and_another_seed_other_tasks(method):
    tasks = described(run(make(method), 12)[0])
    assert described(run(make(method), 12)[0]) == tasks
    assert described(run(make(method, seed=6), 12)[0]) != tasks


def test_a_saved_teacher_goes_on_as_if_it_had_never_stopped(method, tmp_path):
    whole, log = run(make(method), 14)
    teacher = make(method)
    run(teacher, 7)
    teacher.ask()  # the program dies while playing this task
    teacher.save(tmp_path)
    resumed = make(method)
    resumed.load(tmp_path)
    tasks, rest = run(resumed, 7, 7)
    assert described(tasks) == described(whole[7:])
    assert rest == log[7:]


def test_ask_repeats_itself_until_it_is_told():
    teacher = make()
    assert teacher.ask() is teacher.ask()
    first = teacher.ask()
    teacher.tell(**steps(0))
    assert teacher.ask() is not first


def test_scores_are_the_mean_over_episodes_of_the_mean_over_steps():
    """Written out in NumPy: advantages by the recursion, tails ignored."""
    gamma, decay = 0.9, 0.8
    teacher = make(gamma=gamma, gae_lambda=decay)
    task = teacher.ask()
    told = steps(3)
    teacher.tell(**told)
    expected = {}
    for row, level in enumerate(task.levels):
        ends = np.flatnonzero((told["terminated"] | told["truncated"])[row])
        means = []
        for first, last in zip([0, *(ends[:-1] + 1)], ends):
            advantage, gains = 0.0, []
            for t in range(last, first - 1, -1):
                following = told["value"][row, t + 1] if t < last else 0.0
                delta = told["reward"][row, t] + gamma * following - told["value"][row, t]
                advantage = delta + gamma * decay * advantage
                gains.append(max(advantage, 0.0))
            means.append(np.mean(gains))
        expected[key_of(level)] = np.mean(means)
    found = {key_of(entry.level): entry.scores["regret"] for entry in teacher.stored()}
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-5)


def test_own_advantages_replace_ours():
    teacher = make(settings=SMALL | {"score": "signed"})
    teacher.ask()
    told = steps(3) | {"advantage": np.full((N, T), 0.25)}
    teacher.tell(**told)
    scores = [entry.scores["regret"] for entry in teacher.stored()]
    np.testing.assert_allclose(scores, [0.25] * N, rtol=1e-6)


def test_a_time_out_is_bootstrapped_where_its_value_is_given():
    one = {
        "reward": [[0.0]] * N,
        "value": [[0.0]] * N,
        "terminated": [[False]] * N,
        "truncated": [[True]] * N,
    }
    scores = []
    for extra in ({}, {"final_value": [[2.0]] * N}):
        teacher = make(gamma=0.5)
        teacher.ask()
        teacher.tell(**one, **extra)
        scores.append(teacher.stored()[0].scores["regret"])
    assert scores == [0.0, 1.0]


def test_rows_of_different_lengths_are_rows_padded_at_the_end():
    told = steps(4)
    ends = told["terminated"] | told["truncated"]
    lengths = [int(np.flatnonzero(row)[-1]) + 1 for row in ends]
    ragged = {name: [row[:length] for row, length in zip(rows, lengths)] for name, rows in told.items()}
    logs, scores = [], []
    for given in (told, ragged):
        teacher = make()
        teacher.ask()
        logs.append(teacher.tell(**given))
        scores.append([entry.scores for entry in teacher.stored()])
    assert scores[0] == scores[1]
    assert logs[0] == logs[1]


def turned(told):
    return {name: np.swapaxes(array, 0, 1) for name, array in told.items()}


def test_bug_tensors_that_need_a_gradient_or_are_bfloat16_could_not_be_told():
    """The values of a critic in PyTorch need one; the same was tried with it (2.13)."""
    told = {name: np.float16(part) if part.dtype == float else part for name, part in steps(0).items()}
    told |= {name: jnp.asarray(told[name], jnp.bfloat16) for name in ("reward", "features")}
    flags = ("terminated", "truncated", "solved")
    as_numpy = {name: np.asarray(part, bool if name in flags else np.float32) for name, part in told.items()}
    elsewhere = {name: Tensor(part, grad=True, device="cuda:0") for name, part in told.items()}
    in_rows = {name: [Tensor(row, grad=True) for row in part] for name, part in told.items()}
    logs = []
    for given in (as_numpy, elsewhere, in_rows):
        teacher = make("plr-cenie")
        teacher.ask()
        logs.append(teacher.tell(**given))
    np.testing.assert_equal(logs[1:], logs[:1] * 2)


@pytest.mark.parametrize("method", ["plr-robust", "plr-cenie"])
def test_arrays_of_steps_by_levels_say_so_and_mean_the_same(method):
    """As vector environments and PyTorch buffers have them."""
    told = steps(3)
    as_list = {name: list(array) for name, array in turned(told).items()}
    logs = []
    for given in (told, told | {"layout": "levels-first"}, turned(told) | {"layout": "time-first"}):
        teacher = make(method)
        teacher.ask()
        logs.append(teacher.tell(**given))
    teacher = make(method)
    teacher.ask()
    logs.append(teacher.tell(**as_list, layout="time-first"))
    for log in logs[1:]:
        assert log == pytest.approx(logs[0], rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (turned(steps(0)), "reward: expected one row for each .* got 12; it looks time-first: pass layout="),
        (
            {name: list(array) for name, array in turned(steps(0)).items()},
            "reward: expected one row .* got 12; it looks time-first: pass layout='time-first'",
        ),
        (
            turned(steps(0)) | {"layout": "levels-first"},
            "reward: expected one row .*; it looks time-first: pass layout='time-first'",
        ),
        (
            steps(0) | {"layout": "time-first"},
            r"reward: expected \[step, level\] with 4 levels, got \[4, 12\]; it looks levels-first",
        ),
        (steps(0) | {"layout": "TN"}, "layout: must be one of levels-first, time-first, got 'TN'"),
        (steps(0) | {"value": turned(steps(0))["value"]}, "value: expected one row .* looks time-first"),
    ],
)
def test_bug_a_layout_that_does_not_fit_was_not_explained(given, message):
    teacher = make(kind=PLAIN.Teacher)
    task = teacher.ask()
    with pytest.raises(ValueError, match=message):
        teacher.tell(**given)
    assert teacher.ask() is task


def test_bug_features_of_the_other_layout_were_not_explained():
    teacher = make("plr-cenie")
    teacher.ask()
    told = steps(0)
    with pytest.raises(ValueError, match=r"features: .* looks time-first: pass layout='time-first'"):
        teacher.tell(**told | {"features": np.swapaxes(told["features"], 0, 1)})


def test_bug_as_many_steps_as_levels_were_read_in_silence():
    """An array [4, 4] of 4 levels may be either; rows and a given layout are clear."""
    square = steps(1, t=N)
    teacher = make()
    teacher.ask()
    with pytest.raises(ValueError, match=r"reward: .* pass layout='levels-first' or layout='time-first'"):
        teacher.tell(**square)
    logs = []
    for given in (
        square | {"layout": "levels-first"},
        turned(square) | {"layout": "time-first"},
        {name: list(array) for name, array in square.items()},
    ):
        teacher = make()
        teacher.ask()
        logs.append(teacher.tell(**given))
    assert logs[0] == logs[1] == logs[2]


def test_bug_every_power_of_two_compiled_everything_again():
    """Rows of all lengths share the large programs; one longer than ever before compiles a small one."""
    teacher = make("plr-cenie")
    teacher.ask()
    teacher.tell(**steps(0))
    compiled = []
    with count_compilations(functools.partial(compiled.append, "program")):
        for number, length in enumerate((1, 2, 3, 50, 500, 1024, 7, 300)):
            teacher.ask()
            teacher.tell(**steps(number, t=length))
        assert compiled == []
        teacher.ask()
        teacher.tell(**steps(9, t=1025))
        assert len(compiled) == 1
        for number, length in enumerate((2048, 5, 1500)):
            teacher.ask()
            teacher.tell(**steps(number, t=length))
    assert len(compiled) == 1


def test_a_saved_teacher_remembers_the_length_that_rows_are_filled_up_to(tmp_path):
    teacher = make()
    teacher.ask()
    teacher.tell(**steps(0, t=1500))
    teacher.save(tmp_path)
    resumed = make()
    resumed.load(tmp_path)
    assert resumed._steps == teacher._steps == 2048
    assert run(resumed, 3)[1] == run(teacher, 3)[1]


def test_bug_gymnasium_may_terminate_and_truncate_in_one_step():
    """A pole that falls on the very last step sets both flags; the fall counts."""
    told = steps(3)
    both = told | {"truncated": told["truncated"] | told["terminated"]}
    logs = []
    for given in (told, both):
        teacher = make()
        teacher.ask()
        logs.append(teacher.tell(**given))
    assert logs[0] == logs[1]


def test_bug_columns_of_one_level_had_different_best_returns():
    """MaxMC of a level drawn twice in a batch: both columns are measured against the better one."""
    one_slot = {"replay.capacity": 1, "replay.min_fill": 1.0, "replay.replay_prob": 1.0, "score": "maxmc"}
    teacher = make(num_levels=2, settings=one_slot)
    end = [[True], [True]]
    rest = {"value": [[0.0], [0.0]], "terminated": end, "truncated": [[False], [False]]}
    teacher.ask()
    teacher.tell(reward=[[1.0], [1.0]], **rest)
    assert teacher.ask().kind == "replay"
    teacher.tell(reward=[[2.0], [6.0]], **rest)
    assert teacher.stored()[0].scores == {"regret": 6.0}


def test_a_level_without_a_finished_episode_is_not_stored():
    teacher = make()
    teacher.ask()
    told = steps(0)
    for name in ("terminated", "truncated", "solved"):
        told[name][1] = False
    assert teacher.tell(**told)["buffer_size"] == N - 1


def test_stored_levels_are_sorted_by_their_probability_and_know_their_parents():
    teacher = make("accel")
    run(teacher, 30)
    stored = teacher.stored()
    probabilities = [entry.probability for entry in stored]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1.0, abs=1e-5)
    assert any(entry.generation > 0 and entry.parent >= 0 for entry in stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"reward": np.zeros((N - 1, T))},
            f"reward: expected one row for each of the {N} levels, got {N - 1}",
        ),
        ({"value": np.zeros((N, T + 1))}, "value: rows of"),
        ({"value": np.full((N, T), np.nan)}, r"value\[0\]: not finite at step 0"),
        ({"value": np.full((N, T), 1e300)}, r"value\[0\]: not finite"),
        ({"reward": np.zeros((N, T, 1))}, r"reward\[0\]: expected one number per step"),
        ({"reward": [["a"] * T] * N}, r"reward\[0\]: expected one number per step"),
        ({"terminated": np.full((N, T), 0.5)}, r"terminated\[0\]: expected true or false"),
        ({"reward": None}, r"reward: expected an array \[level, step\] or a list of rows, got None"),
        ({"truncated": None}, "truncated: expected an array"),
        ({"value": 1.5}, "value: expected an array .* got 1.5"),
        ({"value": "abcd"}, "value: expected an array .* got 'abcd'"),
        ({"value": np.zeros(T)}, "value: expected an array"),
        ({"value": iter(range(N))}, "value: expected an array"),
        ({"value": [[[1], [1, 2]]] * N}, r"value\[0\]: cannot be read as an array"),
        ({"value": [None] * N}, r"value\[0\]: expected one number per step"),
        ({"value": np.ma.masked_array(np.zeros((N, T)), True)}, "value: masks are not read"),
    ],
)
def test_wrong_steps_are_named_and_change_nothing(change, message):
    teacher = make(kind=PLAIN.Teacher)
    task = teacher.ask()
    with pytest.raises(ValueError, match=message):
        teacher.tell(**(steps(0) | change))
    assert teacher.ask() is task
    assert teacher.stored() == []


@pytest.mark.parametrize(("score", "missing"), [("learnability", "solved"), ("entropy", "entropy")])
def test_a_score_says_what_it_needs(score, missing):
    teacher = make(settings=SMALL | {"score": score})
    teacher.ask()
    told = steps(0)
    del told["solved"]
    with pytest.raises(ValueError, match=f"{missing}: this teacher's score needs it"):
        teacher.tell(**told)


def test_the_entropy_of_the_policy_can_be_the_score():
    teacher = make(settings=SMALL | {"score": "entropy"})
    teacher.ask()
    teacher.tell(**steps(0), entropy=np.full((N, T), 0.5))
    scores = [entry.scores["regret"] for entry in teacher.stored()]
    np.testing.assert_allclose(scores, [0.5] * N, rtol=1e-6)


def test_tell_without_ask():
    with pytest.raises(RuntimeError, match="call ask"):
        make().tell(**steps(0))


def test_novelty_is_measured_on_the_features():
    """Levels far from the window's experience are the likeliest to be replayed."""
    teacher = make("plr-cenie-dagger", settings=SMALL | FEW | {"replay.min_fill": 1.0})
    for number in range(3):
        teacher.ask()
        told = steps(number)
        if number == 2:
            told["features"][1] += 50.0
            far = teacher.ask().levels[1]
        teacher.tell(**told)
    assert key_of(teacher.stored()[0].level) == key_of(far)


def test_long_trajectories_are_thinned_and_short_ones_padded():
    logs = []
    for repeats in (1, 2):
        teacher = make("plr-cenie", points_per_level=4)
        for number in range(3):
            teacher.ask()
            told = steps(number)
            told["features"] = [np.repeat(row[:4], repeats, axis=0) for row in told["features"]]
            logs.append(teacher.tell(**told))
    for one, other in zip(logs[:3], logs[3:]):
        assert one == pytest.approx(other, nan_ok=True)
    short = make("plr-cenie", points_per_level=50)
    for number in range(3):
        short.ask()
        assert np.isfinite(short.tell(**steps(number))["novelty"])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (None, "features: this teacher measures novelty"),
        (np.zeros((N + 1, T, D)), f"features: expected one row for each of the {N} levels"),
        (np.zeros((N, T, D + 1)), rf"features\[0\]: expected {D} numbers for each step"),
        (np.full((N, T, D), np.inf), r"features\[0\]: not finite"),
    ],
)
def test_wrong_features_are_named(features, message):
    teacher = make("plr-cenie")
    teacher.ask()
    with pytest.raises(ValueError, match=message):
        teacher.tell(**(steps(0) | {"features": features}))


def test_novelty_needs_the_number_of_features():
    with pytest.raises(ValueError, match="features: plr-cenie measures novelty"):
        make("plr-cenie", features=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "acel"}, "method: must be one of"),
        ({"num_levels": 0}, "num_levels: must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed: must be"),
        ({"gamma": 1.5}, "gamma: must be between 0 and 1"),
        ({"gamma": "a"}, "gamma: must be between 0 and 1, got 'a'"),
        ({"gamma": None}, "gamma: must be between 0 and 1, got None"),
        ({"gamma": float("nan")}, "gamma: must be between 0 and 1, got nan"),
        ({"gae_lambda": True}, "gae_lambda: must be between 0 and 1, got True"),
        ({"gae_lambda": [0.9]}, "gae_lambda: must be between 0 and 1"),
        (
            {"seed": 2**32},
            "seed: must be a whole number of at least 0 and at most 4294967295, got 4294967296",
        ),
        ({"seed": 2**63}, "seed: must be"),
        ({"seed": 10**400}, "seed: must be"),
        ({"seed": 10**5000}, "seed: must be .* got a int"),
        ({"seed": True}, "seed: must be .* got True"),
        ({"seed": 1.0}, "seed: must be"),
        ({"num_levels": np.True_}, "num_levels: must be"),
        ({"num_levels": "4"}, "num_levels: must be .* got '4'"),
        ({"features": 0}, "features: must be a whole number of at least 1, got 0"),
        ({"points_per_level": None}, "points_per_level: must be"),
        ({"method": ["dr"]}, "method: must be one of"),
        ({"generate": 3}, "generate: must be a function, got 3"),
        ({"edit": "no"}, "edit: must be a function, got 'no'"),
        ({"settings": [("score", "pvl")]}, "settings: must be a dict of settings by their paths"),
        ({"settings": {3: 4}}, "settings: must be a dict of settings by their paths"),
        ({"settings": {"replay.capacty": 3}}, "did you mean 'capacity'"),
        ({"settings": {"score": "regret"}}, "score: must be one of"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(SettingsError, match=message):
        make(**arguments, kind=PLAIN.Teacher)


def test_numbers_of_numpy_are_numbers(tmp_path):
    plain = make(num_levels=N, seed=2**32 - 1, gamma=0.5, settings=SMALL)
    numpy = make(
        kind=PLAIN.Teacher,
        num_levels=np.int64(N),
        seed=np.uint32(2**32 - 1),
        gamma=np.float32(0.5),
        settings={"replay.capacity": np.int64(12), "replay.min_fill": np.float64(0.5)},
        features=np.int8(D),
    )
    assert described(run(numpy, 2)[0]) == described(run(plain, 2)[0])
    numpy.save(tmp_path)
    plain.load(tmp_path)


def test_all_wrong_arguments_are_named_at_once():
    with pytest.raises(SettingsError) as caught:
        make(num_levels=0, gamma=2.0, method="x")
    assert len(caught.value.problems) == 3


def test_editing_needs_an_editor():
    with pytest.raises(ValueError, match="edit"):
        make("accel", edit=None)


def test_a_generator_that_changes_its_mind_is_named():
    answers = itertools.chain([np.zeros(2), np.zeros(2)], itertools.repeat(np.zeros(3)))
    with pytest.raises(ValueError, match=r"float64\[2\].*float64\[3\]"):
        make(generate=lambda rng: next(answers)).ask()


def test_a_checkpoint_of_another_teacher_is_refused(tmp_path):
    make().save(tmp_path)
    with pytest.raises(ValueError, match="seed was 5 and is 6"):
        make(seed=6).load(tmp_path)
    with pytest.raises(ValueError, match="no checkpoint"):
        make().load(tmp_path / "nothing")


def test_bug_two_teachers_in_one_directory_removed_each_others_checkpoints(tmp_path):
    """And of other files those called `tmp-NAME-NUMBER`, whole directories among them."""
    one, other = make(seed=1), make(seed=2)
    one.save(tmp_path)
    (tmp_path / "tmp-data-2025").mkdir()
    (tmp_path / "tmp-data-2025" / "precious").touch()
    with pytest.raises(ValueError, match="holds the checkpoints of another teacher: seed was 1 and is 2"):
        other.save(tmp_path)
    assert one.save(tmp_path).is_dir()
    make(seed=1).load(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000000", "tmp-data-2025"]
    assert (tmp_path / "tmp-data-2025" / "precious").exists()


def endless(number):
    nothing = np.zeros((N, T), bool)
    return steps(number) | {"terminated": nothing, "truncated": nothing, "solved": nothing}


def test_bug_levels_without_an_ended_episode_are_never_replayed_and_no_word():
    """40 tasks gave `learn` True 0 times."""
    teacher = make()
    log = []

    def told():
        for number in range(12):
            log.append((teacher.ask().learn, teacher.tell(**endless(number))["unscored"]))

    with pytest.warns(UserWarning, match="completed no episode.*replay.unfinished") as heard:
        told()
    assert log == [(False, N)] * 12
    assert len(heard) == 1


def test_levels_without_an_ended_episode_can_be_scored():
    """As if the episode had ended with its row, however long the row is."""
    teacher = make(settings=SMALL | {"replay.unfinished": "score"})
    ragged = {name: [row[: T - level] for level, row in enumerate(part)] for name, part in endless(0).items()}
    teacher.ask()
    assert teacher.tell(**ragged)["unscored"] == 0
    last = [np.arange(len(row)) == len(row) - 1 for row in ragged["reward"]]
    other = make()
    other.ask()
    other.tell(**ragged | {"truncated": last})
    assert [entry.scores for entry in teacher.stored()] == [entry.scores for entry in other.stored()]


def test_bug_equal_scores_and_no_word():
    """A critic of zeros where no reward is found."""
    teacher, zeros = make(), np.zeros((N, T))

    def told():
        for number in range(5):
            teacher.ask()
            teacher.tell(**steps(number) | {"reward": zeros, "value": zeros})

    with pytest.warns(UserWarning, match="same score"):
        told()


def reward_per_step(inputs):
    return episode_mean(inputs, inputs.rollout.reward)


def scored(method="plr-cenie", **changes):
    """A teacher that ranks by a score of ours and by a function of its user."""
    scores = {"pvl": "pvl", "reward": reward_per_step}
    return make(method, **{"scores": scores, "weights": {"pvl": 0.7, "reward": 0.3}, **changes})


def test_several_scores_rank_together_and_keep_their_names(tmp_path):
    teacher, plain = scored(), make("plr-cenie")
    for number in range(3):
        told = steps(number)
        assert described([teacher.ask()]) == described([plain.ask()])
        log, plain_log = teacher.tell(**told), plain.tell(**told)
    assert {"pvl", "reward", "reward_weighted", "novelty_reward_correlation"} <= log.keys()
    assert log["pvl"] == plain_log["regret"]
    ours = {key_of(entry.level): entry.scores for entry in teacher.stored()}
    for entry in plain.stored():
        assert list(ours[key_of(entry.level)]) == ["pvl", "reward", "novelty"]
        assert ours[key_of(entry.level)]["pvl"] == entry.scores["regret"]
    teacher.save(tmp_path)
    scored().load(tmp_path)
    with pytest.raises(ValueError, match=r"scores was .*0\.7.* and is .*0\.5"):
        scored(weights={"pvl": 0.5, "reward": 0.5}).load(tmp_path)


def test_every_score_says_what_it_needs():
    teacher = scored("plr-robust", scores={"pvl": "pvl", "reward": "learnability"})
    teacher.ask()
    told = steps(0)
    del told["solved"], told["features"]
    with pytest.raises(ValueError, match="solved: this teacher's score needs it"):
        teacher.tell(**told)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scores": 3}, "scores: must be a dict by the names of scores"),
        ({"scores": None}, "weights: need scores"),
        ({"weights": 3}, "weights: must be a dict by the names of scores"),
        ({"weights": {"pvl": 1.0}}, "weights.reward: is missing"),
        ({"scores": {"pvl": "pvl", "reward": "rewards"}}, "scores.reward: must be one of pvl, "),
    ],
)
def test_wrong_scores_are_named(changes, says):
    with pytest.raises(SettingsError) as refused:
        scored(kind=PLAIN.Teacher, **changes)
    assert says in str(refused.value)


def test_scores_are_of_no_use_without_replay():
    with pytest.raises(SettingsError, match="scores: are of no use to dr, which replays no levels"):
        scored("dr", settings={})


def told_until_replay(num_levels, tasks):
    """With the settings of the method: the tasks, and what was logged."""
    teacher = Teacher(generate=generate, num_levels=num_levels)
    asked, logged = [], []
    for number in range(tasks):
        told = steps(number, num_levels)
        del told["features"]
        asked.append(teacher.ask())
        logged.append(teacher.tell(**told))
    return asked, logged


def test_bug_some_125_tasks_taught_nothing_and_no_word(caplog):
    """4,000 places, half of which must be filled, whatever the number of levels of a task."""
    asked, logged = told_until_replay(16, 24)
    assert [entry["levels_until_replay"] for entry in logged[:17]] == [16 * n for n in range(15, -1, -1)] + [
        0
    ]
    assert not any(task.learn for task in asked[:16])
    assert any(task.learn for task in asked[16:])
    (line,) = caplog.messages
    assert "plr-robust fills its level buffer first: 256 more levels, 16 in a task, before" in line
    assert "until then task.learn is False" in line


@pytest.mark.parametrize(("num_levels", "capacity"), [(1, 32), (16, 512), (125, 4000), (5000, 5000)])
def test_the_default_buffer_fits_the_number_of_levels(num_levels, capacity):
    made = Teacher(generate=generate, num_levels=num_levels)._curriculum.replay
    assert made is not None
    assert made.config.capacity == capacity
    assert made.config.min_fill == 0.5
    named = Teacher(generate=generate, num_levels=num_levels, settings={"replay.capacity": 6000})
    assert named._curriculum.replay is not None
    assert named._curriculum.replay.config.capacity == 6000


def test_a_method_that_learns_on_new_levels_is_not_said_to_wait(caplog):
    teacher = make("plr")
    teacher.ask()
    (line,) = caplog.messages
    assert "plr fills its level buffer first: 6 more levels, 4 in a task, before" in line
    assert "task.learn" not in line
    caplog.clear()
    make("dr").ask()
    assert caplog.messages == []


def test_methods_that_make_their_own_levels_are_not_offered():
    see_levels = {f"{base}-{novelty}" for base in ("plr", "accel") for novelty in ("poet", "epoet")}
    make_levels = {"sfl", "alp-gmm", "minimax", "paired", "repaired", "poet"}
    assert set(METHODS) - set(OFFERED) == see_levels | make_levels | {"traced"}
    with pytest.raises(SettingsError, match=r"method: must be one of dr, plr, .*, got 'alp-gmm'"):
        make("alp-gmm")


def test_a_correction_needs_to_know_what_students_see():
    with pytest.raises(ValueError, match="correction: must be null"):
        Teacher(generate=lambda rng: rng.random(2), settings={"correction": {"kind": "traced"}})
