"""Spaces are plain data, however their types were given."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from cenie.spaces import Box, Discrete
from cenie.student.encoders import flatten
from tests.unchecked import unchecked

PLAIN = unchecked("cenie.spaces")


@pytest.mark.parametrize("dtype", [np.uint8, np.dtype("uint8"), jnp.uint8, "uint8", "u1", "|u1"])
def test_the_type_of_a_box_may_be_given_in_any_way(dtype: Any):
    """Codes and pixels are divided by the largest, whichever way their type was written."""
    space = Box((2, 2, 1), 0, 255, dtype)
    assert space == Box((2, 2, 1), 0, 255, "uint8")
    assert hash(space) == hash(Box((2, 2, 1), 0, 255, "uint8"))
    pixels = jnp.full((3, 2, 2, 1), 51, jnp.uint8)
    np.testing.assert_allclose(flatten((space,), pixels), np.full((4, 3), 0.2), rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(float, "float64"), (np.float16, "float16"), (jnp.bfloat16, "bfloat16"), (bool, "bool")],
)
def test_types_are_kept_by_name(dtype: Any, name: str):
    assert Box((1,), 0, 1, dtype).dtype == name


def test_a_discrete_space_keeps_the_name_too():
    assert Discrete(3, np.int16) == Discrete(3, "int16")


def test_what_is_no_type_is_refused():
    with pytest.raises(ValueError, match="dtype: must be a NumPy type of numbers or its name, got 'colour'"):
        Box((1,), 0, 1, "colour")


@pytest.mark.parametrize("dtype", [None, object, complex, "U3", "datetime64[s]", [("a", "i4")]])
def test_a_type_of_no_numbers_is_refused(dtype: Any):
    """None was float64, and texts were kept until something was computed with them."""
    with pytest.raises(ValueError, match="dtype: must be a NumPy type of numbers"):
        Box((1,), 0, 1, dtype)


def test_bug_shapes_and_bounds_of_other_libraries_could_not_be_hashed():
    """Spaces are parts of what is compiled for; those of gymnasium have arrays as bounds."""
    given = [3], np.zeros(3, np.float32), np.full(3, 255.0)
    assert hash(PLAIN.Box(*given, np.uint8)) == hash(PLAIN.Box((3,), 0.0, 255.0, "uint8"))
    assert PLAIN.Box((np.int64(3),), jnp.float32(-1.0), np.int64(1)) == PLAIN.Box((3,), -1.0, 1)
    assert type(PLAIN.Discrete(np.int64(4)).n) is int
    endless = PLAIN.Box((2,), np.full(2, -np.inf), np.full(2, np.inf))
    assert (endless.low, endless.high) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (lambda: PLAIN.Box((2,), np.array([0.0, 1.0]), 2.0), "low: must be one number for all entries"),
        (lambda: PLAIN.Box((2,), 0.0, "high"), "high: must be one number for all entries, got 'high'"),
        (lambda: PLAIN.Box(2, 0.0, 1.0), "shape: must be of whole numbers, got 2"),
        (lambda: PLAIN.Box((2.5,), 0.0, 1.0), "shape: must be of whole numbers"),
        (lambda: PLAIN.Discrete("3"), "n: must be of whole numbers"),
    ],
)
def test_shapes_and_bounds_that_are_none_are_refused(space: Any, says: str):
    with pytest.raises(ValueError, match=says):
        space()
