import dataclasses
from collections import deque
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenie.novelty import coverage
from cenie.novelty.config import CovarianceName, MixtureConfig, NeighboursConfig, read_coverage
from cenie.novelty.coverage import CoverageState
from cenie.novelty.interface import AnyCoverage
from cenie.settings import SettingsError
from tests.examples import load

W, T, D = 4, 12, 3
KEY = jax.random.key(0)
SMALL = MixtureConfig(window=W, components=(2, 4), silhouette_rows=None)

fit = jax.jit(coverage.fit, static_argnums=0)
novelty = jax.jit(coverage.novelty, static_argnums=0)
push = jax.jit(coverage.push)

MODELS = [
    *[MixtureConfig(window=W, components=(2, 4), covariance=kind) for kind in get_args(CovarianceName)],
    MixtureConfig(window=W, components=(2, 4), pca_dimensions=2),
    NeighboursConfig(window=W, rank=3, kept=40),
    load("distilled_novelty").Distillation(window=W, steps=100, size=16),
]
NAMES = [*get_args(CovarianceName), "pca", "neighbours", "own"]
every_model = pytest.mark.parametrize("config", MODELS, ids=NAMES)


def trajectories(seed: int, n: int = W, shift: float = 0.0) -> jax.Array:
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(n, T, D)) + 3 * rng.integers(0, 2, (n, T, 1)) + shift, jnp.float32)


def filled(config: AnyCoverage, features: Any, valid: Any = None) -> CoverageState:
    features = jnp.asarray(features, jnp.float32)
    valid = jnp.ones(features.shape[:2], bool) if valid is None else jnp.asarray(valid)
    return push(coverage.init(config, T, D), features, valid)


def all_valid(features: jax.Array) -> jax.Array:
    return jnp.ones(features.shape[:2], bool)


def leaves_equal(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b))
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


# The window.


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, W + 3), max_size=6), st.integers(0, 99))
def test_the_window_is_a_queue_of_levels(batches: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = coverage.init(SMALL, T, D)
    queue: deque[tuple[np.ndarray, np.ndarray]] = deque([(np.zeros((T, D)), np.zeros(T, bool))] * W, maxlen=W)
    for n in batches:
        features, valid = rng.normal(size=(n, T, D)).astype(np.float32), rng.random((n, T)) < 0.7
        state = push(state, jnp.asarray(features), jnp.asarray(valid))
        queue.extend((np.where(m[:, None], f, 0.0), m) for f, m in zip(features, valid))
    np.testing.assert_array_equal(state.points, np.stack([f for f, _ in queue]))
    np.testing.assert_array_equal(state.valid, np.stack([m for _, m in queue]))


def test_pushing_marks_points_that_are_not_finite_as_missing() -> None:
    features = np.array(trajectories(0))
    features[1, 2, 0], features[3, 5, 2] = np.nan, np.inf
    state = filled(SMALL, features)
    missing = {tuple(map(int, where)) for where in np.argwhere(~np.asarray(state.valid))}
    assert missing == {(1, 2), (3, 5)}
    assert np.isfinite(state.points).all()


# Novelty.


@every_model
def test_before_any_fit_nothing_is_novel(config: AnyCoverage) -> None:
    state = filled(config, trajectories(0))
    assert not bool(state.fitted)
    np.testing.assert_array_equal(
        novelty(config, state, trajectories(1), all_valid(trajectories(1))), np.zeros(W)
    )


@every_model
def test_what_the_window_holds_is_less_novel_than_what_is_shifted(config: AnyCoverage) -> None:
    known = trajectories(0)
    state = fit(config, filled(config, known), KEY)
    assert bool(state.fitted)
    old = novelty(config, state, known, all_valid(known))
    new = novelty(config, state, known + 8.0, all_valid(known))
    assert float(jnp.max(old)) < float(jnp.min(new))


@every_model
def test_novelty_is_a_mean_over_points_in_any_order(config: AnyCoverage) -> None:
    state = fit(config, filled(config, trajectories(0)), KEY)
    some = trajectories(1)
    expected = novelty(config, state, some, all_valid(some))
    doubled = jnp.concatenate([some, some], axis=1)
    for other in (some[:, ::-1], doubled):
        np.testing.assert_allclose(
            novelty(config, state, other, all_valid(other)), expected, rtol=1e-4, atol=1e-4
        )
    density = coverage.log_density(config, state, some.reshape(-1, D)).reshape(W, T)
    np.testing.assert_allclose(-density.mean(axis=1), expected, rtol=1e-4, atol=1e-4)


@every_model
def test_missing_points_never_matter(config: AnyCoverage) -> None:
    features = np.array(trajectories(0))
    valid = np.random.default_rng(0).random((W, T)) < 0.6
    results = []
    for junk in (0.0, np.nan, 1e9):
        features[~valid] = junk
        state = fit(config, filled(config, features, valid), KEY)
        results.append((state, novelty(config, state, jnp.asarray(features), jnp.asarray(valid))))
    assert bool(results[0][0].fitted)
    assert leaves_equal(results[0], results[1])
    assert leaves_equal(results[0], results[2])


@every_model
def test_a_level_without_points_is_the_least_novel(config: AnyCoverage) -> None:
    state = fit(config, filled(config, trajectories(0)), KEY)
    valid = jnp.ones((W, T), bool).at[2].set(False)
    scores = novelty(config, state, trajectories(1), valid)
    assert float(scores[2]) == float(jnp.min(scores))
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(
        novelty(config, state, trajectories(1), jnp.zeros((W, T), bool)), np.zeros(W)
    )


@every_model
def test_densities_are_clamped_and_never_nan(config: AnyCoverage) -> None:
    state = fit(config, filled(config, trajectories(0)), KEY)
    odd = jnp.array([[1e6] * D, [1e30] * D, [np.nan] * D, [np.inf] * D, [-1e20, 0.0, 1e20]])
    density = np.asarray(coverage.log_density(config, state, odd))
    assert (np.abs(density) <= coverage.LOG_DENSITY_LIMIT).all()
    scores = novelty(config, state, jnp.repeat(odd[:, None], T, axis=1), jnp.ones((5, T), bool))
    assert np.isfinite(scores).all()


# Fits.


@every_model
def test_the_key_decides_everything(config: AnyCoverage) -> None:
    state = filled(config, trajectories(0))
    assert leaves_equal(fit(config, state, KEY), fit(config, state, KEY))
    assert not leaves_equal(fit(config, state, KEY), fit(config, state, jax.random.key(1)))


def odd_windows() -> dict[str, np.ndarray]:
    usual = np.array(trajectories(0))
    outlier, constant = usual.copy(), usual.copy()
    outlier[1, 1] = 1e6
    constant[..., 1] = 7.0
    two_values = np.repeat(usual[0, :2], W * T // 2, axis=0).reshape(W, T, D)
    return {
        "all points equal": np.full((W, T, D), 3.0),
        "two distinct points": two_values,
        "a constant column": constant,
        "an outlier": outlier,
        "only huge numbers": usual * 1e25,
        "far from zero": usual + 1e4,
        "tiny": usual * 1e-20,
        "nothing valid": np.full((W, T, D), np.nan),
    }


@every_model
@pytest.mark.parametrize("case", odd_windows())
def test_odd_windows_neither_raise_nor_leave_nan(config: AnyCoverage, case: str) -> None:
    features = odd_windows()[case]
    before = fit(config, filled(config, trajectories(5)), KEY)
    after = fit(config, push(before, jnp.asarray(features, jnp.float32), jnp.ones((W, T), bool)), KEY)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.model) if leaf.ndim > 1)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(after.model))
    scores = novelty(config, after, trajectories(6), all_valid(trajectories(6)))
    assert np.isfinite(scores).all()
    if int(after.failed_fits):
        assert leaves_equal(after.model, before.model)
    if case == "nothing valid":
        assert int(after.failed_fits) == 1
    if case in ("a constant column", "far from zero"):
        assert int(after.failed_fits) == 0
        density = coverage.log_density(config, after, after.points.reshape(-1, D))
        assert float(density.mean()) > -60.0


@pytest.mark.parametrize("kind", get_args(CovarianceName))
def test_an_outlier_does_not_spoil_the_rest(kind: CovarianceName) -> None:
    config = MixtureConfig(window=W, components=(2, 4), covariance=kind)
    state = fit(config, filled(config, odd_windows()["an outlier"]), KEY)
    assert int(state.failed_fits) == 0
    assert int(state.diagnostics["failed"]) == 0
    usual = coverage.log_density(config, state, trajectories(0).reshape(-1, D))
    assert float(jnp.median(usual)) > -20.0


def test_sizes_beyond_the_distinct_points_are_skipped_and_counted() -> None:
    config = MixtureConfig(window=W, components=(2, 4))
    state = fit(config, filled(config, odd_windows()["two distinct points"]), KEY)
    assert int(state.diagnostics["components"]) == 2
    assert int(state.diagnostics["failed"]) == 2
    assert np.isnan(state.diagnostics["scores"]).tolist() == [False, True, True]
    one = fit(config, filled(config, odd_windows()["all points equal"]), KEY)
    assert int(one.failed_fits) == 1
    assert not bool(one.fitted)


@pytest.mark.parametrize("selection", ["silhouette", "aic", "bic"])
def test_three_clusters_are_found(selection: Any) -> None:
    config = MixtureConfig(window=W, components=(2, 6), reg=1e-3, selection=selection, silhouette_rows=20)
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 0]])
    features = centres[np.arange(W * T).reshape(W, T) % 3] + 0.5 * rng.normal(size=(W, T, D))
    state = fit(config, filled(config, features), KEY)
    found = int(state.diagnostics["components"])
    # AIC is known to take more components than there are.
    assert found == 3 if selection != "aic" else found >= 3
    assert int(state.diagnostics["components"]) == 2 + int(np.argmax(state.diagnostics["scores"]))


def test_the_fit_sees_max_points() -> None:
    few = MixtureConfig(window=W, components=(2, 3), max_points=10)
    state = filled(few, trajectories(0))
    fits = [fit(few, state, key) for key in jax.random.split(KEY, 2)]
    assert all(bool(one.fitted) for one in fits)
    # Of 5 valid points, all are drawn and the rest is masked.
    valid = np.zeros((W, T), bool)
    valid[2, :5] = True
    after = fit(few, filled(few, trajectories(0), valid), KEY)
    mean = jnp.exp(after.model.chosen.log_weights) @ after.model.chosen.means
    np.testing.assert_allclose(mean, trajectories(0)[2, :5].mean(axis=0), atol=1e-3)


def test_warm_starts_save_steps() -> None:
    config = MixtureConfig(window=W, components=(2, 4), tolerance=1e-4, warm_start=True)
    once = fit(config, filled(config, trajectories(0)), KEY)
    twice = fit(config, once, jax.random.key(5))
    assert int(twice.diagnostics["iterations"].sum()) < int(once.diagnostics["iterations"].sum())


def test_a_whole_cycle_compiles_inside_scan_and_cond() -> None:
    batches = jnp.stack([trajectories(seed) for seed in range(3)])

    @jax.jit
    def run(state: CoverageState, keys: jax.Array) -> tuple[CoverageState, jax.Array]:
        def step(state: CoverageState, at: tuple[jax.Array, jax.Array]) -> tuple[CoverageState, jax.Array]:
            features, key = at
            scores = coverage.novelty(SMALL, state, features, all_valid(features))
            state = coverage.push(state, features, all_valid(features))
            refit = jax.random.uniform(key) < 2.0
            return jax.lax.cond(refit, lambda s: coverage.fit(SMALL, s, key), lambda s: s, state), scores

        return jax.lax.scan(step, state, (batches, keys))

    keys = jax.random.split(KEY, 3)
    state, scores = run(coverage.init(SMALL, T, D), keys)
    assert (scores[0] == 0).all()
    assert (scores[1:] != 0).all()
    expected = coverage.init(SMALL, T, D)
    for features, key in zip(batches, keys):
        expected = fit(SMALL, push(expected, features, all_valid(features)), key)
    np.testing.assert_allclose(state.model.chosen.means, expected.model.chosen.means, rtol=1e-3, atol=1e-3)


def problems_of(**given: Any) -> dict[str, str]:
    """What is wrong with each setting; that of an entry of a list counts for the list."""
    try:
        read_coverage(given)
    except SettingsError as error:
        return {problem.path.partition("[")[0]: problem.message for problem in error.problems}
    return {}


def test_settings_are_checked() -> None:
    assert read_coverage({}) == MixtureConfig()
    assert problems_of(window=0, components=(5, 3), reg=0.0).keys() == {"window", "components", "reg"}
    assert "at least 2" in problems_of(components=(1, 1))["components"]
    assert "one of silhouette, aic, bic" in problems_of(selection="silhuette")["selection"]
    assert problems_of(components=(1, 1), selection="bic") == {}


@pytest.mark.parametrize(
    "components",
    [
        *((2,), (2, 3, 4), "24", None, {2, 4}, ([2], [4])),
        *((2.0, 4), (2.5, 4), ("2", "4"), (True, 4), (None, 4), np.array([2.0, 4.0])),
        *((5, 3), (0, 3), (-2, 3), (2, 10**12), (1, 1000)),
    ],
)
def test_wrong_components_are_refused_by_name(components: Any) -> None:
    assert problems_of(components=components).keys() == {"components"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("window", ["3", True, 3.0, 0, -1, None, 10**12, 10**5000, [3], np.nan]),
        ("max_points", ["3", True, 3.0, 0, 10**12]),
        ("reg", ["0.1", True, None, 0.0, -1.0, np.nan, np.inf, 1e300, 10**400, 1j, [0.1]]),
        ("tolerance", ["0.1", None, -1e-9, np.nan, np.inf, 1e300]),
        ("screening_margin", [np.nan, -0.1]),
        ("max_iterations", [0, 1.5, None, 2**40]),
        ("covariance", ["Diag", None, 1, ["diag"], np.array(["diag", "full"])]),
        ("kind", ["gmm", b"mixture", None, ["mixture"]]),
        ("pca_dimensions", [0, 1.5, 10**12]),
        ("warm_start", [1, "yes", None]),
    ],
)
def test_settings_of_wrong_kinds_are_refused_by_name(name: str, values: list[Any]) -> None:
    for value in values:
        assert problems_of(**{name: value}).keys() == {name}, value


def test_each_kind_has_its_own_settings_only() -> None:
    assert problems_of(kind="neighbours", kept=10**12, rank=0).keys() == {"kept", "rank"}
    assert "unknown setting" in problems_of(kind="neighbours", components=(2, 4))["components"]
    assert "unknown setting" in problems_of(kept=100)["kept"]


def test_mixtures_of_principal_axes_start_anew() -> None:
    assert "pca_dimensions" in problems_of(pca_dimensions=4, warm_start=True)["warm_start"]


def test_all_wrong_settings_are_named_at_once() -> None:
    found = problems_of(window="3", reg=np.nan, tolerance=-1.0, components=(5, 3), selection="x")
    assert found.keys() == {"window", "reg", "tolerance", "components", "selection"}


def test_fewer_points_than_the_fewest_components_are_refused_before_any_fit() -> None:
    assert "at least 6" in problems_of(max_points=5)["max_points"]
    assert problems_of(max_points=6) == {}
    assert problems_of(max_points=5, kind="neighbours") == {}


def test_numbers_of_numpy_become_plain_settings() -> None:
    numbers = {"components": np.array([2, 4]), "window": np.int64(3), "reg": np.float32(0.5)}
    config = read_coverage({**numbers, "max_points": None})
    assert isinstance(config, MixtureConfig)
    assert config == MixtureConfig(components=(2, 4), window=3, reg=0.5, max_points=None)
    assert {type(value) for value in (*config.components, config.window)} == {int}
    assert type(config.reg) is float


def test_screening_chooses_the_size_and_the_mixture_of_a_thorough_fit() -> None:
    """Sizes that are far from the best are only compared roughly; the one that is chosen is fitted to all."""
    rng = np.random.default_rng(3)
    centres = 6 * rng.normal(size=(4, 3))
    points = jnp.asarray(
        centres[rng.integers(0, 4, (W, T * 20))] + rng.normal(size=(W, T * 20, 3)), jnp.float32
    )
    exact = MixtureConfig(window=W, components=(2, 5), silhouette_rows=None, screening_steps=None)
    screened = dataclasses.replace(exact, screening_steps=2, screening_points=60, screening_candidates=2)
    results = {}
    for name, config in {"exact": exact, "screened": screened}.items():
        state = coverage.push(
            coverage.init(config, *points.shape[1:]), points, jnp.ones(points.shape[:2], bool)
        )
        results[name] = fit(config, state, jax.random.key(0))
    one, other = results["exact"], results["screened"]
    assert int(one.diagnostics["components"]) == int(other.diagnostics["components"]) == 4
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        one.model.chosen,
        other.model.chosen,
    )
    # The rejected sizes have their rough figures, which are not those of a thorough fit.
    assert np.isfinite(other.diagnostics["scores"]).all()
    assert not np.allclose(one.diagnostics["scores"], other.diagnostics["scores"], atol=1e-4)


@every_model
def test_before_any_fit_there_are_zeros_where_a_fit_has_diagnostics(config: AnyCoverage) -> None:
    """They are written down beside each fit, because a fit takes a second to trace for its shapes."""
    before = coverage.init(config, points_per_level=4, dimensions=3)
    after = jax.eval_shape(lambda: coverage.fit(config, before, jax.random.key(0)))
    shapes = jax.eval_shape(lambda: before.diagnostics)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after.diagnostics) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), shapes
    )
    assert not any(value.any() for value in before.diagnostics.values())
