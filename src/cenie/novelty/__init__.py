"""Coverage and novelty (CENIE). Stands alone: needs JAX, NumPy, and of ours `compilation`, `devices`
and `settings`.

What is public stands in `cenie/novelty/public.py`, which is loaded when one of its names is first used; the
settings (`cenie.novelty.config`) load without JAX.
"""

from typing import TYPE_CHECKING

from cenie.lazy import front_door

if TYPE_CHECKING:
    from cenie.novelty.public import *
else:
    __getattr__, __dir__ = front_door(__name__)
