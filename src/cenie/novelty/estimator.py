"""Coverage for programs that do not use JAX: NumPy in, NumPy out, no state to pass around."""

import contextlib
import difflib
import functools
import io
import json
import os
import warnings
import zipfile
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import ArrayLike

from cenie.novelty import coverage
from cenie.novelty.config import CoverageConfig, MixtureConfig, plain_value, read_coverage
from cenie.novelty.covariance import SHAPES
from cenie.novelty.mixture import Mixture
from cenie.settings import Problem, SettingsError, show

_FORMAT = "cenie coverage 2"
_LEAST_POINTS = 16
"""Arrays are filled up to this or to the next power of two, so that few lengths are ever compiled for."""

_SEEDS = 2**32
"""JAX looks at 32 bits of a seed, or of a number that is folded into one: others repeat one of these."""

_in_single_precision = functools.partial(jax.enable_x64, False)
"""The models are made for it, whatever the rest of the program has told JAX."""

_fit = jax.jit(coverage.fit, static_argnums=0)
_novelty = jax.jit(coverage.novelty, static_argnums=0)
_log_density = jax.jit(coverage.log_density, static_argnums=0)


class FitError(ValueError):
    """Nothing could be fitted to the points, and there is no earlier model of them."""


class NotFittedError(ValueError, AttributeError):
    """A model is asked for before any fit has succeeded. The same bases as scikit-learn's."""


class Coverage:
    """How familiar a trajectory is, given the last ones: `push`, `fit`, `novelty`.

    A trajectory is a float array [points, d] of any length; every point of all trajectories has the same
    `d` numbers, usually a representation of the state followed by the action (one-hot, if it is discrete).
    `kind` is what models the density: `mixture`, `neighbours` or `distillation`. `settings` are those of its
    record in `cenie.novelty.config`, for a mixture above all `components`, `window`, `covariance` and `reg`.
    The same calls with the same seed give the same results.

    There are two ways to fit. `push(trajectory)` and `fit()` follow an agent: the window holds its last
    trajectories. `fit(X)` is that of scikit-learn: it forgets everything and fits the points X alone, as one
    trajectory. A fit that fails says so: `FitError` if there is no model, else a warning that the earlier
    one stays in use. Before a fit has succeeded there is no novelty (`NotFittedError`).
    """

    def __init__(self, *, kind: str = "mixture", seed: int = 0, **settings: Any):
        if unknown := _unknown(kind, settings):
            raise TypeError(unknown)
        self._begin({**_defaults(kind), **settings, "seed": seed})

    def _begin(self, params: dict[str, Any]) -> None:
        """Start anew with these settings, if nothing is wrong with them."""
        config, seed = _settings(params)
        self.config, self._seed = config, seed
        # As they were given: scikit-learn's `clone` checks that its arguments come back unchanged.
        self._params = params
        self._window: deque[np.ndarray] = deque(maxlen=config.window)
        self._state: coverage.CoverageState | None = None
        self._fits = 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings by name, as they were given. `deep` is there for scikit-learn and changes nothing."""
        return dict(self._params)

    def set_params(self, **params: Any) -> "Coverage":
        """Change settings. The window stays, as far as it fits in; the model is forgotten: fit again.

        Another `kind` begins with its own defaults.
        """
        kind = params.get("kind", self._params["kind"])
        if unknown := _unknown(kind, params):
            raise ValueError(unknown)
        if params:
            window = list(self._window)
            before = self._params if kind == self._params["kind"] else _defaults(kind)
            self._begin({**before, "seed": self._params["seed"], **params})
            for trajectory in window:
                self.push(trajectory)
        return self

    def push(self, trajectory: ArrayLike) -> None:
        """Add a trajectory to the window; the oldest leaves it if it is full."""
        points = self._checked(trajectory)
        if self._state is None:
            self._state = _unfitted(self.config, points.shape[1])
        self._window.append(points)

    def fit(self, X: ArrayLike | None = None, y: Any = None) -> "Coverage":
        """Fit the model to the window; or forget everything and fit it to the points X [n, d] alone.

        `FitError` if that fails and there is no model. Without X, if there is one, it stays in use, and a
        warning says why; with X, everything stays as it was. `y` is ignored, as scikit-learn has it.
        """
        if X is not None:
            alone = type(self)().set_params(**self._params)
            alone.push(X)
            alone.fit()
            self._window, self._state, self._fits = alone._window, alone._state, alone._fits
            return self
        if self._state is None:
            raise FitError("there is nothing to fit: push a trajectory first, or give points: fit(X)")
        window = np.concatenate(self._window)
        reason = _too_few(self.config, window)
        failed = self.failed_fits_
        with _in_single_precision():
            if reason is None:
                points, valid = _filled_up(window)
                key = jax.random.fold_in(jax.random.key(self._seed), self._fits)
                start = self._state._replace(points=points[None], valid=valid[None])
                self._state = _fit(self.config, start, key)
                self._fits += 1
            else:  # Not worth the minutes that a fit may take to compile.
                self._state = self._state._replace(failed_fits=self._state.failed_fits + 1)
        if self.failed_fits_ > failed:
            message = f"nothing could be fitted: {reason or _not_finite(self.config, window)}"
            if not self.fitted_:
                raise FitError(message)
            warnings.warn(f"{message}. The model of the last successful fit stays in use", stacklevel=2)
        return self

    def novelty(self, trajectory: ArrayLike) -> float:
        """Mean negative log-density of the points under the current model.

        To know how novel a trajectory is compared with others, ask before it is pushed and fitted.
        """
        checked, state = self._checked(trajectory), self._fitted_state()
        with _in_single_precision():
            points, valid = _filled_up(checked)
            return float(_novelty(self.config, state, points[None], valid[None])[0])

    def log_density(self, points: ArrayLike) -> np.ndarray:
        """Log-density [n] of each of the points [n, d] under the current model, within +-1e12."""
        checked, state = self._checked(points), self._fitted_state()
        with _in_single_precision():
            return np.asarray(_log_density(self.config, state, _filled_up(checked)[0]))[: len(checked)]

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """`log_density` by its name in scikit-learn."""
        return self.log_density(X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean log-density of the points X [n, d]: the higher, the more familiar. `y` is ignored."""
        return -self.novelty(X)

    @property
    def fitted_(self) -> bool:
        """Whether any fit has succeeded."""
        return self._state is not None and bool(self._state.fitted)

    @property
    def failed_fits_(self) -> int:
        return 0 if self._state is None else int(self._state.failed_fits)

    @property
    def diagnostics_(self) -> dict[str, np.ndarray]:
        """What is known of the last fit that was tried, failed or not; the names depend on the model.

        Empty before the first; one that could not succeed, for want of points, is not tried.
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
        """The covariances of the model in use, in the shapes of scikit-learn.

        These are [k, d] (diag), [k, d, d] (full), [d, d] (tied) or [k] (spherical); `reg` is included.
        """
        chosen = self._chosen(of_points=True)
        shape, whitening = (
            SHAPES[cast(MixtureConfig, self.config).covariance],
            np.asarray(chosen.whitening, np.float64),
        )
        return shape.covariances(whitening[_real(chosen)] if shape.per_component else whitening)

    def __repr__(self) -> str:
        known = asdict(self.config) | {"seed": self._seed}
        usual = _defaults(self.config.kind) | {"kind": "mixture"}
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
        """The mixture in use, if there is one; if it must be, one of the points themselves."""
        model = self._fitted_state().model
        if not isinstance(self.config, MixtureConfig):
            raise AttributeError(f"only mixtures have this, not the kind {self.config.kind}")
        if self.config.pca_dimensions is None:
            return model.chosen
        if of_points:
            raise AttributeError("only mixtures of the points have this, not those of principal axes")
        return model.inner.chosen

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, which replaces an older one only once it is complete."""
        header = {"format": _FORMAT, "config": asdict(self.config), "seed": self._seed, "fits": self._fits}
        arrays: dict[str, np.ndarray] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        if self._state is not None:
            arrays["lengths"] = np.array([len(points) for points in self._window], np.int64)
            arrays["points"] = np.concatenate(self._window)
            arrays |= {f"state{i}": leaf for i, leaf in enumerate(_leaves(self._state))}
        content = io.BytesIO()
        np.savez(content, **cast(Any, arrays))
        temporary = f"{os.fspath(path)}.tmp-{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Coverage":
        """Read what `save` has written; `ValueError` if the file is anything else. Runs no code of it."""
        with open(path, "rb") as file:
            content = file.read()
        try:
            with NpzFile(io.BytesIO(content)) as arrays:
                _refuse_compressed(arrays)
                return cls._restored({name: arrays[name] for name in arrays.files})
        except Exception as error:  # a broken archive can fail in any part of its readers
            raise ValueError(f"{os.fspath(path)} is not a saved coverage: {error}") from error

    @classmethod
    def _restored(cls, arrays: dict[str, np.ndarray]) -> "Coverage":
        header = json.loads(_entry(arrays, "header").tobytes())
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError("unknown format")
        config = dict(_entry(header, "config"))
        if isinstance(config.get("components"), list):
            config["components"] = tuple(config["components"])
        self = cls().set_params(**config, seed=_entry(header, "seed"))
        if arrays.keys() != {"header"}:
            points, lengths = _entry(arrays, "points"), _entry(arrays, "lengths")
            lengths = _checked_lengths(lengths, len(points), self.config.window)
            with _naming("points"):
                for trajectory in np.split(points, np.cumsum(lengths)[:-1]):
                    self.push(trajectory)
            assert self._state is not None
            leaves = [_entry(arrays, f"state{i}") for i in range(len(_leaves(self._state)))]
            self._state = _with_leaves(self.config, self._state, leaves)
        with _naming("fits"):
            self._fits = _seed(_entry(header, "fits"))
        return self

    def _checked(self, points: Any) -> np.ndarray:
        """The points as float32 [n, d], or an error that says what is wrong with them."""
        if isinstance(points, np.ma.MaskedArray):
            raise ValueError(
                "expected a plain array, got a masked one, whose mask would be lost: give only the points "
                "that count, e.g. np.ma.compress_rows(points)"
            )
        try:
            array = np.asarray(points)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected an array [points, dimensions]: {error}") from error
        # JAX knows more kinds of floats than NumPy.
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"expected an array of floats, got {array.dtype}")
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(
                "expected one array [points, dimensions] with at least one of each, as of one trajectory, "
                f"got {array.shape}"
            )
        known = self._window[0].shape[1] if self._window else array.shape[1]
        if known != array.shape[1]:
            raise ValueError(f"expected points of {known} dimensions as before, got {array.shape[1]}")
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if not np.isfinite(single).all():
            raise ValueError("expected finite numbers in the range of float32, got NaN or infinity")
        return single


def _defaults(kind: Any) -> dict[str, Any]:
    """All settings of a kind by name, the seed included; those of a mixture for an unknown kind."""
    records = {record().kind: record for record in get_args(CoverageConfig)}
    record = records.get(kind, MixtureConfig) if isinstance(kind, str) else MixtureConfig
    return asdict(record()) | {"kind": kind, "seed": 0}


def _unknown(kind: Any, names: Collection[str]) -> str | None:
    """What to say about names that are no settings of this kind of coverage, if there are any."""
    known = _defaults(kind)
    unknown = [name for name in names if name not in known]
    if not unknown:
        return None
    close = {match: None for name in unknown for match in difflib.get_close_matches(name, known, n=1)}
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}"
    return f"unknown settings: {', '.join(unknown)}; {hint}"


def _settings(params: Mapping[str, Any]) -> tuple[CoverageConfig, int]:
    """The settings and the seed; `ValueError` with everything that is wrong with them."""
    problems: list[Problem] = []
    config, seed = None, 0
    try:
        config = read_coverage({name: value for name, value in params.items() if name != "seed"})
    except SettingsError as error:
        problems += error.problems
    try:
        seed = _seed(params["seed"])
    except ValueError as error:
        problems.append(Problem("seed", str(error)))
    if config is None or problems:
        raise ValueError("; ".join(map(str, problems)))
    return config, seed


def _seed(value: Any) -> int:
    number = plain_value(value)
    if type(number) is not int or not 0 <= number < _SEEDS:
        raise ValueError(f"must be a whole number from 0 to {_SEEDS - 1}, got {show(value)}")
    return number


def _unfitted(config: CoverageConfig, dimensions: int) -> coverage.CoverageState:
    """A state with room for no points: they are kept in NumPy and come into the state for a fit."""
    with _in_single_precision():
        return coverage.init(replace(config, window=1), 1, dimensions)


def _too_few(config: CoverageConfig, points: np.ndarray) -> str | None:
    """Why there are too few points for any mixture, and what to do about it; None if there are enough."""
    if not isinstance(config, MixtureConfig):
        return None
    fewest, count = config.components[0], len(points)
    # Almost always a few points are enough to see that there are enough.
    if count >= fewest and any(len(np.unique(some, axis=0)) >= fewest for some in (points[:256], points)):
        return None
    if count < fewest:
        found = f"the window holds {count} points"
    elif (points == points[0]).all():
        found = f"all {count} points of the window are equal (as float32)"
    else:
        found = f"the {count} points of the window have {len(np.unique(points, axis=0))} values (as float32)"
    return (
        f"{found}, and the smallest mixture has {fewest} components: push more, or allow fewer components, "
        "e.g. components=(1, 4)"
    )


def _not_finite(config: CoverageConfig, points: np.ndarray) -> str:
    """What may be wrong with enough points that could not be fitted, and what to do about it."""
    count = len(points)
    looked_at = count if config.max_points is None else min(count, config.max_points)
    span = np.ptp(points.astype(np.float64), axis=0).max()
    return (
        f"no finite density was found for {looked_at} of {count} points with numbers up to "
        f"{np.abs(points).max():.3g}, which differ by up to {span:.3g}, and reg={config.reg:g}: bring the "
        "features to a scale of 1, or raise reg" + (" or max_points" if looked_at < count else "")
    )


def _filled_up(points: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Points with rows of zeros up to one of few lengths, and which of them are real."""
    count = len(points)
    length = max(_LEAST_POINTS, 1 << (count - 1).bit_length())
    padded = np.pad(points, ((0, length - count), (0, 0)))
    return jnp.asarray(padded), jnp.arange(length) < count


def _real(mixture: Mixture) -> np.ndarray:
    """Which components [k] exist; the others only fill up the arrays."""
    return np.asarray(mixture.log_weights) > -np.inf


def _without_window(state: coverage.CoverageState) -> coverage.CoverageState:
    """All that is learned; the points are kept apart, without filling."""
    return state._replace(points=cast(Any, None), valid=cast(Any, None))


def _leaves(state: coverage.CoverageState) -> list[np.ndarray]:
    """All that is learned, as arrays in a fixed order."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(_without_window(state))]


def _with_leaves(
    config: CoverageConfig, state: coverage.CoverageState, leaves: list[np.ndarray]
) -> coverage.CoverageState:
    """The state with what was learned replaced, if that has the right shapes and can be a model."""
    old, structure = jax.tree.flatten_with_path(_without_window(state))
    for (path, leaf), new in zip(old, leaves):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if leaf.shape != new.shape or leaf.dtype != new.dtype:
            raise ValueError(
                f"{name}: expected an array {leaf.shape} of {leaf.dtype}, got {new.shape} of {new.dtype}"
            )
        if name.startswith("model.") and (wrong := _wrong_parameters(config, name.split(".")[-1], new)):
            raise ValueError(f"{name}: {wrong}")
    with _in_single_precision():
        learned = jax.tree.unflatten(structure, map(jnp.asarray, leaves))
    return learned._replace(points=state.points, valid=state.valid)


def _wrong_parameters(config: CoverageConfig, name: str, values: np.ndarray) -> str | None:
    """Why no fit can have given these values to a parameter of a model, if so."""
    if np.isnan(values).any():
        return "holds NaN"
    if name == "log_weights":
        # Components that do not exist have weight 0; those that lost their points leave a little less than 1.
        total = np.exp(values.astype(np.float64)).sum(axis=-1)
        return None if ((total > 0.0) & (total < 1.001)).all() else "these are no weights of components"
    if np.isinf(values).any():
        return "holds infinite numbers"
    if name == "whitening" and cast(MixtureConfig, config).covariance in ("full", "tied"):
        values = np.diagonal(values, axis1=-2, axis2=-1)
    if name in ("whitening", "noise", "scale") and (values <= 0.0).any():
        return "holds a spread that is not positive"
    return None


def _checked_lengths(lengths: np.ndarray, points: int, window: int) -> np.ndarray:
    """The lengths of trajectories, if they can be those of so many points in such a window."""
    if lengths.ndim != 1 or not np.issubdtype(lengths.dtype, np.integer) or (lengths < 1).any():
        raise ValueError("lengths: expected the lengths of trajectories, each at least 1")
    if lengths.sum() != points or len(lengths) > window:
        raise ValueError(f"lengths: they do not add up to {points} points in a window of {window}")
    return lengths


def _entry(of: Mapping[str, Any], name: str) -> Any:
    if name not in of:
        raise ValueError(f"it lacks {name}")
    return of[name]


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which part of a file was wrong."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _refuse_compressed(arrays: NpzFile) -> None:
    """`save` compresses nothing; a small file that claims to be large may not fill the memory."""
    assert arrays.zip is not None
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in arrays.zip.infolist()):
        raise ValueError("it is compressed")
