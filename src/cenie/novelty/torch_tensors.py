"""Tensors of PyTorch, which is no requirement, as arrays of NumPy."""

from typing import Any


def from_tensor(values: Any) -> Any:
    """A tensor of PyTorch as an array of NumPy: without its gradient, on the host, in a known kind of float.

    Args:
        values: A tensor, or anything else.

    Returns:
        An array; anything else than a tensor as it is.
    """
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
