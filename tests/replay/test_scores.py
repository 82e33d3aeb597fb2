"""Scores of levels against loops over episodes in NumPy."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cenie.records import Advantages, Rollout
from cenie.replay.outcomes import episode_outcomes
from cenie.replay.play import Play
from cenie.replay.scores import SCORES

GAMMA, LAMBDA = 0.9, 0.7
N, T = 5, 12


def make_inputs(done, seed=0, old_max=None, episodes="average", reward=None):
    rng = np.random.default_rng(seed)
    done = np.asarray(done, bool)
    value, random_reward, advantage = rng.normal(size=(3, *done.shape)).astype(np.float32)
    reward = random_reward if reward is None else np.asarray(reward, np.float32)
    truncated = done & (rng.random(done.shape) < 0.3)
    rollout = Rollout(
        observation=(),
        action=jnp.zeros(done.shape, jnp.int32),
        log_prob=jnp.zeros(done.shape),
        value=jnp.asarray(value),
        reward=jnp.asarray(reward),
        terminated=jnp.asarray(done & ~truncated),
        truncated=jnp.asarray(truncated),
        solved=jnp.asarray(done & (rng.random(done.shape) < 0.5)),
        start=jnp.asarray(np.roll(done, 1, axis=1)).at[:, 0].set(True),
        memory=(),
        last_value=jnp.zeros(done.shape[0]),
        entropy=jnp.asarray(rng.random(done.shape), jnp.float32),
    )
    following = np.roll(value, -1, axis=1)
    error = reward + np.float32(GAMMA) * np.where(done, 0.0, following) - value
    outcomes = episode_outcomes(rollout)
    old = jnp.full(done.shape[0], -jnp.inf) if old_max is None else jnp.asarray(old_max, jnp.float32)
    return Play(
        (),
        rollout=rollout,
        advantages=Advantages(
            jnp.asarray(advantage), jnp.asarray(advantage + value), jnp.asarray(error), GAMMA, LAMBDA
        ),
        outcomes=outcomes,
        best_return=jnp.maximum(old, outcomes.max_return),
        episodes=episodes,
    )


def episodes_of(done_row):
    """Slices of the completed episodes of one level."""
    ends = np.flatnonzero(done_row)
    starts = [0, *(ends[:-1] + 1)]
    return [slice(a, b + 1) for a, b in zip(starts, ends)]


def oracle(name, inputs):
    rollout = inputs.rollout
    value, reward, done, solved = (
        np.asarray(x, np.float64 if x.dtype != bool else bool)
        for x in (rollout.value, rollout.reward, rollout.done, rollout.solved)
    )
    advantage = np.asarray(inputs.advantages.advantage, np.float64)
    error = np.asarray(inputs.advantages.error, np.float64)
    scores = np.zeros(len(done))
    for i in range(len(done)):
        pieces = episodes_of(done[i])
        if not pieces:
            continue
        top = float(inputs.best_return[i])

        def one(piece, i=i, top=top):
            a, v, r = advantage[i, piece], value[i, piece], reward[i, piece]
            if name.startswith("mna"):
                share = len(a) / T if name == "mna-sum" else 1.0
                return share * shortfall(error[i, piece]) * (top > 0)
            if name == "td":
                errors = np.abs(r[:-1] + GAMMA * v[1:] - v[:-1])
                return errors.mean() if len(errors) else 0.0
            return {
                "pvl": np.maximum(a, 0).mean(),
                "value-l1": np.abs(a).mean(),
                "signed": a.mean(),
                "maxmc": (top - v).mean(),
                "maxmc-positive": np.maximum(top - v, 0).mean(),
                "maxmc-start": top - v[0],
                "maxmc-start-positive": max(top - v[0], 0.0),
                "entropy": np.asarray(rollout.entropy, np.float64)[i, piece].mean(),
                "uniform": 1.0,
            }[name]

        if name == "generalised-learnability":
            scores[i] = generalised(*[returns_on(row, reward, done) for row in (i, range(len(done)))])
        elif name == "learnability":
            p = np.mean([solved[i, piece.stop - 1] for piece in pieces])
            scores[i] = p * (1 - p)
        elif inputs.episodes == "last":
            scores[i] = one(pieces[-1])
        else:
            scores[i] = (np.sum if name == "mna-sum" else np.mean)([one(piece) for piece in pieces])
    return scores


def returns_on(rows, reward, done):
    """The returns of the completed episodes of a level, or of several."""
    if isinstance(rows, int):
        return [reward[rows, piece].sum() for piece in episodes_of(done[rows])]
    return [returns_on(row, reward, done) for row in rows]


def generalised(returns, all_returns):
    """The deviation of the returns, times the density of their mean among the means of all levels over the
    highest density there is."""
    means = [np.mean(each) for each in all_returns if len(each)]
    if np.std(means) == 0:
        return np.std(returns)
    density = stats.norm(np.mean(means), np.std(means)).pdf
    return np.std(returns) * density(np.mean(returns)) / density(np.mean(means))


def shortfall(errors):
    """MNA of one episode from its definition: all sums from every start, cut at 0 one by one."""
    found = []
    for start in range(len(errors)):
        sums, total = [], 0.0
        for step, error in enumerate(errors[start:]):
            total = min(total + GAMMA**step * error, 0.0)
            sums.append(total)
        weights = [(1 - LAMBDA) * LAMBDA**step for step in range(len(sums) - 1)] + [LAMBDA ** (len(sums) - 1)]
        assert np.isclose(sum(weights), 1.0)
        found.append(-np.dot(weights, sums))
    return np.mean(found)


def done_pattern(name):
    done = np.zeros((N, T), bool)
    if name == "several":
        done = np.random.default_rng(3).random((N, T)) < 0.3
        done[0] = False
    elif name == "last step":
        done[:, -1] = True
    elif name == "every step":
        done[:] = True
    elif name == "first step only":
        done[:, 0] = True
    return done


PATTERNS = ("several", "none", "last step", "every step", "first step only")


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("episodes", ["average", "last"])
@pytest.mark.parametrize("name", SCORES)
def test_score_equals_loop_over_episodes(name, episodes, pattern):
    inputs = make_inputs(done_pattern(pattern), episodes=episodes)
    score = np.asarray(SCORES[name].compute(inputs))
    assert np.isfinite(score).all()
    np.testing.assert_allclose(score, oracle(name, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_outcomes_equal_loop_over_episodes(pattern):
    inputs = make_inputs(done_pattern(pattern))
    rollout, outcomes = inputs.rollout, episode_outcomes(inputs.rollout)
    for i in range(N):
        pieces = episodes_of(np.asarray(rollout.done)[i])
        returns = [float(np.asarray(rollout.reward, np.float64)[i, piece].sum()) for piece in pieces]
        assert outcomes.finished[i] == len(pieces)
        assert outcomes.completed[i] == bool(pieces)
        assert outcomes.solved[i] == sum(bool(rollout.solved[i, piece.stop - 1]) for piece in pieces)
        expected = (np.mean(returns), np.max(returns), np.var(returns)) if pieces else (0.0, -np.inf, 0.0)
        length = np.mean([piece.stop - piece.start for piece in pieces]) if pieces else 0.0
        found = outcomes.mean_return, outcomes.max_return, outcomes.return_variance, outcomes.mean_length
        np.testing.assert_allclose([each[i] for each in found], (*expected, length), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(SCORES) - {"uniform", "learnability"}))
def test_unfinished_tail_is_ignored(name):
    done = done_pattern("first step only")
    inputs = make_inputs(done)
    spoiled = make_inputs(done)
    tail = np.arange(T) > 0
    noisy = jnp.where(tail, jnp.nan, spoiled.rollout.value)
    spoiled = Play(
        (),
        rollout=_replace(
            spoiled.rollout,
            value=noisy,
            reward=jnp.where(tail, jnp.inf, spoiled.rollout.reward),
            entropy=jnp.where(tail, jnp.nan, inputs.rollout.entropy),
        ),
        advantages=Advantages(
            jnp.where(tail, jnp.nan, spoiled.advantages.advantage),
            spoiled.advantages.target,
            jnp.where(tail, jnp.nan, spoiled.advantages.error),
            GAMMA,
            LAMBDA,
        ),
        outcomes=inputs.outcomes,
        best_return=inputs.best_return,
    )
    np.testing.assert_array_equal(SCORES[name].compute(spoiled), SCORES[name].compute(inputs))


def _replace(rollout, **changes):
    return Rollout(**{**{name: getattr(rollout, name) for name in rollout.__dataclass_fields__}, **changes})


def test_long_episode_does_not_outweigh_short_one():
    """The mean over episodes is not the mean over steps."""
    done = np.zeros((1, 4), bool)
    done[0, [0, 3]] = True
    inputs = make_inputs(done)
    advantages = dataclasses.replace(inputs.advantages, advantage=jnp.asarray([[8.0, 1.0, 1.0, 1.0]]))
    inputs = dataclasses.replace(inputs, advantages=advantages)
    np.testing.assert_allclose(SCORES["pvl"].compute(inputs), [4.5], rtol=1e-6)


def test_bug_jaxued_unfinished_level_scores_minus_infinity():
    """jaxued gives -inf to a level whose rollout completed no episode; here it has no score at all."""
    inputs = make_inputs(done_pattern("none"))
    assert not episode_outcomes(inputs.rollout).completed.any()
    for score in SCORES.values():
        np.testing.assert_array_equal(score.compute(inputs), np.zeros(N))


def test_bug_jaxued_maximum_return_starts_at_zero():
    """With negative returns a maximum that starts at 0 would never move."""
    done = done_pattern("last step")
    inputs = make_inputs(done, reward=np.full((N, T), -1.0))
    np.testing.assert_array_equal(inputs.best_return, np.full(N, -T))


def test_best_return_and_values_have_one_unit():
    """Values that are learned from scaled rewards were compared with returns that are not."""
    done = done_pattern("several")
    inputs = make_inputs(done)
    unit = 100.0
    scaled = dataclasses.replace(
        inputs,
        best_return=unit * inputs.best_return,
        advantages=dataclasses.replace(inputs.advantages, unit=jnp.full(N, unit)),
    )
    for name in ("maxmc", "maxmc-positive", "maxmc-start", "maxmc-start-positive"):
        score = SCORES[name].compute
        np.testing.assert_allclose(score(scaled), score(inputs), rtol=1e-5, atol=1e-6)


def successes(counts, plays):
    """Episodes of one step that return 1 or 0: this many of the plays of each level return 1."""
    done = np.ones((len(counts), plays), bool)
    return make_inputs(done, reward=np.arange(plays) < np.asarray(counts)[:, None])


@pytest.mark.parametrize("counts", [range(9), [0, 8, 1, 7, 4, 4, 3, 5], [4] * 6, [2, 2, 2], [1, 7, 7, 1]])
def test_for_a_binary_success_generalised_learnability_ranks_as_p_times_one_minus_p(counts):
    """Where half of all episodes succeed, or where all levels are equally hard."""
    inputs = successes(counts, 8)
    found = np.asarray(SCORES["generalised-learnability"].compute(inputs))
    p = np.asarray(counts) / 8
    ranks, expected = (stats.rankdata(np.round(values, 6)) for values in (found, p * (1 - p)))
    np.testing.assert_array_equal(ranks, expected)


@pytest.mark.parametrize("counts", [[0, 0, 1, 2, 3, 4], [8, 8, 7, 5, 3]])
def test_the_spread_of_a_binary_success_alone_ranks_as_p_times_one_minus_p(counts):
    """Of two levels that are solved as often as not solved, the one is preferred that is as hard as most."""
    p = np.asarray(counts) / 8
    spread = np.sqrt(successes(counts, 8).outcomes.return_variance)
    np.testing.assert_allclose(spread**2, p * (1 - p), rtol=1e-5, atol=1e-7)
    easier, harder = np.asarray(SCORES["generalised-learnability"].compute(successes([1, 7, 1, 1, 1], 8)))[:2]
    assert easier > harder > 0


def test_returns_without_any_success_have_a_generalised_learnability():
    """Walkers hardly ever get to the end of the course: by p (1 - p) all levels were equal."""
    inputs = make_inputs(done_pattern("several"))
    unsolved = jnp.zeros_like(inputs.rollout.solved)
    inputs = dataclasses.replace(inputs, rollout=_replace(inputs.rollout, solved=unsolved))
    inputs = dataclasses.replace(inputs, outcomes=episode_outcomes(inputs.rollout))
    assert not np.asarray(SCORES["learnability"].compute(inputs)).any()
    assert len(set(np.asarray(SCORES["generalised-learnability"].compute(inputs)).tolist())) > 3


def test_entropy_must_be_given():
    inputs = make_inputs(done_pattern("last step"))
    bare = dataclasses.replace(inputs, rollout=_replace(inputs.rollout, entropy=None))
    with pytest.raises(ValueError, match="entropy"):
        SCORES["entropy"].compute(bare)


def test_mna_is_high_where_the_student_falls_short_and_only_where_it_can_be_solved():
    """One step of error, of either sign, on levels that were solved before or never."""
    done = np.zeros((4, 3), bool)
    done[:, -1] = True
    inputs = make_inputs(done, old_max=[1.0, 1.0, 0.0, 1.0], reward=np.full((4, 3), -1.0))
    error = jnp.asarray([[0.0, -2.0, 0.0], [0.0, 2.0, 0.0], [0.0, -2.0, 0.0], [0.0, 2.0, -2.0]])
    inputs = dataclasses.replace(inputs, advantages=dataclasses.replace(inputs.advantages, error=error))
    # From the first step: only the sums of two and three errors fall short, and those weigh lambda together.
    expected = (LAMBDA * GAMMA * 2.0 + 2.0) / 3
    # What was won on the way does not make up for a later loss.
    late = (LAMBDA**2 * GAMMA**2 * 2.0 + LAMBDA * GAMMA * 2.0 + 2.0) / 3
    np.testing.assert_allclose(SCORES["mna"].compute(inputs), [expected, 0.0, 0.0, late], rtol=1e-6)
