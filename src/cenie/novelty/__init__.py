"""Coverage and novelty (CENIE), usable alone: needs JAX and NumPy, and `settings`, `lazy` and `xla` of ours.

    coverage    the window Gamma, its model, and novelty (Eq. 3)
    gmm         the mixture likelihood (Eq. 2); fits of all sizes K, and the choice of one
    em          expectation maximisation, made fast by `em_schedule`; `mixture` and `covariance`: its arrays
    kmeans      first centres (k-means++); `silhouette`: the score of a size
    pca         mixtures of principal axes; `neighbours`: another density; `interface`: a model of your own
    estimator   all of it for programs without JAX (`Coverage`); `estimator_file`: its files

The public names stand in `cenie/novelty/public.py`, which is loaded when one of them is first used; the
settings (`cenie.novelty.config`) load without JAX.
"""

from typing import TYPE_CHECKING

from cenie.lazy import front_door

if TYPE_CHECKING:
    from cenie.novelty.public import *
else:
    __getattr__, __dir__ = front_door(__name__)
