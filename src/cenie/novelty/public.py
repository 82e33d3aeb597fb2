# mypy: implicit-reexport
"""The public names of `cenie.novelty`, each once, with its home."""

from cenie.novelty.config import MixtureConfig, NeighboursConfig
from cenie.novelty.coverage import CoverageState, fit, init, log_density, novelty, push
from cenie.novelty.estimator import Coverage, FitError, NotFittedError
from cenie.novelty.interface import CoverageModel, Fitted
from cenie.novelty.silhouette import silhouettes
