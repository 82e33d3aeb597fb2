"""The reckoned memory is close to the real one and never above it."""

from typing import Any

import jax
import pytest

from cenie.envs.domains import DOMAINS
from cenie.experiment import memory
from cenie.experiment.build import build
from cenie.experiment.memory import (
    Need,
    evaluation_needs,
    format_bytes,
    memory_problems,
    memory_size,
    training_needs,
)
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.teach.cycle import init

GB = 10**9


def test_the_state_of_a_run_takes_what_was_reckoned() -> None:
    config = preset("maze", "plr-cenie", "paper", {"env.size": 30})
    setup = build(config)[1]
    state = jax.eval_shape(lambda: init(setup, 0))
    needs = {need.purpose: need.size for need in evaluation_needs(config, 1)}
    # Reckoned are the weights with their gradient and two moments, and two copies of the rest.
    real = {
        "the network": 4 * size_of(state.student.network),
        "the level buffer": 2 * size_of(state.teacher.buffer),
        "the coverage window": 2 * size_of(state.teacher.novelty.coverage.points),
    }
    for purpose, size in real.items():
        assert 0.9 * size <= needs[purpose] <= size


def test_the_networks_of_all_who_learn_are_reckoned() -> None:
    config = preset("maze", "repaired", "paper")
    state = jax.eval_shape(lambda: init(build(config)[1], 0))
    needs = {need.purpose: need.size for need in evaluation_needs(config, 1)}
    real = {
        "the network": 4 * size_of([student.network for student in state.students]),
        "the designer's network": 4 * size_of(state.teacher.source.network),
        "the level buffer": 2 * size_of(state.teacher.buffers),
    }
    for purpose, size in real.items():
        assert 0.9 * size <= needs[purpose] <= size


@pytest.mark.parametrize(
    ("method", "real_sizes"),
    [
        (
            "diplr",
            lambda novelty: {
                "the occupancies of levels": 2 * size_of(novelty.occupancies),
                "the distances between levels": 2 * size_of(novelty.distances),
            },
        ),
        ("plr-epoet", lambda novelty: {"the past students": 2 * size_of(novelty.population.students)}),
    ],
)
def test_the_state_of_other_novelties_takes_what_was_reckoned(method: str, real_sizes: Any) -> None:
    config = preset("maze", method, "paper")
    setup = build(config)[1]
    state = jax.eval_shape(lambda: init(setup, 0))
    needs = {need.purpose: need.size for need in evaluation_needs(config, 1)}
    for purpose, size in real_sizes(state.teacher.novelty).items():
        assert 0.9 * size <= needs[purpose] <= size


def size_of(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("domain", "name"), [(d, name) for d in DOMAINS for name in DOMAINS[d].presets])
def test_every_preset_fits_in_one_gigabyte(domain: str, name: str, method: str) -> None:
    assert memory_problems(training_needs(preset(domain, method, name)), GB) == []


def test_what_does_not_fit_is_named_with_the_settings_that_decide_it() -> None:
    needs = [Need(3 * GB, "a", ("x", "y")), Need(2 * GB, "b", ("z",)), Need(GB // 2, "c", ("w",))]
    assert memory_problems(needs, 6 * GB) == []
    assert [str(problem) for problem in memory_problems(needs, 5 * GB)] == [
        "x, y: a takes 3 GB or more of the 5.5 GB that are needed; this machine has 5 GB of memory",
        "z: b takes 2 GB or more of the 5.5 GB that are needed; this machine has 5 GB of memory",
    ]


@pytest.mark.parametrize("kind", ["mixture", "neighbours"])
def test_every_kind_of_coverage_is_reckoned(kind: str) -> None:
    config = preset("maze", "plr-cenie", "quick", {"teacher.novelty.coverage.kind": kind})
    assert all(need.size > 0 for need in training_needs(config))


def test_what_levels_are_prepared_to_counts() -> None:
    config = preset("racing", "dr", "paper", {"env.texel": 0.02})
    (problem,) = memory_problems(training_needs(config), GB)
    assert problem.path == "student.num_levels, env"
    assert problem.message.startswith("the prepared levels takes 11.8 GB")


def test_a_run_may_be_evaluated_where_it_could_not_be_trained() -> None:
    config = preset("maze", "dr", "quick", {"student.num_levels": 1_000_000})
    assert memory_problems(training_needs(config), GB) != []
    assert memory_problems(evaluation_needs(config, 10), GB) == []


def test_the_memory_of_a_container_counts(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memory_size()
    assert whole is not None
    limits = [tmp_path / name for name in ("max", "small", "missing")]
    limits[0].write_text("max\n")
    limits[1].write_text("12345678\n")
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", tuple(map(str, limits)))
    assert memory_size() == 12345678


def test_sizes_are_readable() -> None:
    assert [format_bytes(size) for size in (0, 999, 1000, 25_300_000_000, 10**25)] == [
        "0 B",
        "999 B",
        "1 kB",
        "25.3 GB",
        "1e+07 EB",
    ]
