"""BipedalWalker with levels of eight parameters."""
