"""The learned designer: what a level is worth to it, and that it learns to make such levels.

The design space is a toy, so that every level and what students make of it is known: three switches, and the
level is how many of them are on. Everything else is what trains: the source, its network and its PPO.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.envs.base import Design, Environment
from cenie.envs.domains import find_domain
from cenie.envs.maze.config import MazeConfig
from cenie.envs.maze.domain import maze_domain
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.paired import DesignerConfig, DesignerSource, rank_among, rewards_of, utility_of
from cenie.records import Advantages, Rollout, Step
from cenie.replay.outcomes import Outcomes, episode_outcomes
from cenie.rundir.checkpoint import digest
from cenie.settings import SettingsError
from cenie.spaces import Box, Discrete
from cenie.student.config import PPOConfig
from cenie.student.encoders import image_and_rest, parts_of, width_of
from cenie.student.networks.board import board_and_discrete, border_of
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.recurrent import Lstm
from cenie.teach import teacher
from tests.tiny import tiny

STEPS, COUNT, UPDATES = 3, 64, 40
SETTINGS = DesignerConfig(Mlp(hidden_sizes=(8,)), PPOConfig(learning_rate=0.02, epochs=4, entropy_coef=0.001))


class Switches(Environment):
    """Turn each of three switches on or off."""

    max_steps = STEPS

    @property
    def observation_space(self):  # pyright: ignore
        return Box((2,), 0.0, STEPS)

    @property
    def action_space(self):  # pyright: ignore
        return Discrete(2)

    def reset(self, key, level):
        state = jnp.zeros(2, jnp.int32)
        return state.astype(jnp.float32), state

    def step(self, key, level, state, action):
        state = state + jnp.stack([action, 1])
        no = jnp.zeros((), bool)
        return Step(state.astype(jnp.float32), state, jnp.float32(0), state[1] == STEPS, no, no)


def source(utility, network=SETTINGS.network, **settings):
    ppo = dataclasses.replace(SETTINGS.ppo, **settings)
    design = Design(Switches(), jnp.zeros(()), lambda state: state[0])
    return DesignerSource(design, dataclasses.replace(SETTINGS, network=network, ppo=ppo), utility)


def outcomes(returns, finished=1, best=None) -> Outcomes:
    """One value for each level; the best of the returns is their mean unless it is said."""
    returns = jnp.asarray(returns, jnp.float32)
    finished = jnp.broadcast_to(jnp.asarray(finished, jnp.int32), returns.shape)
    best = jnp.where(finished > 0, returns if best is None else best, -jnp.inf)
    mean = jnp.where(finished > 0, returns, 0.0)
    return Outcomes(finished, finished, mean, best, finished * 1.0, jnp.zeros_like(mean))


def solves(most):
    """A student that solves the levels with at most so many switches on."""
    return lambda levels: outcomes(levels <= most)


def learned(designer: DesignerSource, *students, seed=0):
    """The levels that were designed in each update, and the metrics, while these students play them."""

    def update(state, key):
        propose_key, learn_key = jax.random.split(key)
        levels, proposal = designer.propose(state, propose_key, COUNT)
        feedback = tuple(student(levels) for student in students)
        state, metrics = designer.learn(state, proposal, feedback, learn_key)
        return state, (levels, metrics)

    @jax.jit
    def run(key):
        init_key, key = jax.random.split(key)
        return jax.lax.scan(update, designer.init(init_key), jax.random.split(key, UPDATES))[1]

    return jax.device_get(run(jax.random.key(seed)))


def test_the_designer_of_minimax_lowers_the_students_return():
    levels, metrics = learned(source("minus-return"), lambda levels: outcomes(1.0 - levels / STEPS))
    returns = 1.0 - levels.mean(axis=1) / STEPS
    assert 0.35 < returns[0] < 0.65
    assert returns[-5:].mean() < 0.1
    np.testing.assert_allclose(metrics["utility"], -returns, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "rate"), [(SETTINGS.network, 0.02), (Lstm(memory_size=8, head_size=8), 0.005)]
)
def test_the_designer_of_paired_makes_the_levels_that_only_the_antagonist_solves(network, rate):
    levels, metrics = learned(source("regret", network, learning_rate=rate), solves(1), solves(2))
    share = (levels == 2).mean(axis=1)
    assert 0.2 < share[0] < 0.55  # 3 in 8 by chance
    assert share[-5:].mean() > 0.85
    assert metrics["utility"][-5:].mean() > metrics["utility"][:5].mean() + 0.3
    np.testing.assert_allclose(metrics["utility"], share, atol=1e-5)


def test_a_level_that_both_or_none_solve_is_worth_less_than_one_that_only_the_antagonist_solves():
    student, antagonist = outcomes([1.0, 0.0, 0.0, 1.0]), outcomes([1.0, 0.0, 1.0, 0.0])
    value, known = utility_of("regret", (student, antagonist))
    assert known.all()
    np.testing.assert_array_equal(value, [0.0, 0.0, 1.0, 0.0])
    unclipped, _ = utility_of("regret", (student, antagonist), clip_regret=False)
    np.testing.assert_array_equal(unclipped, [0.0, 0.0, 1.0, -1.0])
    flexible, _ = utility_of("flexible-regret", (student, antagonist))
    np.testing.assert_array_equal(flexible, [0.0, 0.0, 1.0, 1.0])


def played(seed, levels=24, steps=9) -> Rollout:
    """Random rewards; most levels have several episodes, each is cut off at the end, and some have none."""
    rng = np.random.default_rng(seed)
    ends = (rng.random((levels, steps)) < 0.3) & (rng.random((levels, 1)) < 0.8)
    ends[:, -1] = False
    blank, no = jnp.zeros((levels, steps)), jnp.zeros((levels, steps), bool)
    return Rollout(
        observation=blank,
        action=blank,
        log_prob=blank,
        value=blank,
        reward=jnp.asarray(rng.normal(size=(levels, steps)), jnp.float32),
        terminated=jnp.asarray(ends),
        truncated=no,
        solved=jnp.asarray(ends),
        start=no,
        memory=(),
        last_value=blank[:, 0],
    )


def returns_of(rollout, level):
    """The returns of the completed episodes of a level, told step by step."""
    found, total = [], 0.0
    for reward, done in zip(np.asarray(rollout.reward[level]), np.asarray(rollout.done[level]), strict=True):
        total += float(reward)
        if done:
            found.append(total)
            total = 0.0
    return found


def expected_utility(utility, clip, student, antagonist):
    if not student or (utility.endswith("regret") and not antagonist):
        return None
    if utility.startswith("minus"):
        return -np.mean(student) if utility == "minus-return" else -max(student)
    # As the original code decides: the antagonist must do better to be one.
    if utility == "flexible-regret" and not max(antagonist) > max(student):
        student, antagonist = antagonist, student
    best = np.mean(antagonist) if utility == "mean-regret" else max(antagonist)
    return max(best - np.mean(student), 0.0) if clip else best - np.mean(student)


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize(
    "utility", ["regret", "mean-regret", "flexible-regret", "minus-return", "minus-best-return"]
)
def test_utilities_are_those_of_the_completed_episodes(utility, clip):
    rollouts = [played(seed) for seed in (1, 2)]
    value, known = utility_of(utility, tuple(map(episode_outcomes, rollouts)), clip)
    seen = set()
    for level in range(len(value)):
        expected = expected_utility(utility, clip, *(returns_of(rollout, level) for rollout in rollouts))
        seen.add(expected is None)
        assert bool(known[level]) == (expected is not None)
        assert float(value[level]) == pytest.approx(expected or 0.0, abs=1e-5)
    assert seen == {True, False}


def test_of_two_equals_the_student_is_the_antagonist_as_in_the_original_code():
    student = outcomes([0.5], finished=2, best=jnp.asarray([1.0]))
    antagonist = outcomes([0.8], finished=5, best=jnp.asarray([1.0]))
    value, _ = utility_of("flexible-regret", (student, antagonist))
    np.testing.assert_allclose(value, [0.2], rtol=1e-6)


@pytest.mark.parametrize("method", ["paired", "minimax"])
def test_a_walker_that_fell_beside_one_that_still_walks_has_a_regret_at_quick(method):
    """Rollouts of 512 steps, episodes of up to 2,000: the largest regrets were those that were not known."""
    setup = build(preset("walker", method, "quick"))[1]
    curriculum, students = setup.curriculum, setup.curriculum.students
    designer = source(curriculum.source.utility)
    curriculum = dataclasses.replace(curriculum, source=designer)
    state = teacher.init(curriculum, COUNT, jax.random.key(0))
    assignment, state = teacher.ask(curriculum, state, jax.random.key(1), COUNT)
    steps = jnp.arange(6)
    falls = played(0, COUNT, 6)
    falls = dataclasses.replace(
        falls,
        reward=jnp.broadcast_to(jnp.where(steps == 2, -100.0, 1.0), falls.reward.shape),
        terminated=jnp.broadcast_to(steps == 2, falls.terminated.shape),
    )
    walks = dataclasses.replace(
        falls, reward=jnp.ones_like(falls.reward), terminated=jnp.zeros_like(falls.terminated)
    )
    rollouts = (falls, walks) if method == "paired" else (walks,)
    advantages = Advantages(falls.value, falls.value, falls.value, 1.0, 1.0)
    batch = tuple(
        dataclasses.replace(
            assignment.batch_of(0), rollout=one, advantages=advantages, outcomes=episode_outcomes(one)
        )
        for one in rollouts
    )
    assert len(batch) == students
    _, metrics, _ = teacher.tell(curriculum, state, assignment, plays=batch, key=jax.random.key(2))
    assert float(metrics["source/known"]) == 1.0
    assert float(metrics["source/utility"]) == (6.0 - (-98.0) if method == "paired" else -6.0)


@functools.cache
def proposed():
    """A designer, its state, one proposal, and how it learns from it."""
    designer = source("minus-return")
    state = designer.init(jax.random.key(0))
    _, proposal = jax.jit(lambda: designer.propose(state, jax.random.key(1), COUNT))()

    @jax.jit
    def learn(proposal, student):
        return designer.learn(state, proposal, (student,), jax.random.key(2))

    return state, proposal, learn


def test_the_utility_is_paid_at_the_last_step_of_a_design_which_ends_it():
    _, proposal, _ = proposed()
    assert proposal.terminated[:, -1].all()
    assert not proposal.terminated[:, :-1].any()
    assert not proposal.reward.any()
    assert proposal.final_state is None


def test_a_design_that_is_soon_finished_is_worth_as_much_as_one_that_takes_all_steps():
    """At first it was paid at the last step, for ignored actions too; and then sooner, and so more."""
    gamma, steps, ends = 0.9, 6, np.array([5, 2, 0])
    terminated = np.arange(steps) == ends[:, None]
    terminated[1, 4] = True  # such as a domain may say once more, where nothing is left to do
    reward = np.asarray(rewards_of(jnp.asarray(terminated), jnp.asarray([1.0, 2.0, 3.0]), gamma))
    assert ((reward != 0) == (np.arange(steps) == ends[:, None])).all()
    discounted = (reward * gamma ** np.arange(steps)).sum(axis=1)
    np.testing.assert_allclose(discounted, np.array([1.0, 2.0, 3.0]) * gamma ** (steps - 1), rtol=1e-6)


def test_what_follows_the_end_of_a_design_teaches_the_designer_nothing():
    """With 60 blocks half of the steps come after it; they bootstrapped values that no reward grounds."""
    _, proposal, learn = proposed()
    ends = np.arange(COUNT) % STEPS
    steps = np.arange(STEPS)
    finished = eqx.tree_at(lambda p: p.terminated, proposal, jnp.asarray(steps == ends[:, None]))
    later = jnp.asarray(steps > ends[:, None])
    other = dataclasses.replace(
        finished,
        action=jnp.where(later, 1 - finished.action, finished.action),
        value=jnp.where(later, 7.0, finished.value),
        log_prob=jnp.where(later, -3.0, finished.log_prob),
        observation=jnp.where(later[:, :, None], 5.0, finished.observation),
    )
    said = outcomes(np.linspace(0.0, 1.0, COUNT))
    assert digest(learn(other, said)[0]) == digest(learn(finished, said)[0])
    assert digest(learn(proposal, said)[0]) != digest(learn(finished, said)[0])


def test_a_maze_is_finished_with_its_start_however_few_walls_it_has():
    domain, _ = build(tiny("paired", teacher__replaces="uniform60"))
    environment = domain.design_for("uniform60").environment
    task = domain.design_for("uniform60").task
    _, state = environment.reset(jax.random.key(0), task)
    ended = []
    for number, tile in enumerate([7, 3, 4, 11, 12, 13]):  # 7 of 25 tiles: 16 walls of 60
        step = environment.step(jax.random.key(number), task, state, jnp.asarray(tile))
        state = step.state
        ended.append(bool(step.terminated))
    assert not any(ended)
    state = environment.reset(jax.random.key(0), task)[1]
    for number, tile in enumerate([1, 3, 4, 11]):  # one of 25: two walls, then the goal and the start
        step = environment.step(jax.random.key(number), task, state, jnp.asarray(tile))
        state = step.state
    assert bool(step.terminated)
    assert not bool(environment.step(jax.random.key(9), task, state, jnp.asarray(5)).terminated)


def test_ranks_say_which_level_is_better_and_no_more():
    utility = jnp.asarray([0.0, 0.9, 0.1, 0.1, 5.0])
    known = jnp.asarray([True, True, True, True, False])
    np.testing.assert_allclose(rank_among(utility, known), [0.0, 1.0, 0.5, 0.5, 0.0])
    assert float(rank_among(utility[:1], known[:1])[0]) == 0.0


def test_what_no_student_finished_teaches_the_designer_nothing():
    _, proposal, learn = proposed()
    finished = np.arange(COUNT) % 4 > 0
    returns = np.linspace(0.0, 1.0, COUNT)
    after, metrics = learn(proposal, outcomes(returns, finished))
    assert float(metrics["known"]) == pytest.approx(0.75)
    assert float(metrics["utility"]) == pytest.approx(-returns[finished].mean())
    other = eqx.tree_at(
        lambda p: p.action, proposal, jnp.where(finished[:, None], proposal.action, 1 - proposal.action)
    )
    again, _ = learn(other, outcomes(np.where(finished, returns, 5.0), finished))
    assert digest(again) == digest(after)
    wrong = eqx.tree_at(lambda p: p.action, proposal, 1 - proposal.action)
    assert digest(learn(wrong, outcomes(returns, finished))[0]) != digest(after)


def test_a_batch_without_any_finished_episode_leaves_the_designer_as_it_was():
    state, proposal, learn = proposed()
    after, metrics = learn(proposal, outcomes(np.ones(COUNT), 0))
    assert digest(after) == digest(state)
    assert float(metrics["known"]) == 0.0
    assert np.isnan(metrics["utility"])
    assert np.isnan(metrics["best_utility"])


def test_normalised_utilities_have_no_unit():
    designer = source("minus-return", normalise_returns=True)
    state = designer.init(jax.random.key(0))
    _, proposal = jax.jit(lambda: designer.propose(state, jax.random.key(1), COUNT))()
    learn = jax.jit(lambda student: designer.learn(state, proposal, (student,), jax.random.key(2))[0])
    returns = np.linspace(-1.0, 1.0, COUNT)
    small, large = (learn(outcomes(factor * returns)) for factor in (1.0, 1000.0))
    assert float(large.return_scale.variance) == pytest.approx(
        1e6 * float(small.return_scale.variance), rel=1e-2
    )
    for one, other in zip(jax.tree.leaves(small.network), jax.tree.leaves(large.network), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)


@pytest.mark.parametrize(
    ("domain", "method", "name", "expected"),
    [
        ("maze", "paired", "paper", ("regret", 1e-4, 5, 1, 0.0, False, "lstm")),
        ("maze", "repaired", "dcd", ("regret", 1e-4, 5, 1, 0.0, False, "memoryless")),
        ("maze", "minimax", "paper", ("minus-return", 1e-4, 5, 1, 0.0, False, "memoryless")),
        ("maze", "minimax", "dcd", ("minus-best-return", 1e-4, 5, 1, 0.0, False, "memoryless")),
        ("walker", "paired", "paper", ("regret", 3e-4, 8, 4, 0.01, True, "mlp")),
        ("walker", "minimax", "dcd", ("minus-best-return", 3e-4, 8, 4, 0.01, False, "mlp")),
    ],
)
def test_presets_say_what_paper_and_original_code_say_of_each_agent(domain, method, name, expected):
    config = preset(domain, method, name)
    teacher, ppo = config.teacher, config.teacher.designer.ppo
    network = teacher.designer.network
    found = (ppo.learning_rate, ppo.epochs, ppo.minibatches, ppo.entropy_coef, ppo.normalise_returns)
    assert (teacher.utility, *found, network.kind) == expected
    assert all(student.ppo == config.student.ppo for student in config.students)
    assert (ppo.gamma, ppo.gae_lambda) == (config.student.ppo.gamma, config.student.ppo.gae_lambda)
    if domain == "maze":
        width = 13 * 13 * 128 + 10 + 50
        parts = spec_of(config).observation_parts
        assert width_of(network.encoder.make(parts, jax.random.key(0)), parts) == width


def spec_of(config):
    return config.built_domain.design_spec(config.teacher.replaces)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("maze", ("maxmc", "rank", 0.1, 0.3, 0.95, 0.0)),
        ("racing", ("maxmc-start-positive", "power", 1.0, 0.7, 0.5, 0.01)),
    ],
)
def test_repaired_is_that_of_the_published_runs_with_the_preset_dcd(domain, expected):
    repaired = preset(domain, "repaired", "dcd").teacher
    replay, entropy = repaired.replay, repaired.designer.ppo.entropy_coef
    priority = replay.priority
    found = (priority.transform, priority.temperature, priority.staleness_coef, replay.replay_prob, entropy)
    assert (repaired.score, *found) == expected
    others = preset(domain, "paired", "dcd").teacher.designer, preset(domain, "plr-robust", "dcd").teacher
    assert others[0].ppo.entropy_coef == 0.0
    assert (others[1].score, others[1].replay.priority.transform) == ("pvl", expected[1])
    assert preset(domain, "plr", "dcd").teacher.replay.priority.transform == expected[1]


def test_the_designer_of_a_domain_from_elsewhere_is_known_by_its_environment():
    settings = MazeConfig(size=5)
    config = preset("mine", "paired", entry=dataclasses.replace(maze_domain(settings), presets={}))
    assert spec_of(config) == settings.design_spec("uniform60")
    assert spec_of(config).steps == 62


def refusals(method, overrides, **arguments):
    with pytest.raises(SettingsError) as error:
        preset("maze", method, overrides=overrides, **arguments)
    return str(error.value)


@pytest.mark.parametrize("domain", ["maze", "racing"])
def test_a_board_sees_what_the_designer_placed_at_the_number_of_the_tile(domain):
    """So that "far from the goal" means the same where it is read and where it is chosen."""
    config = preset(domain, "paired", "quick")
    design = build(config)[0].design_for(config.teacher.replaces)
    environment, code = design.environment, {"maze": 2, "racing": 1}[domain]
    spaces = parts_of(environment.observation_space)
    border = border_of(image_and_rest(spaces)[0], environment.action_space.n)
    _, state = environment.reset(jax.random.key(0), design.task)
    for tile in (3, 29):
        step = environment.step(jax.random.key(tile), design.task, state, jnp.asarray(tile))
        state = step.state
        observation = jax.tree.map(lambda leaf: leaf[None], step.observation)
        bits, _ = board_and_discrete(spaces, observation, (code,), border)
        assert bool(bits[0, tile, 0])
    assert int(bits.sum()) == 2


def test_settings_that_cannot_be_are_refused():
    assert "teacher.replaces: must be one of random" in refusals("paired", {"teacher.replaces": "none"})
    assert "antagonist: must be null" in refusals("minimax", {"teacher.antagonist.epochs": 1})
    falls = {"teacher.designer.ppo.final_learning_rate_fraction": 0.1}
    assert "teacher.designer.ppo.decay_updates: must be given" in refusals("paired", falls)
    uneven = {"teacher.designer.ppo.minibatches": 5}
    assert "teacher.designer.ppo.minibatches: must divide num_levels" in refusals("paired", uneven)
    uneven = {"teacher.antagonist.minibatches": 5}
    assert "teacher.antagonist.minibatches: must divide num_levels" in refusals("paired", uneven)
    small = {"env.size": 3}
    assert spec_of(preset("maze", "paired", overrides=small)).steps > 0
    without = dataclasses.replace(find_domain("maze"), design=None)
    assert "method: must be another one: this domain has no design" in refusals("paired", {}, entry=without)


def test_a_domain_without_a_design_environment_says_so():
    domain, _ = build(tiny("dr"))
    with pytest.raises(ValueError, match="maze has no design environment"):
        dataclasses.replace(domain, design=None).design_for("random")


def test_the_antagonist_has_the_settings_of_the_student_unless_others_are_given():
    _, setup = build(tiny("paired"))
    assert setup.students[0] == setup.students[1]
    _, setup = build(tiny("paired", teacher__antagonist__entropy_coef=0.5))
    assert setup.students[1] == dataclasses.replace(setup.student, ppo=PPOConfig(entropy_coef=0.5))
    assert len(build(tiny("minimax"))[1].students) == 1
