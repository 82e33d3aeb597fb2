"""What every domain of the library has in common: the files of its folder, and the parts they make."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import cenie.envs
from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS
from cenie.run.build import build
from cenie.run.presets import preset

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


@pytest.fixture(scope="module", params=DOMAINS)
def domain(request: pytest.FixtureRequest) -> Domain:
    return build(preset(request.param, "dr", next(iter(DOMAINS[request.param].presets))))[0]


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


def test_the_table_names_what_the_domain_has(domain):
    row = DOMAINS[domain.name]
    assert set(domain.generators) == set(row.generators)
    assert set(domain.suites) == set(row.suites)
    assert dict(domain.roles) == dict(row.roles)
    assert {"random", "simple"} <= domain.roles.keys()


def test_all_ways_to_a_level_lead_to_the_same_kind(domain):
    shapes = [jax.eval_shape(domain.generator(name), KEY) for name in (*domain.generators, *domain.roles)]
    shapes.append(jax.eval_shape(domain.edit, KEY, shapes[0]))
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
