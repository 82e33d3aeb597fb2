"""Doors to other people's training loops."""
