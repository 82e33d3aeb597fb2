"""The machine of the papers: scores, priorities, the level buffer."""
