"""Coverage for programs that do not use JAX: NumPy in, NumPy out, no state to pass around."""

import contextlib
import functools
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from cenie.novelty import coverage, estimator_arguments, estimator_file, fit_failures
from cenie.novelty.config import CoverageConfig, MixtureConfig
from cenie.novelty.covariance import SHAPES
from cenie.novelty.mixture import Mixture
from cenie.novelty.torch_tensors import from_tensor
from cenie.xla.cache import give_back_memory, kept_programs, without_alarm
from cenie.xla.flags import NEWER_KERNELS, is_known

_FIT_LENGTHS = (64, 256, 1024, 4096, 16384)
"""Points to fit are filled up to one of these lengths, or to a power of two beyond, so that few programs
serve all windows. Each takes some ten seconds to compile, and a fit at most four times as long as it must."""

_BLOCKS = (64, 512, 4096)
"""Points to score are filled up to one of these lengths; longer arrays go block by block."""

_in_single_precision = functools.partial(jax.enable_x64, False)
"""The models are made for it, whatever the rest of the program has told JAX."""

_small_program = functools.partial(
    jax.jit, static_argnums=0, compiler_options={NEWER_KERNELS: False} if is_known(NEWER_KERNELS) else None
)
"""Compiled like the part of a cycle that fits, with the same bits as otherwise. The compiler takes 80 MB for
a fit of 6 to 15 mixtures to points of 60 numbers instead of 490, and a third less time."""

_log_density = _small_program(coverage.log_density)


@_small_program
def _fit(
    config: CoverageConfig,
    learned: coverage.CoverageState,
    points: jax.Array,
    valid: jax.Array,
    key: jax.Array,
) -> coverage.CoverageState:
    """The state after a fit to the valid [n] ones of points [n, d], without the points: NumPy keeps them."""
    state = learned._replace(points=points[None], valid=valid[None])
    return _without_window(coverage.fit(config, state, key))


_prepared: set[Any] = set()
"""The programs that this process has, by their settings and shapes."""


@contextlib.contextmanager
def _compiling(*program: Any) -> Iterator[None]:
    """Keep what is compiled inside for later processes, the first time that this program is needed."""
    if program in _prepared:
        yield
        return
    with kept_programs(), without_alarm():
        yield
    _prepared.add(program)
    give_back_memory()


class FitError(ValueError):
    """Nothing could be fitted to the points, and there is no earlier model."""


class NotFittedError(ValueError, AttributeError):
    """No fit has succeeded yet. It has the same bases as the error of scikit-learn."""


class Coverage:
    """The novelty of a trajectory, given the latest ones of an agent: `push`, `fit`, `novelty`.

    A trajectory is an array of floats [t, d] of any length t. Each point has the same d numbers, usually a
    representation of the state followed by the action (one-hot, if it is discrete). Tensors of PyTorch are
    read as they are.

    There are two ways to fit. `push(trajectory)` and `fit()` follow an agent: the window holds its last
    trajectories. `fit(X)` has the meaning of scikit-learn: it forgets everything and fits the points X alone,
    as one trajectory. If a fit fails, `FitError` is raised where there is no model yet, and a warning says
    that the earlier model stays in use where there is one.

    A fit looks at no more than `max_points` points, drawn uniformly, and warns the first time that there are
    more. Compiled programs are kept in the user's cache directory for the next process; `CENIE_CACHE_DIR`
    names another directory, or switches this `off`. The same calls with the same seed give the same results.

    Args:
        kind: The model of the density: `mixture` or `neighbours`.
        seed: A whole number from 0 to 2^32 - 1.
        random_state: The same by its name in scikit-learn.
        settings: The fields of `MixtureConfig` or `NeighboursConfig` in `cenie.novelty`, for a mixture above
            all `components` (a number, or the fewest and the most), `window`, `covariance` and `reg`.

    Raises:
        TypeError: If a name is no setting of this kind.
        ValueError: With everything that is wrong with the values.
    """

    def __init__(
        self, *, kind: str = "mixture", seed: int = 0, random_state: int | None = None, **settings: Any
    ):
        if unknown := estimator_arguments.unknown(kind, settings):
            raise TypeError(unknown)
        if random_state is not None:
            if type(seed) is not int or seed != 0:
                raise ValueError(estimator_arguments.TWO_SEEDS)
            seed = random_state
        self._begin({**estimator_arguments.defaults(kind), **settings, "seed": seed})

    def _begin(self, params: dict[str, Any]) -> None:
        """Start anew with these settings; `ValueError` if anything is wrong with them."""
        config, seed = estimator_arguments.checked(params)
        self.config, self._seed = config, seed
        # As they were given: scikit-learn's `clone` checks that its arguments come back unchanged.
        self._params = params
        self._window: deque[np.ndarray] = deque(maxlen=config.window)
        self._state: coverage.CoverageState | None = None
        self._fits = 0
        self._said_max_points = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings.

        Args:
            deep: Exists for scikit-learn and changes nothing.

        Returns:
            All settings by name, as they were given; `random_state` is called `seed`.
        """
        return dict(self._params)

    def set_params(self, **params: Any) -> "Coverage":
        """Change settings. The window stays, as far as it fits in. The model is forgotten: fit again.

        Args:
            params: Settings by name. Another `kind` begins with its own defaults.

        Returns:
            This estimator.

        Raises:
            ValueError: With everything that is wrong; nothing is changed then.
        """
        if (seed := params.pop("random_state", None)) is not None:
            if "seed" in params:
                raise ValueError(estimator_arguments.TWO_SEEDS)
            params["seed"] = seed
        kind = params.get("kind", self._params["kind"])
        if unknown := estimator_arguments.unknown(kind, params):
            raise ValueError(unknown)
        if params:
            window = list(self._window)
            before = self._params if kind == self._params["kind"] else estimator_arguments.defaults(kind)
            self._begin({**before, "seed": self._params["seed"], **params})
            for trajectory in window:
                self.push(trajectory)
        return self

    def push(self, trajectory: ArrayLike) -> None:
        """Add a trajectory to the window; the oldest leaves it if it is full.

        Args:
            trajectory: Points [t, d].

        Raises:
            ValueError: If it is no array of finite floats with as many columns as before.
        """
        # A copy: a caller that fills the same array again must not change the window.
        self._append(self._as_points(trajectory).copy())

    def _append(self, points: np.ndarray) -> None:
        if self._state is None:
            self._state = _unfitted(self.config, points.shape[1])
        self._window.append(points)

    def fit(self, X: ArrayLike | None = None, y: Any = None) -> "Coverage":
        """Fit the model to the window; or forget everything and fit it to given points alone.

        Args:
            X: Points [n, d]; None: the window.
            y: Ignored, as in scikit-learn.

        Returns:
            This estimator.

        Raises:
            FitError: If the fit fails, and X is given or there is no earlier model. With X, everything stays
                as it was. Without X, an earlier model stays in use, and a warning says why.
        """
        if X is not None:
            alone = type(self)().set_params(**self._params)
            alone._said_max_points = self._said_max_points
            points = alone._as_points(X)
            alone._append(points)
            alone._fit_window()
            self._state, self._fits = alone._state, alone._fits
            self._said_max_points = alone._said_max_points
            # The old window goes first: a large one is there once, and not twice.
            self._window.clear()
            self._window.append(points.copy())
        else:
            self._fit_window()
        return self

    def _fit_window(self) -> None:
        if self._state is None:
            raise FitError("there is nothing to fit: push a trajectory first, or give points: fit(X)")
        count = sum(map(len, self._window))
        looked_at = _drawn(self._window, self.config.max_points, (self._seed, self._fits))
        if len(looked_at) < count and not self._said_max_points:
            self._said_max_points = True
            warnings.warn(
                f"max_points={self.config.max_points}: this fit, as later ones, looks at {len(looked_at)} of "
                f"the {count} points of the window, drawn uniformly; max_points=None looks at all",
                stacklevel=3,
            )
        reason = fit_failures.too_few(self.config, looked_at, count)
        failed = self.failed_fits_
        with _in_single_precision():
            if reason is None:
                points, valid = _filled_up(looked_at, _fit_length(len(looked_at), self.config.max_points))
                key = jax.random.fold_in(jax.random.key(self._seed), self._fits)
                with _compiling("fit", self.config, points.shape):
                    self._state = _fit(self.config, self._state, points, valid, key)
                self._fits += 1
            else:  # Not worth the minutes that a fit may take to compile.
                self._state = self._state._replace(failed_fits=self._state.failed_fits + 1)
        if self.failed_fits_ > failed:
            reason = reason or fit_failures.not_finite(self.config, looked_at, count)
            message = f"nothing could be fitted: {reason}"
            if not self.fitted_:
                raise FitError(message)
            warnings.warn(f"{message}. The model of the last successful fit stays in use", stacklevel=3)

    def novelty(self, trajectory: ArrayLike) -> float:
        """The negative mean log-density of the points under the model in use (CENIE Eq. 3).

        Ask before the trajectory is pushed and fitted: afterwards it is part of what is familiar.

        Args:
            trajectory: Points [t, d].

        Returns:
            The novelty.

        Raises:
            NotFittedError: If no fit has succeeded yet.
            ValueError: If it is no array of finite floats with as many columns as before.
        """
        return -float(np.mean(self.log_density(trajectory), dtype=np.float64))

    def log_density(self, points: ArrayLike) -> np.ndarray:
        """The log-density of each point under the model in use; for mixtures, CENIE Eq. 2.

        Args:
            points: Points [n, d].

        Returns:
            Log-densities [n] within +-1e12.

        Raises:
            NotFittedError: If no fit has succeeded yet.
            ValueError: If they are no array of finite floats with as many columns as before.
        """
        checked, state = self._as_points(points), self._fitted_state()
        size = next((block for block in _BLOCKS if len(checked) <= block), _BLOCKS[-1])
        found = np.empty(len(checked), np.float32)
        with _in_single_precision(), _compiling("density", self.config, (size, checked.shape[1])):
            for first in range(0, len(checked), size):
                block = checked[first : first + size]
                filled, _ = _filled_up(block, size)
                density = np.asarray(_log_density(self.config, state, filled))
                found[first : first + size] = density[: len(block)]
        return found

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """`log_density` by its name in scikit-learn.

        Args:
            X: Points [n, d].

        Returns:
            Log-densities [n].

        Raises:
            NotFittedError: If no fit has succeeded yet.
            ValueError: If they are no array of finite floats with as many columns as before.
        """
        return self.log_density(X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean log-density of points; higher is more familiar.

        Args:
            X: Points [n, d].
            y: Ignored, as in scikit-learn.

        Returns:
            The mean.

        Raises:
            NotFittedError: If no fit has succeeded yet.
            ValueError: If they are no array of finite floats with as many columns as before.
        """
        return -self.novelty(X)

    @property
    def fitted_(self) -> bool:
        """Whether any fit has succeeded."""
        return self._state is not None and bool(self._state.fitted)

    @property
    def failed_fits_(self) -> int:
        """The number of failed fits."""
        return 0 if self._state is None else int(self._state.failed_fits)

    @property
    def diagnostics_(self) -> dict[str, np.ndarray]:
        """Numbers that describe the last fit, failed or not; the names depend on the model.

        Empty before the first fit. A fit to too few points is refused, and does not count here.
        """
        if self._state is None or self._fits == 0:
            return {}
        return {name: np.asarray(value) for name, value in self._state.diagnostics.items()}

    @property
    def components_(self) -> int:
        """The number k of components of the model in use."""
        return len(self.weights_)

    @property
    def weights_(self) -> np.ndarray:
        """The weights [k] of the components of the model in use."""
        chosen = self._chosen()
        return np.exp(np.asarray(chosen.log_weights, np.float64)[_real(chosen)])

    @property
    def means_(self) -> np.ndarray:
        """The means [k, d] of the components of the model in use."""
        chosen = self._chosen(of_points=True)
        # Added in double precision: the origin may be far from 0.
        return np.asarray(chosen.origin, np.float64) + np.asarray(chosen.offsets, np.float64)[_real(chosen)]

    @property
    def covariances_(self) -> np.ndarray:
        """The covariances of the model in use, `reg` included: [k, d] (diag) or [k, d, d] (full)."""
        chosen = self._chosen(of_points=True)
        shape = SHAPES[cast(MixtureConfig, self.config).covariance]
        return shape.covariances(np.asarray(chosen.whitening, np.float64)[_real(chosen)])

    def __repr__(self) -> str:
        known = asdict(self.config) | {"seed": self._seed}
        usual = estimator_arguments.defaults(self.config.kind) | {"kind": "mixture"}
        changed = ", ".join(f"{name}={known[name]!r}" for name in known if known[name] != usual[name])
        points = sum(map(len, self._window))
        filling = f"{len(self._window)} of {self.config.window} trajectories, {points} points"
        if self._window:
            filling += f" of {self._window[0].shape[1]} dimensions"
        model = "fitted" if self.fitted_ else "not fitted"
        if self.fitted_ and isinstance(self.config, MixtureConfig):
            model += f" with {self.components_} components"
        failed = f", {self.failed_fits_} fits failed" if self.failed_fits_ else ""
        return f"<Coverage({changed}): {filling}, {model}{failed}>"

    def _fitted_state(self) -> coverage.CoverageState:
        if self._state is None or not self.fitted_:
            raise NotFittedError("there is no model yet: push trajectories and call fit() first, or fit(X)")
        return self._state

    def _chosen(self, of_points: bool = False) -> Mixture:
        """The mixture in use, if there is one; with `of_points`, only if it is not one of principal axes."""
        model = self._fitted_state().model
        if not isinstance(self.config, MixtureConfig):
            raise AttributeError(f"only mixtures have this, not the kind {self.config.kind}")
        if self.config.pca_dimensions is None:
            return model.chosen
        if of_points:
            raise AttributeError("only mixtures of the points have this, not mixtures of principal axes")
        return model.inner.chosen

    def _as_points(self, points: ArrayLike) -> np.ndarray:
        return _as_points(points, self._window[0].shape[1] if self._window else None)

    def save(self, path: estimator_file.Path) -> None:
        """Write everything to one file, which replaces an older one only once it is complete.

        Args:
            path: Where.

        Raises:
            OSError: If it cannot be written; an older file is as it was.
        """
        header = {"config": asdict(self.config), "seed": self._seed, "fits": self._fits}
        arrays = {}
        if self._state is not None:
            arrays["lengths"] = np.array([len(points) for points in self._window], np.int64)
            arrays["points"] = np.concatenate(self._window)
            arrays |= {f"state{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self._state))}
        estimator_file.write(path, header, arrays)

    @classmethod
    def load(cls, path: estimator_file.Path) -> "Coverage":
        """Read what `save` has written. No code of the file is run.

        Args:
            path: The file.

        Returns:
            An estimator that goes on as the saved one would have.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is anything else, or holds arrays of other shapes or kinds, or numbers that are
                not finite.
        """
        return estimator_file.read(path, cls._restored)

    @classmethod
    def _restored(cls, header: estimator_file.Entries, arrays: estimator_file.Entries) -> "Coverage":
        config = dict(header["config"])
        if isinstance(config.get("components"), list):
            config["components"] = tuple(config["components"])
        self = cls().set_params(**config, seed=header["seed"])
        if arrays:
            points, lengths = arrays["points"], arrays["lengths"]
            with estimator_file.naming("lengths"):
                if lengths.sum() != len(points) or not 0 < len(lengths) <= self.config.window:
                    raise ValueError(f"expected {len(points)} points in at most {self.config.window} parts")
            with estimator_file.naming("points"):
                for trajectory in np.split(points, np.cumsum(lengths)[:-1]):
                    self.push(trajectory)
            assert self._state is not None
            leaves = [arrays[f"state{i}"] for i in range(len(jax.tree.leaves(self._state)))]
            self._state = _with_leaves(self._state, leaves)
        with estimator_file.naming("fits"):
            self._fits = estimator_arguments.checked_seed(header["fits"])
        return self


def _as_points(points: Any, dimensions: int | None) -> np.ndarray:
    """The points as float32 [n, d], not copied if they are that already.

    Args:
        points: An array, list or tensor of floats [n, d].
        dimensions: The d of earlier points; None if there are none.

    Raises:
        ValueError: If they are anything else, with what is wrong.
    """
    if isinstance(points, np.ma.MaskedArray):
        raise ValueError(
            "expected a plain array, got a masked one, whose mask would be lost: give only the points "
            "that count, e.g. np.ma.compress_rows(points)"
        )
    try:
        array = np.asarray(from_tensor(points))
    except (TypeError, ValueError, RuntimeError) as error:  # PyTorch raises the last one
        raise ValueError(f"expected an array [points, dimensions]: {error}") from error
    # JAX knows more kinds of floats than NumPy.
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"expected an array of floats, got {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            "expected one array [points, dimensions] with at least one of each, as of one trajectory, "
            f"got {array.shape}"
        )
    if dimensions not in (None, array.shape[1]):
        raise ValueError(f"expected points of {dimensions} dimensions as before, got {array.shape[1]}")
    with np.errstate(over="ignore"):
        single = array.astype(np.float32, copy=False)
    if not np.isfinite(single).all():
        raise ValueError("expected finite numbers in the range of float32, got NaN or infinity")
    return single


def _unfitted(config: CoverageConfig, dimensions: int) -> coverage.CoverageState:
    """A state without points: NumPy keeps them, and a fit puts them in."""
    with _in_single_precision():
        return _without_window(coverage.init(replace(config, window=1), 1, dimensions))


def _drawn(window: Sequence[np.ndarray], most: int | None, seed: tuple[int, int]) -> np.ndarray:
    """The points of all trajectories, or `most` of them, drawn uniformly. Only these are copied."""
    ends = np.cumsum([len(points) for points in window])
    if most is None or ends[-1] <= most:
        return np.concatenate(window)
    rows = np.random.default_rng(seed).choice(ends[-1], most, replace=False, shuffle=False)
    parts = np.split(np.sort(rows), np.searchsorted(np.sort(rows), ends[:-1]))
    firsts = [0, *ends[:-1]]
    return np.concatenate([points[part - first] for points, part, first in zip(window, parts, firsts)])


def _fit_length(count: int, most: int | None) -> int:
    """The length to which `count` points are filled up for a fit that looks at `most` points."""
    length = next((length for length in _FIT_LENGTHS if count <= length), 1 << (count - 1).bit_length())
    return length if most is None else min(length, most)


def _filled_up(points: np.ndarray, length: int) -> tuple[jax.Array, jax.Array]:
    """Points with rows of zeros up to a length, and which of them are real."""
    missing = length - len(points)
    padded = np.pad(points, ((0, missing), (0, 0))) if missing else points
    return jnp.asarray(padded), jnp.asarray(np.arange(length) < len(points))


def _real(mixture: Mixture) -> np.ndarray:
    """Which components exist [k]; the others only fill up the arrays."""
    return np.asarray(mixture.log_weights) > -np.inf


def _without_window(state: coverage.CoverageState) -> coverage.CoverageState:
    """The state without points, which are kept apart."""
    return state._replace(points=cast(Any, None), valid=cast(Any, None))


def _with_leaves(state: coverage.CoverageState, leaves: list[np.ndarray]) -> coverage.CoverageState:
    """The state with other arrays of the same shapes and kinds, finite where they are a model's."""
    old, structure = jax.tree.flatten_with_path(state)
    for (path, leaf), new in zip(old, leaves):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        with estimator_file.naming(name):
            if leaf.shape != new.shape or leaf.dtype != new.dtype:
                raise ValueError(
                    f"expected an array {leaf.shape} of {leaf.dtype}, got {new.shape} of {new.dtype}"
                )
            # The weight of a component that does not exist is 0.
            finite = np.isfinite(new) | (np.isneginf(new) if name.endswith("log_weights") else False)
            if name.startswith("model.") and not finite.all():
                raise ValueError("holds numbers that are not finite")
    with _in_single_precision():
        return jax.tree.unflatten(structure, map(jnp.asarray, leaves))
