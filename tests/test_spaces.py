"""Spaces are plain data, however their types were given."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from cenie.spaces import Box, Discrete
from cenie.student.encoders import flatten


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
    with pytest.raises(ValueError, match="dtype: must be a NumPy type or its name, got 'colour'"):
        Box((1,), 0, 1, "colour")
