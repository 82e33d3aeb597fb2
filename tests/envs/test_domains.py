"""What every domain of the library has in common: the files of its folder, and the parts they make."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cenie.envs
from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS, find_domain, is_ours
from cenie.envs.reset import step_only
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.methods.plr import ReplayTeacher
from cenie.methods.table import METHODS
from cenie.spaces import Discrete

FILES = {
    "__init__",
    "config",  # its settings
    "domain",  # all parts put together
    "dynamics",  # the environment
    "edit",
    "formats",  # levels as JSON
    "generate",
    "level",
    "presets",
    "render",
    "suites",
}
"""The files of every domain; it may have others for what is its own."""

KEY = jax.random.key(0)
COUNT = 20


@pytest.fixture(scope="module", params=DOMAINS)
def domain(request: pytest.FixtureRequest) -> Domain:
    return build(preset(request.param, "dr"))[0]


def missing_files(names: set[str]) -> set[str]:
    return FILES - {name.removesuffix(".py") for name in names}


def test_every_folder_is_a_domain_with_the_same_files():
    folders = {
        path.name: {file.name for file in path.glob("*.py")}
        for path in Path(cenie.envs.__path__[0]).iterdir()
        if path.is_dir() and any(path.glob("*.py"))
    }
    assert folders.keys() == DOMAINS.keys()
    for name, files in folders.items():
        assert missing_files(files) == set(), name


def test_a_missing_file_is_found():
    assert missing_files({f"{name}.py" for name in FILES - {"edit"}} | {"physics.py"}) == {"edit"}


def test_a_domain_is_found_by_its_name_and_built_with_other_settings(domain):
    found = find_domain(domain.name)
    assert find_domain(domain.name) is found
    assert is_ours(found)
    assert found.summary == DOMAINS[domain.name]
    assert {"random", "simple"} <= found.roles.keys()
    assert found.build(found.settings) is found
    steps = "time_limit" if domain.name == "racing" else "max_steps"
    other = found.build(dataclasses.replace(found.settings, **{steps: 16}))
    assert other.environment.max_steps == other.settings.max_steps == {"racing": 2}.get(domain.name, 16)
    assert not is_ours(other)


def test_all_ways_to_a_level_lead_to_the_same_kind(domain):
    shapes = [jax.eval_shape(domain.generator(name), KEY) for name in (*domain.generators, *domain.roles)]
    shapes.append(jax.eval_shape(domain.edit, KEY, shapes[0]))
    assert domain.tasks is not None
    shapes.append(jax.eval_shape(domain.tasks.draw, KEY, jnp.asarray(domain.tasks.low)))
    described = {str(jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), shape)) for shape in shapes}
    assert len(described) == 1
    statistics = jax.eval_shape(domain.statistics, shapes[0])
    assert statistics
    assert {value.shape for value in statistics.values()} == {()}


def test_levels_survive_json(domain):
    assert domain.to_json is not None
    assert domain.from_json is not None
    level = jax.jit(domain.generator("random"))(KEY)
    again = domain.from_json(json.loads(json.dumps(domain.to_json(level))))
    jax.tree.map(np.testing.assert_array_equal, again, level)
    for nonsense in (None, [], {}, "level", 3):
        with pytest.raises(ValueError, match=r"\w"):
            domain.from_json(nonsense)


def test_suites_stack_and_name_every_entry_once(domain):
    for name, make in domain.suites.items():
        suite = make()
        assert suite.name == name
        labels = [(entry.level, entry.variant) for entry in suite.entries]
        assert len(set(labels)) == len(labels) > 0
        levels = [entry.draw(np.random.default_rng(0)) for entry in suite.entries]
        stacked = domain.stack(levels)
        assert {leaf.shape[0] for leaf in jax.tree.leaves(stacked)} == {len(levels)}


def rows(levels):
    return [jax.tree.map(lambda leaf, n=n: np.asarray(leaf)[n], levels) for n in range(COUNT)]


def assert_valid(domain, levels):
    """Every level survives JSON, whose reader refuses what is not valid."""
    for level in rows(levels):
        again = domain.from_json(json.loads(json.dumps(domain.to_json(level))))
        jax.tree.map(np.testing.assert_array_equal, again, level)


@pytest.fixture(scope="module")
def random_levels(domain):
    return jax.jit(jax.vmap(domain.generator("random")))(jax.random.split(KEY, COUNT))


def test_generated_and_edited_levels_are_valid(domain, random_levels):
    assert_valid(domain, random_levels)
    simple = jax.jit(jax.vmap(domain.generator("simple")))(jax.random.split(KEY, COUNT))
    assert_valid(domain, simple)
    assert_valid(domain, jax.jit(jax.vmap(domain.edit))(jax.random.split(KEY, COUNT), simple))


def test_random_designs_are_valid_levels(domain, random_levels):
    if domain.design is None:
        pytest.skip("nothing can be designed here")
    design = domain.design(domain.roles["random"])
    environment, space = design.environment, design.environment.action_space
    tasks = jax.tree.map(lambda leaf: np.stack([leaf] * COUNT), design.task)

    def step(states, key):
        if isinstance(space, Discrete):
            actions = jax.random.randint(key, (COUNT,), 0, space.n)
        else:
            actions = jax.random.normal(key, (COUNT, *space.shape))
        made, _ = step_only(environment, jax.random.split(key, (COUNT, 2)), tasks, states, actions)
        return made.state, made.terminated

    @jax.jit
    def play(key):
        _, states = jax.vmap(environment.reset)(jax.random.split(key, COUNT), tasks)
        states, ends = jax.lax.scan(step, states, jax.random.split(key, environment.max_steps))
        return jax.vmap(design.finished_level)(states), ends

    levels, ends = play(KEY)
    assert (ends.sum(axis=0) == 1).all()
    assert_valid(domain, levels)
    kinds = [[leaf.dtype for leaf in jax.tree.leaves(some)] for some in (levels, random_levels)]
    assert kinds[0] == kinds[1]


def test_points_of_the_parameter_space_are_levels(domain, random_levels):
    space = domain.parameters
    if space is None:
        pytest.skip("levels have no parameters here")
    points = jax.random.uniform(KEY, (COUNT, len(space.low)), minval=space.low, maxval=space.high)
    assert_valid(domain, jax.vmap(space.decode)(points))
    again = jax.vmap(lambda level: space.decode(space.encode(level)))(random_levels)
    jax.tree.map(np.testing.assert_array_equal, again, random_levels)


def test_levels_can_be_seen(domain, random_levels):
    if domain.render is None:
        pytest.skip("there are no pictures of this domain")
    pictures = [domain.render.level(level) for level in rows(random_levels)[:2]]
    assert all(picture.dtype == np.uint8 and picture.shape[2] == 3 for picture in pictures)
    assert not np.array_equal(*pictures)


def test_quick_mazes_are_scored_otherwise_unless_a_method_is_named_after_its_score():
    scores = {method: preset("maze", method, "quick").teacher.score for method in ("plr-cenie", "accel")}
    assert scores == {"plr-cenie": "maxmc", "accel": "maxmc"}
    assert preset("maze", "plr-learnability", "quick").teacher.score == "learnability"
    assert preset("maze", "plr-cenie", "paper").teacher.score == "pvl"


@pytest.mark.parametrize("name", DOMAINS)
def test_paper_presets_replay_nothing_before_n_levels_fill_the_buffer_and_then_by_the_rate_alone(name):
    replays = {
        method: replay
        for method in METHODS
        if (replay := getattr(preset(name, method, "paper").teacher, "replay", None)) is not None
    }
    assert {"plr-cenie", "accel-cenie", "diplr", "plr-robust", "accel"} <= set(replays)
    for replay in replays.values():
        assert (replay.levels_before_replay, replay.schedule) == (replay.capacity, "fixed")


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize(
    ("which", "victim", "insertion"),
    [("paper", "lowest-priority", "mixture"), ("dcd", "least-likely", "raw")],
)
def test_which_levels_stay_is_decided_by_the_text_in_paper_and_by_the_original_code_in_dcd(
    name, which, victim, insertion
):
    """The listings compare P_replay (Eq. 5), which has no staleness; the original sampler's has."""
    for method in ("plr-cenie", "accel-cenie", "diplr", "plr-robust", "accel", "repaired"):
        replay = getattr(preset(name, method, which).teacher, "replay", None)
        assert replay is not None
        assert (replay.victim, replay.insertion) == (victim, insertion)


@pytest.mark.parametrize("name", DOMAINS)
def test_dcd_presets_replay_from_half_full_on_by_at_most_the_share_that_is_filled(name):
    teacher = preset(name, "plr-robust", "dcd").teacher
    assert isinstance(teacher, ReplayTeacher)
    replay = teacher.replay
    assert (replay.levels_before_replay, replay.schedule) == (replay.capacity // 2, "proportionate")
