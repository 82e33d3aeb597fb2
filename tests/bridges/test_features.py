"""States and actions side by side."""

import numpy as np
import pytest

from cenie import state_action_features
from tests.tensors import Tensor
from tests.unchecked import unchecked

PLAIN = unchecked("cenie.bridges.features")
STATES = np.arange(12.0).reshape(2, 3, 2)


def test_discrete_actions_become_columns():
    found = state_action_features(STATES, [[0, 1, 2], [2, 1, 0]], num_actions=3)
    assert found.shape == (2, 3, 5)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[..., :2], STATES)
    np.testing.assert_array_equal(found[0, :, 2:], np.eye(3))
    np.testing.assert_array_equal(found[1, :, 2:], np.eye(3)[::-1])


def test_continuous_actions_stay_as_they_are():
    found = state_action_features(STATES[0], [[0.5], [1.5], [-1.0]])
    np.testing.assert_array_equal(found, [[0, 1, 0.5], [2, 3, 1.5], [4, 5, -1.0]])


@pytest.mark.parametrize(
    ("actions", "num_actions", "message"),
    [
        ([[0, 1, 3], [0, 1, 2]], 3, "actions: expected whole numbers from 0 to 2"),
        ([[0, 1, -1], [0, 1, 2]], 3, "actions: expected whole numbers from 0 to 2"),
        (np.zeros((2, 3)), 3, "actions: expected whole numbers"),
        (
            np.zeros((2, 4), int),
            3,
            r"actions: expected one for each state, got states \[2, 3, 2\] and actions \[2, 4\]",
        ),
        (np.zeros((2, 3), int), None, "actions: expected one for each state"),
        (np.zeros((2, 3), int), 0, "num_actions: must be a whole number of at least 1, got 0"),
        (np.zeros((2, 3), int), 2.0, "num_actions: must be a whole number"),
        ("a", 2, "actions: expected numbers"),
    ],
)
def test_wrong_actions_are_named(actions, num_actions, message):
    with pytest.raises(ValueError, match=message):
        PLAIN.state_action_features(STATES, actions, num_actions)


def test_tensors_are_read_as_they_are():
    states, actions = np.ones((2, 3), np.float32), np.array([0, 1])
    found = state_action_features(Tensor(states, grad=True), Tensor(actions, device="cuda:0"), 2)
    np.testing.assert_array_equal(found, state_action_features(states, actions, 2))
