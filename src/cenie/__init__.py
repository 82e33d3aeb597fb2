"""cenie: Unsupervised Environment Design in JAX, with coverage-based novelty (CENIE, NeurIPS 2024).

What is public stands in `cenie/public.py`, which is loaded when one of its names is first used, so that
`import cenie` is light. Type checkers and editors read it directly.
"""

from typing import TYPE_CHECKING

from cenie.lazy import front_door

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cenie.public import *
else:
    __getattr__, __dir__ = front_door(__name__)
