"""Levels of any numbers survive the way through bytes, and foreign ones are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from cenie.bridges.levels import LevelCodec

KINDS = st.sampled_from(["bool", "int8", "uint16", "int32", "int64", "uint64", "float32", "float64"])
ARRAYS = KINDS.flatmap(
    lambda kind: st_numpy.arrays(kind, st_numpy.array_shapes(min_dims=0, max_dims=3, max_side=4))
)
LEVELS = st.recursive(
    ARRAYS,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
        st.lists(inner, min_size=1, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=5,
)


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@settings(max_examples=200, deadline=None)
@given(LEVELS)
def test_every_bit_comes_back(level):
    codec = LevelCodec(level)
    row = codec.encode(level)
    assert row.dtype == np.uint8
    assert row.shape == (codec.size,)
    assert same(codec.decode(row), level)


def test_decoded_levels_can_be_changed():
    codec = LevelCodec(np.zeros(3))
    level = codec.decode(codec.encode(np.zeros(3)))
    level[0] = 1.0
    assert level[0] == 1.0


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ({"a": 1.0, "b": 2.0}, "structure"),
        ({"a": [1.0]}, "structure"),
        ({"a": 1}, "float64.*int64"),
        ({"a": np.zeros(2)}, r"float64\[\].*float64\[2\]"),
        ({"a": "text"}, "made of numbers"),
        ({"a": None}, "structure"),
    ],
)
def test_a_level_of_another_kind_is_refused(level, message):
    with pytest.raises(ValueError, match=message):
        LevelCodec({"a": 1.0}).encode(level)


@pytest.mark.parametrize("example", [{}, np.zeros(0), ()])
def test_an_empty_level_is_refused(example):
    with pytest.raises(ValueError, match="at least one number"):
        LevelCodec(example)
