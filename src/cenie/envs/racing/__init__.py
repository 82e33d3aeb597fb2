"""Car races on Bezier tracks and circuits (CarRacing)."""
