import io
import json
from pathlib import Path

import numpy as np
import pytest

import cenie.novelty
from cenie.novelty import estimator as estimator_module
from cenie.novelty.estimator import Coverage

D = 3
SMALL = {"components": (2, 4), "window": 4}


def trajectory(seed: int, length: int = 20) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(length, D)) + 4 * rng.integers(0, 2, (length, 1))


def fitted(seed: int = 0) -> Coverage:
    estimator = Coverage(**SMALL, seed=seed)
    for number in range(6):
        estimator.push(trajectory(number, 10 + number))
    return estimator.fit()


def test_what_was_pushed_is_less_novel_than_what_is_elsewhere() -> None:
    estimator = Coverage(**SMALL)
    assert estimator.novelty(trajectory(0)) == 0.0
    estimator.push(trajectory(0))
    assert estimator.novelty(trajectory(1)) == 0.0
    estimator.fit()
    assert estimator.novelty(trajectory(0)) < estimator.novelty(trajectory(0) + 5.0)
    assert estimator.components_ in (2, 3, 4)
    assert estimator.diagnostics_["scores"].shape == (3,)
    assert estimator.failed_fits_ == 0


def test_novelty_is_the_mean_of_densities_whatever_the_length() -> None:
    estimator = fitted()
    for length in (1, 15, 16, 17, 40):
        points = trajectory(9, length)
        density = estimator.log_density(points)
        assert density.shape == (length,)
        assert estimator.novelty(points) == pytest.approx(-density.mean(), rel=1e-4)


def test_only_the_last_trajectories_count() -> None:
    long_ago = Coverage(**SMALL)
    long_ago.push(trajectory(50, 30) + 100.0)
    recent = Coverage(**SMALL)
    for estimator in (long_ago, recent):
        for number in range(4):
            estimator.push(trajectory(number))
        estimator.fit()
    assert long_ago.novelty(trajectory(7)) == recent.novelty(trajectory(7))


def test_lengths_in_between_do_not_compile_again() -> None:
    estimator = fitted()
    estimator.novelty(trajectory(0, 33))
    before = estimator_module._novelty._cache_size()
    for length in (34, 50, 64):
        estimator.novelty(trajectory(0, length))
    assert estimator_module._novelty._cache_size() == before
    estimator.novelty(trajectory(0, 65))
    assert estimator_module._novelty._cache_size() == before + 1


def test_the_seed_decides() -> None:
    assert fitted(0).novelty(trajectory(9)) == fitted(0).novelty(trajectory(9))
    scores = [fitted(seed).diagnostics_["log_likelihood"] for seed in (0, 1)]
    assert not np.array_equal(*scores)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros(D), "dimensions"),
        (np.zeros((2, 2, D)), "dimensions"),
        (np.zeros((0, D)), "at least one"),
        (np.zeros((2, D), int), "floats"),
        (np.array([["a", "b", "c"]]), "floats"),
        (np.full((2, D), np.nan), "finite"),
        (np.full((2, D), 1e39), "finite"),
        (np.zeros((2, D + 1)), "3 dimensions as before"),
    ],
)
def test_wrong_points_are_refused(points: np.ndarray, message: str) -> None:
    estimator = fitted()
    for method in (estimator.push, estimator.novelty, estimator.log_density):
        with pytest.raises(ValueError, match=message):
            method(points)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="components"):
        Coverage(components=(5, 3))
    with pytest.raises(TypeError, match="nonsense"):
        Coverage(nonsense=1)


def test_calls_out_of_order_are_explained() -> None:
    estimator = Coverage(**SMALL)
    with pytest.raises(RuntimeError, match="push"):
        estimator.fit()
    with pytest.raises(RuntimeError, match="fit"):
        estimator.log_density(trajectory(0))
    with pytest.raises(AttributeError):
        estimator.components_  # noqa: B018
    assert estimator.diagnostics_ == {}


@pytest.mark.parametrize("model", ["mixture", "pca", "neighbours", "distillation"])
def test_saving_and_loading_changes_no_bit(tmp_path: Path, model: str) -> None:
    estimator = Coverage(**SMALL, model=model, warm_start=True, distillation_steps=10)
    for number in range(5):
        estimator.push(trajectory(number, 8 + number))
    path = tmp_path / "coverage"
    estimator.save(path)  # before any fit
    assert Coverage.load(path).diagnostics_ == {}
    estimator.fit().save(path)
    again = Coverage.load(path)
    assert again.config == estimator.config
    np.testing.assert_array_equal(again.log_density(trajectory(9)), estimator.log_density(trajectory(9)))
    for both in (again, estimator):
        both.push(trajectory(8))
        both.fit()
    np.testing.assert_array_equal(again.log_density(trajectory(9)), estimator.log_density(trajectory(9)))
    assert again.diagnostics_.keys() == estimator.diagnostics_.keys()
    assert [file.name for file in tmp_path.iterdir()] == ["coverage"]


def test_an_empty_one_can_be_saved(tmp_path: Path) -> None:
    Coverage(**SMALL, seed=3).save(tmp_path / "empty")
    again = Coverage.load(tmp_path / "empty")
    again.push(trajectory(0))
    assert again.config.window == 4


def test_files_of_anything_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    fitted().save(path)
    content = path.read_bytes()
    objects = io.BytesIO()
    np.savez(objects, header=np.array([{"a": 1}], object))
    other = io.BytesIO()
    np.savez(other, header=np.frombuffer(json.dumps({"format": "x"}).encode(), np.uint8))
    for wrong in (b"", b"text", content[: len(content) // 2], objects.getvalue(), other.getvalue()):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="not a saved coverage"):
            Coverage.load(path)


def test_the_front_door_names_what_exists() -> None:
    for name in cenie.novelty.__all__:
        assert getattr(cenie.novelty, name).__module__.startswith("cenie.novelty.")
    with pytest.raises(AttributeError, match="nonsense"):
        cenie.novelty.nonsense  # noqa: B018  # pyright: ignore
