"""Steps of other people's loops as arrays: any layout, rows of any lengths, tensors of PyTorch."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from cenie.novelty.torch_tensors import from_tensor
from cenie.replay.outcomes import Points
from cenie.settings import show

PerStep = ArrayLike | Sequence[Any]
"""A number for each step of each level: an array of two axes, or a list of rows of any lengths. Tensors
of PyTorch are arrays here."""

Layout = Literal["levels-first", "time-first"]
"""The order of the first two axes: [level, step], or [step, level]."""

_FLAGS = {"terminated", "truncated", "solved"}
_REQUIRED = {"reward", "value", "terminated", "truncated"}


def read_steps(
    given: Mapping[str, Any], num_levels: int, layout: Layout | None, *, score_unfinished: bool
) -> dict[str, list[np.ndarray]]:
    """Read what `Teacher.tell` was given: for each name a row for each level, all as long as the rewards.

    Args:
        given: Values by the names of the arguments; None where an optional one is missing.
        num_levels: The number of levels of the task.
        layout: The order of the axes; None for levels first, unless an array could be either.
        score_unfinished: End an episode at the last step of every row without any end.

    Raises:
        ValueError: Something does not fit; the message begins with the name of the argument.
    """
    rows = {
        name: _typed(name, _rows(name, values, num_levels, layout))
        for name, values in given.items()
        if values is not None or name in _REQUIRED
    }
    lengths = {name: [len(row) for row in part] for name, part in rows.items()}
    for name, found in lengths.items():
        if found != lengths["reward"]:
            raise ValueError(f"{name}: rows of {found} steps, but reward has rows of {lengths['reward']}")
    # Gymnasium's time limit may set both at once.
    truncated = [cut & ~end for cut, end in zip(rows["truncated"], rows["terminated"])]
    if score_unfinished:
        for cut, end in zip(truncated, rows["terminated"]):
            cut[-1:] |= not (end | cut).any()
    return rows | {"truncated": truncated}


def padded(steps: Mapping[str, Sequence[np.ndarray]], length: int) -> dict[str, np.ndarray]:
    """Arrays [n, t] of the rows, filled up with zeros."""
    return {
        name: np.stack([np.pad(row, (0, length - len(row))) for row in part]) for name, part in steps.items()
    }


def read_points(
    features: Any, num_levels: int, layout: Layout | None, *, points_per_level: int, size: int
) -> Points:
    """Read the features of steps: at most `points_per_level` evenly spaced ones of each level."""
    rows = _rows("features", features, num_levels, layout)
    points = np.zeros((num_levels, points_per_level, size), np.float32)
    valid = np.zeros((num_levels, points_per_level), bool)
    for index, row in enumerate(rows):
        if row.ndim != 2 or row.shape[1] != size or row.dtype.kind not in "biuf":
            raise ValueError(
                f"features[{index}]: expected {size} numbers for each step, got {row.dtype}{list(row.shape)}"
            )
        if not np.isfinite(row).all():
            raise ValueError(f"features[{index}]: not finite")
        count = min(len(row), points_per_level)
        chosen = np.linspace(0, len(row) - 1, count).round().astype(int)
        points[index, :count], valid[index, :count] = row[chosen], True
    return Points(jnp.asarray(points), jnp.asarray(valid))


def _rows(name: str, values: Any, num_levels: int, layout: Layout | None) -> list[np.ndarray]:
    """The row of each level, whatever the layout; raises `ValueError` if the shape does not fit it."""
    if isinstance(values, list | tuple) and layout != "time-first":
        rows = [_array(f"{name}[{index}]", row) for index, row in enumerate(values)]
        if len(rows) != num_levels:
            transposed = bool(rows) and all(row.shape[:1] == (num_levels,) for row in rows)
            raise ValueError(_wrong_levels(name, num_levels, len(rows), transposed))
        return rows
    array = _array(name, values)
    if array.ndim < 2:
        raise ValueError(f"{name}: expected an array [level, step] or a list of rows, got {show(values)}")
    steps, levels = array.shape[:2]
    if layout == "time-first":
        if levels != num_levels:
            hint = "; it looks levels-first" if steps == num_levels else ""
            raise ValueError(
                f"{name}: expected [step, level] with {num_levels} levels, got {list(array.shape)}{hint}"
            )
        return list(array.swapaxes(0, 1))
    if layout is None and steps == levels == num_levels > 1:
        raise ValueError(
            f"{name}: an array of as many steps as levels, {num_levels}, could have either of its axes "
            f"first: pass layout='levels-first' or layout='time-first'"
        )
    if array.shape[0] != num_levels:
        raise ValueError(_wrong_levels(name, num_levels, array.shape[0], array.shape[1] == num_levels))
    return list(array)


def _wrong_levels(name: str, num_levels: int, found: int, transposed: bool) -> str:
    hint = "; it looks time-first: pass layout='time-first'" if transposed else ""
    return f"{name}: expected one row for each of the {num_levels} levels, got {found}{hint}"


def _array(name: str, values: Any) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name}: masks are not read; give a list of rows of different lengths")
    try:
        array = np.asarray(from_tensor(values))
    except Exception as error:  # Ragged lists, tensors without data: each library has its own.
        raise ValueError(f"{name}: cannot be read as an array ({error})") from error
    # bfloat16 is no number to NumPy.
    is_foreign_float = array.dtype.kind == "V" and jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float32) if is_foreign_float else array


def _typed(name: str, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Rows of one number per step, as flags or as finite float32."""
    typed = []
    for index, row in enumerate(rows):
        if row.ndim != 1 or row.dtype.kind not in "biuf":
            raise ValueError(
                f"{name}[{index}]: expected one number per step, got {row.dtype}{list(row.shape)}"
            )
        if name in _FLAGS and not np.isin(row, (0, 1)).all():
            raise ValueError(f"{name}[{index}]: expected true or false for each step")
        with np.errstate(over="ignore"):
            typed.append(row.astype(bool if name in _FLAGS else np.float32))
        finite = np.isfinite(typed[-1])
        if not finite.all():
            raise ValueError(f"{name}[{index}]: not finite at step {int(np.argmin(finite))}")
    return typed
