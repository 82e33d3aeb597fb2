"""The maze (Minigrid) domain."""
