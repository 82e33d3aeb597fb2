"""Tensors of PyTorch, which is no requirement, as arrays of NumPy."""

from typing import Any


def from_tensor(values: Any) -> Any:
    """A tensor of PyTorch as NumPy can have it: without its gradient, on the host, in a known kind of float.

    Anything else as it is.
    """
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
