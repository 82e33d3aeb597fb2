"""States and actions side by side, as the methods that measure novelty want them."""

from typing import Any

import numpy as np

from cenie.novelty.torch_tensors import from_tensor


def state_action_features(states: Any, actions: Any, num_actions: int | None = None) -> np.ndarray:
    """Return the features that `Teacher.tell` and `Coverage` take: the state, and then the action.

    A discrete action becomes a 1 in one of `num_actions` columns: an index would say that action 3 is further
    from 0 than 1 is, and would outweigh everything else in a distance. Tensors of PyTorch are read as they
    are.

    Args:
        states: Numbers [..., d], with any axes before the last.
        actions: Whole numbers [...] below `num_actions`; without `num_actions`, numbers [..., a], which are
            taken as they are.
        num_actions: The number of discrete actions.

    Returns:
        Features, float32 [..., d + a]; a is `num_actions`, if it is given.

    Raises:
        ValueError: Something is no array of numbers, an action is outside of its range, or there is not one
            action for each state.
    """
    states, actions = np.asarray(from_tensor(states)), np.asarray(from_tensor(actions))
    for name, array in (("states", states), ("actions", actions)):
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name}: expected numbers, got {array.dtype}{list(array.shape)}")
    if num_actions is not None:
        if isinstance(num_actions, bool) or not isinstance(num_actions, int | np.integer) or num_actions < 1:
            raise ValueError(f"num_actions: must be a whole number of at least 1, got {num_actions!r}")
        if actions.dtype.kind not in "iu" or ((actions < 0) | (actions >= num_actions)).any():
            raise ValueError(f"actions: expected whole numbers from 0 to {num_actions - 1}")
        actions = actions[..., None] == np.arange(num_actions)
    if states.ndim < 1 or states.shape[:-1] != actions.shape[:-1]:
        raise ValueError(
            f"actions: expected one for each state, got states {list(states.shape)} and "
            f"actions {list(actions.shape if num_actions is None else actions.shape[:-1])}"
        )
    return np.concatenate([states, actions], axis=-1, dtype=np.float32)
