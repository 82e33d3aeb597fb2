"""cenie: Unsupervised Environment Design in JAX, with coverage-based novelty (CENIE, NeurIPS 2024)."""

__version__ = "0.1.0"
