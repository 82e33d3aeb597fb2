"""Training: the loop around the cycle, and all that surrounds it."""
