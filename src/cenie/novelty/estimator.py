"""Coverage for programs that do not use JAX: NumPy in, NumPy out, no state to pass around."""

import io
import json
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.npyio import NpzFile

from cenie.novelty import coverage
from cenie.novelty.config import CovarianceName, CoverageConfig, problems_of

_FORMAT = "cenie coverage 1"
_LEAST_POINTS = 16
"""Arrays are filled up to this or to the next power of two, so that few lengths are ever compiled for."""

_fit = jax.jit(coverage.fit, static_argnums=0)
_novelty = jax.jit(coverage.novelty, static_argnums=0)
_log_density = jax.jit(coverage.log_density, static_argnums=0)


class Coverage:
    """How familiar a trajectory is, given the last ones: `push`, `fit`, `novelty`.

    A trajectory is a float array [points, d] of any length; every point of all trajectories has the same
    `d` numbers, usually a representation of the state followed by the action. `settings` are further
    fields of `CoverageConfig`. The same calls with the same seed give the same results.
    """

    def __init__(
        self,
        components: Sequence[int] = (6, 15),
        window: int = 32,
        covariance: CovarianceName = "diag",
        reg: float = 1e-2,
        seed: int = 0,
        **settings: Any,
    ):
        fewest, most = components
        config = CoverageConfig(
            components=(fewest, most), window=window, covariance=covariance, reg=float(reg), **settings
        )
        if problems := problems_of(config):
            raise ValueError("; ".join(f"{problem.path}: {problem.message}" for problem in problems))
        self.config = config
        self._seed = seed
        self._fits = 0
        self._window: deque[np.ndarray] = deque(maxlen=window)
        self._state: coverage.CoverageState | None = None

    def push(self, trajectory: np.ndarray) -> None:
        """Add a trajectory to the window; the oldest leaves it if it is full."""
        points = self._checked(trajectory)
        if self._state is None:
            self._state = coverage.init(self.config, 1, points.shape[1])
        self._window.append(points)

    def fit(self) -> "Coverage":
        """Fit the model to the window; if that fails, the old model stays (see `diagnostics_`)."""
        if self._state is None:
            raise RuntimeError("there is nothing to fit: push a trajectory first")
        points, valid = _filled_up(np.concatenate(self._window))
        key = jax.random.fold_in(jax.random.key(self._seed), self._fits)
        self._state = _fit(self.config, self._state._replace(points=points[None], valid=valid[None]), key)
        self._fits += 1
        return self

    def novelty(self, trajectory: np.ndarray) -> float:
        """Mean negative log-density of the points under the current model; 0 before the first fit.

        To know how novel a trajectory is compared with others, ask before it is pushed and fitted.
        """
        points, valid = _filled_up(self._checked(trajectory))
        if self._state is None:
            return 0.0
        return float(_novelty(self.config, self._state, points[None], valid[None])[0])

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Log-density [n] of each of the points [n, d] under the current model."""
        checked = self._checked(points)
        if self._state is None or not self.fitted_:
            raise RuntimeError("there is no density yet: push trajectories and fit first")
        return np.asarray(_log_density(self.config, self._state, _filled_up(checked)[0]))[: len(checked)]

    @property
    def fitted_(self) -> bool:
        """Whether any fit has succeeded."""
        return self._state is not None and bool(self._state.fitted)

    @property
    def failed_fits_(self) -> int:
        return 0 if self._state is None else int(self._state.failed_fits)

    @property
    def diagnostics_(self) -> dict[str, np.ndarray]:
        """What is known of the last fit; empty before the first. The names depend on the model."""
        if self._state is None or self._fits == 0:
            return {}
        return {name: np.asarray(value) for name, value in self._state.diagnostics.items()}

    @property
    def components_(self) -> int:
        """The number of components chosen by the last fit."""
        diagnostics = self.diagnostics_
        if "components" not in diagnostics or not self.fitted_:
            raise AttributeError("no number of components has been chosen")
        return int(diagnostics["components"])

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
        with open(temporary, "wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Coverage":
        """Read what `save` has written; `ValueError` if the file is anything else. Runs no code of it."""
        with open(path, "rb") as file:
            content = file.read()
        try:
            with NpzFile(io.BytesIO(content)) as arrays:
                return cls._restored({name: arrays[name] for name in arrays.files})
        except Exception as error:  # a broken archive can fail in any part of its readers
            raise ValueError(f"{os.fspath(path)} is not a saved coverage: {error}") from error

    @classmethod
    def _restored(cls, arrays: dict[str, np.ndarray]) -> "Coverage":
        header = json.loads(arrays["header"].tobytes())
        if header["format"] != _FORMAT:
            raise ValueError(f"unknown format {header['format']!r}")
        self = cls(**header["config"], seed=header["seed"])
        self._fits = header["fits"]
        if "points" in arrays:
            points, lengths = arrays["points"], arrays["lengths"]
            if lengths.sum() != len(points):
                raise ValueError("the lengths of the trajectories do not add up")
            for trajectory in np.split(points, np.cumsum(lengths)[:-1]):
                self.push(trajectory)
            assert self._state is not None
            leaves = [arrays[f"state{i}"] for i in range(len(_leaves(self._state)))]
            self._state = _with_leaves(self._state, leaves)
        return self

    def _checked(self, points: np.ndarray) -> np.ndarray:
        """The points as float32 [n, d], or an error that says what is wrong with them."""
        array = np.asarray(points)
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"expected an array of floats, got {array.dtype}")
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(
                f"expected an array [points, dimensions] with at least one of each, got {array.shape}"
            )
        known = None if self._state is None else self._state.points.shape[-1]
        if known not in (None, array.shape[1]):
            raise ValueError(f"expected points of {known} dimensions as before, got {array.shape[1]}")
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if not np.isfinite(single).all():
            raise ValueError("expected finite numbers in the range of float32, got NaN or infinity")
        return single


def _filled_up(points: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Points with rows of zeros up to one of few lengths, and which of them are real."""
    count = len(points)
    length = max(_LEAST_POINTS, 1 << (count - 1).bit_length())
    padded = np.pad(points, ((0, length - count), (0, 0)))
    return jnp.asarray(padded), jnp.arange(length) < count


def _without_window(state: coverage.CoverageState) -> tuple[Any, ...]:
    return state.model, state.fitted, state.failed_fits, state.diagnostics


def _leaves(state: coverage.CoverageState) -> list[np.ndarray]:
    """All that is learned, as arrays in a fixed order; the points are kept apart, without filling."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(_without_window(state))]


def _with_leaves(state: coverage.CoverageState, leaves: list[np.ndarray]) -> coverage.CoverageState:
    old, structure = jax.tree.flatten(_without_window(state))
    for leaf, new in zip(old, leaves):
        if leaf.shape != new.shape or leaf.dtype != new.dtype:
            raise ValueError(
                f"expected an array {leaf.shape} of {leaf.dtype}, got {new.shape} of {new.dtype}"
            )
    model, fitted, failed_fits, diagnostics = jax.tree.unflatten(structure, map(jnp.asarray, leaves))
    return state._replace(model=model, fitted=fitted, failed_fits=failed_fits, diagnostics=diagnostics)
