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
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from cenie.novelty.em import Mixture
from cenie.novelty.tensors import from_tensor
from cenie.settings import Problem, SettingsError, show
from cenie.xla.cache import give_back_memory, kept_programs, without_alarm

_FORMAT = "cenie coverage 2"
_FIT_LENGTHS = (64, 256, 1024, 4096, 16384)
"""Points to fit are filled up to one of these, or to a power of two beyond, so that few programs serve all
windows. Each takes some ten seconds to compile; a fit takes at most four times as long as it must."""

_BLOCKS = (64, 512, 4096)
"""Points whose density is asked for are filled up to one of these; more of them go block by block."""

_SEEDS = 2**32
"""JAX looks at 32 bits of a seed, or of a number that is folded into one: others repeat one of these."""

_TWO_SEEDS = "seed and random_state are two names of one number: give one of them"

_in_single_precision = functools.partial(jax.enable_x64, False)
"""The models are made for it, whatever the rest of the program has told JAX."""

_log_density = jax.jit(coverage.log_density, static_argnums=0)


@functools.partial(jax.jit, static_argnums=0)
def _fit(
    config: CoverageConfig,
    learned: coverage.CoverageState,
    points: jax.Array,
    valid: jax.Array,
    key: jax.Array,
) -> coverage.CoverageState:
    """What is learned from the valid ones of points [n, d], which are not among it: NumPy keeps them."""
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
    """Nothing could be fitted to the points, and there is no earlier model of them."""


class NotFittedError(ValueError, AttributeError):
    """A model is asked for before any fit has succeeded. The same bases as scikit-learn's."""


class Coverage:
    """How familiar a trajectory is, given the last ones: `push`, `fit`, `novelty`.

    A trajectory is a float array [points, d] of any length; every point of all trajectories has the same
    `d` numbers, usually a representation of the state followed by the action (one-hot, if it is discrete).
    Tensors of PyTorch are read as they are. `kind` is what models the density: `mixture`, `neighbours` or
    `distillation`. `settings` are those of its record in `cenie.novelty.config`, for a mixture above all
    `components` (a number, or the fewest and the most), `window`, `covariance` and `reg`. The same calls with
    the same seed, which may also be named `random_state`, give the same results.

    A fit looks at no more than `max_points` of the points, drawn uniformly, and says so the first time that
    there are more. What takes long to compile is kept in the user's cache directory for the next process;
    `CENIE_CACHE_DIR` names another directory, or switches this `off`.

    There are two ways to fit. `push(trajectory)` and `fit()` follow an agent: the window holds its last
    trajectories. `fit(X)` is that of scikit-learn: it forgets everything and fits the points X alone, as one
    trajectory. A fit that fails says so: `FitError` if there is no model, else a warning that the earlier
    one stays in use. Before a fit has succeeded there is no novelty (`NotFittedError`).
    """

    def __init__(
        self, *, kind: str = "mixture", seed: int = 0, random_state: int | None = None, **settings: Any
    ):
        if unknown := _unknown(kind, settings):
            raise TypeError(unknown)
        if random_state is not None:
            if type(seed) is not int or seed != 0:
                raise ValueError(_TWO_SEEDS)
            seed = random_state
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
        self._said_max_points = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings by name, as they were given, `random_state` as `seed`.

        `deep` is there for scikit-learn and changes nothing.
        """
        return dict(self._params)

    def set_params(self, **params: Any) -> "Coverage":
        """Change settings. The window stays, as far as it fits in; the model is forgotten: fit again.

        Another `kind` begins with its own defaults.
        """
        if (seed := params.pop("random_state", None)) is not None:
            if "seed" in params:
                raise ValueError(_TWO_SEEDS)
            params["seed"] = seed
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
        # A copy: whoever fills one array again and again would otherwise change the window.
        self._append(self._checked(trajectory).copy())

    def _append(self, points: np.ndarray) -> None:
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
            alone._said_max_points = self._said_max_points
            points = alone._checked(X)
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
        reason = _too_few(self.config, looked_at, count)
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
            message = f"nothing could be fitted: {reason or _not_finite(self.config, looked_at, count)}"
            if not self.fitted_:
                raise FitError(message)
            warnings.warn(f"{message}. The model of the last successful fit stays in use", stacklevel=3)

    def novelty(self, trajectory: ArrayLike) -> float:
        """Mean negative log-density of the points under the current model.

        To know how novel a trajectory is compared with others, ask before it is pushed and fitted.
        """
        return -float(np.mean(self.log_density(trajectory), dtype=np.float64))

    def log_density(self, points: ArrayLike) -> np.ndarray:
        """Log-density [n] of each of the points [n, d] under the current model, within +-1e12."""
        checked, state = self._checked(points), self._fitted_state()
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
        temporary = f"{os.fspath(path)}.tmp-{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                np.savez(file, **cast(Any, arrays))
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
        """The points as float32 [n, d], not copied if they are that; or an error that says what is wrong."""
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
        known = self._window[0].shape[1] if self._window else array.shape[1]
        if known != array.shape[1]:
            raise ValueError(f"expected points of {known} dimensions as before, got {array.shape[1]}")
        with np.errstate(over="ignore"):
            single = array.astype(np.float32, copy=False)
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
    """A state without points: they are kept in NumPy and come into the state for a fit."""
    with _in_single_precision():
        return _without_window(coverage.init(replace(config, window=1), 1, dimensions))


def _drawn(window: Sequence[np.ndarray], most: int | None, seed: tuple[int, int]) -> np.ndarray:
    """The points of all trajectories, or as many of them, drawn uniformly, as a fit looks at.

    Only these are copied: the points of a large window are there once, and not twice.
    """
    ends = np.cumsum([len(points) for points in window])
    if most is None or ends[-1] <= most:
        return np.concatenate(window)
    rows = np.random.default_rng(seed).choice(ends[-1], most, replace=False, shuffle=False)
    parts = np.split(np.sort(rows), np.searchsorted(np.sort(rows), ends[:-1]))
    firsts = [0, *ends[:-1]]
    return np.concatenate([points[part - first] for points, part, first in zip(window, parts, firsts)])


def _too_few(config: CoverageConfig, points: np.ndarray, total: int) -> str | None:
    """Why there are too few points for any mixture, and what to do about it; None if there are enough.

    The points are all of the window, or those that were drawn from its `total`.
    """
    if not isinstance(config, MixtureConfig):
        return None
    fewest, count = config.components[0], len(points)
    # Almost always a few points are enough to see that there are enough.
    if count >= fewest and any(len(np.unique(some, axis=0)) >= fewest for some in (points[:256], points)):
        return None
    points_of = "points of the window" if count == total else f"points, drawn from the {total} of the window,"
    if count < fewest:
        found = f"the window holds {count} points"
    elif (points == points[0]).all():
        found = f"all {count} {points_of} are equal (as float32)"
    else:
        found = f"the {count} {points_of} have {len(np.unique(points, axis=0))} values (as float32)"
    return (
        f"{found}, and the smallest mixture has {fewest} components: push more, or allow fewer components, "
        "e.g. components=(1, 4)"
    )


def _not_finite(config: CoverageConfig, points: np.ndarray, total: int) -> str:
    """What may be wrong with enough points that could not be fitted, and what to do about it.

    The points are all of the window, or those that were drawn from its `total`.
    """
    span = np.ptp(points.astype(np.float64), axis=0).max()
    return (
        f"no finite density was found for {len(points)} of {total} points with numbers up to "
        f"{np.abs(points).max():.3g}, which differ by up to {span:.3g}, and reg={config.reg:g}: bring the "
        "features to a scale of 1, or raise reg" + (" or max_points" if len(points) < total else "")
    )


def _fit_length(count: int, most: int | None) -> int:
    """To how many points so many are filled up for a fit that looks at no more than the most."""
    length = next((length for length in _FIT_LENGTHS if count <= length), 1 << (count - 1).bit_length())
    return length if most is None else min(length, most)


def _filled_up(points: np.ndarray, length: int) -> tuple[jax.Array, jax.Array]:
    """Points with rows of zeros up to a length, and which of them are real."""
    missing = length - len(points)
    padded = np.pad(points, ((0, missing), (0, 0))) if missing else points
    return jnp.asarray(padded), jnp.asarray(np.arange(length) < len(points))


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
        return jax.tree.unflatten(structure, map(jnp.asarray, leaves))


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
