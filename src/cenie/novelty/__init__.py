"""Coverage and novelty. Stands alone: needs JAX and NumPy, and nothing else of the library."""
