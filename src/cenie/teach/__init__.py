"""The teacher: which levels to play, and whether to learn from them. Composes envs and student."""
