import inspect
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

import cenie.novelty
from cenie.novelty import estimator as estimator_module
from cenie.novelty import fit_failures
from cenie.novelty.config import CovarianceName, MixtureConfig
from cenie.novelty.estimator import Coverage, FitError, NotFittedError
from tests.tensors import Tensor

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
    estimator.push(trajectory(0, 40))
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


def test_bug_every_power_of_two_compiled_again() -> None:
    """Densities of 1 to 9,000 points take three programs, fits of 40 to 4,000 points another three."""
    estimator = fitted()
    densities, fits = (
        set(estimator_module._prepared),
        estimator_module._fit._cache_size(),
    )
    before = estimator_module._log_density._cache_size()
    for length in (1, 33, 64, 65, 130, 300, 512, 513, 1025, 3000, 9000):
        assert estimator.log_density(trajectory(0, length)).shape == (length,)
    assert estimator_module._log_density._cache_size() <= before + 3
    for length in (70, 130, 256, 257, 520, 1000, 1025, 2050, 4000):
        estimator.fit(trajectory(0, length))
        estimator.novelty(trajectory(1, 20))
    assert estimator_module._fit._cache_size() <= fits + 3
    # The model is the only part of a state that a density depends on.
    assert estimator_module._log_density._cache_size() <= before + 3
    assert len(set(estimator_module._prepared) - densities) <= 6


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of memory")
def test_bug_a_fit_to_a_million_points_took_twelve_times_their_memory(tmp_path: Path) -> None:
    """Beside the points that are given there is the window, which is a copy of them, and little else."""
    points = np.zeros((1_000_000, 60), np.float32)
    points[:, :3] = np.random.default_rng(0).normal(size=(len(points), 3))
    once = points.nbytes
    estimator = Coverage(**SMALL, max_points=256, covariance="diag")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a fit looks at some of the points
        estimator.fit(points[:300])
        estimator.log_density(points[:5000])
        assert rise_of_memory(lambda: estimator.fit(points)) < 1.4 * once
        assert rise_of_memory(lambda: estimator.log_density(points)) < 0.3 * once
        # What is written is put together once more.
        assert rise_of_memory(lambda: estimator.save(tmp_path / "file")) < 1.3 * once
    assert sum(map(len, estimator._window)) == len(points)


COLD_FIT = """
import numpy as np
from cenie.novelty import Coverage
from tests.novelty.test_estimator import rise_of_memory

points = np.random.default_rng(0).normal(size=(1000, 60))
print(rise_of_memory(lambda: Coverage().fit(points).score_samples(points)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of memory")
def test_bug_the_compiler_took_twice_the_memory_of_a_million_points() -> None:
    """In a process that finds no program on disk, and has none of the flags of the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    found = subprocess.run(
        [sys.executable, "-c", COLD_FIT],
        env=environment | {"CENIE_CACHE_DIR": "off", "JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) < 400e6


def rise_of_memory(call: Any) -> int:
    """By how many bytes the largest memory of this process, during the call, exceeds that before it."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_of_process("VmRSS")
    call()
    return memory_of_process("VmHWM") - before


def memory_of_process(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def test_densities_block_by_block_are_those_of_single_points() -> None:
    estimator, points = fitted(), trajectory(0, 4200)
    whole = estimator.log_density(points)
    for place in (0, 63, 64, 4095, 4096, 4199):
        assert whole[place] == pytest.approx(estimator.log_density(points[place : place + 1])[0], rel=1e-5)


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
        ([[0.0, 1.0, 2.0], [0.0]], "array .points, dimensions.*inhomogeneous"),
    ],
)
def test_wrong_points_are_refused(points: Any, message: str) -> None:
    estimator = fitted()
    for method in (estimator.push, estimator.novelty, estimator.log_density, estimator.score):
        with pytest.raises(ValueError, match=message):
            method(points)


def test_masked_arrays_are_refused_with_the_remedy() -> None:
    points = np.ma.masked_greater(trajectory(0, 40), 4.0)
    estimator = fitted()
    for method in (estimator.push, estimator.novelty, estimator.log_density, estimator.fit):
        with pytest.raises(ValueError, match="mask would be lost"):
            method(points)
    assert estimator.novelty(np.ma.compress_rows(points)) < estimator.novelty(points.filled(1e6))


def test_other_arrays_of_floats_are_welcome() -> None:
    estimator, points = fitted(), trajectory(9).astype(np.float16)
    expected = estimator.novelty(points)
    for same in (points.tolist(), jnp.asarray(points), np.asfortranarray(points)):
        assert estimator.novelty(same) == expected
    assert np.isfinite(estimator.novelty(jnp.asarray(points, jnp.bfloat16)))


@pytest.mark.parametrize("how", [{"grad": True}, {"device": "cuda:0"}, {}])
@pytest.mark.parametrize("kind", [np.float32, np.float64, jnp.bfloat16])
def test_bug_tensors_that_need_a_gradient_or_are_bfloat16_were_refused(how: Any, kind: Any) -> None:
    """PyTorch itself is no requirement of the tests; the same was tried with it (2.13)."""
    points = trajectory(9).astype(np.float16).astype(kind)
    estimator = fitted()
    expected = estimator.novelty(points.astype(np.float32))
    assert estimator.novelty(Tensor(points, **how)) == expected
    estimator.push(Tensor(points, **how))
    assert np.array_equal(estimator._window[-1], points.astype(np.float32))


def test_tensors_of_whole_numbers_are_refused_as_arrays_are() -> None:
    with pytest.raises(ValueError, match="expected an array of floats, got int64"):
        fitted().push(Tensor(np.zeros((2, D), np.int64)))
    with pytest.raises(ValueError, match=r"expected an array \[points, dimensions\]: .*requires grad"):
        fitted().push([Tensor(np.zeros(D), grad=True)] * 2)


def test_real_tensors() -> None:
    torch = pytest.importorskip("torch")
    points = torch.tensor(trajectory(9), dtype=torch.bfloat16, requires_grad=True)
    expected = points.detach().float().numpy()
    assert fitted().novelty(points) == fitted().novelty(expected)


def test_the_window_is_not_that_of_whoever_fills_one_array_again() -> None:
    points = trajectory(0, 40).astype(np.float32)
    pushed, given = Coverage(**SMALL), Coverage(**SMALL).fit(points)
    pushed.push(points)
    before = points.copy()
    points[:] = 0.0
    for estimator in (pushed, given):
        np.testing.assert_array_equal(estimator._window[0], before)


def test_bug_a_fit_to_some_of_the_points_did_not_say_so() -> None:
    estimator = Coverage(**SMALL, max_points=50, seed=3)
    for number in range(3):
        estimator.push(trajectory(number, 30))
    with pytest.warns(
        UserWarning, match="max_points=50: .* 50 of the 90 points of the window, drawn"
    ) as heard:
        estimator.fit()
    assert len(heard) == 1
    estimator.fit()  # said once: another warning would be an error here
    with pytest.warns(UserWarning, match="50 of the 80"):
        estimator.set_params(seed=4).fit(trajectory(0, 80))
    Coverage(**SMALL, max_points=90).fit(np.concatenate([trajectory(0, 30)] * 3))


def test_what_is_drawn_are_rows_of_all_trajectories_without_repeats() -> None:
    window = [
        np.arange(first, first + count, dtype=np.float32)[:, None]
        for first, count in ((0, 5), (5, 1), (6, 94))
    ]
    seen = np.zeros(100)
    for number in range(400):
        rows = estimator_module._drawn(window, 20, (0, number)).ravel().astype(int)
        assert len(rows) == len(set(rows)) == 20
        seen[rows] += 1
    assert (abs(seen - 80) < 5 * np.sqrt(400 * 0.2 * 0.8)).all()
    again = [estimator_module._drawn(window, 20, (0, 7)) for _ in range(2)]
    np.testing.assert_array_equal(*again)
    np.testing.assert_array_equal(estimator_module._drawn(window, 100, (0, 0)).ravel(), np.arange(100))
    np.testing.assert_array_equal(estimator_module._drawn(window, None, (0, 0)).ravel(), np.arange(100))


def test_a_program_that_told_jax_to_use_64_bits_gets_the_same_numbers(tmp_path: Path) -> None:
    expected = fitted().log_density(trajectory(9))
    with jax.enable_x64(True):
        estimator = fitted()
        estimator.save(tmp_path / "file")
        for same in (estimator, Coverage.load(tmp_path / "file")):
            np.testing.assert_array_equal(same.log_density(trajectory(9)), expected)
            assert same.fit().novelty(trajectory(9)) == pytest.approx(-expected.mean(), abs=1.0)
        assert jnp.zeros(1).dtype == jnp.float64


# Settings.


def made(**settings: Any) -> Coverage:
    """A coverage as a user's program makes it, without the tests' type checker."""
    coverage = object.__new__(Coverage)
    inspect.unwrap(Coverage.__init__)(coverage, **settings)
    return coverage


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="components"):
        Coverage(components=(5, 3))
    with pytest.raises(TypeError, match="nonsense"):
        Coverage(nonsense=1)
    with pytest.raises(TypeError, match="did you mean tolerance"):
        Coverage(tolerence=1)


def test_one_number_of_components_is_the_fewest_and_the_most() -> None:
    estimator = Coverage(components=3)
    assert estimator.config.components == (3, 3)
    assert estimator.get_params()["components"] == 3
    assert clone(estimator).config == estimator.config
    assert made(components=np.int64(3)).config == estimator.config
    assert estimator.fit(trajectory(0, 40)).components_ == 3


def test_the_seed_has_the_name_of_scikit_learn_too() -> None:
    assert Coverage(random_state=7).get_params() == Coverage(seed=7).get_params()
    assert Coverage(random_state=None).get_params() == Coverage().get_params()
    assert Coverage().set_params(random_state=np.int64(7)).get_params()["seed"] == 7
    with pytest.raises(ValueError, match="two names of one number"):
        Coverage(seed=1, random_state=2)
    with pytest.raises(ValueError, match="two names of one number"):
        Coverage().set_params(seed=1, random_state=2)
    with pytest.raises(ValueError, match="seed: must be a whole number"):
        made(random_state=-1)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None, 2**32, 10**30])
def test_seeds_that_would_repeat_another_or_fail_later_are_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed: "):
        made(seed=seed)


def test_every_wrong_argument_is_named_at_once() -> None:
    with pytest.raises(ValueError) as refusal:
        made(components="24", window="3", reg=float("nan"), seed=-1)
    problems = str(refusal.value).split("; ")
    assert {problem.split(": ")[0] for problem in problems} == {"components", "window", "reg", "seed"}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"components": 3.0}, "components"),
        ({"components": True}, "components"),
        ({"components": 1}, "components"),
        ({"window": True}, "window"),
        ({"reg": float("inf")}, "reg"),
        ({"max_points": 5}, "max_points"),
        ({"tolerance": float("nan")}, "tolerance"),
    ],
)
def test_what_could_never_be_fitted_is_refused_at_once(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        made(**settings)


# Fits that fail.


def test_nothing_is_novel_or_dense_before_a_fit() -> None:
    estimator = Coverage(**SMALL)
    with pytest.raises(FitError, match="push"):
        estimator.fit()
    for _ in range(2):
        for ask in (estimator.novelty, estimator.log_density, estimator.score_samples, estimator.score):
            with pytest.raises(NotFittedError, match="fit"):
                ask(trajectory(0))
        for name in ("components_", "weights_", "means_", "covariances_"):
            with pytest.raises(NotFittedError, match="fit"):
                getattr(estimator, name)
            assert not hasattr(estimator, name)
        estimator.push(trajectory(0))
    assert estimator.diagnostics_ == {}


HOPELESS = {
    "all 40 points of the window are equal.*2 components": np.full((40, D), 2.0),
    "holds 1 points.*2 components": np.zeros((1, D)),
    "up to .*e.25.*scale": trajectory(0, 40) * 1e25,
}


@pytest.mark.parametrize("reason", HOPELESS)
def test_a_first_fit_that_fails_says_why_instead_of_leaving_novelty_at_zero(reason: str) -> None:
    estimator = Coverage(**SMALL)
    estimator.push(HOPELESS[reason])
    with pytest.raises(FitError, match=reason):
        estimator.fit()
    assert (estimator.failed_fits_, estimator.fitted_) == (1, False)
    with pytest.raises(NotFittedError):
        estimator.novelty(trajectory(0))
    with pytest.raises(FitError, match=reason):
        Coverage(**SMALL).fit(HOPELESS[reason])
    # It can still be used: more points make a fit possible.
    if reason.startswith("all"):
        estimator.push(trajectory(0))
        assert estimator.fit().fitted_


def test_fewer_distinct_points_than_components_are_counted() -> None:
    estimator = Coverage(components=(3, 4))
    estimator.push(np.repeat(np.eye(2, D), 10, axis=0))
    with pytest.raises(FitError, match=r"20 points of the window have 2 values.*3 components"):
        estimator.fit()


def test_what_cannot_be_fitted_is_refused_before_anything_is_compiled() -> None:
    before = estimator_module._fit._cache_size()
    with pytest.raises(FitError, match="holds 5 points"):
        Coverage().fit(trajectory(0, 5))
    # The first hundreds of equal points do not hide the others.
    enough = np.concatenate([np.zeros((300, D)), trajectory(0)])
    assert fit_failures.too_few(MixtureConfig(), enough, len(enough)) is None
    drawn = fit_failures.too_few(MixtureConfig(), enough[:300], len(enough))
    assert drawn is not None
    assert "all 300 points, drawn from the 320 of the window, are equal" in drawn
    assert estimator_module._fit._cache_size() == before


def test_equal_points_are_one_gaussian_if_one_component_is_allowed() -> None:
    points = np.full((20, D), 2.0)
    estimator = Coverage(components=(1, 3), reg=0.25).fit(points)
    assert estimator.components_ == 1
    np.testing.assert_allclose(estimator.means_, points[:1])
    np.testing.assert_allclose(estimator.covariances_, 0.25)
    assert estimator.novelty(points) == pytest.approx(D / 2 * np.log(2 * np.pi * 0.25), rel=1e-5)


EQUAL, HUGE = np.full((15, D), 2.0), trajectory(0, 15) * 1e25


def spoilt(spoiling: np.ndarray = EQUAL) -> Coverage:
    """A model of 4 components, and a later window that cannot be fitted."""
    estimator = Coverage(**SMALL)
    centres = 20.0 * np.eye(4, D)
    for number in range(4):
        estimator.push(trajectory(number, 15) / 50 + centres[np.arange(15) % 4])
    estimator.fit()
    for _ in range(4):
        estimator.push(spoiling)
    return estimator


@pytest.mark.parametrize(("spoiling", "reason"), [(EQUAL, "all 60 points .* are equal"), (HUGE, "60 points")])
def test_a_refit_that_fails_warns_that_the_earlier_model_stays(spoiling: np.ndarray, reason: str) -> None:
    estimator = spoilt(spoiling)
    before = estimator.log_density(trajectory(9))
    with pytest.warns(UserWarning, match=rf"{reason}.*last successful fit stays in use"):
        assert estimator.fit() is estimator
    np.testing.assert_array_equal(estimator.log_density(trajectory(9)), before)
    assert estimator.failed_fits_ == 1


def test_components_are_those_of_the_model_in_use_after_a_failed_refit(tmp_path: Path) -> None:
    estimator = spoilt(HUGE)
    assert estimator.components_ == 4
    with pytest.warns(UserWarning, match="stays in use"):
        estimator.fit()
    assert estimator.diagnostics_["components"] != 4
    estimator.save(tmp_path / "file")
    for one in (estimator, Coverage.load(tmp_path / "file")):
        assert one.components_ == len(one.weights_) == len(one.means_) == 4


# The habits of scikit-learn.


@pytest.mark.parametrize("covariance", get_args(CovarianceName))
def test_densities_are_those_of_scikit_learn_with_our_parameters(covariance: CovarianceName) -> None:
    points = np.concatenate([trajectory(number) for number in range(3)])
    ours = Coverage(components=(2, 3), covariance=covariance).fit(points)
    k = ours.components_
    shapes = {"diag": (k, D), "full": (k, D, D)}
    assert ours.covariances_.shape == shapes[covariance]
    precisions = (
        np.linalg.inv(ours.covariances_) if ours.covariances_.shape[-2:] == (D, D) else 1 / ours.covariances_
    )
    theirs = GaussianMixture(k, covariance_type=covariance)
    theirs.weights_, theirs.means_, theirs.covariances_ = ours.weights_, ours.means_, ours.covariances_
    # The factor of a matrix P = L L^T; of a number it is the root.
    theirs.precisions_cholesky_ = (
        np.linalg.cholesky(precisions) if precisions.shape[-2:] == (D, D) else precisions**0.5
    )
    np.testing.assert_allclose(ours.score_samples(points), theirs.score_samples(points), rtol=1e-4, atol=1e-3)
    assert ours.score(points) == pytest.approx(theirs.score(points), rel=1e-4)
    assert ours.weights_.sum() == pytest.approx(1.0, abs=1e-5)


def test_a_fit_to_given_points_forgets_everything_else() -> None:
    estimator, points = fitted(), trajectory(9, 30)[:, :2]
    anew = Coverage(**SMALL).fit(points)
    for _ in range(2):
        assert estimator.fit(points) is estimator
        np.testing.assert_array_equal(estimator.means_, anew.means_)
    pushed = Coverage(**SMALL)
    pushed.push(points)
    np.testing.assert_array_equal(pushed.fit().means_, anew.means_)


def test_a_failed_fit_to_given_points_changes_nothing() -> None:
    estimator = fitted()
    before = repr(estimator), estimator.novelty(trajectory(9))
    with pytest.raises(FitError, match="equal"):
        estimator.fit(np.zeros((40, D)))
    assert (repr(estimator), estimator.novelty(trajectory(9))) == before


def test_scikit_learn_can_clone_it() -> None:
    for original in (
        fitted(3),
        Coverage(),
        made(components=[2, 3]),
        Coverage(kind="neighbours", max_points=None),
    ):
        again = clone(original)
        assert again.get_params() == original.get_params()
        assert (again.config, again.fitted_) == (original.config, False)


def test_another_kind_begins_with_its_own_defaults() -> None:
    estimator = fitted(seed=3).set_params(kind="neighbours", rank=2)
    expected = Coverage(kind="neighbours", rank=2, seed=3)
    assert estimator.get_params() == expected.get_params()
    assert estimator.fit().novelty(trajectory(0)) < estimator.novelty(trajectory(0) + 9.0)
    with pytest.raises(ValueError, match="unknown settings: components"):
        estimator.set_params(components=(2, 3))
    with pytest.raises(TypeError, match="unknown settings: components"):
        Coverage(kind="neighbours", components=(2, 3))
    with pytest.raises(ValueError, match="kind: must be one of mixture, neighbours, got 'pca'"):
        Coverage(kind="pca")


def test_changed_settings_keep_the_window_and_forget_the_model() -> None:
    estimator = fitted()
    before = repr(estimator), estimator.get_params()
    for wrong in ({"reg": -1.0}, {"window": 2, "seed": -1}, {"nonsense": 1}):
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            estimator.set_params(**wrong)
    assert estimator.set_params() is estimator
    assert (repr(estimator), estimator.get_params()) == before
    assert estimator.set_params(covariance="full", window=2) is estimator
    with pytest.raises(NotFittedError):
        estimator.novelty(trajectory(0))
    expected = Coverage(components=(2, 4), window=2, covariance="full")
    for number in (4, 5):
        expected.push(trajectory(number, 10 + number))
    np.testing.assert_array_equal(estimator.fit().means_, expected.fit().means_)


def test_what_is_printed_tells_settings_window_and_model() -> None:
    assert repr(Coverage()) == "<Coverage(): 0 of 32 trajectories, 0 points, not fitted>"
    estimator = spoilt()
    expected = (
        "<Coverage(window=4, components=(2, 4)): 4 of 4 trajectories, 60 points of 3 dimensions, "
        "fitted with 4 components"
    )
    assert repr(estimator) == f"{expected}>"
    with pytest.warns(UserWarning, match="stays in use"):
        estimator.fit()
    assert repr(estimator) == f"{expected}, 1 fits failed>"


def test_models_without_components_say_so() -> None:
    estimator = Coverage(kind="neighbours").fit(trajectory(0))
    assert repr(estimator).startswith("<Coverage(kind='neighbours'): 1 of 32")
    assert "fitted>" in repr(estimator)
    with pytest.raises(AttributeError, match="not the kind neighbours"):
        estimator.components_  # noqa: B018
    reduced = Coverage(**SMALL, pca_dimensions=2).fit(trajectory(0))
    assert len(reduced.weights_) == reduced.components_ == reduced.diagnostics_["components"]
    with pytest.raises(AttributeError, match="principal axes"):
        reduced.means_  # noqa: B018


# Files.


@pytest.mark.parametrize(
    "settings",
    [
        SMALL | {"warm_start": True},
        SMALL | {"pca_dimensions": 2},
        {"kind": "neighbours", "window": 4},
    ],
    ids=["mixture", "pca", "neighbours"],
)
def test_saving_and_loading_changes_no_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    estimator = Coverage(**settings)
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


def test_numbers_of_numpy_can_be_saved(tmp_path: Path) -> None:
    made(components=np.array([2, 4]), window=np.int64(4), reg=np.float64(0.1), seed=np.uint8(3)).save(
        tmp_path / "it"
    )
    assert repr(Coverage.load(tmp_path / "it")).startswith(
        "<Coverage(window=4, reg=0.1, components=(2, 4), seed=3)"
    )
    assert Coverage.load(tmp_path / "it").get_params()["components"] == (2, 4)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    fitted().save(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Coverage(**SMALL).save(tmp_path / "file")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", content)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "file"
    fitted().save(path)
    return path.read_bytes()


def rewritten(path: Path, change: Any) -> None:
    """Change the arrays of a saved file, among them the header as a dict."""
    with np.lib.npyio.NpzFile(io.BytesIO(path.read_bytes())) as saved:
        arrays = {name: saved[name].copy() for name in saved.files}
    arrays["header"] = json.loads(arrays["header"].tobytes())
    change(arrays)
    arrays["header"] = np.frombuffer(json.dumps(arrays["header"]).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def put(name: str, value: Any) -> Any:
    return lambda arrays: arrays[name].__setitem__(..., value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("state0", np.nan), "model.chosen.origin: .*not finite"),
        (put("state1", np.nan), "model.chosen.log_weights: .*not finite"),
        (put("state2", -np.inf), "model.chosen.offsets: .*not finite"),
        (lambda arrays: arrays.update(state3=arrays["state3"][:1]), "model.chosen.whitening: expected"),
        (
            lambda arrays: arrays.update(state3=arrays["state3"] > 0),
            "model.chosen.whitening: expected .*bool",
        ),
        (put("points", np.nan), "points: .*finite"),
        (put("lengths", -1), "lengths: "),
        (lambda arrays: arrays.pop("state1"), "lacks state1"),
        (lambda arrays: arrays.pop("points"), "lacks points"),
        (lambda arrays: arrays["header"].pop("seed"), "lacks seed"),
        (lambda arrays: arrays["header"].update(seed=-1), "seed: "),
        (lambda arrays: arrays["header"].update(fits=-1), "fits: "),
        (lambda arrays: arrays["header"]["config"].update(reg=float("nan")), "reg: "),
        (lambda arrays: arrays["header"]["config"].update(components="3"), "components: "),
        (lambda arrays: arrays["header"]["config"].update(nonsense=3), "nonsense"),
    ],
)
def test_a_loaded_file_with_impossible_contents_is_refused_by_name(
    tmp_path: Path, saved: bytes, change: Any, message: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(saved)
    rewritten(path, lambda arrays: None)
    assert Coverage.load(path).fitted_
    rewritten(path, change)
    with pytest.raises(ValueError, match=f"file is not a saved coverage: .*{message}"):
        Coverage.load(path)


def test_a_compressed_file_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("points.npy", bytes(10**6))
    with pytest.raises(ValueError, match="compressed"):
        Coverage.load(path)


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
