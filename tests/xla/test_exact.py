"""The tricks that keep the last bits, each against the plain formula; and the worked example of insertion."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenie.replay import insertion
from cenie.teach import measure
from cenie.xla import exact

C = 6
weights = st.lists(st.floats(0, 8, width=32, allow_subnormal=False), min_size=C, max_size=C)


def test_the_worked_example_of_insertion_is_right():
    result = doctest.testmod(insertion)
    assert result.attempted >= 8
    assert result.failed == 0


def test_the_example_of_metrics_that_are_taken_apart_is_right():
    result = doctest.testmod(measure)
    assert result.attempted >= 1
    assert result.failed == 0


@pytest.mark.parametrize("count", [1, 2, 5, 4000])
def test_the_inverse_of_an_order_is_its_inverse(count):
    order = np.random.default_rng(count).permutation(count).astype(np.uint32)
    places = np.asarray(exact.inverse(jnp.asarray(order)))
    np.testing.assert_array_equal(places[order], np.arange(count))


@given(weights)
@settings(max_examples=20, deadline=None)
def test_rounded_changes_no_bit(values):
    array = jnp.asarray(values, jnp.float32)
    np.testing.assert_array_equal(exact.rounded(array), array)


@given(weights, st.integers(0, C))
@settings(max_examples=20, deadline=None)
def test_normalised_is_a_distribution_over_the_mask(values, size):
    mask = np.arange(C) < size
    inside = np.where(mask, np.asarray(values, np.float32), 0.0)
    result = np.asarray(exact.normalised(jnp.asarray(inside), jnp.asarray(mask)))
    total = inside.sum()
    expected = inside / total if total > 0 else mask / max(size, 1)
    # XLA flushes the smallest numbers to 0.
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-37)


@given(weights, st.floats(0, 1, width=32, exclude_max=True))
@settings(max_examples=40, deadline=None)
def test_sample_index_inverts_the_cumulative_sum(values, uniform):
    array = np.asarray(values, np.float32)
    index = int(exact.sample_index(jnp.asarray(array), jnp.float32(uniform)))
    assert 0 <= index < C
    if array.sum() > 0:
        target, ends = array.sum() * (1.0 - uniform), np.cumsum(array)
        assert array[index] > 0
        assert ends[index] - array[index] - 1e-4 <= target <= ends[index] + 1e-4


def test_group_means_do_not_depend_on_other_columns():
    members = jnp.asarray(np.random.default_rng(0).random((5, 5)) < 0.6)
    values = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)
    both, found = jax.jit(exact.group_means)(members, values)
    alone, _ = jax.jit(exact.group_means)(members, values[:, :1])
    np.testing.assert_array_equal(both[:, :1], alone)
    for row, chosen, mean in zip(np.asarray(members), found, both):
        assert bool(chosen) == row.any()
        np.testing.assert_allclose(
            mean, np.asarray(values)[row].mean(axis=0) if row.any() else 0.0, rtol=1e-5
        )


@pytest.mark.parametrize(
    ("values", "then_highest", "index"),
    [
        ([3.0, 1.0, 2.0], [0.0, 0.0, 0.0], 1),
        ([1.0, 1.0, 2.0], [4.0, 6.0, 8.0], 1),
        ([1.0, 1.0 + 1e-7, 1.0], [4.0, 6.0, 6.0], 1),
        ([0.0, 0.0, 0.0], [2.0, 2.0, 2.0], 0),
        ([np.inf, 5.0, np.inf], [0.0, 2.0, 9.0], 1),
    ],
)
def test_first_of_lowest(values, then_highest, index):
    arrays = (jnp.asarray(column, jnp.float32) for column in (values, then_highest))
    assert int(exact.first_of_lowest(*arrays)) == index


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**20)), min_size=5, max_size=5))
@settings(max_examples=20, deadline=None)
def test_lexicographic_order_is_that_of_lexsort(pairs):
    first, second = (np.array(column, np.uint32) for column in zip(*pairs))
    order = exact.lexicographic_order((jnp.asarray(second), 21), (jnp.asarray(first), 2))
    np.testing.assert_array_equal(order, np.lexsort((second, first)))
