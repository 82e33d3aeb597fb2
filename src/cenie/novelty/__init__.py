"""Coverage and novelty (CENIE). Stands alone: needs JAX and NumPy, and of the library only `cenie.devices`.

What is public stands in `cenie/novelty/public.py`, which is loaded when one of its names is first used; the
settings (`cenie.novelty.config`) load without JAX.
"""

from typing import TYPE_CHECKING

from cenie.lazy import front_door

if TYPE_CHECKING:
    from cenie.novelty.public import *
else:
    __getattr__, __dir__ = front_door(__name__)
