"""A stand-in for the tensors of PyTorch, which is no requirement of the tests."""

from typing import Any

import jax.numpy as jnp
import numpy as np


class Tensor:
    """Behaves as PyTorch's do: NumPy gets none that needs a gradient, is elsewhere or is bfloat16."""

    def __init__(self, values: Any, *, grad: bool = False, device: str = "cpu"):
        self.values, self.grad, self.device = np.asarray(values), grad, device

    def detach(self) -> "Tensor":
        return Tensor(self.values, device=self.device)

    def cpu(self) -> "Tensor":
        return Tensor(self.values, grad=self.grad)

    def float(self) -> "Tensor":
        return Tensor(self.values.astype(np.float32), grad=self.grad, device=self.device)

    def is_floating_point(self) -> bool:
        return bool(jnp.issubdtype(self.values.dtype, jnp.floating))

    def numpy(self) -> np.ndarray:
        if self.grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.device != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy.")
        if self.values.dtype == jnp.bfloat16:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.numpy()
